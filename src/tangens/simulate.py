"""The simulator: one scene, one contact model, steps and their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeGuard

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.contact import ContactModel, contact_model
from tangens.errors import NotDifferentiable, OptionError, SolverError, StateError
from tangens.results import Gradients, Jacobian, StateGradient, Step, Trajectory
from tangens.scene import Scene
from tangens.state import State, all_finite, as_vector

Array = NDArray[np.float64]

_INPUTS = ("q", "v", "u", "tau")
_OUTPUTS = ("q", "v")
# A quaternion further from unit length than this is a mistake rather than rounding.
_UNIT_TOLERANCE = 1e-6


class Simulator:
    """Steps a scene under a contact model, and differentiates the steps.

    Steps depend on their arguments alone, so a simulator may be used for many trajectories; it holds scratch memory,
    so threads need one each.
    """

    def __init__(self, scene: Scene, contact: str | ContactModel | None = None) -> None:
        if not isinstance(scene, Scene):
            raise OptionError(f"a Simulator needs a Scene, as tangens.load returns it; got {type(scene).__name__}")
        self.scene = scene
        self.contact = contact_model(contact)
        self._engine = self.contact.bind(scene)
        self._sizes = scene.nq, scene.nv, scene.nu
        self._no_control, self._no_force = np.zeros(scene.nu), np.zeros(scene.nv)
        self._control_shape, self._force_shape = (scene.nu,), (scene.nv,)
        self._known_wrt: set[tuple[str, ...]] = set()  # combinations that have been checked
        self._quat_q = np.array(scene.joint_layout.quat_q, dtype=np.int64)

    def initial_state(self, keyframe: str | int | None = None) -> State:
        """The state the scene starts in: its reference pose at rest, or one of its keyframes."""
        return self.scene.initial_state(keyframe)

    def step(self, state: State, u: ArrayLike | None = None, tau: ArrayLike | None = None) -> Step:
        """Advance by one time step. `u` are actuator controls, `tau` generalised forces on top; none means zero."""
        q, v, u, tau = self._admit(state, u, tau)
        return self._engine.step(q, v, u, tau)

    def jacobian(
        self,
        state: State,
        u: ArrayLike | None = None,
        tau: ArrayLike | None = None,
        wrt: Sequence[str] = ("q", "v", "u"),
        outputs: Sequence[str] = _OUTPUTS,
    ) -> Jacobian:
        """Derivative of the step: `J["v", "q"]` is ∂v⁺/∂q, in the tangent space of q.

        Right after `step` with the same arguments, it builds on that step instead of taking it again. With "force"
        among the outputs, `J["force", "q"]` is that of the contact forces, in the order of the step's contacts.
        """
        if wrt.__class__ is not tuple or wrt not in self._known_wrt:
            wrt = self._admit_wrt(wrt, _INPUTS + self.contact.parameters)
            self._known_wrt.add(wrt)
        with_force = outputs is not _OUTPUTS and self._admit_outputs(outputs)
        return self._engine.jacobian(*self._admit(state, u, tau), wrt, with_force)

    def rollout(
        self,
        state: State,
        controls: ArrayLike | int,
        tau: ArrayLike | None = None,
        callback: Callable[[int, Step], None] | None = None,
    ) -> Trajectory:
        """Step through a sequence of controls.

        Args:
            state: where to start.
            controls: u for each step, shape (T, nu); or the number of steps T, with all controls zero.
            tau: generalised forces for each step, shape (T, nv).
            callback: called with the index and the result of each step.

        """
        nq, nv, nu = self._sizes
        if isinstance(controls, (int, np.integer)) and not isinstance(controls, bool):
            if controls < 0:
                raise OptionError(f"cannot take {controls} steps")
            controls = np.zeros((int(controls), nu))
        u = _as_sequence("controls", controls, nu)
        forces = np.zeros((len(u), nv)) if tau is None else _as_sequence("tau", tau, nv)
        if len(forces) != len(u):
            raise StateError(f"controls are for {len(u)} steps, tau for {len(forces)}")
        self._admit(state, None, None)
        q, v = np.empty((len(u) + 1, nq)), np.empty((len(u) + 1, nv))
        q[0], v[0] = state.q, state.v
        steps = []
        for t in range(len(u)):
            try:
                out = self._engine.step(q[t], v[t], u[t], forces[t])
            except SolverError as error:
                raise SolverError(f"in step {t}, {error}") from None
            q[t + 1], v[t + 1] = out.state.q, out.state.v
            steps.append(out)
            if callback is not None:
                callback(t, out)
        for array in (q, v, u, forces):
            array.setflags(write=False)
        return Trajectory(q, v, u, forces, tuple(s.contacts for s in steps), tuple(s.solver for s in steps))

    def pullback(
        self,
        trajectory: Trajectory,
        dq: ArrayLike | None = None,
        dv: ArrayLike | None = None,
        wrt: Sequence[str] | None = None,
        dforce: Sequence[ArrayLike] | None = None,
    ) -> Gradients:
        """Reverse mode: from ∂L/∂(trajectory) to ∂L/∂(initial state, controls, tau, parameters).

        Args:
            trajectory: what `rollout` returned.
            dq: ∂L/∂q in the tangent space, shape (T+1, nv) for every time, or (nv,) for the last one.
            dv: ∂L/∂v, likewise.
            wrt: parameters to differentiate by; all that the contact model knows unless given.
            dforce: ∂L/∂(contact forces) of each step, T arrays of the shape of that step's `contacts.force`.

        """
        parameters = self.contact.parameters
        wrt = parameters if wrt is None else self._admit_wrt(wrt, parameters)
        T, (nq, nv, nu) = len(trajectory), self._sizes
        if trajectory.q.shape != (T + 1, nq) or trajectory.v.shape != (T + 1, nv):
            raise StateError(f"the trajectory is not of this scene: q {trajectory.q.shape}, v {trajectory.v.shape}")
        by_q, by_v = _cotangent("dq", dq, T, nv), _cotangent("dv", dv, T, nv)
        by_force = self._admit_force_cotangents(dforce, trajectory)
        controls, forces = np.zeros((T, nu)), np.zeros((T, nv))
        totals = {name: np.zeros_like(self.scene.parameters[name]) for name in wrt}
        at_q, at_v = by_q[T].copy(), by_v[T].copy()
        for t in reversed(range(T)):
            back = self._engine.pullback(
                trajectory.q[t],
                trajectory.v[t],
                trajectory.u[t],
                trajectory.tau[t],
                at_q,
                at_v,
                by_force[t],
                wrt,
            )
            controls[t], forces[t] = back["u"], back["tau"]
            for name in wrt:
                totals[name] += back[name]
            at_q, at_v = back["q"] + by_q[t], back["v"] + by_v[t]
        return Gradients(StateGradient(at_q, at_v), controls, forces, totals)

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

    def _admit(self, state: State, u: ArrayLike | None, tau: ArrayLike | None) -> tuple[Array, Array, Array, Array]:
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
        return q, v, control, force

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


@numba.njit(cache=True)
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
