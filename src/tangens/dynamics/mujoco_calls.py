"""MuJoCo's C functions, called by compiled code: each call from Python would take longer than most of them work.

Only functions that compute from a state and cannot fail are here. What may run out of memory, as the search for
contacts, is left to MuJoCo's Python interface, which turns such errors into exceptions.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

FUNCTIONS = (
    "mj_kinematics", "mj_comPos", "mj_makeM", "mj_tendon", "mj_transmission", "mj_fwdVelocity", "mj_fwdActuation",
)  # fmt: skip
KINEMATICS, COM_POS, MAKE_M, TENDON, TRANSMISSION, FWD_VELOCITY, FWD_ACTUATION = range(2, 2 + len(FUNCTIONS))
"""Places of their addresses, after those of model and data."""


@cache
def _function_addresses() -> tuple[int, ...]:
    folder = Path(mujoco.__file__).parent
    library = ctypes.CDLL(str(next(path for path in folder.iterdir() if path.name.startswith("libmujoco"))))
    return tuple(ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in FUNCTIONS)


def call_addresses(m: mujoco.MjModel, d: mujoco.MjData) -> NDArray[np.int64]:
    """Where a model, its data and the functions stand in memory; both must outlive the result."""
    return np.array([m._address, d._address, *_function_addresses()], dtype=np.int64)


@intrinsic
def call(_context: Any, _function: Any, _model: Any, _data: Any) -> tuple[Any, Callable[..., Any]]:
    """function(model, data) of three addresses, in C."""
    from llvmlite import ir

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, pointer])
        function, model, data = arguments
        places = [builder.inttoptr(place, pointer) for place in (model, data)]
        builder.call(builder.inttoptr(function, kind.as_pointer()), places)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate
