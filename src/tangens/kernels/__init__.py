"""Kernels: what we compile with numba, compiled once, kept on disk, and shipped with the wheel.

numba links and optimises a function again into each of its callers, and again in every process unless it is cached.
Here a function says which part it plays:

- `@kernel(types...)` is called from Python, for arguments of these types.
- `@subroutine` is called by kernels. It is compiled by itself and called where it stands in memory.
- `@inline` is small, and becomes part of whoever calls it.

Compiled kernels are kept in files named by all that they depend on: the function, what is inlined into it, constants,
types, versions, the processor (`content.py`, `store.py`). So stale code cannot run, and an edit compiles only what it
touches. Compiling is done by worker processes (`build.py`), for processors with AVX2 and FMA (x86-64-v3) wherever there
is one: every such machine runs the same instructions.
"""

from tangens.kernels.functions import inline, kernel, subroutine
from tangens.kernels.signatures import (
    boolean,
    booleans,
    fixed_floats,
    fixed_ints,
    floats,
    integer,
    ints,
    named,
    number,
    records,
)

__all__ = [
    "boolean",
    "booleans",
    "fixed_floats",
    "fixed_ints",
    "floats",
    "inline",
    "integer",
    "ints",
    "kernel",
    "named",
    "number",
    "records",
    "subroutine",
]
