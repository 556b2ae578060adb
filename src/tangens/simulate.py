"""The simulator: one scene, one contact model, steps and their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.contact import ContactModel, contact_model
from tangens.contact.base import Cotangent, Point
from tangens.contact.rules import Exact, GradientRule, gradient_rule
from tangens.errors import NotDifferentiable, OptionError, SolverError, StateError
from tangens.kernels import fixed_floats, fixed_ints, kernel
from tangens.results import NO_SWITCH, Gradients, Jacobian, StateGradient, Step, Switch, Trajectory
from tangens.scene import Scene
from tangens.sensitivities import Sensitivities, carry_forward
from tangens.state import State, all_finite, as_vector

Array = NDArray[np.float64]

_INPUTS = ("q", "v", "u", "tau")
_OUTPUTS = ("q", "v")
# A quaternion further from unit length than this is a mistake rather than rounding.
_UNIT_TOLERANCE = 1e-6
_SEGMENT = 64  # steps taken again at a time, where a trajectory came without tapes
# On the machine that made them, steps are repeated to the last bit; another CPU rounds otherwise.
_SAME = 1e-9


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
        self.gradient = self.admit_rule(gradient)
        self.engine = self.contact.bind(scene)
        """The contact model at work on the scene, for those who build on top of it."""
        self._sizes = scene.nq, scene.nv, scene.nu
        self._no_control, self._no_force = np.zeros(scene.nu), np.zeros(scene.nv)
        self._control_shape, self._force_shape = (scene.nu,), (scene.nv,)
        self._known_wrt: frozenset[tuple[str, ...]] = frozenset()  # combinations that have been checked
        self._quat_q = np.array(scene.joint_layout.quat_q, dtype=np.int64)

    def __reduce__(self) -> tuple[type[Simulator], tuple[Any, ...]]:
        return Simulator, (self.scene, self.contact, self.gradient)

    def __repr__(self) -> str:
        rule = "" if isinstance(self.gradient, Exact) else f", gradient={self.gradient!r}"
        return f"Simulator({self.scene!r}, contact={self.contact!r}{rule})"

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
        x = self._admit(state, u, tau)
        out = self.engine.step(x, None if guess is None else self._admit_step(guess).guess)
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
        if wrt.__class__ is not tuple or wrt not in self._known_wrt:
            wrt = self._admit_wrt(wrt, _INPUTS + self.contact.parameters)
            self._known_wrt |= {wrt}
        with_force = outputs is not _OUTPUTS and self._admit_outputs(outputs)
        rule = self.gradient if gradient is None else self.admit_rule(gradient)
        if rule.reverse_only:
            raise NotDifferentiable(
                f"the gradient rule {rule.name!r} looks at a loss, so it has no Jacobian: use pullback, or "
                'jacobian(..., gradient="exact")'
            )
        if state.__class__ is not Step:
            step = self.step(state, u, tau)
        elif u is None and tau is None:
            step = self._admit_step(state)
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
        x = self._admit(state, u, None)
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
        names = self._admit_wrt(wrt, _INPUTS + self.contact.parameters)
        return self.engine.hessian(self._admit(state, u, tau), self._admit_scalar(dq, dv), names)

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
        names = self._admit_wrt(tuple(direction), _INPUTS + self.contact.parameters)
        arrays = {name: np.asarray(direction[name], np.float64) for name in names}
        return self.engine.hessian_product(self._admit(state, u, tau), self._admit_scalar(dq, dv), arrays)

    def _admit_scalar(self, dq: ArrayLike | None, dv: ArrayLike | None) -> Cotangent:
        nv = self.scene.nv
        if dq is None and dv is None:
            raise OptionError("a Hessian is that of a scalar: give dq, dv or both, the weights of q⁺ and v⁺")
        return Cotangent(*(self._no_force if d is None else as_vector(n, d, nv) for n, d in (("dq", dq), ("dv", dv))))

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
        u = _as_sequence("controls", controls, nu)
        forces = np.zeros((len(u), nv)) if tau is None else _as_sequence("tau", tau, nv)
        if len(forces) != len(u):
            raise StateError(f"controls are for {len(u)} steps, tau for {len(forces)}")
        self._admit(state, None, None)
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
            wrt: parameters to differentiate by; all that the contact model knows unless given.
            dforce: ∂L/∂(contact forces) of each step, T arrays of the shape of that step's `contacts.force`.
            gradient: the rule to differentiate by; the simulator's own unless given.

        """
        parameters = self.contact.parameters
        wrt = parameters if wrt is None else self._admit_wrt(wrt, parameters)
        rule = self.gradient if gradient is None else self.admit_rule(gradient)
        T, (nq, nv, nu) = len(trajectory), self._sizes
        if trajectory.q.shape != (T + 1, nq) or trajectory.v.shape != (T + 1, nv):
            raise StateError(f"the trajectory is not of this scene: q {trajectory.q.shape}, v {trajectory.v.shape}")
        by_q, by_v = _cotangent("dq", dq, T, nv), _cotangent("dv", dv, T, nv)
        by_force = self._admit_force_cotangents(dforce, trajectory)
        controls, forces = np.zeros((T, nu)), np.zeros((T, nv))
        totals = {name: np.zeros_like(self.scene.parameters[name]) for name in wrt}
        at_q, at_v = by_q[T].copy(), by_v[T].copy()
        converged = determinate = True
        for t, step in self._backwards(trajectory):
            back, certain = self.engine.pullback(step.tape, Cotangent(at_q, at_v, by_force[t]), wrt, rule)
            controls[t], forces[t] = back["u"], back["tau"]
            for name in wrt:
                totals[name] += back[name]
            at_q, at_v = back["q"] + by_q[t], back["v"] + by_v[t]
            converged, determinate = converged and step.solver.converged, determinate and certain
        doubts = partial(self._nearest_switch, trajectory), partial(self._has_other_answers, trajectory)
        return Gradients(StateGradient(at_q, at_v), controls, forces, totals, converged, determinate, *doubts)

    def _nearest_switch(self, trajectory: Trajectory) -> Switch:
        """Of all steps of a trajectory."""
        near = NO_SWITCH
        for t, step in self._backwards(trajectory):
            own = self.engine.switch(step.tape)
            near = own._replace(step=t) if own.distance < near.distance else near
        return near

    def _has_other_answers(self, trajectory: Trajectory) -> bool:
        """Whether the laws allow another v⁺ in some step of a trajectory."""
        return any(self.engine.has_other_answers(step.tape) for _, step in self._backwards(trajectory))

    def sensitivities(
        self, trajectory: Trajectory, wrt: Sequence[str] = ("q", "v"), gradient: str | GradientRule | None = None
    ) -> Sensitivities:
        """Forward mode: how every state of a trajectory changes with its initial state, controls and parameters.

        Args:
            trajectory: what `rollout` returned.
            wrt: "q" and "v" are those of the initial state, "u" and "tau" those of every step; or parameters.
            gradient: the rule to differentiate by; the simulator's own unless given.

        """
        wrt = self._admit_wrt(wrt, _INPUTS + self.contact.parameters)
        T, (_, nv, nu) = len(trajectory), self._sizes
        sizes = {"q": (nv,), "v": (nv,), "u": (T, nu), "tau": (T, nv)}
        shapes = {name: sizes.get(name) or self.scene.parameters[name].shape for name in wrt}
        each = ("q", "v", *(name for name in wrt if name not in ("q", "v")))
        jacobians = (self.jacobian(step, wrt=each, gradient=gradient) for step in self._forwards(trajectory))
        return carry_forward(jacobians, T, nv, shapes, partial(self._has_other_answers, trajectory))

    def _forwards(self, trajectory: Trajectory) -> Iterator[Step]:
        """The steps of a trajectory from the first to the last, with their tapes; those without are taken again."""
        segment = trajectory.checkpoint or _SEGMENT
        again: dict[int, Step] = {}
        for t, step in enumerate(trajectory.steps):
            if step.tape is None and t not in again:
                self._admit_step(step)
                again = self._retrace(trajectory, t, min(t + segment, len(trajectory)) - 1)
            yield step if step.tape is not None else again.pop(t)

    def _backwards(self, trajectory: Trajectory) -> Iterator[tuple[int, Step]]:
        """The steps of a trajectory from the last to the first, with their tapes; those without are taken again."""
        segment = trajectory.checkpoint or _SEGMENT
        again: dict[int, Step] = {}
        for t in reversed(range(len(trajectory))):
            step = again.pop(t, None) or self._admit_step(trajectory.steps[t])
            if step.tape is None:
                again = self._retrace(trajectory, t - t % segment, t)
                step = again.pop(t)
            yield t, step

    def _retrace(self, trajectory: Trajectory, first: int, last: int) -> dict[int, Step]:
        """Take steps of a trajectory again, and see that they lead where they led."""
        guess, out = trajectory.steps[first - 1].guess if first else None, dict[int, Step]()
        for t in range(first, last + 1):
            x = Point(trajectory.q[t], trajectory.v[t], trajectory.u[t], trajectory.tau[t])
            out[t] = step = self.engine.step(x, guess)
            guess = step.guess
            moved = np.abs(step.state.v - trajectory.v[t + 1]).max(initial=0.0)
            if not moved <= _SAME * (1.0 + np.abs(trajectory.v[t + 1]).max(initial=0.0)):
                raise StateError(
                    f"step {t} of the trajectory leads elsewhere when it is taken again (v⁺ differs by {moved:.2g}): "
                    "it was made by another scene, model or version"
                )
        return out

    def _admit_step(self, step: Step) -> Step:
        """The step, if it is one of this scene and model."""
        own = self.engine.owner
        if step.owner is not own and step.owner != own:
            raise StateError(
                f"this step was made by another simulator than {self!r}: take it with this one, or use the other"
            )
        return step

    def admit_rule(self, gradient: str | GradientRule) -> GradientRule:
        """The rule behind a name, if the contact model knows it."""
        rule = gradient_rule(gradient)
        if type(rule) not in self.contact.rules:
            known = ", ".join(repr(known.name) for known in self.contact.rules)
            raise NotDifferentiable(f"{_model_name(self.contact)} has no gradient rule {rule.name!r}; it has {known}")
        return rule

    def _admit_force_cotangents(
        self, dforce: Sequence[ArrayLike] | None, trajectory: Trajectory
    ) -> Sequence[Array | None]:
        if dforce is None:
            return [None] * len(trajectory)
        if not self.contact.forces:
            raise NotDifferentiable(f"{_model_name(self.contact)} has no derivative of contact forces")
        if len(dforce) != len(trajectory):
            raise StateError(f"dforce is for {len(dforce)} steps, the trajectory has {len(trajectory)}")
        out = []
        for t, (given, contacts) in enumerate(zip(dforce, trajectory.contacts, strict=True)):
            array = np.asarray(given, dtype=np.float64)
            if array.shape != contacts.force.shape or not np.isfinite(array).all():
                raise StateError(
                    f"dforce[{t}] must be finite and of the shape of contacts[{t}].force, {contacts.force.shape}; "
                    f"got shape {array.shape}"
                )
            out.append(array)
        return out

    def _admit(self, state: State, u: ArrayLike | None, tau: ArrayLike | None) -> Point:
        """The arguments of a step as arrays that compiled code can trust, or an error that names the culprit.

        Arrays in order pass without a copy: they are read before the step returns.
        """
        if type(state) is not State:
            raise StateError(f"expected a tangens.State(q, v); got {type(state).__name__}")
        nq, nv, nu = self._sizes
        q, v = state.q, state.v
        if len(q) != nq or len(v) != nv:
            raise StateError(f"this scene has nq={nq}, nv={nv}; the state has q of size {len(q)}, v of size {len(v)}")
        control = self._no_control if u is None else u if _is_plain(u, self._control_shape) else as_vector("u", u, nu)
        force = (
            self._no_force if tau is None else tau if _is_plain(tau, self._force_shape) else as_vector("tau", tau, nv)
        )
        if not _admissible(q, self._quat_q, control, force):
            as_vector("u", control, nu)
            as_vector("tau", force, nv)
            self._complain_of_quaternions(q)
        return Point(q, v, control, force)

    def _complain_of_quaternions(self, q: Array) -> None:
        for a in self._quat_q:
            norm = float(np.linalg.norm(q[a : a + 4]))
            if abs(norm**2 - 1.0) > 2 * _UNIT_TOLERANCE:
                raise StateError(
                    f"q[{a}:{a + 4}] is a quaternion (wxyz) and must have length 1; its length is {norm:.6g}"
                )

    def _admit_outputs(self, outputs: Sequence[str]) -> bool:
        """Whether contact forces are among the outputs; q and v always are."""
        for name in outputs:
            if name not in ("q", "v", "force"):
                raise OptionError(f"a step has no output {name!r} to differentiate; it has q, v and force")
        if "force" in outputs and not self.contact.forces:
            raise NotDifferentiable(f"{_model_name(self.contact)} has no derivative of contact forces")
        return "force" in outputs

    def _admit_wrt(self, wrt: Sequence[str], known: tuple[str, ...]) -> tuple[str, ...]:
        names = (wrt,) if isinstance(wrt, str) else tuple(wrt)
        for name in names:
            if name in known:
                continue
            raise NotDifferentiable(
                f"{_model_name(self.contact)} has no derivative by {name!r}; it has by {', '.join(known)}"
            )
        return names


