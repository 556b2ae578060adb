"""Times that paper 2 prints, to be read beside ours; other machine, other models of the robots: no ratio is taken.

Q. Le Lidec, L. Montaut, Y. de Mont-Marin, J. Carpentier: "End-to-End and Highly-Efficient Differentiable Simulation for
Robotics", Tables 2 and 3. Means along a trajectory, C++ (their simulator Simple) and MuJoCo on an Apple M3. Their
robots have 12, 27, 7, 18 and 36 degrees of freedom in the order below, ours 9, 23, 6, 18 and 33; their contacts are
patches of four points.
"""

from __future__ import annotations

from typing import Any

from tangens.lab.bench.request import row

CITATION = "Le Lidec et al., End-to-End and Highly-Efficient Differentiable Simulation for Robotics, Table 3 (Apple M3)"
TOOL, MUJOCO_TOOL = "Simple (as published)", "MuJoCo (as published)"

# [µs]: their step, their gradient on top of it, differences of their step; MuJoCo's step, MuJoCo's differences.
TIMES = {
    "half_cheetah": (15.8, 14.7, 1_100.0, 5.5, 340.0),
    "humanoid": (42.6, 47.9, 5_500.0, 40.3, 2_900.0),
    "ur5": (12.3, 4.1, 400.0, 12.3, 390.0),
    "go1": (62.6, 93.0, 6_600.0, 15.8, 9_900.0),
    "atlas": (127.3, 95.2, 26_700.0, 85.1, 54_300.0),
}


def rows(system: str) -> list[dict[str, Any]]:
    """The paper's times for a system, if it has any."""
    if system not in TIMES:
        return []
    step, gradient, differences, mujoco_step, mujoco_differences = TIMES[system]
    return [
        row(system, "step", TOOL, step, None),
        row(system, "gradient", TOOL, gradient, None),
        row(system, "differences", TOOL, differences, None),
        row(system, "step", MUJOCO_TOOL, mujoco_step, None),
        row(system, "differences", MUJOCO_TOOL, mujoco_differences, None),
    ]
