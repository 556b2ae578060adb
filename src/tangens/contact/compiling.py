"""Compiled functions: shared between all engines that can use them, and given up when there are too many.

A compiled step leaves some 2,000 to 3,600 memory maps in the process, and Linux allows 65,530 of them: beyond that, the
compiler crashes. So only the functions used last are kept. What has been given up is compiled again when it is needed;
engines therefore ask for a function at each call, and never keep one.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Hashable
from pathlib import Path
from threading import Lock
from typing import Any

import jax

from tangens.contact.executables import KeptFunction

_MOST = 12
"""Functions kept: at 3,600 maps each, two thirds of what Linux allows."""
_LEAST = 2
"""Kept even where maps run short: a step and its derivative, taken in turns."""
_SHARE = 0.6
"""Of all maps that Linux allows: those of one more function have to fit in, and those of scenes with many kinds of
shapes are several times as many."""
_QUICK = {
    "xla_backend_optimization_level": 1,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1,
    # The gradient of a convex step on two boxes: 8.0 s instead of 11.9 s to compile, 4.8 ms instead of 11 ms to run.
    "xla_cpu_use_fusion_emitters": False,
}


def compiler_options() -> dict[str, Any] | None:
    """For functions of a thousand small operations: optimising each of them would take longer than it saves.

    Who sets XLA_FLAGS decides for themselves.
    """
    asked = jax.default_backend() == "cpu" and "XLA_FLAGS" not in os.environ
    return _QUICK if asked else None


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function to be compiled with these options when it is first called."""
    return jax.jit(function, compiler_options=compiler_options())


class CompiledFunctions:
    """Compiled functions by key, the one used last at the end. Each is called with arrays of one set of shapes only."""

    def __init__(self, most: int = _MOST) -> None:
        self.most = most
        self._kept: dict[Hashable, Callable[..., Any]] = {}
        self._lock = Lock()

    def __call__(self, key: Hashable, make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        """The function of this key; if there is none, what `make` returns, compiled when it is first called."""
        with self._lock:
            function = self._kept.pop(key, None)
            if function is None:
                self._give_up()
                function = KeptFunction(key, make, compiler_options())
            self._kept[key] = function
            return function

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    def _give_up(self) -> None:
        """Forget the functions that have not been used for longest, until there is room for one more."""
        gone = False
        while len(self._kept) >= self.most or (len(self._kept) > _LEAST and maps_run_short()):
            del self._kept[next(iter(self._kept))]
            gone = True
            if len(self._kept) < self.most:
                gc.collect()  # functions and what was traced of them refer to each other; this frees their maps
        if gone:
            gc.collect()


def maps_run_short() -> bool:
    """Whether the process uses most of the memory maps that Linux allows; elsewhere, no."""
    try:
        allowed = int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii"))
        with Path("/proc/self/maps").open("rb") as maps:
            return sum(1 for _ in maps) > _SHARE * allowed
    except OSError:
        return False


FUNCTIONS = CompiledFunctions()
"""Those of the process."""
