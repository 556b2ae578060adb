"""Tables 2 and 3: how large the systems are, and how long steps and derivatives take."""

from __future__ import annotations

import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from tangens import robots
from tangens.errors import Error
from tangens.lab.bench.timing import Timings, one_core
from tangens.lab.papers.gradient_accuracy import in_contact
from tangens.lab.papers.motions import robot
from tangens.lab.papers.result_rows import Row, at_least, info
from tangens.lab.report import new_figure, save_figure
from tangens.scene import Scene, load
from tangens.simulate import Simulator
from tangens.testing import Sample

# The paper's: degrees of freedom, geometries, collision pairs; simulation, gradients and finite differences [µs].
PAPER: dict[str, tuple[int, int, int, float, float, float]] = {
    "half_cheetah": (12, 9, 27, 15.8, 14.7, 1.1e3),
    "humanoid": (27, 20, 161, 42.6, 47.9, 5.5e3),
    "ur5": (7, 9, 26, 12.3, 4.1, 0.4e3),
    "go1": (18, 39, 494, 62.6, 93.0, 6.6e3),
    "g1": (25, 25, 255, 139.3, 54.3, 17.6e3),  # the paper's H1
    "atlas": (36, 89, 3399, 127.3, 95.2, 26.7e3),
}
# With boxes as feet and no other colliders, so its collision detection has far less to do than the paper's.
ATLAS = Path("../shared/robots/atlas/atlas_v3_box_colliders.urdf")
TRIALS = {"quick": 3, "normal": 15, "full": 51}
STATES = {"quick": 4, "normal": 10, "full": 20}


def system(name: str) -> Scene | None:
    """A system of the paper, on a floor; None where its description is not at hand."""
    if name == "atlas":
        return load(ATLAS, floating_base=True, ground=0.0, motors=True) if ATLAS.exists() else None
    return robots.get(name, ground=-0.1) if name == "ur5" else robot(name)


