"""Who meets next, and when: gaps of bodies that bounce, along the motion of a step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.assembly.targets import APPROACHES

Array = NDArray[np.float64]

ARRIVED = 1e-10  # a gap this small has closed [m]


def already_there(normals: Array, v: Array) -> Array | None:
    """The gap that has closed and closes fastest at a velocity."""
    there = [n for n in normals if abs(n[1]) <= ARRIVED and n[4:] @ v < -APPROACHES]
    return min(there, key=lambda n: n[4:] @ v) if there else None


def first_met(normals: Array, w: Array, a: Array, mean: Array, left: float) -> tuple[float, tuple[int, int]] | None:
    """When the first gap closes that does so within the time that is left, and between which geoms.

    Gaps are open, or open first; they start to change by w and a, and change by `mean` in all.
    """
    first: tuple[float, tuple[int, int]] | None = None
    for n in normals:
        gap, speed, change = n[1], n[4:] @ w, n[4:] @ a
        if gap > ARRIVED:
            end = gap + left * (n[4:] @ mean)
        else:
            end = gap + left * (speed + 0.5 * left * change) if speed > APPROACHES else 0.0
        if end < 0.0:
            when = _root(gap if gap > ARRIVED else 0.0, speed, change, left)
            if first is None or when < first[0]:
                first = when, (int(n[2]), int(n[3]))
    return first


def _root(gap: float, speed: float, change: float, left: float) -> float:
    """When gap + speed·t + change/2·t² is 0: for the first time, or again if it is 0 now."""
    if gap == 0.0:
        when = -2.0 * speed / change if change < 0.0 else left
    else:
        slowing = -speed + np.sqrt(max(speed * speed - 2.0 * change * gap, 0.0))
        when = 2.0 * gap / slowing if slowing > 0.0 else left
    return float(when) if 0.0 < when < left else left
