"""Two solvers for the contact problem of `cones`: projected Gauss-Seidel, and a semi-smooth Newton method.

Gauss-Seidel always makes progress and finds the modes; Newton then solves the equations of those modes to the last
digits. Both start from the impulses they are given and leave their result there.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from tangens.contact.cones import CONTACT, DRY, LIMIT, classify, merit, project, residual, velocity

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
def newton(
    G: Array, g: Array, kind: IntArray, start: IntArray, bound: Array, scale: Array, impulse: Array, sigma: Array,
    iterations: int, tolerance: float,
) -> tuple[int, float]:  # fmt: skip
    """Semi-smooth Newton on the laws as a fixed point λ = proj(λ − σ/s); returns iterations and residual.

    Impulses that the laws say outright (no contact, dry friction at its bound) are set; the equations of the
    others, sticking or sliding, are linearised and solved together.
    """
    n = G.shape[0]
    base, base_sigma, trial, trial_sigma = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    open_rows = np.empty(n, dtype=np.int64)
    error = residual(kind, start, bound, scale, impulse, sigma)
    # A little compliance keeps the equations of redundant contacts solvable and the step no longer than the impulses
    # themselves. It only shapes the step, and vanishes with the error: the residual is that of the rigid problem.
    softness, old_merit = 1.0, merit(kind, start, bound, scale, impulse, sigma)
    for iteration in range(iterations):
        if error <= tolerance:
            return iteration, error
        largest = 0.0
        for i in range(n):
            largest = max(largest, abs(impulse[i]))
        compliance = max(softness * error / max(largest, 1e-12), 1e-300)
        m = _set_what_is_known(kind, start, bound, scale, impulse, sigma, base, open_rows)
        velocity(G, g, base, base_sigma)
        J, F = np.empty((m, m)), np.empty(m)
        _equations(G, kind, start, bound, scale, compliance, base, base_sigma, open_rows[:m], F, J)
        solvable = solve_in_place(J, F)
        step, better = 1.0, False
        for _ in range(6 if solvable else 0):
            trial[:] = base
            for i in range(m):
                trial[open_rows[i]] -= step * F[i]
            velocity(G, g, trial, trial_sigma)
            new_merit = merit(kind, start, bound, scale, trial, trial_sigma)
            if new_merit < old_merit:
                better = True
                break
            step *= 0.5
        if better:
            impulse[:] = trial
            sigma[:] = trial_sigma
            old_merit = new_merit
            error = residual(kind, start, bound, scale, impulse, sigma)
            softness = max(1e-3, 0.3 * softness)
        elif softness < 1e6:
            softness *= 10.0
        else:
            return iteration, error
    return iterations, error


@numba.njit(cache=True)
def _set_what_is_known(
    kind: IntArray, start: IntArray, bound: Array, scale: Array, impulse: Array, sigma: Array, base: Array,
    open_rows: IntArray,
) -> int:  # fmt: skip
    """Copy the impulses with those that break or are at their bound set; list the rows left to solve for."""
    m = 0
    for b in range(kind.shape[0]):
        a = start[b]
        probe = impulse[a] - sigma[a] / scale[b]
        if kind[b] == DRY and abs(probe) > bound[b]:
            base[a] = math.copysign(bound[b], probe)
        elif (kind[b] == CONTACT or kind[b] == LIMIT) and probe <= 0.0:
            for i in range(a, start[b + 1]):
                base[i] = 0.0
        else:
            for i in range(a, start[b + 1]):
                base[i] = impulse[i]
                open_rows[m] = i
                m += 1
    return m


@numba.njit(cache=True)
def _equations(
    G: Array, kind: IntArray, start: IntArray, bound: Array, scale: Array, compliance: float, impulse: Array,
    sigma: Array, rows: IntArray, F: Array, J: Array,
) -> None:  # fmt: skip
    """What the open rows must satisfy, and its slope: σ = 0, or for a sliding contact the pull of its disc's rim."""
    m = rows.shape[0]
    block = 0
    for r in range(m):
        i = rows[r]
        while start[block + 1] <= i:
            block += 1
        s = scale[block]
        F[r] = sigma[i]
        for c in range(m):
            J[r, c] = G[i, rows[c]]
        J[r, r] += compliance + 1e-12 * s
        if kind[block] != CONTACT or i != start[block] + 2:
            continue
        # The contact's three rows are there now: see whether it slides.
        a = i - 2
        normal = max(impulse[a] - sigma[a] / s, 0.0)
        x, y = impulse[a + 1] - sigma[a + 1] / s, impulse[a + 2] - sigma[a + 2] / s
        length, radius = math.sqrt(x * x + y * y), bound[block] * normal
        if length <= radius:
            continue
        ux, uy, ratio = x / length, y / length, radius / length
        F[r - 1], F[r] = s * (impulse[a + 1] - radius * ux), s * (impulse[a + 2] - radius * uy)
        # d(radius·u) = μ·u·d(normal) + ratio·(1 − u·uᵀ)·d(x, y), with d(x, y) = dλ_T − dσ_T/s
        xx, xy, yy = ratio * (1.0 - ux * ux), -ratio * ux * uy, ratio * (1.0 - uy * uy)
        for c in range(m):
            gn, gx, gy = G[a, rows[c]], G[a + 1, rows[c]], G[a + 2, rows[c]]
            J[r - 1, c] = bound[block] * ux * gn + xx * gx + xy * gy
            J[r, c] = bound[block] * uy * gn + xy * gx + yy * gy
        J[r - 1, r - 1] += s * (1.0 - xx)
        J[r - 1, r] -= s * xy
        J[r, r - 1] -= s * xy
        J[r, r] += s * (1.0 - yy)
        J[r - 1, r - 2] -= s * bound[block] * ux
        J[r, r - 2] -= s * bound[block] * uy


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
        taken, error = newton(G, g, kind, start, bound, scale, impulse, sigma, 40, tolerance)
        total += taken
        sweeps = 2 * sweeps
    classify(kind, start, bound, scale, impulse, sigma, mode)
    return total, error
