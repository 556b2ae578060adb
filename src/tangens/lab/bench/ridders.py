"""Ridders' method: a derivative from central difference quotients at shrinking steps, extrapolated to step zero.

C. J. F. Ridders, "Accurate computation of F'(x) and F'(x) F''(x)", Advances in Engineering Software 4 (1982), 75-76,
with the stopping rule of Press et al., "Numerical Recipes", Sec. 5.7: a direction ends as soon as the newest
extrapolation is worse than the best one by a factor. It is the baseline of paper 5, Appendix D.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

_SHRINK, _LEVELS, _SAFETY = 1.4, 10, 2.0  # as in Press et al.


def step_sizes(largest: float) -> list[float]:
    """The steps at which quotients may be asked for."""
    return [largest / _SHRINK**k for k in range(_LEVELS)]


def ridders(quotient: Callable[[float, IntArray], Array], directions: int, largest: float) -> tuple[Array, Array]:
    """Derivatives along several directions, shape (directions, m), and an estimate of the error of each.

    Args:
        quotient: (f(x + s·e_i) − f(x − s·e_i)) / 2s for a step s and the directions i given, shape (·, m).
        directions: how many there are.
        largest: the first step.

    """
    going = np.arange(directions)
    best, error = np.empty((0, 0)), np.full(directions, np.inf)
    before: list[Array] = []  # the last row of Neville's table, for the directions still going
    for s in step_sizes(largest):
        row = [quotient(s, going)]
        if not before:
            best, before = row[0].copy(), row
            continue
        for order, old in enumerate(before, start=1):
            row.append(row[-1] + (row[-1] - old) / (_SHRINK ** (2 * order) - 1))
            doubt = np.maximum(_largest(row[-1] - row[-2]), _largest(row[-1] - old))
            better = doubt <= error[going]
            best[going[better]], error[going[better]] = row[-1][better], doubt[better]
        stays = _largest(row[-1] - before[-1]) < _SAFETY * error[going]
        going, before = going[stays], [entry[stays] for entry in row]
        if not len(going):
            break
    return best, error


def _largest(rows: Array) -> Array:
    """The largest entry of each row, by size."""
    return np.abs(rows).max(axis=1)
