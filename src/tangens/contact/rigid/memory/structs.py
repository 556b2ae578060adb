"""Named groups of arrays for compiled code.

A step works on some forty arrays. Handed over one by one, they make functions of nineteen arguments; as named tuples,
they are taken apart and put together at every call, and compiling takes four times as long. numba's `structref` passes
a pointer: `kin.cdof` costs a load, and a function takes the two or three groups that it needs.
"""

from __future__ import annotations

import sys
from typing import Any, TypeVar, dataclass_transform

from numba import types
from numba.experimental import structref

T = TypeVar("T")


@dataclass_transform()
def struct(cls: type[T]) -> type[T]:
    """Make a class of annotated fields one that compiled code can construct, pass on and read.

    Fields take the types of what the first constructor call in each function gives them. The objects live inside
    compiled code only.
    """
    fields = list(cls.__annotations__)
    module = sys.modules[cls.__module__]
    kind: Any = type(f"{cls.__name__}Type", (types.StructRef,), {"__module__": cls.__module__})
    setattr(module, kind.__name__, kind)  # numba's cache finds it by this name
    structref.register(kind)
    proxy: Any = type(cls.__name__, (structref.StructRefProxy,), {"__module__": cls.__module__, "__doc__": cls.__doc__})
    structref.define_constructor(proxy, kind, fields)
    proxy._fields = tuple(fields)  # compiled code depends on them: see kernels.content
    return proxy
