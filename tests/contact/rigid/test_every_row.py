"""All rows that a step could have are numbers of their own: they outlive the memory in which they were made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tangens as tg
from tangens import robots
from tangens.contact.rigid.assembly import every_row


def test_rows_are_the_same_however_often_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A workspace that is let go of too early leaves marks of the allocator in the last array that is copied."""
    seen = list[bytes]()
    original = every_row.every_row

    def many_times(*args: Any) -> Any:
        for size in range(200):
            J, target, blocks = original(*args)
            known = [blocks[name].tobytes() for name in ("kind", "start", "width", "source", "sign", "value")]
            seen.append(b"".join((J.tobytes(), target.tobytes(), *known)))
            np.full(7 * size, 7.5)  # other sizes leave other gaps in memory
        return J, target, blocks

    monkeypatch.setattr("tangens.contact.rigid.gradients.switches.every_row", many_times)
    sim = tg.Simulator(robots.get("xarm7", ground=True), "ncp")
    assert np.isfinite(sim.jacobian(sim.step(sim.initial_state())).switch.distance)
    assert len(seen) == 200
    assert len(set(seen)) == 1
