"""Where the bodies of a tree are, in JAX: every joint a link, all links at once.

A link is placed on its parent by a constant frame and its joint. What that makes is linear in (1, cos θ, sin θ) for a
hinge, in (1, x) for a slide, and in the rotation matrix for a ball, with coefficients that are folded when a function
is traced. Links then find their places in the world by doubling: each looks up where its parent is on its
grandparent, and so on, in log₂(depth) rounds.

Derivatives of every order flow through q; a quaternion of any length but zero is read as the rotation it points at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.dynamics.tree import BALL, FREE, HINGE, SLIDE, rotation_matrix

Array = jax.Array
_Numbers = NDArray[np.float64]
_Ints = NDArray[np.int_]

Placed = TypeVar("Placed")

_IDENTITY = np.eye(3, 4)


def _rotation_of_squares() -> _Numbers:
    """By the products of entries of a unit quaternion: the rotation matrix, (16, 9)."""
    w, x, y, z = np.eye(4)

    def times(a: _Numbers, b: _Numbers) -> _Numbers:
        return np.outer(a, b)

    ww, xx, yy, zz = (times(a, a) for a in (w, x, y, z))
    xy, xz, yz, wx, wy, wz = (2 * times(a, b) for a, b in ((x, y), (x, z), (y, z), (w, x), (w, y), (w, z)))
    rows = [
        ww + xx - yy - zz,
        xy - wz,
        xz + wy,
        xy + wz,
        ww - xx + yy - zz,
        yz - wx,
        xz - wy,
        yz + wx,
        ww - xx - yy + zz,
    ]
    return np.stack([row.ravel() for row in rows], 1)


_SQUARES = _rotation_of_squares()


class Frames(NamedTuple):
    """Of all links, in the world."""

    rotation: Array
    """(links, 3, 3)."""
    position: Array
    """[m], (links, 3)."""


class Links:
    """The links of a model: the world, bodies without joints, hinges and slides, balls and free joints.

    A body moves with the link of its last joint.
    """

    def __init__(self, model: mujoco.MjModel) -> None:
        joints = [[j for j in range(model.njnt) if model.jnt_bodyid[j] == b] for b in range(model.nbody)]
        kind = model.jnt_type
        fixed = [b for b in range(model.nbody) if not joints[b]]  # the world first
        self._plain: _Ints = np.flatnonzero((kind == HINGE) | (kind == SLIDE))
        self._turning: _Ints = np.flatnonzero((kind == BALL) | (kind == FREE))
        place = {int(j): len(fixed) + k for k, j in enumerate([*self._plain, *self._turning])}
        self.joint: _Ints = np.array([place[j] for j in range(model.njnt)], int)
        """The link of each joint."""
        self.body: _Ints = np.array([place[own[-1]] if own else fixed.index(b) for b, own in enumerate(joints)], int)
        """The link that each body moves with."""
        self._parent: _Ints = np.zeros(len(fixed) + model.njnt, int)
        self._frame, self._quaternion = np.tile(_IDENTITY, (len(self._parent), 1, 1)), np.zeros((len(self._parent), 4))
        self._quaternion[:, 0] = 1.0
        for b in range(1, model.nbody):
            before = int(self.body[model.body_parentid[b]])
            for k, link in enumerate([place[j] for j in joints[b]] or [fixed.index(b)]):
                self._parent[link] = before
                if k == 0:
                    self._frame[link] = np.column_stack([rotation_matrix(model.body_quat[b]), model.body_pos[b]])
                    self._quaternion[link] = model.body_quat[b]
                before = link
        self._parent[[place[int(j)] for j in self._turning if kind[j] == FREE]] = 0  # placed in the world
        self._still = len(fixed)
        self._read(model)

    def _read(self, m: mujoco.MjModel) -> None:
        """Fold what is constant into the coefficients of joint motions, (joints, 3, 4) each."""
        plain, turning = self._plain, self._turning
        hinge = m.jnt_type[plain] == HINGE
        self._q, self._q0 = m.jnt_qposadr[plain], m.qpos0[m.jnt_qposadr[plain]]
        frame = self._frame[self.joint[plain]]
        skew = np.cross(np.eye(3), m.jnt_axis[plain][:, None, :])
        square = skew @ skew
        about = _about(m.jnt_pos[plain])  # a turn R about the anchor a moves the frame by a − R a
        terms = {"cos": -square, "sin": skew}
        self._terms = {k: np.where(hinge[:, None, None], frame[:, :, :3] @ x @ about, 0.0) for k, x in terms.items()}
        slide = np.concatenate([np.zeros((len(plain), 3, 3)), m.jnt_axis[plain][:, :, None]], 2)
        self._terms["x"] = np.where(hinge[:, None, None], 0.0, frame[:, :, :3] @ slide)
        # 1 + W² (1 − cos θ) + W sin θ, where W x = axis × x
        turned = np.where(hinge[:, None, None], frame[:, :, :3] @ square @ about, 0.0)
        self._terms["one"] = frame + turned
        self._half = np.where(hinge, 0.5, 0.0), m.jnt_axis[plain]
        self._is_free = m.jnt_type[turning] == FREE
        self._quat_q = m.jnt_qposadr[turning] + 3 * self._is_free
        self._anchor = np.where(self._is_free[:, None], 0.0, m.jnt_pos[turning])
        placed = self._frame[self.joint[turning]].copy()
        placed[:, :, 3] += np.einsum("jik,jk->ji", placed[:, :, :3], m.jnt_pos[turning])
        self._placed = np.where(self._is_free[:, None, None], _IDENTITY, placed)

    def __call__(self, q: Array) -> Frames:
        """Place all links."""
        x = q[self._q] - jnp.asarray(self._q0, q.dtype)
        one, cos, sin, along = (jnp.asarray(self._terms[k], q.dtype) for k in ("one", "cos", "sin", "x"))
        cosine, sine, x = (f[:, None, None] for f in (jnp.cos(x), jnp.sin(x), x))
        plain = one + cosine * cos + sine * sin + x * along
        still = jnp.asarray(self._frame[: self._still], q.dtype)
        turned = self._turned(q)
        own = Frames(
            jnp.concatenate([still[:, :, :3], plain[:, :, :3], turned.rotation]),
            jnp.concatenate([still[:, :, 3], plain[:, :, 3], turned.position]),
        )
        return self._doubled(own, _placed_on)

    def _turned(self, q: Array) -> Frames:
        """Frames of balls and free joints on their parents."""
        turn, placed = _matrix(q[self._quat_q[:, None] + np.arange(4)]), jnp.asarray(self._placed, q.dtype)
        if not self._is_free.all():
            turn = product(placed[:, :, :3], turn)
        first = np.where(self._is_free[:, None], self._quat_q[:, None] - 3 + np.arange(3), 0)
        moved = jnp.where(self._is_free[:, None], q[first], placed[:, :, 3])
        return Frames(turn, moved - applied(turn, jnp.asarray(self._anchor, q.dtype)))

    def orientations(self, q: Array) -> Array:
        """Of all links as quaternions, (links, 4)."""
        half, axis = (jnp.asarray(part, q.dtype) for part in self._half)
        angle = half * (q[self._q] - jnp.asarray(self._q0, q.dtype))
        plain = jnp.concatenate([jnp.cos(angle)[:, None], jnp.sin(angle)[:, None] * axis], 1)
        turning = q[self._quat_q[:, None] + np.arange(4)]
        turning /= jnp.sqrt(jnp.sum(turning**2, 1, keepdims=True))
        still = jnp.tile(jnp.array([1.0, 0.0, 0.0, 0.0], q.dtype), (self._still, 1))
        frame = self._quaternion.copy()
        frame[self.joint[self._turning[self._is_free]]] = [1.0, 0.0, 0.0, 0.0]
        own = quat_multiply(jnp.asarray(frame, q.dtype), jnp.concatenate([still, plain, turning]))
        return self._doubled(own, quat_multiply)

    def _doubled(self, own: Placed, product: Callable[[Placed, Placed], Placed]) -> Placed:
        """Products along all paths from the world, from those of each link on its parent."""
        above = self._parent
        while above.any():
            upper = jax.tree.map(lambda part, above=above: part[above], own)
            own, above = product(upper, own), above[above]
        return own


def _placed_on(a: Frames, b: Frames) -> Frames:
    return Frames(product(a.rotation, b.rotation), a.position + applied(a.rotation, b.position))


def _about(anchor: _Numbers) -> _Numbers:
    """(1 | −a): R times this is a turn that leaves a in place, up to a itself, (n, 3, 4)."""
    one: _Numbers = np.tile(np.eye(3), (len(anchor), 1, 1))
    return np.concatenate([one, -anchor[:, :, None]], 2)


def product(a: Array, b: Array) -> Array:
    """Products of 3x3 with 3xn matrices, written out: XLA makes one loop of this and what comes before and after."""
    return sum(a[:, :, k, None] * b[:, None, k, :] for k in range(3))  # type: ignore[return-value]


def applied(a: Array, x: Array) -> Array:
    """Products of matrices with vectors, (n, 3)."""
    return sum(a[:, :, k] * x[:, None, k] for k in range(3))  # type: ignore[return-value]


def _matrix(quat: Array) -> Array:
    """Rotation matrices of quaternions of any length, (n, 3, 3)."""
    unit = quat / jnp.sqrt(jnp.sum(quat**2, 1, keepdims=True))
    squares = (unit[:, :, None] * unit[:, None, :]).reshape(-1, 16)
    return (squares @ jnp.asarray(_SQUARES, quat.dtype)).reshape(-1, 3, 3)


def quat_multiply(a: Array, b: Array) -> Array:
    """Products of quaternions, (n, 4)."""
    (aw, ax, ay, az), (bw, bx, by, bz) = a.T, b.T
    product = [
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    ]
    return jnp.stack(product, 1)
