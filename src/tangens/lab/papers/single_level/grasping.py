"""Fig. 1 and Sec. VI-C: two spherical fingertips move a box to a desired pose, along a plan found by a random tree.

The planner is that of Pang et al., which the paper uses: it takes smooth gradients, at ρ = 3e-3, for its commands and
for its metric. Steps are those of the simulator itself. A plan counts once the simulator has followed it to the goal.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens import scenes
from tangens.contact import ContactModel, SingleLevel
from tangens.contact.rules import GradientRule, Relaxed
from tangens.lab.papers.poses import outlines
from tangens.lab.papers.result_rows import Row, at_least, info
from tangens.lab.report import new_figure, save_figure
from tangens.optimize import FingertipGrasps, Manipulation, Plan, contact_rrt, replay
from tangens.results import Trajectory
from tangens.simulate import Simulator

Array = NDArray[np.float64]

# Servos push a fingertip with many times its weight. So much sharpness is what the smooth steps of the search need:
SMOOTH = SingleLevel(relaxation=1e-5, sharpness=15.0, max_iterations=25)
RULE = Relaxed(relaxation=3e-3)
GOAL = (0.15, 0.1, np.pi / 2)  # x [m], z [m], angle [rad]
TOLERANCE = (0.01, 0.01, 0.1)
REGION = ((-0.3, -0.3, -np.pi), (0.3, 0.3, np.pi))
SEEDS = {"quick": 1, "normal": 5, "full": 20}
ROUNDS = 200


class Attempt(NamedTuple):
    """A plan, how long it took to find, and the motion when it is followed."""

    plan: Plan
    seconds: float
    motion: Trajectory


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Plan from a number of seeds."""
    problem = task(SMOOTH, gradient=RULE)
    contact_rrt(problem, max_iterations=0)  # compiles, and so does a single step
    problem.simulator.step(problem.simulator.initial_state())
    attempts = [attempt(problem, seed) for seed in range(SEEDS[effort])]
    reached = 100 * float(np.mean([problem.miss(one.motion.q[-1]) <= 1 for one in attempts]))
    seconds = float(np.median([one.seconds for one in attempts]))
    best = min(attempts, key=lambda one: (not one.plan.converged, len(one.plan.x)))
    rows = [
        at_least("grasping: plans that reach their goal", reached, 100, paper=100, unit="%"),
        info("grasping: time to plan once compiled, median", seconds, paper=1, unit="s"),
        info("grasping: nodes of the tree, median", float(np.median([one.plan.nodes for one in attempts]))),
        info("grasping: regrasps in the plan that is drawn", best.plan.regrasps),
        info("grasping: distance from the goal there, in tolerances", best.plan.cost),
    ]
    return rows, [_plot(problem, best, out / "grasping.png")]


def task(
    contact: ContactModel,
    lanes: int = 16,
    smooth: ContactModel | None = None,
    gap: float = 1e-3,
    gradient: GradientRule | str = "exact",
) -> Manipulation:
    """The box, its goal, and fingertips away from it; derivatives from another contact model if one is given."""
    scene = scenes.fingertips()
    simulator = Simulator(scene, contact=contact, gradient=gradient)
    return Manipulation(
        simulator,
        simulator.initial_state("home"),
        "box",
        GOAL,
        tolerance=TOLERANCE,
        region=REGION,
        grasp=FingertipGrasps(scene, "box", ("left", "right"), gap=gap),
        lanes=lanes,
        smooth=None if smooth is None else Simulator(scene, contact=smooth),
    )


def attempt(problem: Manipulation, seed: int) -> Attempt:
    """Plan once, and follow the plan."""
    began = time.perf_counter()
    plan = contact_rrt(problem, max_iterations=ROUNDS, seed=seed)
    seconds = time.perf_counter() - began
    return Attempt(plan, seconds, replay(problem, plan))


# ---------------------------------------------------------------------- the figure


def _plot(problem: Manipulation, one: Attempt, file: Path) -> Path:
    """A panel for each grasp: the box from where it is taken to where it is let go."""
    grasps = _grasps(one.plan)
    columns = min(len(grasps), 4)
    rows = -(-len(grasps) // columns)
    figure, axes = new_figure(rows, columns, width=3.2 * columns, height=3.2 * rows)
    panels = np.atleast_1d(axes).ravel()
    goal = np.array(outlines(problem.simulator.scene, problem.goal)[0])
    for number, (panel, poses) in enumerate(zip(panels, grasps, strict=False)):
        panel.plot(*np.hstack([goal, goal[:, :1]]), color="0.4", linestyle="--", linewidth=1)
        for share, q in zip(np.linspace(0, 1, len(poses)), poses, strict=True):
            box, *tips = outlines(problem.simulator.scene, q)
            panel.fill(*box, facecolor=(0.25, 0.5, 0.75, 0.08), edgecolor=(0.25, 0.5, 0.75, 0.2 + 0.8 * share))
            for tip in tips:
                panel.fill(*tip, color=(0.85, 0.45, 0.2), alpha=0.15 + 0.85 * share, linewidth=0)
        panel.set(title=f"Grasp {number + 1}", aspect="equal", xlim=(-0.25, 0.4), ylim=(-0.25, 0.4))
        panel.set(xlabel="x [m]" if number >= len(grasps) - columns else "", ylabel="" if number % columns else "z [m]")
        panel.grid(alpha=0.3)
    for panel in panels[len(grasps) :]:
        panel.axis("off")
    return save_figure(figure, file)


def _grasps(plan: Plan) -> list[Array]:
    """Configurations between one regrasp and the next, that at which each begins included."""
    begins = [k + 1 for k, edge in enumerate(plan.edges) if edge.kind == "regrasp"] or [0]
    return [plan.q[a:b] for a, b in zip(begins, [*begins[1:], len(plan.q)], strict=True)]
