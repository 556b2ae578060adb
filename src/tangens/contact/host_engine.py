"""Engines of models that run on the host, in MuJoCo and numba, one step at a time.

The author of a model writes four functions that work on one *scratch*: memory that a step fills and that nobody reads
afterwards. This base class lends scratches to threads and makes batches and the JAX function of them.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tangens.contact.base import ContactModel, Cotangent, Engine, Point, PureStep
from tangens.contact.rules import GradientRule
from tangens.results import Jacobian, Step

if TYPE_CHECKING:
    from tangens.scene import Scene

Array = NDArray[np.float64]
T = TypeVar("T")


class HostEngine(Engine):
    """An engine of which several threads may ask steps and derivatives at once."""

    def __init__(self, scene: Scene, contact: ContactModel) -> None:
        super().__init__(scene, contact)
        self._idle: list[Any] = [self.new_scratch()]  # now, so that a scene it cannot take is refused at once

    @abstractmethod
    def new_scratch(self) -> Any:
        """Memory for one thread; SceneError if the model cannot take the scene."""

    @abstractmethod
    def solve(self, scratch: Any, x: Point, guess: Any) -> Step:
        """Take a step."""

    @abstractmethod
    def differentiate(
        self, scratch: Any, tape: Any, wrt: Sequence[str], with_force: bool, rule: GradientRule
    ) -> Jacobian:
        """Differentiate the step on the tape."""

    @abstractmethod
    def carry_back(
        self, scratch: Any, tape: Any, cotangent: Cotangent, wrt: Sequence[str], rule: GradientRule
    ) -> tuple[dict[str, Array], bool]:
        """Carry a cotangent back through the step on the tape."""

    # These three lend a scratch by hand: a context manager would take as long as a stage of the step.

    def step(self, x: Point, guess: Any = None) -> Step:
        """Advance by one time step."""
        scratch = self._lend()
        try:
            return self.solve(scratch, x, guess)
        finally:
            self._idle.append(scratch)

    def jacobian(self, tape: Any, wrt: Sequence[str], with_force: bool, rule: GradientRule) -> Jacobian:
        """Derivative of the step that left the tape."""
        scratch = self._lend()
        try:
            return self.differentiate(scratch, tape, wrt, with_force, rule)
        finally:
            self._idle.append(scratch)

    def pullback(
        self, tape: Any, cotangent: Cotangent, wrt: Sequence[str], rule: GradientRule
    ) -> tuple[dict[str, Array], bool]:
        """∂L/∂(inputs) of the step that left the tape, and whether v⁺ was unique."""
        scratch = self._lend()
        try:
            return self.carry_back(scratch, tape, cotangent, wrt, rule)
        finally:
            self._idle.append(scratch)

    def each(self, task: Callable[[int], T], count: int, threads: int | None = None) -> list[T]:
        """task(0) to task(count − 1), shared between as many threads as there are cores unless given."""
        workers = min(threads or _cores(), count)
        if workers <= 1:
            return [task(i) for i in range(count)]
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(task, range(count)))

    @contextmanager
    def scratch(self) -> Iterator[Any]:
        """A scratch that nobody else uses at the moment."""
        scratch = self._lend()
        try:
            yield scratch
        finally:
            self._idle.append(scratch)

    def _lend(self) -> Any:
        try:
            scratch = self._idle.pop()
        except IndexError:
            return self.new_scratch()
        # after an interrupt, a step may still be at work on it
        return self._lend() if getattr(scratch, "abandoned", False) else scratch

    def function(self, rule: GradientRule) -> PureStep:
        """The step as a JAX function that calls back to this engine."""
        from tangens.contact.host_function import host_function  # JAX is not imported before it is needed

        return host_function(self, rule)


def _cores() -> int:
    """Cores that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
