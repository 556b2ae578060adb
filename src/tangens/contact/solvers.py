"""Two solvers for the contact problem of `cones`: projected Gauss-Seidel, and a semi-smooth Newton method.

Gauss-Seidel always makes progress and finds the modes; Newton then solves the equations of those modes to the last
digits. Both start from the impulses they are given and leave their result there.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from tangens.contact.cones import (
    BREAKING,
    CONTACT,
    DRY,
    SLIDING,
    STICKING,
    classify,
    project,
    residual,
    velocity,
)

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]


@numba.njit(cache=True)
def responses(G: Array, start: IntArray, scale: Array) -> None:
    """How fast each block answers a unit impulse of its own: the largest diagonal entry of G there."""
    largest = 0.0
    for i in range(G.shape[0]):
        largest = max(largest, G[i, i])
    for b in range(scale.shape[0]):
        scale[b] = 0.0
        for i in range(start[b], start[b + 1]):
            scale[b] = max(scale[b], G[i, i])
        scale[b] = max(scale[b], 1e-12 * largest, 1e-300)


@numba.njit(cache=True)
def gauss_seidel(
    G: Array, kind: IntArray, start: IntArray, bound: Array, scale: Array, impulse: Array, sigma: Array, sweeps: int,
    tolerance: float,
) -> int:  # fmt: skip
    """Sweep over the blocks, each solved for its own impulse with the others fixed; returns the sweeps taken.

    `sigma` must be G·impulse + g on entry, and is on exit.
    """
    n = G.shape[0]
    x = np.empty(3)
    for sweep in range(sweeps):
        change = 0.0
        for b in range(kind.shape[0]):
            a, width = start[b], start[b + 1] - start[b]
            if kind[b] == CONTACT:
                # normal first, then the tangents with what the normal one has become
                x[0] = max(0.0, impulse[a] - sigma[a] / max(G[a, a], 1e-12 * scale[b]))
                change = max(change, _add(G, impulse, sigma, a, x[0] - impulse[a], n) * G[a, a])
                for i in range(1, 3):
                    x[i] = impulse[a + i] - sigma[a + i] / scale[b]
                project(CONTACT, bound[b], x)
                for i in range(1, 3):
                    change = max(change, _add(G, impulse, sigma, a + i, x[i] - impulse[a + i], n) * scale[b])
            else:
                for i in range(width):
                    x[0] = impulse[a + i] - sigma[a + i] / max(G[a + i, a + i], 1e-12 * scale[b])
                    project(kind[b], bound[b], x)
                    change = max(change, _add(G, impulse, sigma, a + i, x[0] - impulse[a + i], n) * G[a + i, a + i])
        if change <= tolerance:
            return sweep + 1
    return sweeps


@numba.njit(cache=True)
def _add(G: Array, impulse: Array, sigma: Array, row: int, amount: float, n: int) -> float:
    if amount != 0.0:
        impulse[row] += amount
        for i in range(n):
            sigma[i] += G[i, row] * amount
    return abs(amount)


@numba.njit(cache=True)
def mode_matrix(
    G: Array, kind: IntArray, start: IntArray, bound: Array, mode: IntArray, impulse: Array, sigma: Array, A: Array,
    B: Array,
) -> None:  # fmt: skip
    """The laws of each block's mode, linearised: A·dλ = −B·dσ₀, where dσ₀ is the change of σ at fixed impulses.

    Sticking: dσ = 0. Breaking: dλ = 0. Sliding (paper 2, Eq. 16): dσ_N = 0 and
    dλ_T + μ·u·dλ_N + (μ·λ_N/|σ_T|)·(1 − u·uᵀ)·dσ_T = 0 with u = σ_T/|σ_T|.
    """
    n = G.shape[0]
    for i in range(n):
        for j in range(n):
            A[i, j] = 0.0
            B[i, j] = 0.0
    for b in range(kind.shape[0]):
        a, width = start[b], start[b + 1] - start[b]
        if mode[b] == BREAKING or (mode[b] == SLIDING and kind[b] == DRY):
            for i in range(width):
                A[a + i, a + i] = 1.0
        elif mode[b] == STICKING:
            for i in range(width):
                B[a + i, a + i] = 1.0
                for j in range(n):
                    A[a + i, j] = G[a + i, j]
        else:
            _sliding_rows(G, bound[b], a, impulse, sigma, A, B)


@numba.njit(cache=True)
def _sliding_rows(G: Array, friction: float, a: int, impulse: Array, sigma: Array, A: Array, B: Array) -> None:
    n = G.shape[0]
    speed = math.sqrt(sigma[a + 1] ** 2 + sigma[a + 2] ** 2)
    ux, uy = sigma[a + 1] / speed, sigma[a + 2] / speed
    turn = friction * impulse[a] / speed
    B[a, a] = 1.0
    B[a + 1, a + 1], B[a + 1, a + 2] = turn * (1.0 - ux * ux), -turn * ux * uy
    B[a + 2, a + 1], B[a + 2, a + 2] = -turn * ux * uy, turn * (1.0 - uy * uy)
    for j in range(n):
        A[a, j] = G[a, j]
        A[a + 1, j] = B[a + 1, a + 1] * G[a + 1, j] + B[a + 1, a + 2] * G[a + 2, j]
        A[a + 2, j] = B[a + 2, a + 1] * G[a + 1, j] + B[a + 2, a + 2] * G[a + 2, j]
    A[a + 1, a + 1] += 1.0
    A[a + 2, a + 2] += 1.0
    A[a + 1, a] += friction * ux
    A[a + 2, a] += friction * uy


@numba.njit(cache=True)
def newton(
    G: Array, g: Array, kind: IntArray, start: IntArray, bound: Array, scale: Array, impulse: Array, sigma: Array,
    iterations: int, tolerance: float,
) -> tuple[int, float]:  # fmt: skip
    """Semi-smooth Newton on the laws as a fixed point λ = proj(λ − σ/s); returns iterations and residual."""
    n, nb = G.shape[0], kind.shape[0]
    J, F, trial, trial_sigma = np.empty((n, n)), np.empty(n), np.empty(n), np.empty(n)
    error = residual(kind, start, bound, scale, impulse, sigma)
    for iteration in range(iterations):
        if error <= tolerance:
            return iteration, error
        _fixed_point(G, kind, start, bound, scale, impulse, sigma, F, J, nb)
        if not solve_in_place(J, F):
            return iteration, error
        step = 1.0
        for _ in range(8):
            for i in range(n):
                trial[i] = impulse[i] - step * F[i]
            velocity(G, g, trial, trial_sigma)
            new_error = residual(kind, start, bound, scale, trial, trial_sigma)
            if new_error < error:
                break
            step *= 0.5
        if not new_error < error:
            return iteration, error
        impulse[:] = trial
        sigma[:] = trial_sigma
        error = new_error
    return iterations, error


@numba.njit(cache=True)
def _fixed_point(
    G: Array, kind: IntArray, start: IntArray, bound: Array, scale: Array, impulse: Array, sigma: Array, F: Array,
    J: Array, nb: int,
) -> None:  # fmt: skip
    """F = s·(λ − proj(λ − σ/s)) and its generalised Jacobian by λ."""
    n = G.shape[0]
    for b in range(nb):
        a, width, s = start[b], start[b + 1] - start[b], scale[b]
        for i in range(a, a + width):
            F[i] = sigma[i]  # sticking unless said otherwise below
            for j in range(n):
                J[i, j] = G[i, j]
            J[i, i] += 1e-11 * s  # keeps redundant contacts solvable; the residual still decides
        if kind[b] == DRY:
            y = impulse[a] - sigma[a] / s
            if abs(y) > bound[b]:
                _identity_row(F, J, a, s * (impulse[a] - math.copysign(bound[b], y)), s)
            continue
        if kind[b] > DRY:
            continue
        normal = impulse[a] - sigma[a] / s
        if normal <= 0.0:
            for i in range(a, a + width):
                _identity_row(F, J, i, s * impulse[i], s)
            continue
        if kind[b] != CONTACT:
            continue
        # The disc that the tangential part is projected to has the radius of the impulse after projection.
        x, y = impulse[a + 1] - sigma[a + 1] / s, impulse[a + 2] - sigma[a + 2] / s
        length, radius = math.sqrt(x * x + y * y), bound[b] * normal
        if length <= radius:
            continue
        ux, uy = x / length, y / length
        ratio = radius / length
        F[a + 1], F[a + 2] = s * (impulse[a + 1] - radius * ux), s * (impulse[a + 2] - radius * uy)
        # d(radius·u) = μ·u·d(normal) + ratio·(1 − u·uᵀ)·d(x, y), with d(x, y) = dλ_T − dσ_T/s
        pxx, pxy, pyy = ratio * (1.0 - ux * ux), -ratio * ux * uy, ratio * (1.0 - uy * uy)
        for j in range(n):
            gn, gx, gy = G[a, j], G[a + 1, j], G[a + 2, j]
            J[a + 1, j] = bound[b] * ux * gn + pxx * gx + pxy * gy
            J[a + 2, j] = bound[b] * uy * gn + pxy * gx + pyy * gy
        J[a + 1, a + 1] += s * (1.0 - pxx)
        J[a + 1, a + 2] -= s * pxy
        J[a + 2, a + 1] -= s * pxy
        J[a + 2, a + 2] += s * (1.0 - pyy)
        J[a + 1, a] -= s * bound[b] * ux
        J[a + 2, a] -= s * bound[b] * uy


@numba.njit(cache=True)
def _identity_row(F: Array, J: Array, i: int, value: float, s: float) -> None:
    F[i] = value
    for j in range(J.shape[0]):
        J[i, j] = 0.0
    J[i, i] = s


@numba.njit(cache=True)
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
            factor = A[i, k] / A[k, k]
            if factor != 0.0:
                for j in range(k + 1, n):
                    A[i, j] -= factor * A[k, j]
                b[i] -= factor * b[k]
    for i in range(n - 1, -1, -1):
        total = b[i]
        for j in range(i + 1, n):
            total -= A[i, j] * b[j]
        b[i] = total / A[i, i]
    return True


@numba.njit(cache=True)
def solve(
    G: Array, g: Array, kind: IntArray, start: IntArray, bound: Array, impulse: Array, sigma: Array, mode: IntArray,
    iterations: int, tolerance: float,
) -> tuple[int, float]:  # fmt: skip
    """Rounds of Gauss-Seidel and Newton until the residual is met; returns iterations and residual."""
    scale = np.empty(kind.shape[0])
    responses(G, start, scale)
    velocity(G, g, impulse, sigma)
    error = residual(kind, start, bound, scale, impulse, sigma)
    total, sweeps = 0, 4
    while error > tolerance and total < iterations:
        sweeps_left = min(sweeps, iterations - total)
        total += gauss_seidel(G, kind, start, bound, scale, impulse, sigma, sweeps_left, 0.1 * tolerance)
        velocity(G, g, impulse, sigma)
        taken, error = newton(G, g, kind, start, bound, scale, impulse, sigma, 12, tolerance)
        total += taken
        sweeps = 2 * sweeps
    classify(kind, start, bound, scale, impulse, sigma, mode)
    return total, error
