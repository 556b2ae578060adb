"""Boxes whose faces are parallel to within a solver's error count as parallel where contacts are looked for.

Where two boxes lie on each other crosswise, MuJoCo finds four contacts of their faces, or a single one of two edges as
soon as they tilt by more than their gap: at rest by 1e-12, which is less than solvers leave. With one contact, what was
held firmly turns about it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.kernels import floats, inline, ints, kernel

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

_PARALLEL = 3e-11  # [rad]: moves contacts by less than what solvers leave of their velocities does in a step


@kernel(ints(1), floats(2))
def align_boxes(boxes: IntArray, xmat: Array) -> None:
    """Turn boxes with a face nearly parallel to one of a box before them; `xmat` are rotations of all geoms, (n, 9)."""
    for k in range(1, boxes.shape[0]):
        for j in range(k):
            one, two = xmat[boxes[j]].reshape(3, 3), xmat[boxes[k]].reshape(3, 3)
            for a in range(3):
                for b in range(3):
                    _align(one[:, a], two, b)


@inline
def _align(axis: Array, R: Array, b: int) -> None:
    """Turn R so that its axis b is parallel to another one, if it nearly is."""
    cosine = axis[0] * R[0, b] + axis[1] * R[1, b] + axis[2] * R[2, b]
    if abs(cosine) < 0.5:
        return
    sign = 1.0 if cosine > 0.0 else -1.0
    x = R[1, b] * sign * axis[2] - R[2, b] * sign * axis[1]  # the turn, from one axis to the other
    y = R[2, b] * sign * axis[0] - R[0, b] * sign * axis[2]
    z = R[0, b] * sign * axis[1] - R[1, b] * sign * axis[0]
    if abs(x) + abs(y) + abs(z) > _PARALLEL:
        return
    for c in range(3):
        u, v, w = R[0, c], R[1, c], R[2, c]
        R[0, c], R[1, c], R[2, c] = u + y * w - z * v, v + z * u - x * w, w + x * v - y * u
    for i in range(3):
        R[i, b] = sign * axis[i]
