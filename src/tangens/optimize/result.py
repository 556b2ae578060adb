"""What an optimisation hands back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.results import Trajectory

Array = NDArray[np.float64]


class Iteration(NamedTuple):
    """One entry of the history; the first describes the start."""

    cost: float
    """The cost at the point reached; ½|r|² for least squares."""
    gradient_norm: float
    """Norm of its gradient there, without what limits forbid; infinite where there is no derivative."""
    step_length: float
    """Length of the step that led there."""
    evaluations: int
    """Points at which the cost was evaluated so far, those of finite differences included."""
    seconds: float
    """Duration of this iteration."""
    violation: float = 0.0
    """How far the pieces of a motion are from fitting together, for methods that cut it into pieces."""


@dataclass(frozen=True)
class Outcome:
    """The best point that was found, and how it was found."""

    x: Array
    """The point of least cost."""
    cost: float
    """The cost there."""
    history: tuple[Iteration, ...]
    """The start and each iteration."""
    converged: bool
    """Whether what was asked for has been reached: a tolerance or a target."""
    message: str
    """Why it stopped."""

    @property
    def iterations(self) -> int:
        """Iterations taken."""
        return len(self.history) - 1

    @property
    def seconds(self) -> float:
        """Duration of all iterations."""
        return sum(entry.seconds for entry in self.history)


@dataclass(frozen=True, repr=False)
class Result(Outcome):
    """The solution of a least-squares problem; its cost is ½|r|²."""

    @property
    def error(self) -> float:
        """Norm of the residual at `x`."""
        return float(np.sqrt(2 * self.cost))

    @property
    def errors(self) -> Array:
        """Norm of the residual at the start and after each iteration."""
        return np.sqrt(2 * np.array([entry.cost for entry in self.history]))

    def __repr__(self) -> str:
        return f"Result(error={self.error:.3g}, iterations={self.iterations}, {self.message})"


@dataclass(frozen=True, repr=False)
class ControlResult(Outcome):
    """Controls, shape (intervals, nu), and the motion that the simulator makes of them."""

    trajectory: Trajectory
    """That motion; `trajectory.u` are the controls of each step."""
    gains: Array | None = None
    """∂u/∂x of the optimal feedback, shape (intervals, nu, 2·nv), where the method has one (`ilqr`)."""

    def __repr__(self) -> str:
        return f"ControlResult(cost={self.cost:.6g}, iterations={self.iterations}, {self.message})"
