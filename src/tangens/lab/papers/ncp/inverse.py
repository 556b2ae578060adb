"""Sec. 4.2 and Appendix E: initial conditions of a sliding cube, and torques that hold a robot still.

Four methods each: Gauss-Newton and gradient descent, with the implicit derivative and with central differences.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tangens import scenes
from tangens.lab.papers import poses
from tangens.lab.papers.result_rows import Row, at_least, at_most, info
from tangens.lab.report import new_figure, save_figure
from tangens.optimize import (
    LeastSquares,
    Result,
    by_differences,
    gauss_newton,
    gradient_descent,
    initial_condition,
    inverse_dynamics,
)
from tangens.scene import Scene
from tangens.simulate import Simulator
from tangens.state import State

Array = NDArray[np.float64]
Curves = dict[str, Result]

GN, GN_DIFFERENCES = "Gauss-Newton, implicit", "Gauss-Newton, differences"
GD, GD_DIFFERENCES = "gradient descent, implicit", "gradient descent, differences"
_STYLES: dict[str, dict[str, Any]] = {
    GN: {"color": "C0", "linestyle": "-", "marker": "o", "markersize": 4},
    GN_DIFFERENCES: {"color": "C1", "linestyle": "--", "marker": "."},
    GD: {"color": "C2", "linestyle": "-", "linewidth": 5, "alpha": 0.4},
    GD_DIFFERENCES: {"color": "k", "linestyle": ":", "linewidth": 1.5},
}

# The paper gives neither the number of steps nor the numbers of its throw: 100 steps of 2 ms, a cube of 0.5 kg thrown
# down and along the floor, and a guess that is wrong in all six unknowns.
STEPS = {"quick": 50, "normal": 100, "full": 100}
ITERATIONS = {"quick": 15, "normal": 40, "full": 100}
THROW = np.array([2.0, 1.0, -0.5, 0.0, 0.0, 0.0])
GUESS = np.array([1.5, 0.4, -1.0, 0.3, -0.2, 0.5])
PRECISE, HELD = 1e-9, 1e-5


def solve_all(problem: LeastSquares, x0: Array, iterations: int) -> Curves:
    """The four methods from the same start."""
    differences = by_differences(problem)
    options: dict[str, Any] = {"max_iterations": iterations, "tolerance": 1e-12}
    return {
        GN: gauss_newton(problem, x0, **options),
        GN_DIFFERENCES: gauss_newton(differences, x0, **options),
        GD: gradient_descent(problem, x0, **options),
        GD_DIFFERENCES: gradient_descent(differences, x0, **options),
    }


# ---------------------------------------------------------------------- Fig. 3


def thrown_cube(by: str, steps: int) -> tuple[LeastSquares, Array]:
    """The problem of the paper's Eq. 12 and a wrong guess; the target is where the true throw ends."""
    simulator = Simulator(scenes.cube(), contact="ncp")
    scene, start = simulator.scene, simulator.initial_state("resting")
    tau = np.zeros((steps, scene.nv))
    if by == "velocity":
        truth, guess = THROW, GUESS
        end = simulator.rollout(start.replace(v=truth), steps, tau)
    else:
        inertia = np.concatenate([np.full(3, scene.parameters["mass"][1]), scene.parameters["inertia"][1, :3]])
        truth, guess = inertia * THROW, inertia * GUESS
        tau[0] = truth / scene.timestep
        end = simulator.rollout(start, steps, tau)
    return initial_condition(simulator, start, end.q[-1], steps, by), guess


