"""What a step needs of MuJoCo before contacts are looked for: kinematics, mass matrix, forces. One compiled call."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.assembly.search import look_ahead
from tangens.contact.rigid.memory.address_table import CALLS, FIRST_OF_KINEMATICS, take
from tangens.dynamics.mujoco_calls import (
    COM_POS,
    FWD_ACTUATION,
    FWD_VELOCITY,
    KINEMATICS,
    MAKE_M,
    TENDON,
    TRANSMISSION,
    call,
)
from tangens.kernels import boolean, fixed_floats, ints, kernel, number

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]


@kernel(
    ints(2), fixed_floats(1), fixed_floats(1), fixed_floats(1), fixed_floats(1), number, number, boolean, nogil=True
)
def prepare(
    table: IntArray, q: Array, v: Array, u: Array, tau: Array, h: float, implicit_h: float, has_tendons: bool
) -> None:
    """Write the inputs of a step into MuJoCo's data, let MuJoCo work on them, and say how far to look for contacts."""
    calls = take(table, CALLS).view(np.int64)
    m, d = calls[0], calls[1]
    take(table, FIRST_OF_KINEMATICS)[:] = q
    take(table, FIRST_OF_KINEMATICS + 1)[:] = v
    take(table, FIRST_OF_KINEMATICS + 2)[:] = u
    take(table, FIRST_OF_KINEMATICS + 3)[:] = tau
    call(calls[KINEMATICS], m, d)
    call(calls[COM_POS], m, d)
    call(calls[MAKE_M], m, d)
    if has_tendons:
        call(calls[TENDON], m, d)
    call(calls[TRANSMISSION], m, d)
    call(calls[FWD_VELOCITY], m, d)
    call(calls[FWD_ACTUATION], m, d)
    look_ahead(table, h, implicit_h)
