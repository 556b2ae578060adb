"""Small dense quadratic programs with limits: minimise ½ x·Hx + g·x, lower ≤ x ≤ upper.

Projected Newton, after Tassa, Mansard and Todorov, "Control-limited differential dynamic programming", ICRA 2014: a
Newton step in the entries that are free to move, cut off at the limits. It ends in as many steps as it takes to
find out which entries rest at a limit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

Array = NDArray[np.float64]

_SUFFICIENT = 1e-4


class BoxSolution(NamedTuple):
    """Where the minimum lies, and which entries are free to move there."""

    x: Array
    free: NDArray[np.bool_]
    factor: Array
    """Lower Cholesky factor of H in the free entries."""

    def respond(self, B: Array) -> Array:
        """−H⁻¹B in the free entries, zero in those that rest at a limit."""
        out = np.zeros_like(B)
        if self.free.any():
            out[self.free] = -cho_solve((self.factor, True), B[self.free], check_finite=False)
        return out


def solve_box_qp(
    H: Array, g: Array, lower: Array, upper: Array, start: Array, max_iterations: int = 100
) -> BoxSolution:
    """The minimum; raises LinAlgError where H is not positive definite in the entries that matter."""
    x = np.clip(start, lower, upper)
    value = float(x @ (0.5 * H @ x + g))
    scale = float(np.abs(g).max(initial=0.0)) + float(np.abs(H).max(initial=0.0)) * float(np.abs(x).max(initial=0.0))
    known: NDArray[np.bool_] | None = None
    factor: Array = np.zeros((0, 0))
    for _ in range(max_iterations):
        slope = H @ x + g
        free = ~(((x <= lower) & (slope > 0)) | ((x >= upper) & (slope < 0)))
        if known is None or (free != known).any():
            factor, known = np.asarray(np.linalg.cholesky(H[np.ix_(free, free)]), dtype=np.float64), free
        if not free.any() or np.abs(slope[free]).max() <= 1e-14 * scale:
            break
        direction = np.zeros_like(x)
        direction[free] = -cho_solve((factor, True), slope[free], check_finite=False)
        share = 1.0
        while share > 1e-10:
            candidate = np.clip(x + share * direction, lower, upper)
            there = float(candidate @ (0.5 * H @ candidate + g))
            if there <= value + _SUFFICIENT * float(slope @ (candidate - x)):
                break
            share /= 2
        else:
            break  # rounding forbids to get any lower
        if np.array_equal(candidate, x):
            break
        x, value = candidate, there
    return BoxSolution(x, free, factor)
