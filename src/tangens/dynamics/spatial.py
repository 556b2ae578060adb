"""Spatial vectors of a tree of bodies, in JAX: joint axes in the world, twists, and how both turn with q.

A twist is (ω, v): angular velocity, and the velocity of the point of the body that passes the world's origin. A wrench
is (τ, f): torque about the origin, and force. With S the axes of all degrees of freedom, a body's twist is the sum of
S·v over the degrees of freedom that carry it, and a wrench on it asks of each of them the joint force S·(τ, f).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from numpy.typing import NDArray


class SpatialKinematics(NamedTuple):
    """Where bodies and joint axes are, in one configuration."""

    position: jax.Array
    """Of the bodies' frames [m], (nbody, 3)."""
    rotation: jax.Array
    """Of the bodies' frames, (nbody, 3, 3)."""
    axes: jax.Array
    """S: the twist of each degree of freedom's unit velocity, (nv, 6)."""


class Ancestry:
    """Which degree of freedom carries which body, and which axis: fixed by the tree."""

    def __init__(self, model: mujoco.MjModel) -> None:
        self.body = model.dof_bodyid.copy()
        self.joint = model.dof_jntid.copy()
        kind = model.jnt_type[self.joint]
        index = np.arange(model.nv) - model.jnt_dofadr[self.joint]
        self.is_free, self.is_ball = kind == mujoco.mjtJoint.mjJNT_FREE, kind == mujoco.mjtJoint.mjJNT_BALL
        self.turns = self.is_ball | (self.is_free & (index >= 3)) | (kind == mujoco.mjtJoint.mjJNT_HINGE)
        self.index = np.where(self.is_free & (index >= 3), index - 3, index)  # which of three axes
        self.bodies: NDArray[np.float64] = np.zeros((model.nbody, model.nv))
        for body in range(model.nbody):
            up = body
            while up > 0:
                self.bodies[body, self.body == up] = 1.0
                up = model.body_parentid[up]
        carries = self.bodies[self.body] > 0
        self.coupled: NDArray[np.bool_] = carries | carries.T  # whether two dofs lie on one branch
        self.axes = self._carried_axes(model)
        # The same, for each body's own degrees of freedom only; short lists are filled up with what does not count.
        count = self.bodies.sum(axis=1).astype(int)
        self.dofs: NDArray[np.int_] = np.zeros((model.nbody, max(count.max(), 1)), int)
        for body in range(model.nbody):
            self.dofs[body, : count[body]] = np.flatnonzero(self.bodies[body])
        self.counts: NDArray[np.float64] = np.where(np.arange(self.dofs.shape[1]) < count[:, None], 1.0, 0.0)

    def _carried_axes(self, model: mujoco.MjModel) -> NDArray[np.float64]:
        """[j, k] = 1 if the axis of k moves with the degree of freedom j."""
        j, k = np.meshgrid(np.arange(model.nv), np.arange(model.nv), indexing="ij")
        above = (self.bodies[self.body[k], j] > 0) & (self.joint[j] < self.joint[k])
        same = self.joint[j] == self.joint[k]
        # The axes of a quaternion turn with the body; those of a free joint's translation stay with the world.
        quaternion = same & self.turns[k] & (self.is_free | self.is_ball)[k]
        return np.where(above | quaternion, 1.0, 0.0)


def vector_product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return a × b, written out: XLA makes one loop of this, and a dozen of `jnp.cross`."""
    (a0, a1, a2), (b0, b1, b2) = ([x[..., i : i + 1] for i in range(3)] for x in (a, b))
    return jnp.concatenate([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], -1)


def cross(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return how the twist b changes as it is carried along by the twist a."""
    return jnp.concatenate(
        [
            vector_product(a[..., :3], b[..., :3]),
            vector_product(a[..., :3], b[..., 3:]) + vector_product(a[..., 3:], b[..., :3]),
        ],
        -1,
    )
