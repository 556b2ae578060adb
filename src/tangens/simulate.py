"""The simulator: one scene, one contact model, steps and their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.arguments import Arguments, as_sequence, cotangent
from tangens.contact import ContactModel, contact_model
from tangens.contact.base import Cotangent, Point
from tangens.contact.rules import Exact, GradientRule
from tangens.errors import NotDifferentiable, OptionError, SolverError, StateError
from tangens.results import NO_SWITCH, Gradients, Jacobian, StateGradient, Step, Switch, Trajectory
from tangens.retracing import backwards, forwards, own_step
from tangens.scene import Scene
from tangens.sensitivities import Sensitivities, carry_forward
from tangens.state import State, as_vector

Array = NDArray[np.float64]

_OUTPUTS = ("q", "v")


class Simulator:
    """Steps a scene under a contact model, and differentiates the steps.

    Results depend on arguments alone: a simulator keeps nothing between calls, may be shared between threads, and is
    rebuilt from its scene and model when it is copied, pickled or sent to another process.

    Args:
        scene: what is simulated.
        contact: the name of a contact model, or a model with its options; None is motion without contact.
        gradient: the rule by which `jacobian` and `pullback` differentiate unless they are told otherwise.

    """

    def __init__(
        self, scene: Scene, contact: str | ContactModel | None = None, gradient: str | GradientRule = "exact"
    ) -> None:
        if not isinstance(scene, Scene):
            raise OptionError(f"a Simulator needs a Scene, as tangens.load returns it; got {type(scene).__name__}")
        self.scene = scene
        self.contact = contact_model(contact)
        self._arguments = Arguments(scene, self.contact)
        self.gradient = self._arguments.rule(gradient)
        self.engine = self.contact.bind(scene)
        """The contact model at work on the scene, for those who build on top of it."""
        self._sizes = scene.nq, scene.nv, scene.nu

    def __reduce__(self) -> tuple[type[Simulator], tuple[Any, ...]]:
        return Simulator, (self.scene, self.contact, self.gradient)

    def __repr__(self) -> str:
        rule = "" if isinstance(self.gradient, Exact) else f", gradient={self.gradient!r}"
        return f"Simulator({self.scene!r}, contact={self.contact!r}{rule})"

    def rule(self, gradient: str | GradientRule | None = None) -> GradientRule:
        """The gradient rule of a name, if the contact model knows it; the simulator's own unless given."""
        return self.gradient if gradient is None else self._arguments.rule(gradient)

    def initial_state(self, keyframe: str | int | None = None) -> State:
        """The state the scene starts in: its reference pose at rest, or one of its keyframes."""
        return self.scene.initial_state(keyframe)

    def step(
        self,
        state: State | Step,
        u: ArrayLike | None = None,
        tau: ArrayLike | None = None,
        guess: Step | None = None,
    ) -> Step:
        """Advance by one time step. `u` are actuator controls, `tau` generalised forces on top; none means zero.

        The solver starts from scratch, or from what it found in another step, `guess`, which is quicker where little
        has changed. `sim.step(out, u)` goes on from a step's result and takes it as the guess.
        """
        if isinstance(state, Step):
            guess = state if guess is None else guess
            state = state.state
        x = self._arguments.point(state, u, tau)
        out = self.engine.step(x, None if guess is None else own_step(self.engine, guess).guess)
        if out.failed:
            raise SolverError(f"{out.solver.status} (it is {self.scene.timestep:g} s)")
        return out

    def jacobian(
        self,
        state: State | Step,
        u: ArrayLike | None = None,
        tau: ArrayLike | None = None,
        wrt: Sequence[str] = ("q", "v", "u"),
        outputs: Sequence[str] = _OUTPUTS,
        gradient: str | GradientRule | None = None,
    ) -> Jacobian:
        """Derivative of a step: `J["v", "q"]` is ∂v⁺/∂q, in the tangent space of q.

        Args:
            state: a step's result, which is differentiated without solving again; or the state to take a step from.
            u: controls of that step; only with a state.
            tau: generalised forces of that step; only with a state.
            wrt: inputs and parameters to differentiate by.
            outputs: with "force" among them, `J["force", "q"]` is that of the contact forces, in the order of the
                step's contacts.
            gradient: the rule to differentiate by; the simulator's own unless given.

        """
        wrt = self._arguments.inputs(wrt)
        with_force = outputs is not _OUTPUTS and self._arguments.with_force(outputs)
        rule = self.rule(gradient)
        if rule.reverse_only:
            raise NotDifferentiable(
                f"the gradient rule {rule.name!r} looks at a loss, so it has no Jacobian: use pullback, or "
                'jacobian(..., gradient="exact")'
            )
        if state.__class__ is not Step:
            step = self.step(state, u, tau)
        elif u is None and tau is None:
            step = own_step(self.engine, state)
        else:
            raise OptionError("a step's result brings its own u and tau: give them with a State only")
        if step.tape is None:
            raise StateError("this step came without a tape: take it again, or use the trajectory it is part of")
        J = self.engine.jacobian(step.tape, wrt, with_force, rule)
        return J.with_doubts(partial(self.engine.switch, step.tape), partial(self.engine.has_other_answers, step.tape))

    def inverse_dynamics(self, state: State, acceleration: ArrayLike, u: ArrayLike | None = None) -> Array:
        """The generalised forces tau (nv,) of a step that ends with (v⁺ − v) / h = acceleration.

        Only for models whose forces are a function of the motion: `soft`, `convex`, and motion without contact.
        """
        x = self._arguments.point(state, u, None)
        return self.engine.inverse_dynamics(x, as_vector("acceleration", acceleration, self.scene.nv))

    def hessian(
        self,
        state: State,
        u: ArrayLike | None = None,
        tau: ArrayLike | None = None,
        *,
        dq: ArrayLike | None = None,
        dv: ArrayLike | None = None,
        wrt: Sequence[str] = ("q", "v", "u"),
    ) -> dict[tuple[str, str], Array]:
        """Second derivative of the scalar dq·q⁺ + dv·v⁺: `H["q", "v"]` is ∂²/∂q∂v, in the tangent space of q.

        Only for models that are smooth to second order, such as `soft`.
        """
        names = self._arguments.inputs(wrt)
        return self.engine.hessian(self._arguments.point(state, u, tau), self._arguments.scalar(dq, dv), names)

    def hessian_product(
        self,
        state: State,
        direction: Mapping[str, ArrayLike],
        u: ArrayLike | None = None,
        tau: ArrayLike | None = None,
        *,
        dq: ArrayLike | None = None,
        dv: ArrayLike | None = None,
    ) -> dict[str, Array]:
        """The Hessian of dq·q⁺ + dv·v⁺ times a direction, {"q": ..., "u": ...}: by each input that it names."""
        names = self._arguments.inputs(tuple(direction))
        arrays = {name: np.asarray(direction[name], np.float64) for name in names}
        return self.engine.hessian_product(self._arguments.point(state, u, tau), self._arguments.scalar(dq, dv), arrays)

    def rollout(
        self,
        state: State,
        controls: ArrayLike | int,
        tau: ArrayLike | None = None,
        callback: Callable[[int, Step], None] | None = None,
        checkpoint: int | None = None,
    ) -> Trajectory:
        """Step through a sequence of controls; each step starts its solver from the one before.

        Args:
            state: where to start.
            controls: u for each step, shape (T, nu); or the number of steps T, with all controls zero.
            tau: generalised forces for each step, shape (T, nv).
            callback: called with the index and the result of each step.
            checkpoint: keep no tapes; `pullback` takes the steps again, so many at a time. Bounds the memory of long
                trajectories at the price of a second pass.

        """
        nq, nv, nu = self._sizes
        if isinstance(controls, (int, np.integer)) and not isinstance(controls, bool):
            if controls < 0:
                raise OptionError(f"cannot take {controls} steps")
            controls = np.zeros((int(controls), nu))
        if checkpoint is not None and checkpoint < 1:
            raise OptionError(f"checkpoint={checkpoint!r} must be a positive number of steps, or None")
        u = as_sequence("controls", controls, nu)
        forces = np.zeros((len(u), nv)) if tau is None else as_sequence("tau", tau, nv)
        if len(forces) != len(u):
            raise StateError(f"controls are for {len(u)} steps, tau for {len(forces)}")
        self._arguments.point(state, None, None)
        q, v = np.empty((len(u) + 1, nq)), np.empty((len(u) + 1, nv))
        q[0], v[0] = state.q, state.v
        steps: list[Step] = []
        guess = None
        for t in range(len(u)):
            out = self.engine.step(Point(q[t], v[t], u[t], forces[t]), guess)
            if out.failed:
                raise SolverError(f"in step {t}, {out.solver.status} (it is {self.scene.timestep:g} s)")
            q[t + 1], v[t + 1] = out.state.q, out.state.v
            guess = out.guess
            steps.append(out if checkpoint is None else out.without_tape())
            if callback is not None:
                callback(t, out)
        for array in (q, v, u, forces):
            array.setflags(write=False)
        return Trajectory(q, v, u, forces, tuple(steps), checkpoint)

    def pullback(
        self,
        trajectory: Trajectory,
        dq: ArrayLike | None = None,
        dv: ArrayLike | None = None,
        wrt: Sequence[str] | None = None,
        dforce: Sequence[ArrayLike] | None = None,
        gradient: str | GradientRule | None = None,
    ) -> Gradients:
        """Reverse mode: from ∂L/∂(trajectory) to ∂L/∂(initial state, controls, tau, parameters).

        Args:
            trajectory: what `rollout` returned.
            dq: ∂L/∂q in the tangent space, shape (T+1, nv) for every time, or (nv,) for the last one.
            dv: ∂L/∂v, likewise.
            wrt: parameters to differentiate by; unless given, all by which each step has a derivative. With `()`, none,
                which is several times quicker.
            dforce: ∂L/∂(contact forces) of each step, T arrays of the shape of that step's `contacts.force`.
            gradient: the rule to differentiate by; the simulator's own unless given.

        """
        all_there_are, names = wrt is None, self._arguments.parameters(wrt)
        rule = self.rule(gradient)
        T, (nq, nv, nu) = len(trajectory), self._sizes
        if trajectory.q.shape != (T + 1, nq) or trajectory.v.shape != (T + 1, nv):
            raise StateError(f"the trajectory is not of this scene: q {trajectory.q.shape}, v {trajectory.v.shape}")
        by_q, by_v = cotangent("dq", dq, T, nv), cotangent("dv", dv, T, nv)
        by_force = self._arguments.force_cotangents(dforce, trajectory)
        controls, forces = np.zeros((T, nu)), np.zeros((T, nv))
        totals = {name: np.zeros_like(self.scene.parameters[name]) for name in names}
        at_q, at_v = by_q[T].copy(), by_v[T].copy()
        converged = determinate = True
        for t, step in backwards(self.engine, trajectory):
            if all_there_are and (refused := self.engine.refused(step.tape)):
                names = tuple(name for name in names if name not in refused)
            back, certain = self.engine.pullback(step.tape, Cotangent(at_q, at_v, by_force[t]), names, rule)
            controls[t], forces[t] = back["u"], back["tau"]
            for name in names:
                totals[name] += back[name]
            at_q, at_v = back["q"] + by_q[t], back["v"] + by_v[t]
            converged, determinate = converged and step.solver.converged, determinate and certain
        totals = {name: totals[name] for name in names}
        doubts = partial(self._nearest_switch, trajectory), partial(self._has_other_answers, trajectory)
        return Gradients(StateGradient(at_q, at_v), controls, forces, totals, converged, determinate, *doubts)

    def _nearest_switch(self, trajectory: Trajectory) -> Switch:
        """Of all steps of a trajectory."""
        near = NO_SWITCH
        for t, step in backwards(self.engine, trajectory):
            own = self.engine.switch(step.tape)
            near = own._replace(step=t) if own.distance < near.distance else near
        return near

    def _has_other_answers(self, trajectory: Trajectory) -> bool:
        """Whether the laws allow another v⁺ in some step of a trajectory."""
        return any(self.engine.has_other_answers(step.tape) for _, step in backwards(self.engine, trajectory))

    def sensitivities(
        self, trajectory: Trajectory, wrt: Sequence[str] = ("q", "v"), gradient: str | GradientRule | None = None
    ) -> Sensitivities:
        """Forward mode: how every state of a trajectory changes with its initial state, controls and parameters.

        Args:
            trajectory: what `rollout` returned.
            wrt: "q" and "v" are those of the initial state, "u" and "tau" those of every step; or parameters.
            gradient: the rule to differentiate by; the simulator's own unless given.

        """
        wrt = self._arguments.inputs(wrt)
        T, (_, nv, nu) = len(trajectory), self._sizes
        sizes = {"q": (nv,), "v": (nv,), "u": (T, nu), "tau": (T, nv)}
        shapes = {name: sizes.get(name) or self.scene.parameters[name].shape for name in wrt}
        each = ("q", "v", *(name for name in wrt if name not in ("q", "v")))
        jacobians = (self.jacobian(step, wrt=each, gradient=gradient) for step in forwards(self.engine, trajectory))
        return carry_forward(jacobians, T, nv, shapes, partial(self._has_other_answers, trajectory))
