"""Compliance continuation: hard contact problems, redundant ones above all, as the limit of softer ones.

    σ = (G + ε·S)·λ + g − ε·S·λ₀        S: how fast each block answers its own impulse

With a large ε blocks hardly see each other, and Newton needs a few iterations. As ε goes to zero, the answer moves
along a path, and each stage starts from the last: modes change one by one instead of all at once, and of many impulses
that redundant contacts allow, the path leads to one. Where a stage fails, the step along the path is shortened. At the
end, λ₀ is what was found before (a proximal point iteration), so that the last ε leaves no trace.

If a problem has no solution, as when overlaps cannot be undone, impulses grow like 1/ε and the residual stays.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.problem.contact_problem import DRY, residual, velocity
from tangens.contact.rigid.solvers.newton import newton
from tangens.kernels import subroutine

Array = NDArray[np.float64]
Records = NDArray[np.void]

# Tuned on stacks, walls, heaps and mass ratios of 1e4, moving and at rest (tests/contact/rigid/test_hyperstatic.py).
_FIRST, _LAST = 0.1, 1e-10  # ε
_FACTOR, _BOLD, _BOLDEST = 0.03, 0.3, 1e-3  # of ε from stage to stage; bolder after an easy stage
_EASY = 3  # iterations
_STAGE = 12  # iterations before a stage has failed
_STAGE_TOLERANCE = 1e-2  # share of what a stage's compliance is about
_SHORT, _DAMPED = 0.5, 20  # where steps along the path become short, so many damped iterations help across a fold
_HOPELESS = 0.9  # a factor so close to 1 leads nowhere
_GROWTH = 0.7  # share of the residual that is left when ε falls by ten: impulses grow like 1/ε


@subroutine
def follow_compliance(
    G: Array, g: Array, blocks: Records, impulse: Array, sigma: Array, iterations: int, tolerance: float
) -> tuple[int, float, bool]:  # fmt: skip
    """Leave the best impulses found; returns iterations, residual, and False if the problem has no solution."""
    H, h, scaled, root = _scaled_problem(G, g, blocks)
    n = h.shape[0]
    diagonal, size = np.empty(n), 1e-300
    for i in range(n):
        diagonal[i], size = H[i, i], max(size, abs(h[i]))
    enough = 0.1 * tolerance / root.max()
    x, s, shifted = np.zeros(n), np.empty(n), h.copy()
    good, anchor, best, best_error = np.zeros(n), np.zeros(n), impulse.copy(), np.inf
    eps, factor, reached, last_error, total = _FIRST, _FACTOR, np.inf, np.inf, 0
    solvable = True
    while total < iterations:
        for i in range(n):
            H[i, i], shifted[i], x[i] = diagonal[i] + eps, h[i] - eps * anchor[i], good[i]
        limit = max(_STAGE_TOLERANCE * size * eps / (1.0 + eps), enough)
        taken, found = newton(H, shifted, scaled, x, s, min(_STAGE, iterations - total), limit, 0.0, False)
        total += max(taken, 1)
        if found > limit and factor > _SHORT:
            x[:] = good
            taken, found = newton(H, shifted, scaled, x, s, min(_DAMPED, iterations - total), limit, 0.0, True)
            total += max(taken, 1)
        error = _rigid_residual(G, g, blocks, root, x, impulse, sigma)
        if found <= limit and error > tolerance and taken <= _EASY and eps < 1e-3:
            for i in range(n):
                H[i, i], s[i] = diagonal[i], x[i]
            more, _ = newton(H, h, scaled, s, shifted, 2, enough, 1e-12, False)
            total += more
            error_now = _rigid_residual(G, g, blocks, root, s, impulse, sigma)
            if error_now <= tolerance:
                return total, error_now, True
        if error < best_error:
            best_error = error
            for i in range(n):
                best[i] = x[i] / root[i]
        if error <= tolerance:
            break
        if found <= limit:
            if eps < 1e-5 and reached < np.inf and eps <= 0.1 * reached and error > _GROWTH * last_error:
                solvable = False
                break
            if eps <= 0.1 * reached or reached == np.inf:
                last_error = error
            good[:] = x
            if eps <= _LAST:
                anchor[:] = x
            reached, eps = eps, max(eps * factor, _LAST)
            factor = max(factor * (_BOLD if taken <= _EASY else 1.0), _BOLDEST)
        elif reached == np.inf:
            eps *= 10.0
        elif eps <= _LAST and reached <= _LAST:
            anchor[:] = good
            eps, reached = 10.0 * eps, np.inf
        else:
            factor = math.sqrt(eps / reached)
            eps = reached * factor
            if factor > _HOPELESS:
                break
    impulse[:] = best
    velocity(G, g, impulse, sigma)
    return total, residual(blocks, impulse, sigma), solvable


@subroutine
def _scaled_problem(G: Array, g: Array, blocks: Records) -> tuple[Array, Array, Records, Array]:
    """The problem in units in which each block answers a unit impulse with a unit velocity; and the roots of scales."""
    n = g.shape[0]
    root, scaled = np.empty(n), blocks.copy()
    for b in range(blocks.shape[0]):
        scaled[b].scale = 1.0
        for i in range(blocks[b].start, blocks[b].start + blocks[b].width):
            root[i] = math.sqrt(blocks[b].scale)
        if blocks[b].kind == DRY:
            scaled[b].bound = blocks[b].bound * root[blocks[b].start]
    H, h = np.empty((n, n)), np.empty(n)
    for i in range(n):
        h[i] = g[i] / root[i]
        for j in range(n):
            H[i, j] = G[i, j] / (root[i] * root[j])
    return H, h, scaled, root


@subroutine
def _rigid_residual(
    G: Array, g: Array, blocks: Records, root: Array, x: Array, impulse: Array, sigma: Array
) -> float:  # fmt: skip
    """Of scaled impulses, in the problem as it was given; leaves impulses and velocities of that."""
    for i in range(x.shape[0]):
        impulse[i] = x[i] / root[i]
    velocity(G, g, impulse, sigma)
    return residual(blocks, impulse, sigma)
