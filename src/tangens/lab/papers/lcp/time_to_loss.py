"""Fig. 7: how long iLQR, multiple shooting and stochastic search take to bring a loss down.

Each method starts from the same random guesses and stops at the same loss or at the end of the time it is given. The
clock is the wall's, compilation not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens import scenes
from tangens.lab.papers.result_rows import Row, at_least, info
from tangens.lab.report import new_figure, save_figure
from tangens.optimize import (
    ControlProblem,
    ControlResult,
    Effort,
    Position,
    TargetState,
    ilqr,
    multiple_shooting,
    stochastic_search,
)
from tangens.simulate import Simulator

Array = NDArray[np.float64]

METHODS: dict[str, Callable[..., ControlResult]] = {
    "iLQR": ilqr,
    "multiple shooting": multiple_shooting,
    "stochastic search": stochastic_search,
}
SEEDS = {"quick": 1, "normal": 3, "full": 5}
BUDGET = {"quick": 15.0, "normal": 40.0, "full": 200.0}  # [s]


class Task(NamedTuple):
    """A problem, random guesses of its controls, and the loss to reach."""

    problem: ControlProblem
    guess: Callable[[np.random.Generator], Array]
    target: float


class Run(NamedTuple):
    """When a method got there, or when it stopped; and its losses over time."""

    seconds: float
    reached: bool
    curve: Array


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Compare the methods on three systems."""
    rows, curves = list[Row](), dict[str, dict[str, list[Run]]]()
    for name, task in tasks().items():
        runs = curves[name] = {
            method: [attempt(task, method, 100 + seed, BUDGET[effort]) for seed in range(SEEDS[effort])]
            for method in METHODS
        }
        times = {method: float(np.median([r.seconds for r in found])) for method, found in runs.items()}
        rows += [info(f"Fig. 7, {name}: time to the loss, {method}", times[method], unit="s") for method in METHODS]
        for method, found in runs.items():
            reached = 100 * float(np.mean([one.reached for one in found]))
            rows.append(info(f"Fig. 7, {name}: guesses from which {method} got there", reached, unit="%"))
        best = min(times["iLQR"], times["multiple shooting"])
        gain = times["stochastic search"] / best
        rows.append(at_least(f"Fig. 7, {name}: time of stochastic search / best gradient method", gain, 1))
    return rows, [_plot(curves, out / "time_to_loss.png")]


def tasks() -> dict[str, Task]:
    """Cartpole and double cartpole swing up; the catapult throws its ball at a target."""
    return {"cartpole": cartpole(), "double cartpole": double_cartpole(), "catapult": catapult()}


def cartpole() -> Task:
    """Swing the pole up within 1.6 s."""
    simulator = Simulator(scenes.cartpole(), contact="lcp")
    upright = TargetState(simulator.scene, [0, 0], q_weight=[100, 1000], v_weight=10)
    start, steps = simulator.initial_state("hanging"), round(1.6 / simulator.scene.timestep)
    return _swing_up(ControlProblem(simulator, start, steps, running=Effort(1e-3), final=upright, hold=8), 8.0)


def double_cartpole() -> Task:
    """The same with two poles."""
    simulator = Simulator(scenes.double_cartpole(), contact="lcp")
    upright = TargetState(simulator.scene, [0, 0, 0], q_weight=[100, 1000, 1000], v_weight=10)
    start, steps = simulator.initial_state("hanging"), round(2.0 / simulator.scene.timestep)
    return _swing_up(ControlProblem(simulator, start, steps, running=Effort(1e-3), final=upright, hold=8), 15.0)


def catapult() -> Task:
    """Hit a target on the ground, 2 m away, after 0.8 s."""
    simulator = Simulator(scenes.catapult(), contact="lcp")
    hit = Position(simulator.scene, CATAPULT_TARGET, weight=100, body="ball")
    problem = ControlProblem(
        simulator, simulator.initial_state("loaded"), 400, running=Effort(1e-4), final=hit, hold=20
    )

    def guess(rng: np.random.Generator) -> Array:
        u = 0.05 * rng.normal(size=(problem.intervals, problem.nu))
        u[:4] += 0.5  # so that the ball leaves its cup
        return u

    return Task(problem, guess, 0.01)


CATAPULT_TARGET = (2.0, 0.0, 0.04)


def _swing_up(problem: ControlProblem, target: float) -> Task:
    return Task(problem, lambda rng: rng.normal(size=(problem.intervals, problem.nu)), target)


def attempt(task: Task, method: str, seed: int, budget: float) -> Run:
    """One run of one method from one guess."""
    problem, guess = task.problem, task.guess(np.random.default_rng(seed))
    problem.simulator.jacobian(problem.start, guess[0])  # compiles
    options: dict[str, Any] = {"target_cost": task.target, "time_budget": budget}
    if method == "stochastic search":
        options |= {"seed": seed, "max_iterations": 100_000}
    result = METHODS[method](problem, guess, **options)
    times = np.cumsum([entry.seconds for entry in result.history])
    # a cost of pieces that do not fit together yet is none; the last entry is that of the motion itself
    fitting = [entry.cost if entry.violation < 1e-6 else np.inf for entry in result.history]
    costs = np.minimum.accumulate([*fitting[:-1], result.cost])
    reached = result.cost <= task.target
    return Run(float(times[-1]) if reached else max(budget, float(times[-1])), reached, np.stack([times, costs]))


def _plot(curves: dict[str, dict[str, list[Run]]], file: Path) -> Path:
    figure, axes = new_figure(1, len(curves), width=13, height=4)
    for panel, (name, runs) in zip(axes, curves.items(), strict=True):
        for k, (method, found) in enumerate(runs.items()):
            for i, one in enumerate(found):
                times = np.maximum(one.curve[0], 1e-3)
                panel.loglog(times, one.curve[1], color=f"C{k}", alpha=0.8, label=method if i == 0 else None)
        panel.set(title=name, xlabel="time [s]", ylabel="loss")
        panel.grid(alpha=0.3)
    axes[0].legend()
    return save_figure(figure, file)
