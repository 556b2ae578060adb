"""How redundant contacts share their load as it changes (paper 5, Eq. 22).

Where the equations A·λ = −b leave impulses open, `lcp` takes the smallest: λ = Aᵀ·μ for some μ. Differentiated, with
the null vectors n of A, that is what the impulses of `linearization` lack:

    n·dλ = (dA·n)·μ

Null vectors push on nothing, Jᵀ·n = 0. So A·n changes only as Jᵀ·n does: with A = B·J·M⁻¹·Jᵀ + (laws), this is
dA·n = B·Yᵀ·d(Jᵀ·n). Rows at their bounds follow others, and do not count in the size of λ. What friction, sizes and
placements change of A·n is left out.
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
from tangens.contact.rigid.gradients.linearization import Linearization
from tangens.contact.rigid.memory.tape import Solved, open_tape
from tangens.contact.rigid.problem.contact_problem import BOX, SLIDING
from tangens.dynamics.kinematic_tree import propagate_velocities
from tangens.dynamics.rnea_derivatives import add_rnea_derivatives
from tangens.kernels import floats, ints, kernel

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

_VANISHES = 1e-9  # of the largest singular value


class RedundantForces:
    """The missing part of ∂λ, for one step."""

    def __init__(self, table: IntArray, tape: Array, response: Array, lin: Linearization, solved: Solved) -> None:
        self._table, self._tape, self._response, self._lin = table, tape, response, lin
        blocks, impulse, bounded = solved.blocks, solved.impulse, np.zeros(len(lin.active), dtype=bool)
        for block in blocks[(blocks["kind"] == BOX) & (blocks["mode"] == SLIDING)]:
            bounded[np.searchsorted(lin.active, block["start"]) + 1 + np.flatnonzero(block["side"])] = True
        self._free = ~bounded
        scale = np.abs(lin.A).max(axis=1, initial=0.0)
        balanced = lin.A / np.where(scale > 0.0, scale, 1.0)[:, None]
        _, singular, V = np.linalg.svd(balanced)
        self._null = V[singular <= _VANISHES * singular.max(initial=0.0)].T
        load = np.where(self._free, impulse[lin.active], 0.0)
        self._mu: Array = np.asarray(np.linalg.lstsq(lin.A.T, load, rcond=None)[0], dtype=np.float64)
        self._gram = self._null.T @ (self._free[:, None] * self._null)

    def completed(self, d_impulse: Array, by_null: Array | None = None) -> Array:
        """∂λ with its part in the null space; `by_null` are (dA·n)·μ, shape (null vectors, ...), none if A is fixed."""
        if not self._null.shape[1]:
            return d_impulse
        missing = -self._null.T @ (self._free[:, None] * d_impulse)
        if by_null is not None:
            missing = missing + by_null
        return np.asarray(
            d_impulse + self._null @ np.linalg.lstsq(self._gram, missing, rcond=None)[0], dtype=np.float64
        )

    def by_configuration(self) -> Array:
        """(dA·n)·μ by q, shape (null vectors, nv)."""
        lin, rows = self._lin, self._null.shape[1]
        out = np.empty((rows, len(lin.v_next)))
        against = self._mu.copy()
        _through(lin.slide, against)
        for k in range(rows):
            full = np.zeros(int(lin.active.max(initial=-1)) + 1)
            full[lin.active] = self._null[:, k]
            out[k] = (against @ lin.Y) @ force_derivative(self._table, self._tape, self._response, full)
        return out


def _through(slide: Array, x: Array) -> None:
    """X ← B·x, for boxes, whose B only drops rows."""
    for r in np.flatnonzero(slide[:, 3]):
        x[r] *= slide[r, 0]
        x[r + 1] *= slide[r, 2]


@kernel(ints(2), floats(1), floats(2), floats(1))
def force_derivative(table: IntArray, tape: Array, response: Array, impulse: Array) -> Array:
    """∂(Jᵀ·λ)/∂q of given impulses, shape (nv, nv)."""
    model, kin, w = open_tape(table, tape)
    nv, rows = kin.v.shape[0], w.impulse.shape[0]
    still, full, outside = np.zeros(nv), np.zeros(rows), np.zeros((nv, 6))
    full[: impulse.shape[0]] = impulse
    R, K = np.zeros((2, nv, nv)), np.zeros((2, rows, nv))
    add_row_derivatives(
        model, kin, tree_motion(model.dofs, model.bodies, kin.cdof, kin.v, still),
        LoadedRows(w.contacts, w.blocks, full, w.J, w.rate, response),
        RowDerivatives(outside, R[0], K, np.zeros((0, 3, nv))),
    )  # fmt: skip
    before, after = np.empty((nv, 6)), np.empty((nv, 6))
    propagate_velocities(model.dofs, kin.cdof, still, before, after)
    add_rnea_derivatives(
        model.dofs, model.bodies, kin.cdof, kin.cinert, np.zeros(3), before, after, still, still, outside, 0.0, R[0],
        R[1],
    )  # fmt: skip
    return R[0]
