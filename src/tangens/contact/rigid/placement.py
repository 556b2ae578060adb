"""How a step answers to where bodies sit on their parents: link lengths, and the places of fixed bodies.

Moving a body's frame within its parent is what three sliding joints in front of its own would do. So the tree gets
these joints, for the derivative alone: they have no velocity, no force and no equation, only a column. Bodies on free
joints have none, as their configuration says where they are.
"""

from __future__ import annotations

from typing import NamedTuple

import mujoco
import numba
import numpy as np
from numpy.typing import NDArray

from tangens.collision.rows import GEOM, point_rows
from tangens.contact.rigid.bundle import (
    CINERT,
    COM,
    GEOMS,
    GRAVITY,
    MASS,
    MEMORY,
    OPTIONS,
    QVEL,
    take,
    take_rows,
)
from tangens.contact.rigid.options import ROWS, TIMESTEP
from tangens.contact.rigid.slopes import add_constraint_slopes
from tangens.contact.rigid.workspace import carve
from tangens.dynamics.kinematic_tree import pack_long_tree, propagate_velocities, unpack_tree
from tangens.dynamics.rnea_derivatives import add_rnea_derivatives

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]


class LongTree(NamedTuple):
    """A tree with three sliding dofs in front of each body."""

    tree: Array
    real: IntArray
    """Place of each real dof."""
    sliding: IntArray
    """Place of the first of the three of each body, or −1."""
    parents: IntArray
    """Each body's parent, in whose axes it slides."""


def long_tree(m: mujoco.MjModel) -> LongTree:
    """Insert the dofs."""
    tree, real, sliding = pack_long_tree(m)
    return LongTree(tree, real, sliding, m.body_parentid.astype(np.int64))


@numba.njit(cache=True, error_model="numpy")
def axes_of(long: LongTree, cdof: Array, xmat: Array) -> Array:
    """Motion axes of all dofs of the long tree."""
    nv = long.real.shape[0]
    count = nv
    for b in range(long.sliding.shape[0]):
        count += 3 if long.sliding[b] >= 0 else 0
    out = np.zeros((count, 6))
    for k in range(nv):
        out[long.real[k]] = cdof[k]
    for b in range(long.sliding.shape[0]):
        if long.sliding[b] >= 0:
            R = xmat[long.parents[b]]
            for i in range(3):
                for j in range(3):
                    out[long.sliding[b] + i, 3 + j] = R[3 * j + i]
    return out


@numba.njit(cache=True, error_model="numpy")
def placement_terms(
    table: IntArray, nc: int, rows: int, long: LongTree, axes: Array
) -> tuple[Array, Array, int]:  # fmt: skip
    """R (nv, nbody, 3) and K (rows, nbody, 3), and a contact that moves in an unknown way or −1."""
    dofs, bodies, _ = unpack_tree(long.tree)
    options, v = take(table, OPTIONS), take(table, QVEL)
    nv, h, n = v.shape[0], options[TIMESTEP], axes.shape[0]
    w = carve(take(table, MEMORY), nv, take(table, MASS).shape[0], nc, int(options[ROWS]))
    count = 0  # contacts come first; joints do not care where bodies sit
    while count < int(w.counts[0]) and w.blocks[count].source >= 0:
        count += 1
    speed, speed_next, a = np.zeros(n), np.zeros(n), np.zeros(n)
    for k in range(nv):
        i = long.real[k]
        speed[i], speed_next[i], a[i] = v[k], w.v_next[k], (w.v_next[k] - v[k]) / h
    before, after, outside = np.empty((n, 6)), np.empty((n, 6)), np.zeros((n, 6))
    slopes, K = np.zeros((2, n, n)), np.zeros((2, rows, n))
    propagate_velocities(dofs, axes, speed_next, before, after)
    unknown, _ = add_constraint_slopes(
        table, dofs, bodies, axes, speed, before, after, w.contacts, w.blocks[:count], w.impulse, speed_next,
        np.zeros((w.J.shape[0], n)), w.rate, outside, slopes[0], K, np.zeros((0, 3, n)),
    )  # fmt: skip
    propagate_velocities(dofs, axes, speed, before, after)
    add_rnea_derivatives(
        dofs, bodies, axes, take_rows(table, CINERT, 10), take(table, GRAVITY), before, after, speed, a, outside, -h,
        slopes[0], slopes[1],
    )  # fmt: skip
    nbody = long.sliding.shape[0]
    R, out = np.zeros((nv, nbody, 3)), np.zeros((rows, nbody, 3))
    for b in range(nbody):
        if long.sliding[b] >= 0:
            for i in range(3):
                for k in range(nv):
                    R[k, b, i] = slopes[0, long.real[k], long.sliding[b] + i]
                for r in range(rows):
                    out[r, b, i] = K[0, r, long.sliding[b] + i]
    return R, out, unknown


@numba.njit(cache=True, error_model="numpy")
def gap_by_placement(
    table: IntArray, one: int, two: int, p: Array, frame: Array, long: LongTree, axes: Array
) -> Array:  # fmt: skip
    """∂gap/∂placement of a contact between two geoms, shape (nbody, 3)."""
    dofs, bodies, _ = unpack_tree(long.tree)
    geoms, J = take(table, GEOMS).view(GEOM), np.zeros((3, axes.shape[0]))
    point_rows(dofs, bodies, geoms[one].body, geoms[two].body, p, frame, axes, take_rows(table, COM, 3), J)
    out = np.zeros((long.sliding.shape[0], 3))
    for b in range(long.sliding.shape[0]):
        if long.sliding[b] >= 0:
            for i in range(3):
                out[b, i] = J[0, long.sliding[b] + i]
    return out
