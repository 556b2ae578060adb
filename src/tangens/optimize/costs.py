"""What a motion should cost: terms that are added up, each with a gradient and a Hessian in the tangent space.

A state has 2·nv directions: nv of q, in its tangent space, then nv of v. The terms here are ½ Σ wᵢ rᵢ², their Hessians
those of Gauss and Newton, JᵀWJ: positive semi-definite, and exact where r is linear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.errors import OptionError, StateError
from tangens.scene import Scene
from tangens.state import State, as_vector

Array = NDArray[np.float64]
_OBJ = mujoco.mjtObj


@dataclass(frozen=True)
class Expansion:
    """Gradient and Hessian of a cost by the state and the control."""

    x: Array
    """By the state, shape (2·nv,)."""
    u: Array
    """By the control, shape (nu,)."""
    xx: Array
    """Shape (2·nv, 2·nv)."""
    ux: Array
    """Shape (nu, 2·nv)."""
    uu: Array
    """Shape (nu, nu)."""

    def __add__(self, other: Expansion) -> Expansion:
        return Expansion(self.x + other.x, self.u + other.u, self.xx + other.xx, self.ux + other.ux, self.uu + other.uu)

    @staticmethod
    def zeros(nx: int, nu: int) -> Expansion:
        """That of a constant."""
        return Expansion(np.zeros(nx), np.zeros(nu), np.zeros((nx, nx)), np.zeros((nu, nx)), np.zeros((nu, nu)))

    @staticmethod
    def of_state(x: Array, xx: Array, nu: int) -> Expansion:
        """That of a cost on which controls have no influence."""
        return Expansion(x, np.zeros(nu), xx, np.zeros((nu, len(x))), np.zeros((nu, nu)))


@runtime_checkable
class Cost(Protocol):
    """A term of the cost: any object with these two methods.

    `t` counts steps. At the end of the motion, in a final cost, t is the horizon and u is all zeros. A method that is
    out of its depth raises a `tangens.Error`: the motion then counts as infinitely bad.
    """

    def value(self, t: int, state: State, u: Array) -> float:
        """The cost."""
        ...

    def expansion(self, t: int, state: State, u: Array) -> Expansion:
        """Its gradient and Hessian; multiple shooting needs a Hessian that is positive semi-definite."""
        ...


class TargetState:
    """½ Σ w_q δ² + ½ Σ w_v (v − v*)², with δ the tangent vector from the target q* to q.

    Args:
        scene: whose states they are.
        q: the target, of size nq, or one for each time, shape (T+1, nq); the scene's reference pose unless given.
        v: likewise, of size nv; at rest unless given.
        q_weight: w_q, a number or one for each of the nv directions; 0 leaves it free.
        v_weight: w_v, likewise.

    """

    def __init__(
        self,
        scene: Scene,
        q: ArrayLike | None = None,
        v: ArrayLike | None = None,
        *,
        q_weight: ArrayLike = 1.0,
        v_weight: ArrayLike = 0.0,
    ) -> None:
        self._scene = scene
        self._q = _rows("q", scene.initial_state().q if q is None else q, scene.nq)
        for a in scene.joint_layout.quat_q:
            if (np.abs(np.linalg.norm(self._q[:, a : a + 4], axis=1) - 1.0) > 1e-6).any():
                raise StateError(f"q[{a}:{a + 4}] is a quaternion (wxyz) and must have length 1")
        self._v = _rows("v", np.zeros(scene.nv) if v is None else v, scene.nv)
        self._w = np.concatenate([_weights("q_weight", q_weight, scene.nv), _weights("v_weight", v_weight, scene.nv)])

    def value(self, t: int, state: State, u: Array) -> float:
        """The cost."""
        r = self._residual(t, state)
        return 0.5 * float(r @ (self._w * r))

    def expansion(self, t: int, state: State, u: Array) -> Expansion:
        """Its gradient and Gauss-Newton Hessian."""
        J = np.eye(2 * self._scene.nv)
        nv = self._scene.nv
        J[:nv, :nv] = self._scene.difference_jacobians(_row("q", self._q, t), state.q)[1]
        WJ = self._w[:, None] * J
        return Expansion.of_state(WJ.T @ self._residual(t, state), J.T @ WJ, len(u))

    def _residual(self, t: int, state: State) -> Array:
        return np.concatenate([self._scene.difference(_row("q", self._q, t), state.q), state.v - _row("v", self._v, t)])


class Effort:
    """½ Σ w (u − u*)².

    Args:
        weight: w, a number or one for each control.
        target: u*, a number, one for each control, or one for each step and control, shape (T, nu); zero unless given.

    """

    def __init__(self, weight: ArrayLike = 1.0, target: ArrayLike = 0.0) -> None:
        self._weight = _numbers("weight", weight)
        if self._weight.ndim > 1 or (self._weight < 0).any():
            raise OptionError(f"weight={weight!r} must be a number or one for each control, at least 0")
        self._target = _numbers("target", target)
        if self._target.ndim > 2:
            raise OptionError(f"target must have at most two dimensions, steps and controls; got {self._target.shape}")

    def value(self, t: int, state: State, u: Array) -> float:
        """The cost."""
        r = u - self._goal(t)
        return 0.5 * float(r @ (self._weight * r))

    def expansion(self, t: int, state: State, u: Array) -> Expansion:
        """Its gradient and Hessian."""
        nx, nu = 2 * len(state.v), len(u)
        w = np.broadcast_to(self._weight, nu)
        return Expansion(np.zeros(nx), w * (u - self._goal(t)), np.zeros((nx, nx)), np.zeros((nu, nx)), np.diag(w))

    def _goal(self, t: int) -> Array:
        return self._target if self._target.ndim < 2 else _row("target", self._target, t)


class Position:
    """½ Σ w (p(q) − p*)² for a point p of the scene, in world coordinates.

    The point is one of: the origin of a body, a site, or the centre of mass of a body and all that hangs on it.

    Args:
        scene: whose point it is.
        target: p* [m], size 3, or one for each time, shape (T+1, 3).
        weight: w, a number or one for each of x, y and z; 0 leaves an axis free.
        body: name of a body.
        site: name of a site.
        center_of_mass: name of a body.

    """

    def __init__(
        self,
        scene: Scene,
        target: ArrayLike,
        *,
        weight: ArrayLike = 1.0,
        body: str | None = None,
        site: str | None = None,
        center_of_mass: str | None = None,
    ) -> None:
        given = {"body": body, "site": site, "center_of_mass": center_of_mass}
        named = [(kind, name) for kind, name in given.items() if name is not None]
        if len(named) != 1:
            raise OptionError("name one point: body=..., site=... or center_of_mass=...")
        self._kind, name = named[0]
        self._model, self._nv = scene.shared_model, scene.nv
        self._id = mujoco.mj_name2id(self._model, _OBJ.mjOBJ_SITE if site else _OBJ.mjOBJ_BODY, name)
        if self._id < 0:
            what = "site" if site else "body"
            raise OptionError(f"{self._kind}={name!r}: the scene has no such {what}")
        self._data = mujoco.MjData(self._model)
        self._target = _rows("target", target, 3)
        self._w = _weights("weight", weight, 3)

    def point(self, state: State) -> Array:
        """p(q) [m]."""
        self._data.qpos[:] = state.q
        mujoco.mj_kinematics(self._model, self._data)
        if self._kind == "center_of_mass":
            mujoco.mj_comPos(self._model, self._data)
        places = {"body": self._data.xpos, "site": self._data.site_xpos, "center_of_mass": self._data.subtree_com}
        return np.array(places[self._kind][self._id])

    def value(self, t: int, state: State, u: Array) -> float:
        """The cost."""
        r = self.point(state) - _row("target", self._target, t)
        return 0.5 * float(r @ (self._w * r))

    def expansion(self, t: int, state: State, u: Array) -> Expansion:
        """Its gradient and Gauss-Newton Hessian."""
        r = self.point(state) - _row("target", self._target, t)
        J, nv = self._jacobian(), self._nv
        x, xx = np.zeros(2 * nv), np.zeros((2 * nv, 2 * nv))
        x[:nv], xx[:nv, :nv] = J.T @ (self._w * r), J.T @ (self._w[:, None] * J)
        return Expansion.of_state(x, xx, len(u))

    def _jacobian(self) -> Array:
        """∂p/∂q in the tangent space, where `point` was last asked for."""
        J = np.zeros((3, self._nv))
        mujoco.mj_comPos(self._model, self._data)
        if self._kind == "body":
            mujoco.mj_jacBody(self._model, self._data, J, None, self._id)
        elif self._kind == "site":
            mujoco.mj_jacSite(self._model, self._data, J, None, self._id)
        else:
            mujoco.mj_jacSubtreeCom(self._model, self._data, J, self._id)
        return J


def _numbers(name: str, value: ArrayLike) -> Array:
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise OptionError(f"{name} is not an array of numbers ({error})") from None
    if not np.isfinite(array).all():
        raise OptionError(f"{name} has entries that are not finite")
    return array


def _weights(name: str, value: ArrayLike, size: int) -> Array:
    array = _numbers(name, value)
    if array.shape not in ((), (size,)) or (array < 0).any():
        raise OptionError(f"{name} must be a number or {size} of them, at least 0; got {value!r}")
    return np.array(np.broadcast_to(array, size))


def _rows(name: str, value: ArrayLike, size: int) -> Array:
    """The target of each time, or the one of all times, as rows."""
    array = _numbers(name, value)
    if array.ndim != 2:
        return as_vector(name, array, size)[None]
    if array.shape[1] != size or not len(array):
        raise StateError(f"{name} must have {size} entries, or that many in each row; got shape {array.shape}")
    return array


def _row(name: str, rows: Array, t: int) -> Array:
    if len(rows) == 1:
        return rows[0]
    if t >= len(rows):
        raise OptionError(f"{name} has {len(rows)} rows: there is none for step {t}")
    return rows[t]
