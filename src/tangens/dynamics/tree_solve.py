"""Sparse linear algebra on the mass matrix: no fill-in, because the kinematic tree orders it.

MuJoCo stores the lower triangle of M row by row; row k has `count` entries from `address` on, the last one on the
diagonal, in the columns that `column` lists. The factorisation is M = Lᵀ·D·L with unit L, from the last row up.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
Records = NDArray[np.void]
Columns = NDArray[np.int64]


@subroutine
def factor(dofs: Records, column: Columns, M: Array, extra: Array, L: Array, d: Array) -> None:
    """Factor M + diag(extra): L gets the entries of L in M's layout, d the inverse of D."""
    nv = dofs.shape[0]
    for i in range(M.shape[0]):
        L[i] = M[i]
    for k in range(nv):
        L[dofs[k].address + dofs[k].count - 1] += extra[k]
    for k in range(nv - 1, -1, -1):
        start, last = dofs[k].address, dofs[k].address + dofs[k].count - 1
        d[k] = 1.0 / L[last]
        for a in range(last - 1, start - 1, -1):
            ratio = L[a] * d[k]
            target = dofs[column[a]].address  # that row has the same columns as row k, up to its diagonal
            for b in range(start, a + 1):
                L[target + b - start] -= ratio * L[b]
            L[a] = ratio


@inline
def half_solve(dofs: Records, column: Columns, L: Array, x: Array) -> None:
    """X ← L⁻ᵀ·x."""
    for k in range(dofs.shape[0] - 1, -1, -1):
        xk = x[k]
        if xk != 0.0:
            start = dofs[k].address
            for a in range(start, start + dofs[k].count - 1):
                x[column[a]] -= L[a] * xk


@subroutine
def half_solve_columns(dofs: Records, column: Columns, L: Array, d: Array, X: Array) -> None:
    """X ← D^(−1/2)·L⁻ᵀ·X for all columns of X at once."""
    for k in range(dofs.shape[0] - 1, -1, -1):
        start, root = dofs[k].address, np.sqrt(d[k])
        for a in range(start, start + dofs[k].count - 1):
            x, i = L[a], column[a]
            for r in range(X.shape[1]):
                X[i, r] -= x * X[k, r]
        for r in range(X.shape[1]):
            X[k, r] *= root


@inline
def other_half(dofs: Records, column: Columns, L: Array, d: Array, x: Array) -> None:
    """X ← L⁻¹·D⁻¹·x."""
    for k in range(dofs.shape[0]):
        total = x[k] * d[k]
        start = dofs[k].address
        for a in range(start, start + dofs[k].count - 1):
            total -= L[a] * x[column[a]]
        x[k] = total


@inline
def solve(dofs: Records, column: Columns, L: Array, d: Array, x: Array) -> None:
    """X ← M⁻¹·x, from a factorisation."""
    half_solve(dofs, column, L, x)
    other_half(dofs, column, L, d, x)


@subroutine
def square_root(dofs: Records, column: Columns, L: Array, d: Array, W: Array) -> None:
    """Fill W with L⁻¹·D^(−1/2), so that M⁻¹ = W·Wᵀ; a row has entries for the dofs on the way to the root alone."""
    nv = dofs.shape[0]
    W[:] = 0.0
    for i in range(nv):
        W[i, i] = 1.0
        start = dofs[i].address
        last = start + dofs[i].count - 1
        for a in range(start, last):
            k, x = column[a], L[a]
            for b in range(start, a + 1):  # row k has entries in the columns of row i up to k
                W[i, column[b]] -= x * W[k, column[b]]
    for j in range(nv):
        root = np.sqrt(d[j])
        for i in range(j, nv):
            W[i, j] *= root
