"""Timing small functions on a noisy machine."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SHARE = 0.05
_LONG = 0.2
"""Seconds after which a calibration ends."""


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this process, and whatever threads its libraries start, on a single core."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Timings:
    """Samples of several functions that took turns, so that a slow moment of the machine hit all of them alike."""

    def __init__(self, samples: dict[str, list[float]]) -> None:
        self._samples = samples

    @property
    def trials(self) -> int:
        """How many there were."""
        return min(map(len, self._samples.values()))

    def median(self, name: str) -> float:
        """Median time of one call [µs]."""
        return 1e6 * statistics.median(self._samples[name])

    def ratio(self, name: str, peer: str) -> float:
        """Median over the trials of how much longer `name` took than `peer` in the same trial."""
        pairs = zip(self._samples[name], self._samples[peer], strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)


def _calibrated(function: Callable[[], object]) -> float:
    """Seconds of one call, from 20 calls, or fewer where they take long."""
    start, calls = time.perf_counter(), 0
    while calls < 20 and (calls == 0 or time.perf_counter() - start < _LONG):
        function()
        calls += 1
    return (time.perf_counter() - start) / calls


def interleaved(
    functions: dict[str, Callable[[], object]],
    trials: int,
    seconds_per_trial: float = 0.01,
    most_seconds: float = math.inf,
) -> Timings:
    """Time the functions in turns.

    Where `most_seconds` is given, functions are warm already, and there are fewer trials where those of one would take
    longer.
    """
    once = dict[str, float]()
    for name, function in functions.items():
        if most_seconds == math.inf:
            function()  # warm: compiled, caches filled
        once[name] = _calibrated(function)
    slowest = max(once.values())
    # Next to a function that takes seconds and leaves caches and memory to itself, a short one gets a fair share, too.
    share = max(seconds_per_trial, _SHARE * slowest)
    repeats = {name: max(1, int(share / max(seconds, 1e-9))) for name, seconds in once.items()}
    samples: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(int(max(1, min(trials, most_seconds / slowest)))):
        for name, function in functions.items():
            if repeats[name] > 1:
                function()
            start = time.perf_counter()
            for _ in range(repeats[name]):
                function()
            samples[name].append((time.perf_counter() - start) / repeats[name])
    return Timings(samples)


def first_call(function: Callable[[], object]) -> tuple[float, object]:
    """Seconds of the first call, compilation included, and its result."""
    import jax

    start = time.perf_counter()
    out = jax.block_until_ready(function())
    return time.perf_counter() - start, out
