"""Constraints besides contacts, as rows of the convex objective: joint limits, dry friction, equalities.

Derivatives flow through q, the inertia and all numbers of the kinematics. Ranges, friction losses and the data of
equalities are constants of the structure.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve

from tangens.contact.convex.objective import Rows
from tangens.dynamics.smooth import SmoothDynamics
from tangens.dynamics.tangent_jax import integrate
from tangens.errors import SceneError
from tangens.scene.support import element_name

Array = jax.Array
_EQ, _OBJ, _OFF = mujoco.mjtEq, mujoco.mjtObj, mujoco.mjtDisableBit
_HINGES = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
_DRY = 1e-3
"""Of the compliance, what joints with dry friction have that stick."""
_TIED = 1e-3
"""Of the compliance, that of equalities: a frame welded 2 m from its anchor moves 1,000 times as easily as its mass."""


class Constraints:
    """Which rows a scene has."""

    def __init__(self, m: mujoco.MjModel, dynamics: SmoothDynamics) -> None:
        self._dynamics, self._nv = dynamics, m.nv
        joints = np.flatnonzero(np.isin(m.jnt_type, _HINGES) & m.jnt_limited.astype(bool) & _on(m, _OFF.mjDSBL_LIMIT))
        both, side = np.repeat(joints, 2), np.tile([0, 1], len(joints))
        self._q, self._limit = m.jnt_qposadr[both], m.jnt_dofadr[both]
        self._sign, self._bound = 1.0 - 2.0 * side, m.jnt_range[both, side]
        self._dry = np.flatnonzero((m.dof_frictionloss > 0) & _on(m, _OFF.mjDSBL_FRICTIONLOSS))
        self._loss = m.dof_frictionloss[self._dry]
        if (m.tendon_frictionloss > 0).any() and _on(m, _OFF.mjDSBL_FRICTIONLOSS):
            tendon = int(np.flatnonzero(m.tendon_frictionloss > 0)[0])
            _refuse(m, _OBJ.mjOBJ_TENDON, tendon, "dry friction of tendons", "put it on the joints")
        self._equalities = Equalities(m, dynamics)

    def __call__(self, q: Array, p: dict[str, Any], inertia: Array, settings: dict[str, Any]) -> Rows:
        """All rows at q."""
        h, ahead, soft = settings["timestep"], settings["ahead"], settings["compliance"]
        diagonal, eye = jnp.diag(inertia), jnp.eye(self._nv)
        gap = self._sign * (q[self._q] - self._bound)
        never = jnp.zeros_like(gap)
        limits = Rows(
            jnp.asarray(self._sign)[:, None] * eye[self._limit],
            -gap / ahead,
            soft / diagonal[self._limit],
            never,
            never + jnp.inf,
        )
        most = h * jnp.asarray(self._loss)
        dry = Rows(eye[self._dry], jnp.zeros_like(most), _DRY * soft / diagonal[self._dry], -most, most)
        parts = [limits, dry]
        if self._equalities.count:
            parts.append(self._equalities(q, p, inertia, ahead, soft))
        return jax.tree.map(lambda *rows: jnp.concatenate(rows), *parts)


class Equalities:
    """Points, frames and joints that are tied to each other."""

    def __init__(self, m: mujoco.MjModel, dynamics: SmoothDynamics) -> None:
        self._model, self._dynamics = m, dynamics
        active = np.flatnonzero(m.eq_active0.astype(bool) & _on(m, _OFF.mjDSBL_EQUALITY))
        known = (int(_EQ.mjEQ_CONNECT), int(_EQ.mjEQ_WELD), int(_EQ.mjEQ_JOINT))
        for e in active:
            if int(m.eq_type[e]) not in known:
                remedy = "use connect, weld or joint"
                _refuse(m, _OBJ.mjOBJ_EQUALITY, int(e), f"an equality of type {_EQ(m.eq_type[e]).name}", remedy)
        self._of = {kind: active[m.eq_type[active] == kind] for kind in known}
        self.count = len(active)

    def __call__(self, q: Array, p: dict[str, Any], inertia: Array, ahead: Array, soft: Array) -> Rows:
        """Their rows: R is the compliance over the mass that each row moves, 1 / (J M⁻¹ Jᵀ)."""
        layout = self._dynamics.layout

        def violation(d: Array) -> Array:
            return self._violation(integrate(layout, q, d), p)

        still = jnp.zeros(layout.nv)
        error, J = violation(still), jax.jacfwd(violation)(still)
        mobility = jnp.sum(J * cho_solve(cho_factor(inertia), J.T).T, 1)
        anything = jnp.full_like(error, jnp.inf)
        return Rows(J, -error / ahead, _TIED * soft * mobility + 1e-12, -anything, anything)

    def _violation(self, q: Array, p: dict[str, Any]) -> Array:
        smooth = {name: p[name] for name in self._dynamics.parameters}
        position, quaternion = self._dynamics.body_poses(q, smooth)
        points = [self._apart(e, position, quaternion) for e in self._of[int(_EQ.mjEQ_CONNECT)]]
        frames = [self._turned(e, position, quaternion) for e in self._of[int(_EQ.mjEQ_WELD)]]
        return jnp.concatenate([*points, *frames, *[self._joints(e, q) for e in self._of[int(_EQ.mjEQ_JOINT)]]])

    def _place(self, e: int, which: int, local: Any) -> tuple[int, Any, Any]:
        """Body, point and turn on it of one side of an equality."""
        m = self._model
        obj = int((m.eq_obj1id, m.eq_obj2id)[which][e])
        if m.eq_objtype[e] == _OBJ.mjOBJ_SITE:
            return int(m.site_bodyid[obj]), m.site_pos[obj], m.site_quat[obj]
        return obj, local, np.array([1.0, 0.0, 0.0, 0.0])

    def _apart(self, e: int, position: Array, quaternion: Array, weld: bool = False) -> Array:
        data = self._model.eq_data[e]
        first, second = (data[3:6], data[:3]) if weld else (data[:3], data[3:6])
        ends = [
            position[b] + _rotate(quaternion[b], at)
            for b, at, _ in (self._place(e, 0, first), self._place(e, 1, second))
        ]
        return ends[0] - ends[1]

    def _turned(self, e: int, position: Array, quaternion: Array) -> Array:
        data = self._model.eq_data[e]
        (b1, _, t1), (b2, _, t2) = self._place(e, 0, data[:3]), self._place(e, 1, data[:3])
        is_site = self._model.eq_objtype[e] == _OBJ.mjOBJ_SITE
        one = _multiply(quaternion[b1], jnp.asarray(t1 if is_site else data[6:10]))
        two = _multiply(quaternion[b2], jnp.asarray(t2))
        relative = _multiply(two * jnp.array([1.0, -1.0, -1.0, -1.0]), one)
        return jnp.concatenate([self._apart(e, position, quaternion, weld=True), data[10] * relative[1:]])

    def _joints(self, e: int, q: Array) -> Array:
        m, data = self._model, self._model.eq_data[e]
        one, two = int(m.eq_obj1id[e]), int(m.eq_obj2id[e])
        a = m.jnt_qposadr[one]
        moved = 0.0
        if two >= 0:
            b = m.jnt_qposadr[two]
            moved = q[b] - m.qpos0[b]
        polynomial = sum(data[k] * moved**k for k in range(1, 5)) + data[0]
        return jnp.atleast_1d(q[a] - m.qpos0[a] - polynomial)


def _multiply(a: Array, b: Array) -> Array:
    u, v = a[1:], b[1:]
    return jnp.concatenate([(a[0] * b[0] - u @ v)[None], a[0] * v + b[0] * u + jnp.cross(u, v)])


def _rotate(quaternion: Array, x: Any) -> Array:
    w, u = quaternion[0], quaternion[1:]
    x = jnp.asarray(x)
    return x + 2 * jnp.cross(u, jnp.cross(u, x) + w * x)


def _on(m: mujoco.MjModel, switch: mujoco.mjtDisableBit) -> bool:
    return not m.opt.disableflags & (int(switch) | int(_OFF.mjDSBL_CONSTRAINT))


def _refuse(m: mujoco.MjModel, kind: mujoco.mjtObj, number: int, what: str, remedy: str) -> None:
    raise SceneError(
        f"contact model 'convex' does not take {what}", element=element_name(m, kind, number), remedy=remedy
    )
