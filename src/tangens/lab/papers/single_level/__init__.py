"""Experiments of paper 1 on contact models `single-level` and `bilevel`.

*Single-Level Differentiable Contact Simulation*. Where the paper's γ is an impulse, ours is a force, and ρ an energy
[J]: no other meaning at another time step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tangens.lab.papers.parts import Advance, Part, run_parts
from tangens.lab.papers.single_level import box_on_ground, drops, grasping, scenes, stacks

PARTS: dict[str, Part] = {
    "Fig. 9: drops": drops.run,
    "Fig. 10: stacks": stacks.run,
    "Fig. 4: box on ground": box_on_ground.run,
    "Figs. 2, 6, 7, 8: scenes": scenes.run,
    "Fig. 1: grasping": grasping.run,
}


def run(effort: str, out: Path, advance: Advance) -> dict[str, Any]:
    """Run all parts; figures go to `out`."""
    return run_parts(PARTS, effort, out, advance)
