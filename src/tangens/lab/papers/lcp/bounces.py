"""Sec. VI: elastic bounces in discrete and in continuous time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tangens import scenes
from tangens.contact import Lcp
from tangens.lab.papers.result_rows import Row, at_least, at_most, info
from tangens.lab.report import new_figure, save_figure
from tangens.scene import Scene
from tangens.simulate import Simulator
from tangens.state import State

Array = NDArray[np.float64]

GRAVITY, RESTITUTION, RADIUS = 9.81, 0.8, 0.1
DURATION = 0.6
STARTS = {"quick": 21, "normal": 61, "full": 201}


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Derivatives of one bounce, and where a ball ends that was dropped from a little higher."""
    h = scenes.ball().timestep
    by_p, by_v = single_bounce()
    lifts = np.linspace(0.0, 0.02, STARTS[effort])
    ends = {bounce: heights(scenes.ball(), bounce, lifts) for bounce in ("discrete", "resolved")}
    jumps = {bounce: float(np.abs(np.diff(found, 2)).max()) for bounce, found in ends.items()}
    coarse, fine = (error_of(step) for step in (h, h / 2))
    exact = (exact_height(0.9 + 1e-6) - exact_height(0.9 - 1e-6)) / 2e-6
    wrong, less_wrong = (abs(slope_by_height(scenes.ball().replace(timestep=step)) - exact) for step in (h, h / 2))
    rows = [
        at_most("bounce, continuous: error of ∂p⁺/∂p = −σ", abs(by_p + RESTITUTION), 1e-9, paper=0),
        at_most("bounce, continuous: error of ∂p⁺/∂v = −σ·h over h", abs(by_v / h + RESTITUTION), 1e-9, paper=0),
        info("bounce, discrete: largest kink of the final height over starts", jumps["discrete"], unit="m"),
        at_most("bounce, resolved: the same", jumps["resolved"], 1e-4, unit="m"),
        at_least("bounce, resolved: error of the final height at h over that at h/2", coarse / fine, 1.8),
        info("bounce, resolved: error of ∂(final height)/∂(start) at h", wrong),
        at_least("bounce, resolved: that error over the one at h/2", wrong / less_wrong, 1.8),
    ]  # fmt: skip
    return rows, [_plot(lifts, ends, out / "bounces.png")]


def single_bounce() -> tuple[float, float]:
    """∂p⁺/∂p and ∂p⁺/∂v of a ball that bounces without gravity, by the approximation of continuous time."""
    scene = scenes.ball().replace(gravity=np.zeros(3))
    simulator = Simulator(scene, contact="lcp", gradient="continuous-bounce")
    deep = scene.integrate(scene.initial_state("resting").q, [0, 0, -1e-3, 0, 0, 0])
    J = simulator.jacobian(State(deep, [0, 0, -2, 0, 0, 0]), wrt=("q", "v"))
    return float(J["q", "q"][2, 2]), float(J["q", "v"][2, 2])


def heights(scene: Scene, bounce: str, lifts: Array) -> Array:
    """Final heights of balls that were dropped from 0.9 m and a little more."""
    simulator = Simulator(scene, contact=Lcp(bounce=bounce))
    start, up = simulator.initial_state("dropped"), np.eye(scene.nq)[2]
    steps = round(DURATION / scene.timestep)
    return np.array([simulator.rollout(start.replace(q=start.q + lift * up), steps).q[-1, 2] for lift in lifts])


def slope_by_height(scene: Scene) -> float:
    """∂(final height)/∂(start) by reverse mode through the resolved bounce."""
    simulator = Simulator(scene, contact=Lcp(bounce="resolved"))
    trajectory = simulator.rollout(simulator.initial_state("dropped"), round(DURATION / scene.timestep))
    return float(simulator.pullback(trajectory, dq=np.eye(scene.nv)[2], wrt=()).state.q[2])


def error_of(timestep: float) -> float:
    """Distance of the final height from that in continuous time."""
    scene = scenes.ball().replace(timestep=timestep)
    return float(abs(heights(scene, "resolved", np.zeros(1))[0] - exact_height(0.9)))


def exact_height(drop: float) -> float:
    """Height of the ball in continuous time; it bounces once."""
    fall = np.sqrt(2 * drop / GRAVITY)
    rise = DURATION - fall
    return float(RADIUS + RESTITUTION * GRAVITY * fall * rise - 0.5 * GRAVITY * rise**2)


def _plot(lifts: Array, ends: dict[str, Array], file: Path) -> Path:
    figure, axes = new_figure(1, 1, width=7, height=4)
    for name, found in ends.items():
        axes.plot(1e3 * lifts, found, ".-", label=name)
    axes.plot(1e3 * lifts, [exact_height(0.9 + lift) for lift in lifts], "k--", label="continuous time")
    axes.set(title="A ball after one bounce", xlabel="extra height at the start [mm]", ylabel="height at 0.6 s [m]")
    axes.legend()
    axes.grid(alpha=0.3)
    return save_figure(figure, file)
