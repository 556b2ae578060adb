"""Robots under random controls.

Does every step have an answer, does it say so where it is a poor one, and how often is the guess from the step before
right? Motors have rotors, see `with_rotors`: what is asked is about contact, not about Euler's method.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from tangens.contact import Lcp
from tangens.errors import Error
from tangens.lab.papers.motions import random_motion, robot, with_rotors
from tangens.lab.papers.result_rows import Row, at_most, info
from tangens.lab.report import new_figure, save_figure
from tangens.simulate import Simulator

ROBOTS = ("half_cheetah", "ant", "hopper", "humanoid", "go1", "g1")
STEPS = {"quick": 2_400, "normal": 60_000, "full": 1_000_000}  # in all
_LENGTH = 1000  # of one motion
_NOT_SOLVED = 1e-8  # [m/s]


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Count what found the impulses, and what went wrong."""
    rows, found = list[Row](), dict[str, Counter[str]]()
    for name in ROBOTS:
        count = found[name] = tally(name, STEPS[effort] // len(ROBOTS))
        solved = sum(count[method] for method in ("guess", "pivoting", "fallback"))
        rows += [
            at_most(f"rollouts, {name}: motions that failed in {count['steps']:,} steps", count["lost"], 0),
            at_most(f"rollouts, {name}: steps above {_NOT_SOLVED:g} that were not flagged", count["unflagged"], 0),
            info(f"rollouts, {name}: steps that were flagged", 100 * count["flagged"] / count["steps"], unit="%"),
            info(f"rollouts, {name}: whose guess held", 100 * count["guess"] / max(solved, 1), paper=95, unit="%"),
        ]
    return rows, [_plot(found, out / "rollouts.png")]


def tally(name: str, steps: int) -> Counter[str]:
    """Methods and failures along motions of one robot; one that cannot go on is lost, and the next one starts."""
    scene, rng, count = with_rotors(robot(name)), np.random.default_rng(0), Counter[str]()
    simulator = Simulator(scene, contact=Lcp())
    while count["steps"] < steps:
        try:
            for report in random_motion(simulator, min(_LENGTH, steps - count["steps"]), rng):
                count.update(steps=1, **{report.method or "free": 1})
                count["flagged"] += not report.converged
                count["unflagged"] += bool(report.converged and not report.residual <= _NOT_SOLVED)
        except Error:
            count.update(lost=1, steps=1)
    return count


def _plot(found: dict[str, Counter[str]], file: Path) -> Path:
    figure, axes = new_figure(1, 1, width=8, height=4)
    bottom, names = np.zeros(len(found)), list(found)
    for method, color in (("guess", "C2"), ("pivoting", "C0"), ("fallback", "C1")):
        solved = [sum(count[m] for m in ("guess", "pivoting", "fallback")) for count in found.values()]
        share = np.array([100 * count[method] / max(n, 1) for count, n in zip(found.values(), solved, strict=True)])
        axes.bar(names, share, bottom=bottom, label=method, color=color)
        bottom += share
    axes.set(title="What found the impulses, random controls", ylabel="share of steps in contact [%]")
    axes.legend()
    return save_figure(figure, file)
