"""Mass matrix and bias forces of trees of rigid bodies, in JAX: MuJoCo's `crb` and `rne`, all bodies at once.

Spatial vectors are those of `spatial`, but about a point of each tree, the origin of its root body, so that nothing
cancels far from the world's origin. Sums over the bodies that a degree of freedom carries, and over the degrees of
freedom that carry a body, are products with constant matrices: no recursion, whatever the tree.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.dynamics.kinematics_jax import Frames, Links, applied, product
from tangens.dynamics.spatial import Ancestry, SpatialKinematics, cross, vector_product

Array = jax.Array
Values = dict[str, Array]

TRIANGLE = ([0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2])  # xx, yy, zz, xy, xz, yz: MuJoCo's order too
_SYMMETRIC = np.array([[0, 3, 4], [3, 1, 5], [4, 5, 2]])  # where a 3x3 inertia's entries stand in those six


class Configuration(NamedTuple):
    """Where everything is."""

    position: Array
    """Of the bodies' frames [m], (nbody, 3)."""
    rotation: Array
    """Of the bodies' frames, (nbody, 3, 3)."""
    origin: Array
    """Of each body's tree [m], (nbody, 3)."""
    axes: Array
    """S of each degree of freedom about its tree's origin, (nv, 6)."""


class RigidBodies:
    """The bodies of a model. Fixed structure."""

    def __init__(self, model: mujoco.MjModel, ancestry: Ancestry) -> None:
        self.links, self._ancestry = Links(model), ancestry
        self._root = self.links.body[model.body_rootid]
        free = ancestry.is_free & ~ancestry.turns  # moves along the world's axes, whatever way its body is turned
        self._link = np.where(free, 0, self.links.joint[ancestry.joint])
        single = ~(ancestry.is_free | ancestry.is_ball)
        self._axis = np.where(single[:, None], model.jnt_axis[ancestry.joint], np.eye(3)[ancestry.index])
        self._anchor = np.where(ancestry.is_free[:, None], 0.0, model.jnt_pos[ancestry.joint])
        self._moving: NDArray[np.int_] = np.flatnonzero(ancestry.bodies.any(axis=1))
        self._carries = ancestry.bodies[self._moving]  # (moving bodies, nv)
        self._above = np.tril(ancestry.coupled)
        self._falls = 0.0 if model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_GRAVITY else 1.0

    def __call__(self, q: Array) -> Configuration:
        """Place everything."""
        frames = self.links(q)
        rotation, position = (part[self.links.body] for part in frames)
        origin = frames.position[self._root]
        return Configuration(position, rotation, origin, self._axes(frames, origin))

    def _axes(self, frames: Frames, origin: Array) -> Array:
        axis, anchor = (jnp.asarray(x, origin.dtype) for x in (self._axis, self._anchor))
        turn = frames.rotation[self._link]
        direction, a = applied(turn, axis), self._ancestry
        arm = frames.position[self._link] + applied(turn, anchor) - origin[a.body]
        turns = a.turns[:, None]
        lever = jnp.where(turns, vector_product(arm, direction), direction)
        return jnp.concatenate([jnp.where(turns, direction, 0.0), lever], 1)

    def in_world(self, c: Configuration) -> SpatialKinematics:
        """The same with axes about the world's origin."""
        turn = c.axes[:, :3]
        shifted = c.axes[:, 3:] + vector_product(c.origin[self._ancestry.body], turn)
        return SpatialKinematics(c.position, c.rotation, jnp.concatenate([turn, shifted], 1))

    def equations(self, p: Values, c: Configuration, v: Array) -> tuple[Array, Array]:
        """The mass matrix (nv, nv) with armature, and the bias forces (nv,)."""
        inertia, carries = self._inertia(p, c), jnp.asarray(self._carries, v.dtype)
        gained = self._wrenches(p, c, inertia, v)
        total = carries.T @ jnp.concatenate([inertia, gained], 1)  # of all that each degree of freedom carries
        bias = jnp.sum(c.axes * total[:, 10:], 1)
        momentum = _momentum(total[:, :10], c.axes)
        full = momentum @ c.axes.T
        above = self._above
        return jnp.where(above, full, jnp.where(above.T, full.T, 0.0)) + jnp.diag(p["armature"]), bias

    def _inertia(self, p: Values, c: Configuration) -> Array:
        """Of each moving body about its tree's origin: xx, yy, zz, xy, xz, yz, first moments, mass, (n, 10)."""
        b = self._moving
        mass, turn = p["mass"][b][:, None], c.rotation[b]
        # JAX remembers in which precision it has seen an array, so none that traces in two precisions share: a copy
        own = product(product(turn, p["inertia"][b][:, _SYMMETRIC.copy()]), jnp.swapaxes(turn, 1, 2))
        r = self.com(p, c)[b]
        shift = jnp.sum(r**2, 1)[:, None, None] * jnp.eye(3, dtype=r.dtype) - r[:, :, None] * r[:, None, :]
        tensor = own + mass[:, :, None] * shift
        return jnp.concatenate([tensor[:, *TRIANGLE], mass * r, mass], 1)

    def com(self, p: Values, c: Configuration) -> Array:
        """Where the centres of mass are from their trees' origins [m], (nbody, 3)."""
        return c.position - c.origin + applied(c.rotation, p["com"])

    def _wrenches(self, p: Values, c: Configuration, inertia: Array, v: Array) -> Array:
        """What moves each body as it moves where joints do not accelerate, (n, 6)."""
        moving = c.axes * v[:, None]
        carried = jnp.asarray(self._ancestry.axes.T, v.dtype) @ moving  # how each axis itself moves
        both = jnp.concatenate([moving, cross(carried, moving)], 1)
        reached = jnp.asarray(self._carries, v.dtype) @ both
        twist, gain = reached[:, :6], reached[:, 6:]
        lifted = jnp.concatenate([gain[:, :3], gain[:, 3:] - self._falls * p["gravity"]], 1)
        return _momentum(inertia, lifted) + _cross_force(twist, _momentum(inertia, twist))


def _momentum(inertia: Array, twist: Array) -> Array:
    """Of bodies (10 numbers each) that move with twists, (n, 6)."""
    xx, yy, zz, xy, xz, yz = (inertia[:, k : k + 1] for k in range(6))
    first, mass, turn, speed = inertia[:, 6:9], inertia[:, 9:], twist[:, :3], twist[:, 3:]
    x, y, z = (turn[:, k : k + 1] for k in range(3))
    spin = jnp.concatenate([xx * x + xy * y + xz * z, xy * x + yy * y + yz * z, xz * x + yz * y + zz * z], 1)
    return jnp.concatenate([spin + vector_product(first, speed), mass * speed - vector_product(first, turn)], 1)


def _cross_force(twist: Array, wrench: Array) -> Array:
    """How wrenches that are carried along by twists change."""
    turn, speed, torque, force = twist[:, :3], twist[:, 3:], wrench[:, :3], wrench[:, 3:]
    return jnp.concatenate(
        [vector_product(turn, torque) + vector_product(speed, force), vector_product(turn, force)], 1
    )
