"""Bounds on unknowns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.errors import OptionError

Array = NDArray[np.float64]


class Box(NamedTuple):
    """All x with low ≤ x ≤ high."""

    low: Array
    high: Array

    @staticmethod
    def of(bounds: tuple[ArrayLike, ArrayLike] | None, size: int) -> Box:
        """The box between two bounds, each a number or an array; all numbers without bounds."""
        low, high = (-np.inf, np.inf) if bounds is None else bounds
        try:
            box = Box(*(np.broadcast_to(np.asarray(x, dtype=np.float64), (size,)) for x in (low, high)))
        except (TypeError, ValueError):
            raise OptionError(f"bounds must be two numbers, or two arrays of size {size}; got {bounds!r}") from None
        if np.isnan(box.low).any() or np.isnan(box.high).any() or (box.low > box.high).any():
            raise OptionError("bounds leave no room: each lower bound must be a number no larger than the upper one")
        return box

    def nearest(self, x: Array) -> Array:
        """The point of the box nearest to x."""
        return np.clip(x, self.low, self.high)

    def free(self, x: Array, gradient: Array) -> NDArray[np.bool_]:
        """Which unknowns descent can move: not those at a bound that it leads beyond."""
        stuck: NDArray[np.bool_] = ((x <= self.low) & (gradient > 0)) | ((x >= self.high) & (gradient < 0))
        return ~stuck
