"""What a compiled function depends on, as a key: its own code, all that is compiled into it, and the constants used.

Comments, docstrings and line numbers do not count. Subroutines and kernels that a function calls count by name: they
are called where they stand in memory, whatever they do inside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

_PACKAGE = "tangens"
_CONSTANTS = (int, float, complex, bool, str, bytes, type(None), np.generic, np.dtype)


def content_key(function: FunctionType) -> str:
    """A key that changes when the function would have to be compiled again."""
    digest = hashlib.sha256()
    for part in _parts(function, set()):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:24]


def _parts(function: FunctionType, seen: set[int]) -> Iterator[str]:
    if id(function) in seen:
        return
    seen.add(id(function))
    yield f"{function.__module__}.{function.__qualname__}{function.__defaults__!r}"
    for code in _codes(function.__code__):
        has_docstring = bool(code.co_consts) and code.co_consts[0] == function.__doc__
        yield code.co_code.hex()
        yield repr((code.co_varnames, code.co_freevars, code.co_argcount))
        for constant in code.co_consts[has_docstring:]:
            if not isinstance(constant, CodeType):
                yield repr(constant)
        for name in code.co_names:
            yield name
            if name in function.__globals__:
                yield from _value(function, name, function.__globals__[name], code, seen)
    for cell in function.__closure__ or ():
        yield from _value(function, "a variable of the enclosing function", cell.cell_contents, function.__code__, seen)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _value(function: FunctionType, name: str, value: Any, code: CodeType, seen: set[int]) -> Iterator[str]:
    """What a global that a function refers to stands for."""
    if isinstance(value, _CONSTANTS):
        yield repr(value)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _value(function, name, item, code, seen)
    elif isinstance(value, ModuleType):
        yield value.__name__
        if value.__name__.split(".")[0] == _PACKAGE:
            for attribute in code.co_names:
                if hasattr(value, attribute):
                    yield from _value(function, attribute, getattr(value, attribute), code, seen)
    elif getattr(value, "called_by_symbol", False):
        yield f"{value.__module__}.{value.__qualname__}"
    elif isinstance(inner := getattr(value, "py_func", None) or getattr(value, "_defn", None), FunctionType):
        yield from _parts(inner, seen)  # a function that numba compiles, or an intrinsic
    elif isinstance(value, type):
        yield f"{value.__module__}.{value.__qualname__}{getattr(value, '_fields', ())!r}"
    elif isinstance(value, (FunctionType, BuiltinFunctionType, np.ufunc)) or callable(value):
        yield f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    else:
        raise TypeError(f"{function.__qualname__} refers to {name}, {type(value).__name__}: no constant, no function")
