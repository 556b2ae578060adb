"""Experiments of *End-to-End and Highly-Efficient Differentiable Simulation for Robotics*, on contact model `ncp`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from tangens.contact import Ncp
from tangens.lab.papers import gradient_accuracy
from tangens.lab.papers.ncp import inverse, physics, tables
from tangens.lab.papers.parts import Advance, Part, run_parts

ROBOTS = (
    "half_cheetah", "ant", "dm_cheetah", "hopper", "dm_humanoid", "humanoid_cmu", "humanoid", "walker2d", "go1", "g1",
)  # fmt: skip

PARTS: dict[str, Part] = {
    "Fig. 3: initial conditions": inverse.initial_conditions,
    "Fig. 4, App. E: inverse dynamics": inverse.torques,
    "gradient accuracy": partial(gradient_accuracy.run, Ncp(tolerance=gradient_accuracy.TIGHT), ROBOTS),
    "physics": physics.laws,
    "solver": physics.solver,
    "soak": physics.soak,
    "Table 2: systems": tables.systems,
    "Table 3: timings": tables.timings,
}


def run(effort: str, out: Path, advance: Advance) -> dict[str, Any]:
    """Run all parts; figures go to `out`."""
    return run_parts(PARTS, effort, out, advance)
