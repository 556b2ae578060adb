"""Smooth dynamics: our contact-free step and Jacobian against MuJoCo's step and Pinocchio's derivatives.

Each peer gets its best setting: MuJoCo steps the same model with constraints, contacts and sensors disabled, called
directly on its own data without setting a state; Pinocchio differentiates our tree, with aligned joints only, at a
configuration already in its own layout.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pinocchio as pin

from tangens import robots
from tangens.dynamics.exact import ExactDynamics
from tangens.lab.bench.request import BenchRequest, at_most, row
from tangens.lab.bench.timing import Timings, interleaved
from tangens.lab.report import environment, new_figure, save_figure
from tangens.simulate import Simulator
from tangens.testing import random_sample

SYSTEMS = ("half_cheetah", "go1", "g1", "talos")
TRIALS = {"quick": 7, "normal": 25, "full": 101}
TOOLS = {"step": ("tangens", "MuJoCo mj_step"), "jacobian": ("tangens", "Pinocchio computeABADerivatives")}
STEP_TARGET, JACOBIAN_TARGET, LOAD_TARGET = 3.0, 2.5, 3.0


def run(request: BenchRequest) -> dict[str, Any]:
    """Measure all systems."""
    trials, advance = TRIALS[request.effort], request.advance
    rows: list[dict[str, Any]] = []
    ratios: list[dict[str, Any]] = []
    for index, name in enumerate(SYSTEMS):
        advance(index, len(SYSTEMS))
        timings, loading = _measure(name, trials)
        for quantity, tools in TOOLS.items():
            rows += [row(name, quantity, tool, timings[quantity].median(tool), trials) for tool in tools]
        rows.append(row(name, "load", "tangens", 1e6 * loading, 1))
        for quantity, target in (("step", STEP_TARGET), ("jacobian", JACOBIAN_TARGET)):
            tool, peer = TOOLS[quantity]
            ratios.append(
                at_most(f"{name}: {quantity} / {peer.split()[-1]}", timings[quantity].ratio(tool, peer), target)
            )
        if name == "g1":
            ratios.append(at_most("g1: seconds to load", loading, LOAD_TARGET))
    advance(len(SYSTEMS), len(SYSTEMS))
    figure = _plot(rows, request.out / "dynamics.png")
    return {"rows": rows, "ratios": ratios, "figures": [str(figure)], "environment": environment() | {
        "peers": {"mujoco": "Euler, constraints, contacts and sensors disabled, called on its own data",
                  "pinocchio": "the same tree, configuration in Pinocchio's layout"}}}  # fmt: skip


def _measure(name: str, trials: int) -> tuple[dict[str, Timings], float]:
    start = time.perf_counter()
    scene = robots.get(name)
    loading = time.perf_counter() - start
    simulator = Simulator(scene)
    state, u, tau = random_sample(scene, np.random.default_rng(0))
    dynamics = ExactDynamics(scene.shared_model)
    m, d = dynamics.model, mujoco.MjData(dynamics.model)
    d.qpos[:] = state.q
    tree = dynamics.tree
    data, q_pin = tree.model.createData(), state.q[tree.q_order]
    step = (lambda: simulator.step(state, u, tau), lambda: mujoco.mj_step(m, d))
    jacobian = (
        lambda: simulator.jacobian(state, u, tau, wrt=("q", "v", "tau")),
        lambda: pin.computeABADerivatives(tree.model, data, q_pin, state.v, tau),
    )
    functions = {"step": step, "jacobian": jacobian}
    timings = {q: interleaved(dict(zip(TOOLS[q], functions[q], strict=True)), trials) for q in TOOLS}
    return timings, loading


def _plot(rows: list[dict[str, Any]], file: Path) -> Path:
    figure, axes = new_figure(1, 2, width=11)
    for panel, quantity in zip(axes, ("step", "jacobian"), strict=True):
        chosen = [entry for entry in rows if entry["quantity"] == quantity]
        tools = list(dict.fromkeys(entry["tool"] for entry in chosen))
        for k, tool in enumerate(tools):
            heights = [entry["median_us"] for entry in chosen if entry["tool"] == tool]
            places = np.arange(len(heights)) + (k - (len(tools) - 1) / 2) * 0.8 / len(tools)
            bars = panel.bar(places, heights, width=0.75 / len(tools), label=tool)
            panel.bar_label(bars, fmt="{:,.0f}", fontsize=7)
        panel.set(title=quantity, ylabel="median [µs]", xticks=range(len(SYSTEMS)), xticklabels=SYSTEMS)
        panel.legend(fontsize=8)
    return save_figure(figure, file)