def _model_name(contact: ContactModel) -> str:
    return "motion without contact" if contact.name == "none" else f"contact model {contact.name!r}"


_FLOAT64 = np.dtype(np.float64)


def _is_plain(value: ArrayLike, shape: tuple[int]) -> TypeGuard[Array]:
    """Whether `value` can go to compiled code as it is."""
    return type(value) is np.ndarray and value.dtype is _FLOAT64 and value.shape == shape and value.flags.c_contiguous


@kernel(fixed_floats(1), fixed_ints(1), fixed_floats(1), fixed_floats(1))
def _admissible(q: Array, quaternions: NDArray[np.int64], u: Array, tau: Array) -> bool:
    """Whether inputs are finite and quaternions of unit length; a State is finite by construction."""
    for a in quaternions:
        if abs(q[a] ** 2 + q[a + 1] ** 2 + q[a + 2] ** 2 + q[a + 3] ** 2 - 1.0) > 2 * _UNIT_TOLERANCE:
            return False
    return all_finite(u) and all_finite(tau)


def _as_sequence(name: str, value: ArrayLike, width: int) -> Array:
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise StateError(f"{name} is not an array of numbers ({error})") from None
    if array.ndim != 2 or array.shape[1] != width:
        raise StateError(f"{name} must have shape (T, {width}); got {array.shape}")
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        raise StateError(f"{name}[{bad[0][0]}, {bad[0][1]}] is {array[tuple(bad[0])]}: every entry must be finite")
    return array


def _cotangent(name: str, value: ArrayLike | None, T: int, nv: int) -> Array:
    """∂L/∂x over a whole trajectory."""
    out = np.zeros((T + 1, nv))
    if value is None:
        return out
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise StateError(f"{name} is not an array of numbers ({error})") from None
    if array.shape not in ((nv,), (T + 1, nv)):
        raise StateError(
            f"{name} must have shape ({nv},) for the last state or ({T + 1}, {nv}) for all of them, in the tangent "
            f"space; got {array.shape}"
        )
    if not np.isfinite(array).all():
        raise StateError(f"{name} has entries that are not finite")
    if array.ndim == 1:
        out[T] = array
    else:
        out[:] = array
    return out
