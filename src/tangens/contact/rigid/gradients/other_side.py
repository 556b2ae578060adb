"""The other side of the nearest switch, where a step has other modes and another derivative.

Modes alone do not tell: of a box on four corners that is about to slide, one corner reaches its bound first, and all of
them slide in the end. So the step is taken again from a velocity changed a little, by the smallest push along what has
to give way that leads across; its derivative is the one of that side.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.gradients.switches import Crossing
from tangens.contact.rigid.memory.tape import Solved
from tangens.contact.rigid.problem.contact_problem import BREAKING
from tangens.results import Step, Switch

Array = NDArray[np.float64]

_FIRST = 1e-8  # beyond the switch [m/s]
_DOUBLINGS = 30
_HALVINGS = 20
_CLOSE = 1.01  # pushes this far apart are the same


def across(
    near: Switch, crossing: Crossing, solved: Solved, take: Callable[[Array], tuple[Step, Solved]], response: Array
) -> Step | None:
    """A step just beyond the switch; None if no push leads there.

    `take` takes the step with its velocity changed; `response` is (M + h·D)⁻¹.
    """
    row = crossing.row
    if row is None or not (answer := float(row @ response @ row)) > 0.0:
        return None
    push, key = response @ row / answer, _key(crossing.block, solved)
    here, low, high = _mode(key, solved), 0.0, near.distance + _FIRST
    for _ in range(_DOUBLINGS):
        out, there = take(high * push)
        if not out.failed and _mode(key, there) != here:
            break
        low, high = high, 2.0 * high
    else:
        return None
    for _ in range(_HALVINGS):
        if high <= _CLOSE * low or high <= 2.0 * _FIRST:
            break
        middle = 0.5 * (low + high)
        trial, there = take(middle * push)
        if not trial.failed and _mode(key, there) != here:
            out, high = trial, middle
        else:
            low = middle
    return out


def _key(block: np.void, solved: Solved) -> tuple[object, ...]:
    """What stays of a block when others are found before it: the same place is the same contact."""
    source = int(block["source"])
    if source < 0:
        return source, float(block["sign"])
    contact = solved.contacts[source]
    return *contact["geom"].tolist(), *np.round(contact["position"], 9).tolist()


def _mode(key: tuple[object, ...], solved: Solved) -> tuple[int, ...]:
    """Mode of a block, and of a box the sides that it is at."""
    for block in solved.blocks:
        if _key(block, solved) == key:
            return int(block["mode"]), *np.sign(block["side"]).astype(int).tolist()
    return BREAKING, 0, 0