def initial_conditions(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Fig. 3: initial velocity and initial impulse."""
    rows: list[Row] = []
    panels: dict[str, Curves] = {}
    for by in ("velocity", "impulse"):
        problem, guess = thrown_cube(by, STEPS[effort])
        curves = panels[f"initial {by} of a thrown cube"] = solve_all(problem, guess, ITERATIONS[effort])
        rows += _rows(f"Fig. 3, initial {by}", curves, PRECISE)
    return rows, [_plot(panels, out / "initial_conditions.png", "|q_T − q*|")]


def _rows(name: str, curves: Curves, limit: float) -> list[Row]:
    """Final errors, and how the methods compare on the way to `limit`."""
    needed = _iterations_to(curves[GN], limit)
    by_then = {label: float(result.errors[min(needed, result.iterations)]) for label, result in curves.items()}
    return [
        at_most(f"{name}: error, {GN}", curves[GN].error, limit),
        *(info(f"{name}: error, {label}", curves[label].error) for label in (GN_DIFFERENCES, GD, GD_DIFFERENCES)),
        info(f"{name}: iterations to {limit:g}, {GN}", needed),
        at_least(f"{name}: error by then, gradient descent over Gauss-Newton", by_then[GD] / by_then[GN], 1e3),
        _saved(name, curves, limit),
    ]


def _saved(name: str, curves: Curves, limit: float) -> Row:
    """What differences cost: simulations for the same accuracy, where an implicit Jacobian counts as one of them."""
    implicit = _evaluations_to(curves[GN], limit) + _iterations_to(curves[GN], limit) + 1
    ratio = _evaluations_to(curves[GN_DIFFERENCES], limit) / implicit
    return at_least(f"{name}: simulations to {limit:g}, differences over implicit", ratio, 2)


def _iterations_to(result: Result, limit: float) -> int:
    reached = np.flatnonzero(result.errors <= limit)
    return int(reached[0]) if len(reached) else result.iterations


def _evaluations_to(result: Result, limit: float) -> float:
    """Residuals that it took to come within the limit; infinite where it never did."""
    reached = np.flatnonzero(result.errors <= limit)
    return float(result.history[reached[0]].evaluations) if len(reached) else np.inf


# ---------------------------------------------------------------------- Fig. 4 and Appendix E


def torques(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Fig. 4 and App. E: torques for v⁺ = 0, from none at all."""
    stands = {
        "Go1 standing": poses.go1_standing(),
        "Go1 with 10 kg on its back": poses.go1_standing(10.0),
        "Go1 in a hand-stand": poses.go1_hand_stand(),
        "G1 (for H1) in a push-up": poses.g1_push_up(),
    }
    rows: list[Row] = []
    panels: dict[str, Curves] = {}
    for name, (scene, state) in stands.items():
        problem = inverse_dynamics(Simulator(scene, contact="ncp"), state)
        curves = panels[name] = solve_all(problem, np.zeros(problem.size), ITERATIONS[effort])
        label = "Fig. 4" if name == "Go1 standing" else "App. E"
        steps = _iterations_to(curves[GN], HELD)
        rows.append(at_most(f"{label}, {name}: error |v⁺|, {GN}", curves[GN].error, HELD, paper=HELD, unit="m/s"))
        rows.append(at_most(f"{label}, {name}: iterations to {HELD:g}, {GN}", steps, 10, paper=10))
        rows += [
            info(f"{label}, {name}: error |v⁺|, {other}", curves[other].error, unit="m/s")
            for other in (GN_DIFFERENCES, GD, GD_DIFFERENCES)
        ]
        rows.append(_saved(f"{label}, {name}", curves, HELD))
        rows.append(info(f"{label}, {name}: largest torque", float(np.abs(curves[GN].x).max()), unit="N·m"))
    figures = [_plot(panels, out / "inverse_dynamics.png", "|v⁺| [m/s]"), _draw(stands, out / "poses.png")]
    return rows, figures


# ---------------------------------------------------------------------- figures


def _plot(panels: dict[str, Curves], file: Path, ylabel: str) -> Path:
    figure, axes = new_figure(1, len(panels), width=4.6 * len(panels), height=4.2)
    for panel, (title, curves) in zip(axes, panels.items(), strict=True):
        for label, result in curves.items():
            panel.semilogy(np.maximum(result.errors, 1e-16), label=label, **_STYLES[label])
        panel.set(title=title, xlabel="iteration")
        panel.grid(alpha=0.3)
    axes[0].set_ylabel(ylabel)
    axes[0].legend(fontsize=8)
    return save_figure(figure, file)


def _draw(stands: dict[str, tuple[Scene, State]], file: Path) -> Path:
    """The poses from the side: outlines of the shapes, and where they touch the floor."""
    figure, axes = new_figure(1, len(stands), width=4.6 * len(stands), height=3.6)
    for panel, (title, (scene, state)) in zip(axes, stands.items(), strict=True):
        for outline in poses.outlines(scene, state.q):
            panel.fill(*outline, facecolor="C0", edgecolor="C0", alpha=0.35, linewidth=0.8)
        contacts = Simulator(scene, contact="ncp").step(state).contacts
        touching = np.array([mode != "breaking" for mode in contacts.mode])
        panel.plot(contacts.position[touching, 0], contacts.position[touching, 2], "^", color="C3", markersize=6)
        if "10 kg" in title:
            x, z = state.q[0], state.q[2] + poses.LOAD_HEIGHT
            panel.fill(x + 0.05 * np.array([-1, 1, 1, -1]), z + 0.05 * np.array([-1, -1, 1, 1]), color="0.3")
        panel.axhline(0, color="0.6", linewidth=1)
        panel.margins(0.1)
        panel.set_aspect("equal", adjustable="datalim")
        panel.set(title=title, xlabel="x [m]")
    axes[0].set_ylabel("z [m]")
    return save_figure(figure, file)
