"""Linear equations: factored by LAPACK where it stands in memory, or eliminated in place where there are few."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.np.linalg import _LAPACK
from numpy.typing import NDArray

from tangens.kernels import subroutine

Array = NDArray[np.float64]
Pivots = NDArray[np.int32]

_factor = _LAPACK.numba_xxgetrf(types.float64)  # np.linalg.solve would copy A, and forget the factors
_DOUBLE = ord("d")


@subroutine
def factor(A: Array, pivots: Pivots) -> bool:
    """Overwrite A with the factors P·L·U of its transpose, which is what LAPACK takes it for; False if singular."""
    n = A.shape[0]
    return n == 0 or _factor(_DOUBLE, n, n, A.ctypes, n, pivots.ctypes) == 0


@subroutine(fastmath={"contract", "reassoc"})
def solve_factored(A: Array, pivots: Pivots, b: Array) -> None:
    """Solve A·x = b in place: Uᵀ·y = b, Lᵀ·z = y, and the rows back where they were."""
    n = A.shape[0]
    for i in range(n):
        total = b[i]
        for j in range(i):
            total -= A[i, j] * b[j]
        b[i] = total / A[i, i]
    for i in range(n - 1, -1, -1):
        total = b[i]
        for j in range(i + 1, n):
            total -= A[i, j] * b[j]
        b[i] = total
    for i in range(n - 1, -1, -1):
        other = pivots[i] - 1
        b[i], b[other] = b[other], b[i]


@subroutine
def solve_in_place(A: Array, b: Array) -> bool:
    """Gaussian elimination with row pivoting; `A` is overwritten, `b` becomes the solution. False if singular."""
    n = A.shape[0]
    for k in range(n):
        pivot = k
        for i in range(k + 1, n):
            if abs(A[i, k]) > abs(A[pivot, k]):
                pivot = i
        if not abs(A[pivot, k]) > 0.0:
            return False
        if pivot != k:
            for j in range(k, n):
                A[k, j], A[pivot, j] = A[pivot, j], A[k, j]
            b[k], b[pivot] = b[pivot], b[k]
        for i in range(k + 1, n):
            share = A[i, k] / A[k, k]
            if share != 0.0:
                for j in range(k + 1, n):
                    A[i, j] -= share * A[k, j]
                b[i] -= share * b[k]
    for i in range(n - 1, -1, -1):
        total = b[i]
        for j in range(i + 1, n):
            total -= A[i, j] * b[j]
        b[i] = total / A[i, i]
    return True
