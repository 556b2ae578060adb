"""Experiments of paper 5 (Nimble) on contact model `lcp`.

*Fast and Feature-Complete Differentiable Physics Engine for Articulated Rigid Bodies with Contact Constraints*. Its
Tables II and III are `tangens bench jacobians`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from tangens.contact import Lcp
from tangens.lab.papers import gradient_accuracy
from tangens.lab.papers.lcp import bounces, drone, jumps, rollouts, time_to_loss
from tangens.lab.papers.parts import Advance, Part, run_parts

ROBOTS = ("half_cheetah", "ant", "dm_cheetah", "hopper", "humanoid", "dm_humanoid", "go1", "g1")

PARTS: dict[str, Part] = {
    "Fig. 7: time to a loss": time_to_loss.run,
    "Fig. 8: drone": drone.run,
    "Sec. VII-D: catapult, worm, humanoid": jumps.run,
    "Sec. VI: bounces": bounces.run,
    "gradient accuracy": partial(gradient_accuracy.run, Lcp(tolerance=gradient_accuracy.TIGHT), ROBOTS),
    "rollouts": rollouts.run,
}


def run(effort: str, out: Path, advance: Advance) -> dict[str, Any]:
    """Run all parts; figures go to `out`."""
    return run_parts(PARTS, effort, out, advance)
