"""Experiments of paper 3, and beyond it: `tangens reproduce soft`."""

from __future__ import annotations

from functools import partial

from tangens.lab.papers.parts import Part, run_parts
from tangens.lab.papers.soft import distances, from_a_distance, push_t, resting, second_order, spheres

PARTS: dict[str, Part] = {
    "distances": distances.run,
    "spheres": spheres.run,
    "resting": resting.run,
    "second order": second_order.run,
    "push-T": push_t.run,
    "from a distance": from_a_distance.run,
}

run = partial(run_parts, PARTS)
