"""The single-level step: against the bilevel one, against the number of bodies, in batches, and how often it fails.

One core, one thread; both methods are compiled with the same flags and share all code but that which makes them differ.

falling block: the planar block of paper 1, Fig. 11, along a drop. Both methods take the same steps, from the same
    states and from scratch, in turns; a step's time is that of one call, and the ratio that of the mean times, as in
    the paper.
stack: towers of boxes at rest, face to face, as `Simulator.step` takes them.
batch: cubes in the middle of a throw, all steps of a batch in one call (`engine.steps`), in its portions.
throws: how many steps do not converge, of bodies of all shapes thrown at the floor (`throws`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens import scenes
from tangens.contact import Bilevel, SingleLevel
from tangens.contact.base import Point
from tangens.contact.interior.options import InteriorContact
from tangens.lab.bench import throws
from tangens.lab.bench.request import (
    OURS,
    BenchRequest,
    Report,
    Table,
    at_least,
    at_most,
    measure_all,
    not_measured,
)
from tangens.lab.papers.single_level import drops
from tangens.lab.report import new_figure, save_figure
from tangens.scene import Scene, load
from tangens.simulate import Simulator
from tangens.state import State

Array = NDArray[np.float64]

BLOCK, STACK, BATCH, THROWS = "falling block", "stack", "batch", "throws"
MODELS: dict[str, InteriorContact] = {OURS: SingleLevel(), "bilevel": Bilevel()}
PAPER = 30.0  # how many times longer the paper's bilevel steps take
SLOPE, SHARE, SHARE_AT = 1.1, 0.25, 256
FAILURES = 1.0  # most steps in 10,000 that do not converge


class Effort(NamedTuple):
    """How much is measured."""

    steps: int
    passes: int
    boxes: tuple[int, ...]
    batches: tuple[int, ...]
    throws: tuple[int, int]
    """Throws of each shape at each time step and relaxation, and steps of each throw."""


EFFORTS = {
    "quick": Effort(30, 1, (2, 4), (1, 16), (10, 10)),
    "normal": Effort(100, 3, (2, 4, 8, 16, 32), (1, 4, 16, 64, 256, 1024), (50, 30)),
    "full": Effort(100, 20, (2, 4, 8, 16, 32), (1, 4, 16, 64, 256, 1024), (200, 60)),
}

_BOX = '<body pos="0 0 {z}"><freejoint/><geom type="box" size="0.05 0.05 0.05" mass="0.5" friction="0.5"/></body>'
_TOWER = """
<mujoco>
  <option timestep="0.002" integrator="Euler"/>
  <worldbody><geom type="plane" size="2 2 0.1" friction="0.5"/>{boxes}</worldbody>
