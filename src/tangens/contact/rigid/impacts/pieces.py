"""A time step in pieces: flights up to an impact, impacts, and what is left of the step after them.

Pieces of Euler steps do not add up to one Euler step: it moves by v⁺, the velocity at its end, which under a constant
acceleration a is that of the middle of its motion, from w = v + h/2·a to w + h·a. So within a step that is cut,

    v⁺ = S(q, v, d),    q⁺ = q ⊕ d·(v⁺ + (h − d)/2·a),    and impacts change w

with the engine's own step S of duration d. Pieces without an impact between them are then the step itself, and an
elastic bounce loses no energy, both up to how much a changes within the step. Contacts that bear load are part of a, so
that what is at rest stays there.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.results import Step

Array = NDArray[np.float64]


class Drift(NamedTuple):
    """Acceleration without impacts, as the difference of two steps: in the first, constraints catch up with v."""

    first: Step
    second: Step
    duration: float
    """Of each."""
    acceleration: Array


class Piece(NamedTuple):
    """A part of a time step."""

    kind: str
    """"flight" ends where two bodies meet, "arrival" is a flight that takes no time, "impact" changes velocities only,
    "rest" is what is left of the step."""
    duration: float
    out: Step
    """Of an arrival, which leaves all as it is, the step after it."""
    shift: float = 0.0
    """How much of a is in the velocity that the piece moves by [s]: (h − duration)/2."""
    normal: Array | None = None
    """Row of the gap that closes at the end of a flight or arrival."""
    gap_slopes: Mapping[str, Array] = MappingProxyType({})
    """Of that gap, by parameters that move it even where nothing else does."""
    rates: Array | None = None
    """Of an arrival: what a longer one would make of (q, v), shape (2, nv)."""
    drift: Drift | None = None
    """Of an impact: the acceleration after it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Piece, (*self[:5], dict(self.gap_slopes), *self[6:])


class CutStep(NamedTuple):
    """A tape: one piece alone is the step itself; several come with the acceleration at their beginning."""

    pieces: tuple[Piece, ...]
    drift: Drift | None
