"""Beyond the paper: pushes found by gradients alone, from a finger that does not touch, checked in other models."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tangens.lab import pushing
from tangens.lab.papers.rows import Row, at_least, at_most, info
from tangens.lab.papers.soft.drawing import draw_push
from tangens.lab.pushing import Pushing
from tangens.lab.report import new_figure, save_figure

GOALS = {"quick": 2, "normal": 10, "full": 10}


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Find the pushes, replay them in ncp and MuJoCo, and ask other models for their gradient at the start."""
    problem = Pushing.of_t()
    goals = pushing.random_goals(problem, GOALS[effort], seed=1)
    found = pushing.descend(problem, goals)
    soft = problem.simulator()
    paths = [soft.rollout(problem.start, problem.basis @ push.via).q for push in found]
    hard = [problem.replay(push.via, "ncp") for push in found]
    there = [pushing.in_mujoco(problem, problem.basis @ push.via) for push in found]
    ours, ncp, theirs = (
        np.array([problem.errors(q[-1], goal) for q, goal in zip(found_paths, goals, strict=True)])
        for found_paths in (paths, hard, there)
    )
    reached = (ours[:, 0] < 0.01) & (ours[:, 1] < np.deg2rad(3))
    kept = (ncp[:, 0] < 0.03) & (ncp[:, 1] < np.deg2rad(10))
    share = 0.8 * len(goals)
    rows = [
        at_least(f"goals of {len(goals)} reached within 1 cm and 3°, in soft", float(reached.sum()), share),
        at_least(f"goals of {len(goals)} within 3 cm and 10°, replayed in ncp", float(kept.sum()), share),
        info("median error in soft", 100 * float(np.median(ours[:, 0])), unit="cm"),
        info("median error replayed in ncp", 100 * float(np.median(ncp[:, 0])), unit="cm"),
        info("median error replayed in MuJoCo", 100 * float(np.median(theirs[:, 0])), unit="cm"),
        at_least("gradient at the start, nothing touching: soft", min(push.first_gradient for push in found), 1.0),
    ]
    for name, model in pushing.exact_models().items():
        slope = pushing.gradient_at_a_distance(problem, goals[0], model)
        row = at_most if name == "ncp" else None
        title = f"gradient at the start, nothing touching: {name}"
        rows.append(row(title, slope, 1e-6) if row else info(title, slope))
    figure, axes = new_figure(2, min(5, len(goals)), width=3.2 * min(5, len(goals)), height=7)
    for k, panel in enumerate(axes.flat[: len(goals)]):
        draw_push(panel, goals[k], hard[k], "0.6")
        draw_push(panel, goals[k], paths[k])
        panel.set_title(f"{100 * ours[k, 0]:.1f} cm, {np.rad2deg(ours[k, 1]):.1f}°; ncp {100 * ncp[k, 0]:.1f} cm")
    figure.suptitle("Pushes found by gradients from a distance (blue), replayed in ncp (grey); dashed: goals")
    return rows, [save_figure(figure, out / "from_a_distance.png")]
