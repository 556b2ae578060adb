"""Limits, dry friction and equalities of a scene as smooth functions of q, with their Jacobians: for models in JAX.

Values are in the constraint's own unit, metres or radians; Jacobians are taken by the tangent space at q. Derivatives
flow through q and all numbers of the kinematics. Ranges, friction losses and the data of equalities are constants of
the structure.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.contact.constraint_specs import (
    BALL_LIMIT,
    CONNECT,
    LINE_DRY,
    LINE_EQUAL,
    LINE_LIMIT,
    WELD,
    Constraints,
)
from tangens.dynamics.spatial import Ancestry, SpatialKinematics, vector_product
from tangens.dynamics.tangent_jax import quat_log, right_jacobian_inverse

Array = jax.Array


class Rows(NamedTuple):
    """Values of constraints, (n,), and their Jacobian, (n, nv)."""

    value: Array
    jacobian: Array


class Lines(NamedTuple):
    """Sums of coordinates: of q, (n, nq), and of velocities, (n, nv)."""

    q: NDArray[np.float64]
    v: NDArray[np.float64]


@jax.tree_util.register_static
class ConstraintFunctions:
    """Those of one structure."""

    def __init__(self, m: mujoco.MjModel) -> None:
        self._model, self._read, self._ancestry = m, Constraints(m), Ancestry(m)
        on = not m.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
        self._specs = self._read.specs[: len(self._read.specs) if on else 0]
        limits, self._balls, dry, self._equal, self._ties = (
            self._specs[np.isin(self._specs["shape"], shapes)]
            for shapes in ((LINE_LIMIT,), (BALL_LIMIT,), (LINE_DRY,), (LINE_EQUAL,), (CONNECT, WELD))
        )
        both = self._lines(limits["start"], limits["middle"])
        self._limits = Lines(*(np.concatenate([by, -by]) for by in both))
        self._bounds = np.concatenate([limits["low"], -limits["high"]])
        self.dry, self.losses = self._lines(dry["start"], dry["middle"]).v, dry["bound"].copy()
        """Which velocities dry friction acts against, (n, nv), and how large it is at most, (n,)."""
        self.dry_owners = dry["owner"].astype(int)
        """The degree of freedom that each belongs to; −1: a tendon."""
        self._lines_equal = [
            self._lines(self._equal[a], self._equal[b]) for a, b in (("start", "middle"), ("middle", "stop"))
        ]
        self._turns = np.array([_matrix(turn) for turn in self._ties["turn"]]).reshape(-1, 3, 3)
        self._welds = self._ties["shape"] == WELD
        self._ball_dofs = self._balls["joint"][:, 1:] + np.arange(3)
        self.limit_patterns = np.concatenate([self._limits.v, self._ball_mask()])
        """Rows that are like those of the limits wherever joints are, (n, nv): what they move is found from them."""
        self.equal_patterns = self._lines_equal[0].v
        """The same of equalities of lines, which come after those of points and frames."""
        bodies = self._ties["body"].astype(int)
        self.tied_points, self.tied_frames = np.repeat(bodies, 3, 0), np.repeat(bodies[self._welds], 3, 0)
        """Which two bodies each row of a connect or weld acts between, (n, 2): points, then frames."""

    def limits(self, q: Array) -> Rows:
        """What is left of all ranges: of joints and tendons both sides, then of ball joints.

        A ball joint's angle θ has no derivative at zero, so (θ_max² − θ²) / 2θ_max stands for θ_max − θ: to first order
        the same at the limit.
        """
        lines = jnp.asarray(self._limits.q) @ q - jnp.asarray(self._bounds)
        if not len(self._balls):
            return Rows(lines, jnp.asarray(self._limits.v))
        most, turn = jnp.asarray(self._balls["high"]), self._turned(q)
        left = (most**2 - jnp.sum(turn**2, axis=1)) / (2 * most)
        by = jnp.zeros((len(turn), self._model.nv), q.dtype)
        by = by.at[np.arange(len(turn))[:, None], self._ball_dofs].set(-turn / most[:, None])
        return Rows(jnp.concatenate([lines, left]), jnp.concatenate([jnp.asarray(self._limits.v), by]))

    def limit_curvature(self, q: Array, weights: Array) -> Array:
        """The derivative, by the tangent space at q, of weights·(Jacobian of the limits), (nv, nv)."""
        nothing, at = jnp.zeros((self._model.nv, self._model.nv), q.dtype), self._ball_dofs
        if not len(self._balls):
            return nothing
        bent = -(weights[len(self._bounds) :] / jnp.asarray(self._balls["high"]))[:, None, None]
        return nothing.at[at[:, :, None], at[:, None, :]].add(bent * jax.vmap(right_jacobian_inverse)(self._turned(q)))

    def limit_speeds(self, v: Array) -> Array:
        """How fast limits may be approached, whatever q is, (n,)."""
        lines, balls = jnp.abs(jnp.asarray(self._limits.v) @ v), jnp.linalg.norm(v[self._ball_dofs], axis=1)
        return jnp.concatenate([lines, balls])

    def _turned(self, q: Array) -> Array:
        """Rotation vectors of the limited ball joints, (n, 3)."""
        return jax.vmap(quat_log)(q[self._balls["joint"][:, :1] + np.arange(4)])

    def equalities(self, q: Array, kin: SpatialKinematics) -> Rows:
        """The errors of all equalities: points apart, frames turned against each other, lines off their polynomials."""
        parts = [self._tied(kin)] if len(self._ties) else []
        if len(self._equal) or not parts:
            parts.append(self._equal_lines(q))
        return Rows(*(jnp.concatenate(part) for part in zip(*parts, strict=True)))

    def _tied(self, kin: SpatialKinematics) -> Rows:
        """Anchors of body 0 against those of body 1; for welds, 2·sin(θ/2) along the axis of the turn between them."""
        body = self._ties["body"].T
        anchor = jnp.asarray(self._ties["anchor"].reshape(-1, 2, 3))
        point, twist = list[Array](), list[Array]()
        for side, b in enumerate(body):
            point.append(kin.position[b] + jnp.einsum("tij,tj->ti", kin.rotation[b], anchor[:, side]))
            twist.append(jnp.asarray(self._ancestry.bodies)[b][:, :, None] * kin.axes)  # (ties, nv, 6)
        velocity = [t[..., 3:] + vector_product(t[..., :3], p[:, None]) for t, p in zip(twist, point, strict=True)]
        apart, by = (point[0] - point[1]).ravel(), _flat(velocity[0] - velocity[1])
        if not self._welds.any():
            return Rows(apart, by)
        w, (a, b) = self._welds, body[:, self._welds]
        turned = kin.rotation[a] @ jnp.asarray(self._turns[w]) @ jnp.swapaxes(kin.rotation[b], 1, 2)
        axial = jnp.stack([turned[:, k, j] - turned[:, j, k] for j, k in ((1, 2), (2, 0), (0, 1))], 1) / 2
        cosine = jnp.sqrt(jnp.maximum(1 + jnp.trace(turned, axis1=1, axis2=2), 1e-12))[:, None] / 2  # of half the angle
        error = axial / cosine
        spin = [t[w][..., :3] for t in twist]
        turning = cosine[:, None] * (spin[0] - spin[1]) + vector_product(spin[0] + spin[1], error[:, None]) / 2
        return Rows(jnp.concatenate([apart, error.ravel()]), jnp.concatenate([by, _flat(turning)]))

    def _equal_lines(self, q: Array) -> Rows:
        p, rest = jnp.asarray(self._equal["polynomial"]), jnp.asarray(self._equal["rest"])
        one, other = self._lines_equal
        x = jnp.asarray(other.q) @ q - rest[:, 1]
        error = jnp.asarray(one.q) @ q - rest[:, 0] - sum(p[:, k] * x**k for k in range(5))
        slope = p[:, 1] + sum(k * p[:, k] * x ** (k - 1) for k in range(2, 5))
        return Rows(error, jnp.asarray(one.v) - slope[:, None] * jnp.asarray(other.v))

    def _lines(self, start: NDArray[np.int_], stop: NDArray[np.int_]) -> Lines:
        q, v = np.zeros((len(start), self._model.nq)), np.zeros((len(start), self._model.nv))
        for row, (first, last) in enumerate(zip(start, stop, strict=True)):
            for entry in self._read.entries[first:last]:
                q[row, entry["coordinate"]] += entry["coefficient"]
                v[row, entry["dof"]] += entry["coefficient"]
        return Lines(q, v)

    def _ball_mask(self) -> NDArray[np.float64]:
        return np.array([np.arange(self._model.nv) == joint[1] for joint in self._balls["joint"]], float).reshape(
            -1, self._model.nv
        )


def _flat(by: Array) -> Array:
    """Rows (ties, nv, 3) as (3 ties, nv)."""
    return jnp.swapaxes(by, 1, 2).reshape(-1, by.shape[1])


def _matrix(quaternion: Any) -> NDArray[np.float64]:
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, quaternion / max(np.linalg.norm(quaternion), 1e-12))
    return matrix.reshape(3, 3)
