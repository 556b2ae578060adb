"""Boxes whose faces are parallel to within a solver's error count as parallel where contacts are looked for.

Where two boxes lie on each other crosswise, MuJoCo finds four contacts of their faces, or a single one of two edges as
soon as they tilt by more than their gap: at rest by 1e-12, which is less than solvers leave. With one contact, what was
held firmly turns about it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.kernels import floats, ints, kernel

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

_PARALLEL = 3e-11  # [rad]: moves contacts by less than what solvers leave of their velocities does in a step


@kernel(ints(1), floats(2))
def align_boxes(boxes: IntArray, xmat: Array) -> None:
    """Turn boxes that are nearly parallel to one before them; `xmat` are the rotations of all geoms, (n, 9)."""
    R = np.empty((3, 3))
    for k in range(1, boxes.shape[0]):
        for j in range(k):
            one, two = xmat[boxes[j]].reshape(3, 3), xmat[boxes[k]].reshape(3, 3)
            apart = 0.0
            for a in range(3):
                for b in range(3):
                    R[a, b] = one[0, a] * two[0, b] + one[1, a] * two[1, b] + one[2, a] * two[2, b]
                    apart = max(apart, abs(R[a, b] - np.rint(R[a, b])))
            if apart > _PARALLEL:
                continue
            for a in range(3):
                for b in range(3):
                    two[a, b] = (
                        one[a, 0] * np.rint(R[0, b]) + one[a, 1] * np.rint(R[1, b]) + one[a, 2] * np.rint(R[2, b])
                    )
            break
