"""All rows that a step could have, whether or not they take part, and how they move.

Problems without a solution are looked at as a whole, see `problem.relaxation`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.assembly.constraint_row_derivatives import (
    LoadedRows,
    RowDerivatives,
    add_row_derivatives,
    tree_motion,
)
from tangens.contact.rigid.assembly.constraint_rows import build_rows
from tangens.contact.rigid.assembly.targets import set_contact_targets
from tangens.contact.rigid.memory.tape import open_tape
from tangens.contact.rigid.memory.views import Kinematics, Model, Workspace, new_workspace
from tangens.contact.rigid.problem.contact_problem import STICKING
from tangens.dynamics.kinematic_tree import propagate_velocities
from tangens.dynamics.rnea_derivatives import add_rnea_derivatives
from tangens.kernels import floats, inline, ints, kernel

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]


@inline
def _open_every_row(table: IntArray, tape: Array) -> tuple[Model, Kinematics, Workspace]:
    model, kin, old = open_tape(table, tape)
    nc, ns = old.contacts.shape[0], model.specs.shape[0]
    w = new_workspace(model, kin, nc)
    w.contacts[:] = old.contacts
    for c in range(nc):
        w.contacts[c].chosen = 1
    set_contact_targets(model, kin, w)
    nothing = np.zeros(3 * nc + 6 * ns)
    build_rows(model, kin, w, np.ones(2 * ns, dtype=np.int64), nothing, nothing)
    for b in range(w.counts[0]):
        w.blocks[b].mode = STICKING
    return model, kin, w


@kernel(ints(2), floats(1))
def every_row(table: IntArray, tape: Array) -> tuple[Array, Array, Records]:
    """J (n, nv), targets (n,) and blocks of all contacts and constraints of the step on the tape."""
    _, _, w = _open_every_row(table, tape)
    nb, n = w.counts[0], w.counts[1]
    return w.J[:n].copy(), w.g[:n].copy(), w.blocks[:nb].copy()


@kernel(ints(2), floats(1), floats(2), floats(1), floats(1))
def every_row_moved(
    table: IntArray, tape: Array, response: Array, v: Array, multiplier: Array
) -> tuple[Array, Array, int]:
    """∂(J·v + target)/∂(q, v) (2, n, nv) and ∂(Jᵀ·multiplier)/∂q; and a contact whose motion is not known, or −1."""
    model, kin, w = _open_every_row(table, tape)
    nv, nb, n, still = kin.v.shape[0], w.counts[0], w.counts[1], np.zeros(kin.v.shape[0])
    R, K, outside = np.zeros((2, nv, nv)), np.zeros((2, n, nv)), np.zeros((nv, 6))
    rows = LoadedRows(w.contacts, w.blocks[:nb], multiplier, w.J, w.rate, response)
    tree = tree_motion(model.dofs, model.bodies, kin.cdof, kin.v, v)
    unknown, _ = add_row_derivatives(model, kin, tree, rows, RowDerivatives(outside, R[0], K, np.zeros((0, 3, nv))))
    before, after = np.empty((nv, 6)), np.empty((nv, 6))
    propagate_velocities(model.dofs, kin.cdof, still, before, after)
    add_rnea_derivatives(
        model.dofs, model.bodies, kin.cdof, kin.cinert, np.zeros(3), before, after, still, still, outside, 0.0, R[0],
        R[1],
    )  # fmt: skip
    return K, R[0], unknown
