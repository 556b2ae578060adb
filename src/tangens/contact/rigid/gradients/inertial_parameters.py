"""Reverse mode by inertial parameters, from a tape."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.memory.tape import open_tape
from tangens.dynamics.inertial_gradients import carry_to_inertials
from tangens.kernels import fixed_floats, floats, ints, kernel

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]


@kernel(ints(2), floats(1), floats(2), fixed_floats(1), fixed_floats(1), fixed_floats(1))
def inertial_gradients_on(
    table: IntArray, tape: Array, inertials: Array, a: Array, z: Array, compensated: Array
) -> tuple[Array, Array]:
    """`dynamics.inertial_gradients` at the step on a tape."""
    model, kin, _ = open_tape(table, tape)
    return carry_to_inertials(
        model.dofs, model.bodies, kin.cdof, kin.com, kin.xpos, kin.xquat, model.gravity, inertials, kin.v, a, z,
        compensated,
    )  # fmt: skip