</mujoco>
"""


def run(request: BenchRequest) -> dict[str, Any]:
    """Measure all four."""
    facts = {"peers": {}, "published": "paper 1, Fig. 11: bilevel steps take 30 times as long on average"}
    file = request.out / "single-level.png"
    return measure_all(request, (BLOCK, STACK, BATCH, THROWS), _measure, lambda rows: _plot(rows, file), facts)


def _measure(name: str, request: BenchRequest) -> Report:
    report = Report(name)
    parts = {BLOCK: _measure_block, STACK: _measure_stack, BATCH: _measure_batch, THROWS: _measure_throws}
    parts[name](report, EFFORTS[request.effort])
    return report


def tower(boxes: int) -> Scene:
    """Boxes of 10 cm, one upon the other."""
    return load(_TOWER.format(boxes="".join(_BOX.format(z=0.05 + 0.1 * k) for k in range(boxes))))


def _measure_block(report: Report, effort: Effort) -> None:
    scene = drops.scene()
    simulators = {name: Simulator(scene, model) for name, model in MODELS.items()}
    state = State([0.0, 1.0, 0.6], [0.5, -1.0, 0.5])
    compile_s, states = dict[str, float](), [state]
    for name, simulator in simulators.items():
        compile_s[name], _ = _timed(simulator.step, state)
    for _ in range(effort.steps - 1):
        states.append(simulators[OURS].step(states[-1]).state)
    times: dict[str, list[float]] = {name: [] for name in simulators}
    iterations: dict[str, list[int]] = {name: [] for name in simulators}
    failed = dict.fromkeys(simulators, 0)
    for _ in range(effort.passes):
        for state in states:
            for name, simulator in simulators.items():
                seconds, out = _timed(simulator.step, state)
                times[name].append(seconds)
                iterations[name].append(out.solver.iterations)
                failed[name] += not out.solver.converged
    for name, found in times.items():
        report.add("step", name, 1e6 * median(found), len(found), compile_s[name])
        report.rows[-1] |= {"mean_us": 1e6 * fmean(found), "iterations": fmean(iterations[name])}
        report.rows[-1]["failed"] = failed[name] / len(found)
    ours, theirs = report.rows
    report.ratios.append(at_least(f"{BLOCK}: bilevel / single-level, mean", theirs["mean_us"] / ours["mean_us"], PAPER))


def _timed(call: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    answer = call(*arguments)
    return time.perf_counter() - start, answer


def _measure_stack(report: Report, effort: Effort) -> None:
    for boxes in effort.boxes:
        simulator = Simulator(tower(boxes), MODELS[OURS])
        state = simulator.initial_state()
        start = time.perf_counter()
        state = simulator.step(state).state
        compile_s = time.perf_counter() - start
        times, iterations = list[float](), list[int]()
        for _ in range(5 * effort.passes):
            start = time.perf_counter()
            out = simulator.step(state)
            times.append(time.perf_counter() - start)
            iterations.append(out.solver.iterations)
            state = out.state
        report.add(f"{boxes} boxes", OURS, 1e6 * median(times), len(times), compile_s)
        report.rows[-1] |= {"number": boxes, "mean_us": 1e6 * fmean(times), "iterations": fmean(iterations)}
    number, us = (np.log([r[key] for r in report.rows]) for key in ("number", "median_us"))
    report.ratios.append(
        at_most(f"{STACK}: slope of log time over log boxes", float(np.polyfit(number, us, 1)[0]), SLOPE)
    )


def _measure_batch(report: Report, effort: Effort) -> None:
    from tangens.contact.interior.engine import InteriorEngine
    from tangens.contact.jax_batch import LANES

    scene, rng = scenes.cube(), np.random.default_rng(0)
    state, most = scene.initial_state(), max(effort.batches)
    q = np.tile(state.q, (most, 1))
    q[:, 2] += rng.uniform(0.0, 0.05, most)
    v = rng.normal(scale=0.5, size=(most, scene.nv))
    simulator = Simulator(scene, MODELS[OURS])
    engine = simulator.engine
    assert isinstance(engine, InteriorEngine)

    def together(q: Array, v: Array) -> float:
        """Iterations on average."""
        if len(q) == 1:
            return simulator.step(State(q[0], v[0])).solver.iterations
        out = engine.steps(Point(q, v, np.zeros((len(q), scene.nu)), np.zeros_like(v)), lanes=min(len(q), LANES))
        return float(np.mean(out.iterations))

    for size in effort.batches:
        compile_s, _ = _timed(together, q[:size], v[:size])
        # As many different scenes alone as there are in a batch, or nearly: some are harder than others.
        times, iterations = list[float](), list[float]()
        for first in range(0, min(most, 64 if size == 1 else size), size):
            for _ in range(1 if size == 1 else 3 * effort.passes):
                seconds, count = _timed(together, q[first : first + size], v[first : first + size])
                times.append(seconds / size)
                iterations.append(count)
        report.add(f"batch of {size}", OURS, 1e6 * median(times), len(times), compile_s)
        report.rows[-1] |= {"number": size, "mean_us": 1e6 * fmean(times), "iterations": fmean(iterations)}
    mean = {r["number"]: r["mean_us"] for r in report.rows}
    title = f"{BATCH} of {SHARE_AT}: time per scene / one alone, mean"
    if SHARE_AT in mean:
        report.ratios.append(at_most(title, mean[SHARE_AT] / mean[1], SHARE))
    else:
        report.ratios.append(not_measured(title, f"<= {SHARE:g}", f"this run stops at batches of {most}"))


def _measure_throws(report: Report, effort: Effort) -> None:
    number, steps = effort.throws
    all_steps, all_failures = 0, 0
    for shape in throws.GEOMS:
        seconds, counts = _timed(lambda shape=shape: list(throws.count(shape, throws=number, steps=steps)))
        taken, failures = sum(c.steps for c in counts), sum(c.failures for c in counts)
        report.add(shape, OURS, 1e6 * seconds / taken, taken)
        report.rows[-1] |= {"mean_us": 1e6 * seconds / taken, "iterations": fmean(c.iterations for c in counts)}
        report.rows[-1] |= {"failed": failures / taken, "counts": [c._asdict() for c in counts]}
        all_steps, all_failures = all_steps + taken, all_failures + failures
    report.ratios.append(at_most(f"{THROWS}: failed steps in 10,000", 1e4 * all_failures / all_steps, FAILURES))


# ---------------------------------------------------------------------- table and figure


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """All times, per step of one scene."""
    cells = [
        [
            r["system"],
            r["quantity"],
            r["tool"],
            f"{r['median_us']:,.0f}",
            f"{r['mean_us']:,.0f}",
            f"{r['iterations']:.1f}",
        ]
        for r in rows
    ]
    return Table("Steps of one scene", ("system", "quantity", "tool", "median µs", "mean µs", "iterations"), cells)


def _plot(rows: list[dict[str, Any]], file: Path) -> Path:
    figure, (block, stack, batch) = new_figure(1, 3, width=13, height=4)
    found = [r for r in rows if r["system"] == BLOCK]
    block.bar([r["tool"] for r in found], [r["mean_us"] / 1e3 for r in found], color=["C0", "C1"])
    block.set(title="Falling block", ylabel="mean time per step [ms]")
    for panel, system, title, label in (
        (stack, STACK, "Towers", "boxes"),
        (batch, BATCH, "Batches of cubes", "scenes in a batch"),
    ):
        found = [r for r in rows if r["system"] == system]
        x, y = [r["number"] for r in found], [r["median_us"] / 1e3 for r in found]
        panel.loglog(x, y, "o-", label="measured")
        if system == STACK:
            panel.loglog(x, [y[0] * k / x[0] for k in x], "--", color="0.6", label="linear")
            panel.legend()
        panel.set(title=title, xlabel=label, ylabel="time per step of one scene [ms]")
        panel.set_xticks(x, [str(k) for k in x])
        panel.set_yticks(
            ticks := [t for t in (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if min(y) / 2 < t < 2 * max(y)], ticks
        )
        panel.minorticks_off()
    return save_figure(figure, file)
