"""Semi-smooth Newton: solves the equations of the modes that an iterate is in, to the last digits."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.linalg.elimination import factor, solve_factored, solve_in_place
from tangens.contact.rigid.problem.contact_problem import BOX, CONTACT, DRY, EQUALITY, project, residual, velocity
from tangens.kernels import subroutine

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

_WORTH_LAPACK = 24  # equations
_PATIENCE = 4  # iterations in which the residual has to fall to a half: else the modes go round in circles
_DAMPED_PATIENCE, _SHORTEST = 12, 0.125


@subroutine
def newton(
    G: Array, g: Array, blocks: Records, impulse: Array, sigma: Array, iterations: int, tolerance: float,
    compliance: float, damped: bool,
) -> tuple[int, float]:  # fmt: skip
    """Semi-smooth Newton on the laws as a fixed point λ = proj(λ − σ/s); returns iterations and the best residual.

    Impulses that the laws say outright (no contact, dry friction at its bound) are set; the equations of the others,
    sticking or sliding, are linearised and solved together. Steps are taken in full: they change modes, and the
    residual may well rise before it falls. A little compliance, relative to each block's response, keeps the equations
    of redundant contacts solvable; it only shapes the step, as the residual is that of the problem as it is. With
    `damped`, steps become shorter where the residual rises: slower, but it breaks cycles of modes.
    """
    n = G.shape[0]
    velocity(G, g, impulse, sigma)
    error = residual(blocks, impulse, sigma)
    if error <= tolerance:
        return 0, error
    step, lowest, mark, marked = 1.0, np.inf, np.inf, 0  # the first step may raise the residual: it does not count
    numbers, places, slopes = np.empty((4, n)), np.empty((2, n), dtype=np.int64), np.empty((blocks.shape[0], 9))
    base, base_sigma, F, best = numbers[0], numbers[1], numbers[2], numbers[3]
    rows, owner = places[0], places[1]
    room = np.empty(n * n)  # one for all iterations: the system takes long to hand out much memory
    best[:], best_error = impulse, error
    for iteration in range(iterations):
        m = _linearize_laws(blocks, impulse, sigma, base, F, rows, owner, slopes)
        velocity(G, g, base, base_sigma)
        A = room[: m * m].reshape(m, m)
        _set_equations(G, blocks, compliance, sigma, base_sigma, rows[:m], owner[:m], slopes, F, A)
        if not solve_equations(A, F[:m]):
            break
        for r in range(m):
            base[rows[r]] += F[r]
        for i in range(n):
            impulse[i] += step * (base[i] - impulse[i])
        before = error
        velocity(G, g, impulse, sigma)
        error = residual(blocks, impulse, sigma)
        if error <= tolerance:
            return iteration + 1, error
        if not math.isfinite(error):
            break
        if error < best_error:
            best_error = error
            best[:] = impulse
        if damped:
            step = max(0.5 * step, _SHORTEST) if error > before else min(2.0 * step, 1.0)
        lowest = min(lowest, error)
        if lowest <= 0.5 * mark:
            mark, marked = lowest, iteration
        elif iteration - marked >= (_DAMPED_PATIENCE if damped else _PATIENCE):
            iterations = iteration + 1
            break
    impulse[:] = best
    velocity(G, g, impulse, sigma)
    return iterations, best_error


@subroutine
def _linearize_laws(
    blocks: Records, impulse: Array, sigma: Array, base: Array, F: Array, rows: IntArray, owner: IntArray, slopes: Array
) -> int:
    """Set what the laws say outright in `base`; of the others, list rows, F = λ − proj(λ − σ/s) and slopes of proj."""
    m, y = 0, np.empty(6)
    for b in range(blocks.shape[0]):
        block = blocks[b]
        a, width, kind = block.start, block.width, block.kind
        for i in range(width):
            y[i] = impulse[a + i] - sigma[a + i] / block.scale
        is_open = _slopes(kind, block.bound, y, slopes[b])
        project(kind, block.bound, y)
        for i in range(width):
            base[a + i] = impulse[a + i] if is_open else y[i]
            if is_open:
                rows[m], owner[m], F[m] = a + i, b, impulse[a + i] - y[i]
                m += 1
    return m


@subroutine
def _slopes(kind: int, bound: float, y: Array, P: Array) -> bool:
    """Fill P (3, 3), flat, with the slope of `project` at y; False where it is zero. Of an equality it is 1."""
    if kind == EQUALITY:
        return True
    if kind == DRY:
        return abs(y[0]) <= bound
    if y[0] <= 0.0:
        return False
    if kind in (CONTACT, BOX):
        P[:] = 0.0
        P[0], radius = 1.0, bound * y[0]
        length = math.sqrt(y[1] * y[1] + y[2] * y[2])
        if kind == BOX:
            for i in range(1, 3):
                if abs(y[i]) > radius:
                    P[3 * i] = math.copysign(bound, y[i])
                else:
                    P[4 * i] = 1.0
        elif length <= radius:
            P[4], P[8] = 1.0, 1.0
        else:
            ux, uy, ratio = y[1] / length, y[2] / length, radius / length
            P[3], P[6] = bound * ux, bound * uy
            P[4], P[5], P[8] = ratio * (1.0 - ux * ux), -ratio * ux * uy, ratio * (1.0 - uy * uy)
            P[7] = P[5]
    return True


@subroutine
def _set_equations(
    G: Array, blocks: Records, compliance: float, sigma: Array, base_sigma: Array, rows: IntArray, owner: IntArray,
    slopes: Array, F: Array, A: Array,
) -> None:  # fmt: skip
    """A becomes the matrix (1 − P) + P·G/s of the open rows, each times s; F the right side."""
    m, r = rows.shape[0], 0
    while r < m:
        block = blocks[owner[r]]
        a, s, width = block.start, block.scale, block.width
        if block.kind in (CONTACT, BOX):
            P = slopes[owner[r]].reshape(3, 3)
            for i in range(3):
                F[r + i] *= -s
                for c in range(m):
                    A[r + i, c] = 0.0
            for i in range(3):
                for j in range(3):
                    if P[i, j] != 0.0:
                        F[r + i] -= P[i, j] * (base_sigma[a + j] - sigma[a + j])
                        for c in range(m):
                            A[r + i, c] += P[i, j] * G[a + j, rows[c]]
                        A[r + i, r + j] += s * P[i, j] * (compliance - 1.0)
                A[r + i, r + i] += s
        else:
            for i in range(width):
                F[r + i] = -base_sigma[a + i]
                for c in range(m):
                    A[r + i, c] = G[a + i, rows[c]]
                A[r + i, r + i] += compliance * s
        r += width


@subroutine
def solve_equations(A: Array, b: Array) -> bool:
    """Solve in place, A is overwritten; False if the equations are singular."""
    if A.shape[0] < _WORTH_LAPACK:
        return bool(solve_in_place(A, b))
    pivots = np.empty(A.shape[0], dtype=np.int32)
    if not factor(A, pivots):
        return False
    solve_factored(A, pivots, b)
    return True