def systems(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Table 2, and Talos as one more; the descriptions are not the paper's own, so the numbers may differ."""
    rows: list[Row] = []
    for name in (*PAPER, "talos"):
        scene = robot(name) if name == "talos" else system(name)
        if scene is None:
            continue
        theirs: tuple[float | None, ...] = PAPER[name][:3] if name in PAPER else (None, None, None)
        m = scene.shared_model
        shapes = int(((m.geom_contype != 0) | (m.geom_conaffinity != 0)).sum())
        label = "Table 2, g1 (for H1)" if name == "g1" else f"Table 2, {name}"
        for what, ours, paper in zip(
            ("degrees of freedom", "geometries", "collision pairs"), (scene.nv, shapes, pairs(scene)), theirs,
            strict=True,
        ):  # fmt: skip
            rows.append(info(f"{label}: {what}", ours, paper=paper))
    return rows, []


def pairs(scene: Scene) -> int:
    """Pairs of shapes that MuJoCo would test: on different links, not on neighbours, and not excluded."""
    m = scene.shared_model
    excluded = {tuple(divmod(int(signature), 1 << 16)) for signature in m.exclude_signature}
    count = 0
    for a, b in combinations(range(m.ngeom), 2):
        one, two = int(m.geom_bodyid[a]), int(m.geom_bodyid[b])
        if not (m.geom_contype[a] & m.geom_conaffinity[b] or m.geom_contype[b] & m.geom_conaffinity[a]):
            continue
        root_one, root_two = int(m.body_weldid[one]), int(m.body_weldid[two])
        if root_one == root_two or tuple(sorted((one, two))) in excluded:
            continue
        parents = int(m.body_weldid[m.body_parentid[root_one]]), int(m.body_weldid[m.body_parentid[root_two]])
        if (root_one and parents[1] == root_one) or (root_two and parents[0] == root_two):
            continue
        count += 1
    return count


def timings(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Table 3: one step, its derivative by (q, v, τ), and the same by central differences."""
    rows: list[Row] = []
    measured: dict[str, tuple[float, ...]] = {}
    for name, numbers in PAPER.items():
        scene = system(name)
        if scene is None:
            continue
        label = "Table 3, g1 (for H1)" if name == "g1" else f"Table 3, {name}"
        try:
            with one_core():
                times = measure(scene, STATES[effort], TRIALS[effort], touching=name != "ur5")
        except Error:
            rows.append(at_least(f"{label}: differences over implicit gradients", np.nan, 10))
            continue
        kinds = ("simulation", "implicit gradients", "finite differences")
        measured[name] = tuple(times.median(kind) for kind in kinds)
        rows += [
            info(f"{label}: {kind}", ours, paper=paper, unit="µs")
            for kind, ours, paper in zip(kinds, measured[name], numbers[3:], strict=True)
        ]
        ratio = times.median("finite differences") / times.median("implicit gradients")
        rows.append(at_least(f"{label}: differences over implicit gradients", ratio, 10, paper=numbers[5] / numbers[4]))
    return rows, [_plot(measured, out / "timings.png")]


def measure(scene: Scene, states: int, trials: int, touching: bool = True) -> Timings:
    """Times along motions under random controls, going round their states; those without a derivative are left out.

    Robots touch the floor in all of them; an arm such as UR5 need not touch anything.
    """
    simulator = Simulator(scene, contact="ncp")
    samples = list(in_contact(simulator, states, np.random.default_rng(0), touching=touching))
    samples = [sample for sample in samples if _differentiable(simulator, sample)] or samples
    clock = time.perf_counter
    times: dict[str, list[float]] = {"simulation": [], "implicit gradients": [], "finite differences": []}
    out = None
    for trial in range(trials + 1):
        for sample in samples:
            start = clock()
            out = simulator.step(*sample, guess=out)
            middle = clock()
            simulator.jacobian(out, wrt=_WRT)  # on top of that step, as the paper counts it
            if trial:  # the first one warms up
                times["simulation"].append(middle - start)
                times["implicit gradients"].append(clock() - middle)
    for sample in samples[:5]:
        start = clock()
        _plain_differences(simulator, sample)
        times["finite differences"].append(clock() - start)
    return Timings(times)


_WRT = ("q", "v", "tau")


def _differentiable(simulator: Simulator, sample: Sample) -> bool:
    try:
        simulator.jacobian(*sample, wrt=_WRT)
    except Error:
        return False
    return True


def _plain_differences(simulator: Simulator, sample: Sample) -> Any:
    """Second-order central differences, two steps per column, as the paper counts them."""
    scene, (state, u, tau) = simulator.scene, sample
    columns = []
    for delta in 1e-6 * np.eye(scene.nv):
        for sign in (1.0, -1.0):
            columns.append(simulator.step(state.replace(q=scene.integrate(state.q, sign * delta)), u, tau).state.v)
            columns.append(simulator.step(state.replace(v=state.v + sign * delta), u, tau).state.v)
            columns.append(simulator.step(state, u, tau + sign * delta).state.v)
    return columns


def _short(microseconds: float) -> str:
    return f"{microseconds:.0f}" if microseconds < 1e3 else f"{microseconds / 1e3:.3g}k"


def _plot(measured: dict[str, tuple[float, ...]], file: Path) -> Path:
    figure, axes = new_figure(1, 3, width=13)
    for panel, index, title in zip(
        axes, range(3), ("simulation", "implicit gradients", "finite differences"), strict=True
    ):
        names = list(measured)
        for k, (tool, values) in enumerate(
            (("paper (Apple M3)", [PAPER[n][3 + index] for n in names]),
             ("tangens (here)", [measured[n][index] for n in names]))
        ):  # fmt: skip
            bars = panel.bar(np.arange(len(names)) + 0.4 * (k - 0.5), values, width=0.38, label=tool)
            panel.bar_label(bars, fmt=_short, fontsize=7)
        labels = ["H1 / G1" if n == "g1" else n.replace("_", "\n") for n in names]
        panel.set(title=title, yscale="log", xticks=range(len(names)), xticklabels=labels)
        panel.margins(y=0.15)
        panel.tick_params(axis="x", labelsize=8)
    axes[0].set_ylabel("one step [µs]")
    axes[0].legend(fontsize=8)
    return save_figure(figure, file)
