"""Types of a kernel's arguments, in short."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import from_dtype, types

number, integer, boolean = types.float64, types.int64, types.boolean


def floats(ndim: int) -> Any:
    """A contiguous array of float64 that the kernel may write to."""
    return types.Array(types.float64, ndim, "C")


def ints(ndim: int) -> Any:
    """A contiguous array of int64 that the kernel may write to."""
    return types.Array(types.int64, ndim, "C")


def booleans(ndim: int) -> Any:
    """A contiguous array of truth values."""
    return types.Array(types.boolean, ndim, "C")


def fixed_floats(ndim: int) -> Any:
    """A contiguous array of float64 that the kernel only reads, whether or not its owner may write to it."""
    return types.Array(types.float64, ndim, "C", readonly=True)


def fixed_ints(ndim: int) -> Any:
    """A contiguous array of int64 that the kernel only reads."""
    return types.Array(types.int64, ndim, "C", readonly=True)


def records(dtype: np.dtype[np.void]) -> Any:
    """A contiguous array of records, as views of plain numbers are typed."""
    return types.Array(from_dtype(dtype), 1, "C", aligned=False)


def named(kind: type, *fields: Any) -> Any:
    """A named tuple with fields of these types."""
    return types.NamedTuple(fields, kind)


def accepts(declared: Any, given: Any) -> bool:
    """Whether an argument of a type can stand for a declared one without conversion."""
    if declared == given:
        return True
    both = isinstance(declared, types.Array) and isinstance(given, types.Array)
    return both and not declared.mutable and given.copy(readonly=True) == declared
