"""What iterative methods have in common: a history, rules that stop them, a callback and a progress bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tangens.errors import OptionError
from tangens.optimize.result import Iteration

Array = NDArray[np.float64]
Callback = Callable[[Iteration, Array], object]


@dataclass(frozen=True)
class Rules:
    """When to stop."""

    max_iterations: int
    """Iterations before it gives up."""
    gradient_tolerance: float = 0.0
    """Norm of the gradient, relative to the first one, that counts as zero."""
    cost_tolerance: float = 0.0
    """Change of the cost, relative to the cost, that counts as none."""
    feasibility_tolerance: float = 0.0
    """Violation that counts as none: before, nothing counts as reached."""
    target_cost: float = -np.inf
    """Cost that is good enough."""
    time_budget: float = np.inf
    """Seconds after which no iteration is begun."""

    def __post_init__(self) -> None:
        check_count("max_iterations", self.max_iterations)
        for name in ("gradient_tolerance", "cost_tolerance", "feasibility_tolerance"):
            check_tolerance(name, getattr(self, name))
        for name in ("target_cost", "time_budget"):
            if np.isnan(getattr(self, name)):
                raise OptionError(f"{name}={getattr(self, name)!r} must be a number")


class Monitor:
    """Keeps the history, shows it, and says when to stop."""

    def __init__(self, rules: Rules, callback: Callback | None, show: Callable[[int, float], None]) -> None:
        self._rules, self._callback, self._show = rules, callback, show
        self._began = self._clock = time.perf_counter()
        self._first_slope = 0.0
        self._latest: Array | None = None
        self.history: list[Iteration] = []
        self.converged, self.message = False, ""

    def record(self, x: Array, cost: float, slope: float, evaluations: int, violation: float = 0.0) -> bool:
        """Add an entry to the history; whether to stop."""
        now = time.perf_counter()
        length = 0.0 if self._latest is None else float(np.linalg.norm(x - self._latest))
        entry = Iteration(cost, slope, length, evaluations, now - self._clock, violation)
        previous = self.history[-1] if self.history else None
        self.history.append(entry)
        self._clock, self._latest = now, x.copy()
        if np.isfinite(slope):
            self._first_slope = self._first_slope or slope
        self._show(len(self.history) - 1, cost)
        if self._callback is not None and self._callback(entry, x.copy()) is True:
            return self.stop("the callback asked to stop")
        return self._reached(entry, previous) or self.spent()

    def stop(self, message: str, *, converged: bool = False) -> bool:
        """Note why it ends; always true."""
        self.message, self.converged = message, converged
        return True

    def out_of_time(self) -> bool:
        """Whether the time budget is spent."""
        return time.perf_counter() - self._began >= self._rules.time_budget

    def spent(self) -> bool:
        """Whether to stop without having reached anything."""
        if len(self.history) > self._rules.max_iterations:
            return self.stop(f"not there after {self._rules.max_iterations} iterations")
        if self.out_of_time():
            return self.stop(f"the time budget of {self._rules.time_budget:g} s is spent")
        return False

    def _reached(self, entry: Iteration, previous: Iteration | None) -> bool:
        rules = self._rules
        if entry.violation > rules.feasibility_tolerance:
            return False
        if entry.cost <= rules.target_cost:
            return self.stop(f"the cost is within {rules.target_cost:g}", converged=True)
        if entry.gradient_norm <= rules.gradient_tolerance * self._first_slope:
            return self.stop("the gradient vanishes: a stationary point", converged=True)
        feasible_before = previous is not None and previous.violation <= rules.feasibility_tolerance
        if previous is not None and feasible_before and rules.cost_tolerance > 0:
            change = abs(previous.cost - entry.cost)
            if change <= rules.cost_tolerance * abs(entry.cost):
                return self.stop("the cost changes no more", converged=True)
        return False


class Damping:
    """A multiple of the identity on top of a Hessian: less after each success, more where no step was any good."""

    def __init__(self, first: float) -> None:
        check_tolerance("damping", first)
        self.value = first

    def succeeded(self) -> None:
        """Hear that a step was taken."""
        self.value = max(self.value / 10, _LEAST_DAMPING)

    def failed(self) -> bool:
        """Hear that no step was any good; whether more damping may help."""
        self.value = max(10 * self.value, _LEAST_DAMPING)
        return self.value <= _MOST_DAMPING


_LEAST_DAMPING, _MOST_DAMPING = 1e-10, 1e8


def check_count(name: str, value: int, least: int = 0) -> None:
    """Complain of what is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise OptionError(f"{name}={value!r} must be a whole number of at least {least}")


def check_tolerance(name: str, value: float) -> None:
    """Complain of what is not a number of at least 0."""
    if not np.isfinite(value) or value < 0:
        raise OptionError(f"{name}={value!r} must be a number, at least 0")


@contextmanager
def bar(shown: bool, total: int, label: str = "cost") -> Iterator[Callable[[int, float], None]]:
    """A progress bar on stderr that tells the cost, or what `label` says; gone when done."""
    if not shown:
        yield lambda iteration, value: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    except ImportError:  # rich comes with the extra lab
        yield lambda iteration, value: print(f"{iteration} of {total}, {label} {value:.3g}", file=sys.stderr)
        return
    number = TextColumn(label + " {task.fields[value]:.3g}")
    columns = TextColumn("optimising"), BarColumn(), MofNCompleteColumn(), number
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as progress:
        task = progress.add_task("optimising", total=total, value=float("nan"))
        yield lambda iteration, value: progress.update(task, completed=iteration, value=value, refresh=True)
