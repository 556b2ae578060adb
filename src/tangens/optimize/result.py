"""What an optimisation hands back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Iteration(NamedTuple):
    """One entry of the history; the first describes the start."""

    cost: float
    """½|r|² at the point reached."""
    gradient_norm: float
    """|Jᵀr| there; infinite where the derivative could not be had."""
    step_length: float
    """Length of the step that led there."""
    evaluations: int
    """Residuals evaluated so far, those of finite differences included."""
    seconds: float
    """Duration of this iteration."""


@dataclass(frozen=True)
class Result:
    """The best point that was found, and how it was found."""

    x: Array
    """The point of least cost."""
    cost: float
    """½|r|² there."""
    history: tuple[Iteration, ...]
    """The start and each iteration."""
    converged: bool
    """Whether the residual or the gradient came within its tolerance."""
    message: str
    """Why it stopped."""

    @property
    def error(self) -> float:
        """Norm of the residual at `x`."""
        return float(np.sqrt(2 * self.cost))

    @property
    def errors(self) -> Array:
        """Norm of the residual at the start and after each iteration."""
        return np.sqrt(2 * np.array([entry.cost for entry in self.history]))

    @property
    def iterations(self) -> int:
        """Iterations taken."""
        return len(self.history) - 1

    def __repr__(self) -> str:
        return f"Result(error={self.error:.3g}, iterations={self.iterations}, {self.message})"
