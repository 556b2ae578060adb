"""Products of small matrices.

Plain loops are as quick as BLAS for nine rows and columns, and slower for eighteen.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.kernels import subroutine

Array = NDArray[np.float64]

_WORTH_BLAS = 2000  # multiplications


@subroutine(fastmath={"contract"})
def multiply(A: Array, B: Array, out: Array) -> None:
    """Out ← A·B."""
    n, inner = A.shape
    columns = B.shape[1]
    if n * inner * columns > _WORTH_BLAS:
        np.dot(A, B, out)
        return
    rest = inner % 4
    for i in range(n):
        for j in range(columns):
            out[i, j] = 0.0
        for k in range(rest):
            a = A[i, k]
            for j in range(columns):
                out[i, j] += a * B[k, j]
        for k in range(rest, inner, 4):  # four at a time: each entry of the result is fetched and stored less often
            a, b, c, d = A[i, k], A[i, k + 1], A[i, k + 2], A[i, k + 3]
            for j in range(columns):
                out[i, j] += a * B[k, j] + b * B[k + 1, j] + c * B[k + 2, j] + d * B[k + 3, j]


@subroutine(fastmath={"contract", "reassoc"})
def times_lower_transposed(A: Array, W: Array, out: Array) -> None:
    """Out ← A·Wᵀ for a lower triangular W."""
    for r in range(A.shape[0]):
        for i in range(W.shape[0]):
            total = 0.0
            for k in range(i + 1):
                total += A[r, k] * W[i, k]
            out[r, i] = total


@subroutine(fastmath={"contract", "reassoc"})
def lower_squared(W: Array, out: Array) -> None:
    """Out ← W·Wᵀ for a lower triangular W."""
    for i in range(W.shape[0]):
        for j in range(i + 1):
            total = 0.0
            for k in range(j + 1):
                total += W[i, k] * W[j, k]
            out[i, j] = total
            out[j, i] = total
