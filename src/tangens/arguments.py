"""What users hand to a simulator, checked where it enters: arrays that compiled code can trust, or an error of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.contact import ContactModel
from tangens.contact.base import Cotangent, Point
from tangens.contact.rules import GradientRule, gradient_rule
from tangens.errors import NotDifferentiable, OptionError, StateError
from tangens.kernels import fixed_floats, fixed_ints, kernel
from tangens.results import Trajectory
from tangens.scene import Scene
from tangens.state import State, all_finite, as_vector

Array = NDArray[np.float64]

INPUTS = ("q", "v", "u", "tau")
# A quaternion further from unit length than this is a mistake rather than rounding.
_UNIT_TOLERANCE = 1e-6
_FLOAT64 = np.dtype(np.float64)


class Arguments:
    """The checks for one scene under one contact model."""

    def __init__(self, scene: Scene, contact: ContactModel) -> None:
        self._contact, self._sizes = contact, (scene.nq, scene.nv, scene.nu)
        self._no_control, self._no_force = np.zeros(scene.nu), np.zeros(scene.nv)
        self._control_shape, self._force_shape = (scene.nu,), (scene.nv,)
        self._quat_q = np.array(scene.joint_layout.quat_q, dtype=np.int64)
        self._known: frozenset[tuple[str, ...]] = frozenset()  # inputs by combinations that have been checked

    def point(self, state: State, u: ArrayLike | None, tau: ArrayLike | None) -> Point:
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
        if not _admissible.unchecked(q, self._quat_q, control, force):
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

    def scalar(self, dq: ArrayLike | None, dv: ArrayLike | None) -> Cotangent:
        """The weights of q⁺ and v⁺ in a scalar of a step."""
        nv = self._sizes[1]
        if dq is None and dv is None:
            raise OptionError("a Hessian is that of a scalar: give dq, dv or both, the weights of q⁺ and v⁺")
        return Cotangent(*(self._no_force if d is None else as_vector(n, d, nv) for n, d in (("dq", dq), ("dv", dv))))

    def rule(self, gradient: str | GradientRule) -> GradientRule:
        """The rule behind a name, if the contact model knows it."""
        rule = gradient_rule(gradient)
        if type(rule) not in self._contact.rules:
            known = ", ".join(repr(known.name) for known in self._contact.rules)
            raise NotDifferentiable(f"{_model_name(self._contact)} has no gradient rule {rule.name!r}; it has {known}")
        return rule

    def inputs(self, wrt: Sequence[str]) -> tuple[str, ...]:
        """Inputs and parameters that a step can be differentiated by."""
        if wrt.__class__ is not tuple or wrt not in self._known:
            wrt = self._names(wrt, INPUTS + self._contact.parameters)
            self._known |= {wrt}
        return wrt

    def parameters(self, wrt: Sequence[str] | None) -> tuple[str, ...]:
        """Parameters that a step can be differentiated by; all of them unless given."""
        return self._contact.parameters if wrt is None else self._names(wrt, self._contact.parameters)

    def _names(self, wrt: Sequence[str], known: tuple[str, ...]) -> tuple[str, ...]:
        names = (wrt,) if isinstance(wrt, str) else tuple(wrt)
        for name in names:
            if name in known:
                continue
            raise NotDifferentiable(
                f"{_model_name(self._contact)} has no derivative by {name!r}; it has by {', '.join(known)}"
            )
        return names

    def with_force(self, outputs: Sequence[str]) -> bool:
        """Whether contact forces are among the outputs; q and v always are."""
        for name in outputs:
            if name not in ("q", "v", "force"):
                raise OptionError(f"a step has no output {name!r} to differentiate; it has q, v and force")
        if "force" in outputs and not self._contact.forces:
            raise NotDifferentiable(f"{_model_name(self._contact)} has no derivative of contact forces")
        return "force" in outputs

    def force_cotangents(self, dforce: Sequence[ArrayLike] | None, trajectory: Trajectory) -> Sequence[Array | None]:
        """∂L/∂(contact forces) of each step of a trajectory."""
        if dforce is None:
            return [None] * len(trajectory)
        if not self._contact.forces:
            raise NotDifferentiable(f"{_model_name(self._contact)} has no derivative of contact forces")
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


def _model_name(contact: ContactModel) -> str:
    return "motion without contact" if contact.name == "none" else f"contact model {contact.name!r}"


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


def as_sequence(name: str, value: ArrayLike, width: int) -> Array:
    """A row for each step."""
    try:
        array = np.array(value, dtype=np.float64, order="C")  # rows that compiled code takes as they are
    except (TypeError, ValueError) as error:
        raise StateError(f"{name} is not an array of numbers ({error})") from None
    if array.ndim != 2 or array.shape[1] != width:
        raise StateError(f"{name} must have shape (T, {width}); got {array.shape}")
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        raise StateError(f"{name}[{bad[0][0]}, {bad[0][1]}] is {array[tuple(bad[0])]}: every entry must be finite")
    return array


def cotangent(name: str, value: ArrayLike | None, T: int, nv: int) -> Array:
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
