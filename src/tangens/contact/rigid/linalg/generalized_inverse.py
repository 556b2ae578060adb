"""The inverse of a small matrix, or where it has none, the one that gives the shortest least-squares answer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.kernels import subroutine

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

# A pivot this small, of balanced equations, is none. Contacts are found to within 1e-8 m on shapes of 1e-2 m and more,
# so a load that is shared by what differs in the seventh digit is shared by noise.
_VANISHES = 1e-6
_VANISHES_IN_SOLVERS = 1e-9  # there a residual is the judge, and the laws themselves are solved


@subroutine
def invert(A: Array, weight: Array) -> tuple[Array, int]:
    """A⁻¹ or its generalisation, and the rank of A; `A` is overwritten.

    Rows are velocities or impulses, so the equations are balanced before the rank is judged. A row may be empty:
    planar scenes have no third direction. Where equations contradict each other, those of less weight give way.
    """
    n = A.shape[0]
    row, column = np.ones(n), np.ones(n)
    for i in range(n):
        largest = 0.0
        for j in range(n):
            largest = max(largest, abs(A[i, j]))
        if largest > 0.0:
            row[i] = 1.0 / largest
    for j in range(n):
        largest = 0.0
        for i in range(n):
            largest = max(largest, row[i] * abs(A[i, j]))
        if largest > 0.0:
            column[j] = 1.0 / largest
    for i in range(n):
        for j in range(n):
            A[i, j] *= row[i] * column[j]
    out = A.copy()
    rank = n
    # A small pivot shows in the inverse even if none of those that elimination met was small.
    if not gauss_jordan(out, _VANISHES) or (n > 0 and np.abs(out).max() > 1.0 / _VANISHES):
        rank = _pseudo_inverse(A, weight, out, _VANISHES)
    for i in range(n):
        for j in range(n):
            out[i, j] *= column[i] * row[j]
    return out, rank


@subroutine
def minimal_solution(A: Array, b: Array) -> Array:
    """The smallest x that solves A·x = b, or comes nearest to it; A and b are overwritten."""
    n = A.shape[0]
    for i in range(n):
        largest = 0.0
        for j in range(n):
            largest = max(largest, abs(A[i, j]))
        if largest > 0.0:
            b[i] /= largest
            for j in range(n):
                A[i, j] /= largest
    inverse = A.copy()
    if n > 0 and not gauss_jordan(inverse, _VANISHES_IN_SOLVERS):
        _pseudo_inverse(A, np.ones(n), inverse, _VANISHES_IN_SOLVERS)
    return inverse @ b


@subroutine
def gauss_jordan(A: Array, vanishes: float) -> bool:
    """Invert in place with row pivoting; False as soon as a pivot is smaller than `vanishes`."""
    n = A.shape[0]
    swaps = np.empty(n, dtype=np.int64)
    for k in range(n):
        pivot = k
        for i in range(k + 1, n):
            if abs(A[i, k]) > abs(A[pivot, k]):
                pivot = i
        if not abs(A[pivot, k]) >= vanishes:
            return False
        swaps[k] = pivot
        if pivot != k:
            for j in range(n):
                A[k, j], A[pivot, j] = A[pivot, j], A[k, j]
        inverse = 1.0 / A[k, k]
        A[k, k] = 1.0
        for j in range(n):
            A[k, j] *= inverse
        for i in range(n):
            ratio = A[i, k]
            if i != k and ratio != 0.0:
                A[i, k] = 0.0
                for j in range(n):
                    A[i, j] -= ratio * A[k, j]
    for k in range(n - 1, -1, -1):
        if swaps[k] != k:
            for i in range(n):
                A[i, k], A[i, swaps[k]] = A[i, swaps[k]], A[i, k]
    return True


@subroutine
def _pseudo_inverse(A: Array, weight: Array, out: Array, vanishes: float) -> int:
    """Fill out with A⁺ by A = L·U of full rank: A⁺ = Uᵀ(U·Uᵀ)⁻¹(Lᵀ·W²·L)⁻¹Lᵀ·W².

    Complete pivoting keeps L and U tame and reveals the rank. W weighs the errors of equations that contradict.
    """
    n = A.shape[0]
    W = A.copy()
    rows, columns = np.arange(n), np.arange(n)
    rank = n
    for k in range(n):
        p, q = k, k
        for i in range(k, n):
            for j in range(k, n):
                if abs(W[i, j]) > abs(W[p, q]):
                    p, q = i, j
        if not abs(W[p, q]) >= vanishes:
            rank = k
            break
        for j in range(n):
            W[k, j], W[p, j] = W[p, j], W[k, j]
        for i in range(n):
            W[i, k], W[i, q] = W[i, q], W[i, k]
        rows[k], rows[p] = rows[p], rows[k]
        columns[k], columns[q] = columns[q], columns[k]
        for i in range(k + 1, n):
            W[i, k] /= W[k, k]
            for j in range(k + 1, n):
                W[i, j] -= W[i, k] * W[k, j]
    L, U = np.zeros((n, rank)), np.zeros((rank, n))
    for i in range(n):
        for k in range(rank):
            if i > k:
                L[rows[i], k] = W[i, k]
            else:
                U[i, columns[k]] = W[i, k] if i < rank else 0.0
        if i < rank:
            L[rows[i], i] = 1.0
            for j in range(rank, n):
                U[i, columns[j]] = W[i, j]
    if rank == 0:
        out[:] = 0.0
        return 0
    weighted = L.copy()
    for i in range(n):
        for k in range(rank):
            weighted[i, k] *= weight[i] ** 2
    left, right = weighted.T @ L, U @ U.T
    gauss_jordan(left, 0.0)
    gauss_jordan(right, 0.0)
    Z = left @ weighted.T
    Z += (np.eye(rank) - Z @ L) @ Z  # weights square the condition of Lᵀ·W²·L: one correction brings its digits back
    out[:] = (U.T @ right) @ Z
    return rank
