"""Boxes whose faces are parallel to within a solver's error count as parallel where contacts are looked for.

Where two boxes lie on each other crosswise, MuJoCo finds four contacts of their faces, or a single one of two edges as
soon as they tilt by more than their gap: at rest by 1e-12, which is less than solvers leave. With one contact, what was
held firmly turns about it.
"""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.collision.shapes import BOX
from tangens.kernels import floats, inline, ints, kernel

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

_ALIKE = 1.0 - 1e-9  # the cosine of axes that are worth a closer look
_PARALLEL = 3e-11  # [rad]: moves contacts by less than what solvers leave of their velocities does in a step


def box_pairs(m: mujoco.MjModel) -> IntArray:
    """Pairs of boxes that may touch, (n, 2); a box that is turned comes after all that it is compared with."""
    boxes: list[int] = np.flatnonzero(m.geom_type == BOX).tolist()
    asked = {frozenset(pair) for pair in zip(m.pair_geom1.tolist(), m.pair_geom2.tolist(), strict=True)}
    pairs = [(j, k) for at, k in enumerate(boxes) for j in boxes[:at] if _may_touch(m, j, k) or {j, k} in asked]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _may_touch(m: mujoco.MjModel, j: int, k: int) -> bool:
    one, two = (int(m.body_weldid[m.geom_bodyid[g]]) for g in (j, k))
    parents = [int(m.body_weldid[m.body_parentid[body]]) for body in (one, two)]
    if one == two or (one and two and (parents[0] == two or parents[1] == one)):
        return False
    return bool((m.geom_contype[j] & m.geom_conaffinity[k]) or (m.geom_contype[k] & m.geom_conaffinity[j]))


@kernel(ints(2), floats(2), floats(2), floats(1), floats(1))
def any_alike(pairs: IntArray, xmat: Array, xpos: Array, radius: Array, gap: Array) -> bool:
    """Whether two boxes near each other have faces that look parallel: mostly none, and nothing is to be turned."""
    for p in range(pairs.shape[0]):
        j, k = pairs[p, 0], pairs[p, 1]
        x, y, z = xpos[j, 0] - xpos[k, 0], xpos[j, 1] - xpos[k, 1], xpos[j, 2] - xpos[k, 2]
        if x * x + y * y + z * z > (radius[j] + radius[k] + gap[j] + gap[k]) ** 2:
            continue
        one, two = xmat[j], xmat[k]
        for a in range(3):
            for b in range(3):
                if abs(one[a] * two[b] + one[3 + a] * two[3 + b] + one[6 + a] * two[6 + b]) > _ALIKE:
                    return True
    return False


@kernel(ints(2), floats(2))
def align_boxes(pairs: IntArray, xmat: Array) -> None:
    """Turn boxes with a face nearly parallel to one of a box before them; `xmat` are rotations of all geoms, (n, 9)."""
    for p in range(pairs.shape[0]):
        one, two = xmat[pairs[p, 0]].reshape(3, 3), xmat[pairs[p, 1]].reshape(3, 3)
        for a in range(3):
            for b in range(3):
                _align(one[:, a], two, b)


@inline
def _align(axis: Array, R: Array, b: int) -> None:
    """Turn R so that its axis b is parallel to another one, if it nearly is."""
    cosine = axis[0] * R[0, b] + axis[1] * R[1, b] + axis[2] * R[2, b]
    if abs(cosine) <= _ALIKE:
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
