"""What a step may still cost, over all that is tried in it, so that none of a heap of contacts hangs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.memory.settings import ITERATIONS, WORK
from tangens.kernels import inline

Array = NDArray[np.float64]


@inline
def affordable(settings: Array, rows: int) -> int:
    """Iterations on so many rows that are left, each of which factors its equations."""
    return max(min(int(settings[ITERATIONS]), int(settings[WORK] / _cost(rows))), 0)


@inline
def spend(settings: Array, iterations: int, rows: int) -> None:
    """Take what they have cost."""
    settings[WORK] -= iterations * _cost(rows)


@inline
def _cost(rows: int) -> float:
    return 1.0 + rows**3
