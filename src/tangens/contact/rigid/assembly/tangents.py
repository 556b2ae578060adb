"""Where a contact's tangents point: a matter of convention, but a box of friction turns with them.

They depend on the normal alone: the first is the part of a fixed axis of the world, across the normal.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tangens.kernels import inline

Array = NDArray[np.float64]

_STEEP = 0.8  # a normal with more of x than this takes its tangent from y


@inline
def set_tangents(frame: Array) -> None:
    """Fill the last two rows of a frame (9,), given its first one, the normal."""
    a = 0 if abs(frame[0]) <= _STEEP else 1
    length = math.sqrt(1.0 - frame[a] ** 2)
    for i in range(3):
        frame[3 + i] = ((1.0 if i == a else 0.0) - frame[a] * frame[i]) / length
    frame[6] = frame[1] * frame[5] - frame[2] * frame[4]
    frame[7] = frame[2] * frame[3] - frame[0] * frame[5]
    frame[8] = frame[0] * frame[4] - frame[1] * frame[3]


@inline
def spin_of_tangents(frame: Array) -> tuple[float, float, float]:
    """A vector y: where the frame of a turning normal turns by ω, up to some spin about it, it is ω + (y·ω)·normal.

    By the rule of `set_tangents`, the spin is ω·t₁ times a·n/|a × n|, for an axis a and tangent t₁.
    """
    a = 0 if abs(frame[0]) <= _STEEP else 1
    slope = frame[a] / math.sqrt(1.0 - frame[a] ** 2)
    return slope * frame[3] - frame[0], slope * frame[4] - frame[1], slope * frame[5] - frame[2]
