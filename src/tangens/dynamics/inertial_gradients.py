"""Reverse mode by inertial parameters and gravity: how the virtual power of inertial forces changes with them.

For a virtual joint velocity z, z·(inverse dynamics) is one number, a sum over bodies

    m·v_z·(a − g) + ω_z·(I·α + ω × I·ω)

of a body's virtual velocity v_z, ω_z and its acceleration a, α, linear parts at the centre of mass. A pass over the
tree gives its derivative by mass, centre of mass and inertia of every body; forward mode has to build the regressor.
"""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.dynamics.kinematic_tree import propagate_velocities, unpack_tree
from tangens.dynamics.rnea_derivatives import body_accelerations
from tangens.dynamics.rotations import quat_to_matrix
from tangens.kernels import fixed_floats, floats, inline, kernel, subroutine

Array = NDArray[np.float64]
Records = NDArray[np.void]

_MASS, _CENTRE, _COMPENSATED = 0, 1, 4  # columns of `inertials_of`
_PAIRS = ((0, 1), (0, 2), (1, 2))  # the order of off-diagonal entries of an inertia: xy, xz, yz


def inertials_of(m: mujoco.MjModel) -> Array:
    """Mass, centre of mass and the share of its weight that is compensated, of each body, (nbody, 5)."""
    return np.concatenate([m.body_mass[:, None], m.body_ipos, m.body_gravcomp[:, None]], axis=1)


@kernel(
    floats(1), floats(2), floats(2), floats(2), floats(2), floats(1), floats(2), fixed_floats(1), fixed_floats(1),
    fixed_floats(1), fixed_floats(1),
)  # fmt: skip
def inertial_gradients(
    tree: Array, cdof: Array, com: Array, xpos: Array, xquat: Array, gravity: Array, inertials: Array,
    v: Array, a: Array, z: Array, compensated: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """−z·∂(inverse dynamics)/∂(mass, com, inertia) of each body, (nbody, 10), and by gravity, (3,).

    `compensated` is the z at which gravity compensation acts; empty without it.
    """
    dofs, bodies, _ = unpack_tree(tree)
    return carry_to_inertials(dofs, bodies, cdof, com, xpos, xquat, gravity, inertials, v, a, z, compensated)


@subroutine
def carry_to_inertials(
    dofs: Records, bodies: Records, cdof: Array, com: Array, xpos: Array, xquat: Array, gravity: Array,
    inertials: Array, v: Array, a: Array, z: Array, compensated: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """The same, for compiled code."""
    nv, by_body, by_gravity = v.shape[0], np.zeros((inertials.shape[0], 10)), np.zeros(3)
    before, velocity, virtual = np.empty((nv, 6)), np.empty((nv, 6)), np.empty((nv, 6))
    propagate_velocities(dofs, cdof, v, before, velocity)
    acceleration = body_accelerations(dofs, cdof, gravity, before, v, a)
    propagate_velocities(dofs, cdof, z, before, virtual)
    share = -np.ones(inertials.shape[0])
    _add_power(bodies, com, xpos, xquat, inertials, share, velocity, acceleration, virtual, by_body, by_gravity)
    if compensated.shape[0]:  # the same bodies at rest
        propagate_velocities(dofs, cdof, compensated, before, virtual)
        velocity[:] = 0.0
        for k in range(nv):
            acceleration[k, :3], acceleration[k, 3:] = 0.0, -gravity
        share[:] = inertials[:, _COMPENSATED]
        _add_power(bodies, com, xpos, xquat, inertials, share, velocity, acceleration, virtual, by_body, by_gravity)
    return by_body, by_gravity


@subroutine
def _add_power(
    bodies: Records, com: Array, xpos: Array, xquat: Array, inertials: Array, share: Array,
    velocity: Array, acceleration: Array, virtual: Array, by_body: Array, by_gravity: Array,
) -> None:  # fmt: skip
    """Add each body's share of the derivatives of its virtual power."""
    R, room = np.empty((3, 3)), np.empty((12, 3))
    r, v_z, acc, point, by_centre, x, y, world, w, alpha, w_z, turned = room
    for b in range(1, bodies.shape[0]):
        k, m = bodies[b].last_dof, inertials[b, _MASS]
        if k < 0:
            continue
        quat_to_matrix(xquat[b], R)
        origin = com[bodies[b].root]
        for i in range(3):
            r[i] = xpos[b, i] - origin[i]
            for j in range(3):
                r[i] += R[i, j] * inertials[b, _CENTRE + j]
        _set_cross(virtual[k, :3], r, v_z)
        _set_cross(velocity[k, :3], r, point)
        for i in range(3):
            v_z[i] += virtual[k, 3 + i]
            point[i] += velocity[k, 3 + i]
        # a − g at r, from the spatial acceleration: gravity is in it already
        _set_cross(acceleration[k, :3], r, x)
        _set_cross(velocity[k, :3], point, y)
        for i in range(3):
            acc[i] = acceleration[k, 3 + i] + x[i] + y[i]
        by_body[b, 0] += share[b] * (v_z[0] * acc[0] + v_z[1] * acc[1] + v_z[2] * acc[2])
        _set_cross(acc, virtual[k, :3], by_centre)
        _set_cross(v_z, acceleration[k, :3], x)
        _set_cross(velocity[k, :3], v_z, world)
        _set_cross(velocity[k, :3], world, y)
        for i in range(3):
            by_gravity[i] -= share[b] * m * v_z[i]
            world[i] = by_centre[i] + x[i] + y[i]
        _turn_back(R, world, x)
        _turn_back(R, velocity[k, :3], w)
        _turn_back(R, acceleration[k, :3], alpha)
        _turn_back(R, virtual[k, :3], w_z)
        _set_cross(w_z, w, turned)  # ω_z·(ω × I·ω) = (ω_z × ω)·I·ω
        for i in range(3):
            by_body[b, 1 + i] += share[b] * m * x[i]
            by_body[b, 4 + i] += share[b] * (w_z[i] * alpha[i] + turned[i] * w[i])
            p, q = _PAIRS[i]
            mixed = w_z[p] * alpha[q] + w_z[q] * alpha[p] + turned[p] * w[q] + turned[q] * w[p]
            by_body[b, 7 + i] += share[b] * mixed


@inline
def _set_cross(a: Array, b: Array, out: Array) -> None:
    """Out ← a × b."""
    out[0], out[1], out[2] = a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@inline
def _turn_back(R: Array, x: Array, out: Array) -> None:
    """Out ← Rᵀ·x: from world axes to those of a body."""
    for i in range(3):
        out[i] = R[0, i] * x[0] + R[1, i] * x[1] + R[2, i] * x[2]
