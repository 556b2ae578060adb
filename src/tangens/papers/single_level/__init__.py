"""Experiments of paper 1 on contact models `single-level` and `bilevel`.

*Single-Level Differentiable Contact Simulation*. Where the paper's γ is an impulse, ours is a force, and ρ an energy
[J]: no other meaning at another time step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tangens.papers.parts import Advance, Part, run_parts
from tangens.papers.single_level import drops

PARTS: dict[str, Part] = {
    "Fig. 9: drops": drops.run,
}


def run(effort: str, out: Path, advance: Advance) -> dict[str, Any]:
    """Run all parts; figures go to `out`."""
    return run_parts(PARTS, effort, out, advance)
