"""Fig. 8: a drone that lies on the ground is to be at a height after 500 steps.

As long as its thrust is below its weight the ground holds it, and the exact gradient of the loss by the thrust is zero.
Complementarity-aware gradients let the ground go where the loss asks for it. The optimiser is plain gradient descent.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens import scenes
from tangens.lab.papers.result_rows import Row, at_least, at_most, info
from tangens.lab.report import new_figure, save_figure
from tangens.simulate import Simulator

Array = NDArray[np.float64]

STEPS, RISE = 500, 1.0  # after a second, a metre higher
RATE = 500.0
ITERATIONS = {"quick": 25, "normal": 40, "full": 100}


class Training(NamedTuple):
    """Losses of all iterations, and the heights of the last motion."""

    losses: Array
    heights: Array


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Train with both kinds of gradients."""
    found = {choice: train(choice, ITERATIONS[effort]) for choice in ("exact", "complementarity-aware")}
    left = {choice: 100 * training.losses[-1] / training.losses[0] for choice, training in found.items()}
    stuck = int((found["complementarity-aware"].losses > 0.999).sum())
    rows = [
        at_least("drone, exact: loss that is left", left["exact"], 99.9, paper=100, unit="%"),
        at_most("drone, complementarity-aware: loss that is left", left["complementarity-aware"], 1, unit="%"),
        info("drone, complementarity-aware: iterations before it lifts off", stuck),
    ]
    return rows, [_plot(found, out / "drone.png")]


def train(gradient: str, iterations: int, steps: int = STEPS) -> Training:
    """Gradient descent on the squared distance from the target at the last step."""
    scene = scenes.drone()
    simulator = Simulator(scene, contact="lcp", gradient=gradient)
    start = simulator.initial_state("resting")
    target, up = start.q[2] + RISE, np.eye(scene.nv)[2]
    (low, high), u, losses = scene.shared_model.actuator_ctrlrange[0], np.zeros((steps, scene.nu)), list[float]()
    for _ in range(iterations + 1):
        trajectory = simulator.rollout(start, u)
        miss = float(trajectory.q[-1, 2] - target)
        losses.append(miss**2)
        gradients = simulator.pullback(trajectory, dq=2 * miss * up, wrt=())
        u = np.clip(u - RATE * gradients.controls, low, high)
    return Training(np.array(losses), trajectory.q[:, 2] - start.q[2])


def _plot(found: dict[str, Training], file: Path) -> Path:
    figure, axes = new_figure(1, 2, width=10, height=4)
    for name, training in found.items():
        axes[0].semilogy(np.maximum(training.losses, 1e-16), ".-", label=name)
        axes[1].plot(np.arange(len(training.heights)), training.heights, label=name)
    axes[0].set(title="Loss", xlabel="iteration", ylabel="(height − target)² [m²]")
    axes[1].axhline(RISE, color="0.5", linestyle="--")
    axes[1].set(title="Motion after training", xlabel="step", ylabel="height above the start [m]")
    for panel in axes:
        panel.legend()
        panel.grid(alpha=0.3)
    return save_figure(figure, file)
