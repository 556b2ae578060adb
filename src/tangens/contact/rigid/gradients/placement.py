"""How a step answers to where bodies sit on their parents: link lengths, and the places of fixed bodies.

Moving a body's frame within its parent is what three sliding joints in front of its own would do. So the tree gets
these joints, for the derivative alone: they have no velocity, no force and no equation, only a column. Bodies on free
joints have none, as their configuration says where they are.
"""

from __future__ import annotations

from typing import NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.collision.contact_rows import point_rows
from tangens.contact.rigid.assembly.constraint_row_derivatives import (
    LoadedRows,
    RowDerivatives,
    add_row_derivatives,
    tree_motion,
)
from tangens.contact.rigid.memory.tape import open_tape
from tangens.contact.rigid.memory.views import open_kinematics, open_model
from tangens.dynamics.kinematic_tree import pack_long_tree, propagate_velocities, unpack_tree
from tangens.dynamics.rnea_derivatives import add_rnea_derivatives
from tangens.dynamics.rotations import quat_rotate
from tangens.kernels import floats, inline, integer, ints, kernel, named

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


_LONG_TREE = named(LongTree, floats(1), ints(1), ints(1), ints(1))


def long_tree(m: mujoco.MjModel) -> LongTree:
    """Insert the dofs."""
    tree, real, sliding = pack_long_tree(m)
    return LongTree(tree, real, sliding, m.body_parentid.astype(np.int64))


@inline
def _axes(long: LongTree, cdof: Array, xquat: Array) -> Array:
    """Motion axes of all dofs of the long tree."""
    nv = long.real.shape[0]
    count = nv
    for b in range(long.sliding.shape[0]):
        count += 3 if long.sliding[b] >= 0 else 0
    out, axis, unit = np.zeros((count, 6)), np.empty(3), np.zeros(3)
    for k in range(nv):
        out[long.real[k]] = cdof[k]
    for b in range(long.sliding.shape[0]):
        if long.sliding[b] >= 0:
            for i in range(3):
                unit[:] = 0.0
                unit[i] = 1.0
                quat_rotate(xquat[long.parents[b]], unit, axis)
                out[long.sliding[b] + i, 3:] = axis
    return out


@kernel(ints(2), floats(1), floats(2), integer, _LONG_TREE)
def placement_terms(
    table: IntArray, tape: Array, response: Array, rows: int, long: LongTree
) -> tuple[Array, Array, int]:
    """R (nv, nbody, 3) and K (rows, nbody, 3), and a contact that moves in an unknown way or −1."""
    model, kin, w = open_tape(table, tape)
    dofs, bodies, _ = unpack_tree(long.tree)
    axes, v, h = _axes(long, kin.cdof, kin.xquat), kin.v, model.h
    nv, n = v.shape[0], axes.shape[0]
    count = 0  # contacts come first; joints do not care where bodies sit
    while count < w.blocks.shape[0] and w.blocks[count].source >= 0:
        count += 1
    speed, speed_next, a = np.zeros(n), np.zeros(n), np.zeros(n)
    for k in range(nv):
        i = long.real[k]
        speed[i], speed_next[i], a[i] = v[k], w.v_next[k], (w.v_next[k] - v[k]) / h
    before, after, outside = np.empty((n, 6)), np.empty((n, 6)), np.zeros((n, 6))
    slopes, K = np.zeros((2, n, n)), np.zeros((2, rows, n))
    loaded = LoadedRows(w.contacts, w.blocks[:count], w.impulse, np.zeros((w.J.shape[0], n)), w.rate, response)
    unknown, _ = add_row_derivatives(
        model, kin, tree_motion(dofs, bodies, axes, speed, speed_next), loaded,
        RowDerivatives(outside, slopes[0], K, np.zeros((0, 3, n))),
    )  # fmt: skip
    propagate_velocities(dofs, axes, speed, before, after)
    add_rnea_derivatives(
        dofs, bodies, axes, kin.cinert, model.gravity, before, after, speed, a, outside, -h, slopes[0], slopes[1]
    )
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


@kernel(ints(2), integer, integer, floats(1), floats(1), _LONG_TREE)
def gap_by_placement(table: IntArray, one: int, two: int, p: Array, frame: Array, long: LongTree) -> Array:
    """∂gap/∂placement of a contact between two geoms where MuJoCo has just placed them, shape (nbody, 3)."""
    model, kin = open_model(table, 0.0, 0.0, 0.0), open_kinematics(table)
    dofs, bodies, _ = unpack_tree(long.tree)
    axes, geoms = _axes(long, kin.cdof, kin.xquat), model.geoms
    J = np.zeros((3, axes.shape[0]))
    point_rows(dofs, bodies, geoms[one].body, geoms[two].body, p, frame, axes, kin.com, J)
    out = np.zeros((long.sliding.shape[0], 3))
    for b in range(long.sliding.shape[0]):
        if long.sliding[b] >= 0:
            for i in range(3):
                out[b, i] = J[0, long.sliding[b] + i]
    return out
