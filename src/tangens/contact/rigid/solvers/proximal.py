"""Proximal steps: a contact problem with redundant contacts as a sequence of problems that have none.

Each problem holds on to the impulses λ₀ that the last one found, σ = G·λ + g + w·S·(λ − λ₀) with S the blocks' own
responses, which makes its matrix regular. Where Newton's method solves it, the next one holds on by less, and where it
does not, by more. At the end λ = λ₀, so that no trace is left of w.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.problem.contact_problem import residual, velocity
from tangens.contact.rigid.solvers.newton import newton
from tangens.kernels import subroutine

Array = NDArray[np.float64]
Records = NDArray[np.void]

# Tuned along with the interior-point method.
_FIRST, _LEAST, _MOST = 1e-2, 1e-8, 10.0  # w
_LESS, _MORE = 0.1, 10.0
_NEWTON = 8  # iterations for one problem
_SHARE = 1e-2  # of w and of the residual before: what counts as solved
_BETTER = 0.3  # of the residual before: what is worth going on from, even if the problem was not solved


@subroutine
def proximal(
    G: Array, g: Array, blocks: Records, impulse: Array, sigma: Array, iterations: int, tolerance: float
) -> tuple[int, float]:  # fmt: skip
    """Leave the best impulses found, from those given; returns iterations of Newton's method and residual."""
    n, total, weight = g.shape[0], 0, _FIRST
    H, h, anchor, trial = G.copy(), np.empty(n), impulse.copy(), np.empty(n)
    velocity(G, g, impulse, sigma)
    best_error = residual(blocks, impulse, sigma)
    anchor_error = best_error
    while total < iterations and best_error > tolerance and math.isfinite(anchor_error):
        for b in range(blocks.shape[0]):
            hold = weight * blocks[b].scale
            for i in range(blocks[b].start, blocks[b].start + blocks[b].width):
                H[i, i], h[i], trial[i] = G[i, i] + hold, g[i] - hold * anchor[i], anchor[i]
        enough = max(_SHARE * min(weight, 1.0) * anchor_error, 0.1 * tolerance)
        taken, found = newton(H, h, blocks, trial, sigma, _NEWTON, enough, 0.0, False)
        total += max(taken, 1)
        velocity(G, g, trial, sigma)
        error = residual(blocks, trial, sigma)
        if error < best_error:
            best_error = error
            impulse[:] = trial
        solved = found <= enough
        weight = max(_LESS * weight, _LEAST) if solved else min(_MORE * weight, _MOST)
        if solved or found < _BETTER * anchor_error:
            anchor_error = error
            anchor[:] = trial
    velocity(G, g, impulse, sigma)
    return total, best_error
