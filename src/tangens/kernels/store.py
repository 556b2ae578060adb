"""Where compiled kernels are kept: files named by their content key, in the package itself and in the user's cache.

The package's own folder is filled by `make venv` in a checkout, and comes with the wheel; it may be read-only. What is
missing there is looked for in the user's cache folder, and written to it when it has been compiled.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import platform
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite
import numba
from llvmlite import binding as llvm
from numba.core.registry import cpu_target

from tangens.cache import writable_folder, write

PACKAGED = Path(__file__).parents[1] / "_kernels"
_X86_64_V3 = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")  # instructions beyond those of all x86-64
SUFFIX = ".kernel"
X86_64_V3 = "x86-64-v3"
WORKER = "TANGENS_KERNEL_WORKER"
"""Environment variable: set in processes that compile kernels."""
KERNEL_FOLDER = "TANGENS_KERNEL_FOLDER"
"""Environment variable: where a process that builds kernels puts them."""
_MOST_FILES = 4000  # in the user's cache: some twenty states of the sources


def is_worker() -> bool:
    """Whether this process was started to compile kernels."""
    return WORKER in os.environ


@cache
def runs_x86_64_v3() -> bool:
    """Whether this machine has all instructions of x86-64-v3."""
    features = llvm.get_host_cpu_features()
    return platform.machine() in ("x86_64", "AMD64") and all(features.get(name) for name in _X86_64_V3)


def worker_settings() -> dict[str, str]:
    """Environment of processes that compile for all machines; this one's numba is left as the user set it up."""
    return {"NUMBA_CPU_NAME": X86_64_V3, "NUMBA_CPU_FEATURES": "+avx2,+fma"} if runs_x86_64_v3() else {}


def own_processor() -> str:
    """What this process compiles for."""
    codegen = cpu_target.target_context.codegen()
    settings = worker_settings()
    if settings and all(os.environ.get(name) == value for name, value in settings.items()):
        return X86_64_V3
    return f"{codegen._get_host_cpu_name()} {codegen._tm_features}"


def processors() -> tuple[str, ...]:
    """What the code that this process loads may be compiled for, the best first."""
    own = own_processor()
    return (X86_64_V3, own) if runs_x86_64_v3() and own != X86_64_V3 else (own,)


@cache
def _surroundings() -> str:
    """What compiled code depends on besides sources and processor: versions, and how we compile."""
    here = hashlib.sha256()
    for name in ("functions.py", "library.py"):
        here.update((Path(__file__).parent / name).read_bytes())
    versions = numba.__version__, llvmlite.__version__, sys.implementation.cache_tag, sys.platform
    return repr((*versions, here.hexdigest()))


_in_use: set[Path] = set()


class Need(NamedTuple):
    """A subroutine as compiled code calls it."""

    module: str
    name: str
    types: str
    """Of its arguments, in writing."""
    returns: str
    """The type of its result, in writing."""
    arguments: bytes
    """The types of its arguments, pickled."""


@dataclass(frozen=True)
class Compiled:
    """A function as it was compiled for some types: an object file, and what it takes to load it."""

    symbol: str
    """The function itself, in numba's calling convention."""
    wrapper: str
    """The same as Python calls it, if there is one."""
    environment: str
    """Of the wrapper: the name of its numba environment."""
    defined: tuple[str, ...]
    """All that the object file defines for others."""
    object_code: bytes
    needs: tuple[Need, ...]
    """Subroutines that it calls."""
    returns: str
    signature: bytes
    environments: bytes
    """Both pickled, for numba."""


def load(name: str, key: str) -> Compiled | None:
    """A compiled function, wherever it is kept."""
    for folder in (PACKAGED, folder_to_fill()):
        for processor in processors():
            file = _file_name(name, key, processor)
            try:
                found: Any = pickle.loads((folder / file).read_bytes())
            except (OSError, pickle.UnpicklingError, EOFError, AttributeError):
                continue
            if isinstance(found, Compiled):
                _in_use.add(folder / file)
                return found
    return None


def remove_unused(folder: Path) -> int:
    """Remove all kernels of a folder that this process has not loaded; returns how many."""
    unused = [path for path in folder.glob(f"*{SUFFIX}") if path not in _in_use]
    for path in unused:
        path.unlink()
    return len(unused)


def save(name: str, key: str, compiled: Compiled) -> None:
    """Keep what this process compiled."""
    path = folder_to_fill() / _file_name(name, key, own_processor())
    write(path, lambda file: pickle.dump(compiled, file))


def _file_name(name: str, key: str, processor: str) -> str:
    digest = hashlib.sha256(f"{key} {processor} {_surroundings()}".encode()).hexdigest()[:32]
    return f"{name}-{digest}{SUFFIX}"


def folder_to_fill() -> Path:
    """Where this process keeps what it compiles: the user's cache, unless it was started to fill another folder."""
    return Path(os.environ.get(KERNEL_FOLDER) or writable_folder("kernels", _MOST_FILES))
