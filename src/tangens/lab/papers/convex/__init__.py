"""Experiments of paper 4, and beyond it: `tangens reproduce convex`. Speed is in `tangens bench manifold`."""

from __future__ import annotations

from functools import partial

from tangens.lab.papers.convex import box_on_box, planning, primitives, rollouts, rotating_edge
from tangens.lab.papers.parts import Part, run_parts

PARTS: dict[str, Part] = {
    "primitives": primitives.run,
    "rotating edge": rotating_edge.run,
    "box on box": box_on_box.run,
    "rollouts": rollouts.run,
    "planning": planning.run,
}

run = partial(run_parts, PARTS)
