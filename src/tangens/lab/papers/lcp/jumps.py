"""Sec. VII-D: a catapult hits its target, a worm jumps, a humanoid (G1) jumps. All by iLQR on `lcp`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tangens import scenes
from tangens.lab.papers.lcp.time_to_loss import CATAPULT_TARGET, catapult
from tangens.lab.papers.poses import g1_crouching, g1_soles, heights, outlines, placed
from tangens.lab.papers.result_rows import Row, at_least, at_most, info
from tangens.lab.report import new_figure, save_figure
from tangens.optimize import (
    ControlProblem,
    ControlResult,
    Cost,
    Effort,
    Position,
    TargetState,
    gauss_newton,
    ilqr,
    inverse_dynamics,
)
from tangens.scene import Scene
from tangens.simulate import Simulator

Array = NDArray[np.float64]

SECONDS = {"quick": 15.0, "normal": 60.0, "full": 200.0}  # for each
WORM_STARTS = {"quick": 1, "normal": 3, "full": 6}


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """All three."""
    budget = SECONDS[effort]
    thrown = throw(budget)
    miss = float(np.linalg.norm(thrown.trajectory.q[-1, 3:] - np.array(CATAPULT_TARGET)[[0, 2]]))
    worm_scene, worm, worm_rise = jump_worm(budget, WORM_STARTS[effort])
    g1, jumped = jump_g1(budget)
    soles = g1_soles(g1)
    feet = heights(g1, jumped.trajectory.q[-1], soles).min()
    rise = centre(g1, jumped.trajectory.q[-1])[2] - centre(g1, jumped.trajectory.q[0])[2]
    why = (
        f"the search had {budget:g} s, of which a busy or slow machine makes less; --full gives it {SECONDS['full']:g}"
    )
    rows = [
        at_most("catapult: distance of the ball from its target", miss, 0.01, unit="m", why=why),
        at_least("worm: rise of its centre of mass", worm_rise, 0.1, unit="m", why=why),
        at_least("G1: height of its soles above the floor", feet, 0.05, unit="m", why=why),
        info("G1: rise of its centre of mass", rise, unit="m"),
        info("G1: iterations", jumped.iterations),
    ]
    figures = [
        _plot(worm_scene, worm, out / "worm.png", "The worm, from the side"),
        _plot(g1, jumped, out / "g1_jump.png", "G1, from the side"),
    ]
    return rows, figures


def throw(budget: float) -> ControlResult:
    """The catapult, to the last millimetres."""
    task = catapult()
    guess = task.guess(np.random.default_rng(0))
    return ilqr(task.problem, guess, target_cost=0.003, time_budget=budget)


def jump_worm(budget: float, starts: int) -> tuple[Scene, ControlResult, float]:
    """The best of a few starts: half a second, as high as possible; and how far its centre of mass rose."""
    scene = scenes.worm()
    simulator = Simulator(scene, contact="lcp")
    start = simulator.initial_state("arched")
    low = centre(scene, start.q)
    high = Position(scene, low + np.array([0, 0, 1.0]), weight=[0, 0, 10], center_of_mass="middle")
    problem = ControlProblem(simulator, start, 250, running=Effort(1e-4), final=high, hold=5)
    guesses = [0.3 * np.random.default_rng(k).normal(size=(problem.intervals, problem.nu)) for k in range(starts)]
    best = min((ilqr(problem, guess, time_budget=budget / starts) for guess in guesses), key=lambda found: found.cost)
    return scene, best, float(centre(scene, best.trajectory.q[-1])[2] - low[2])


def jump_g1(budget: float, steps: int = 200) -> tuple[Scene, ControlResult]:
    """From a crouch, the centre of mass is to be 0.45 m higher after 0.4 s; the first guess holds the robot still."""
    scene, start = g1_crouching()
    simulator = Simulator(scene, contact="lcp")
    still = inverse_dynamics(simulator, start)
    hold = gauss_newton(still, np.zeros(still.size)).x
    joints = np.r_[np.zeros(6), np.full(scene.nv - 6, 1e-4)]
    high = Position(scene, centre(scene, start.q) + np.array([0, 0, 0.45]), weight=200, center_of_mass="pelvis")
    running: list[Cost] = [Effort(1e-6, hold), TargetState(scene, start.q, q_weight=joints, v_weight=1e-5)]
    problem = ControlProblem(simulator, start, steps, running=running, final=high, hold=5)
    return scene, ilqr(problem, np.tile(hold, (problem.intervals, 1)), time_budget=budget, target_cost=1.0)


def centre(scene: Scene, q: Array) -> Array:
    """Centre of mass of everything that moves."""
    masses, d = scene.parameters["mass"], placed(scene, q)
    return np.asarray(masses @ d.xipos / masses.sum())


def _plot(scene: Scene, result: ControlResult, file: Path, title: str) -> Path:
    figure, axes = new_figure(1, 1, width=10, height=4)
    q = result.trajectory.q
    shots = np.linspace(0, len(q) - 1, 6).round().astype(int)
    wide = 1.2 * max(np.ptp(np.concatenate([x for x, _ in outlines(scene, q[0])])), 0.3)
    for k, t in enumerate(shots):
        for x, z in outlines(scene, q[t]):
            axes.fill(x - q[t, 0] + k * wide, z, color="C0", alpha=0.3, linewidth=0.3)
        axes.text(k * wide, -0.08 * wide, f"{t * scene.timestep:.2f} s", ha="center", va="top")
    axes.axhline(0.0, color="0.4")
    axes.set(title=title, ylabel="height [m]", xticks=[], aspect="equal")
    return save_figure(figure, file)
