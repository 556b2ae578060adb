"""The five Jacobians of a step under `lcp`, alone and together: analytical, by differences, and Nimble's.

Paper 5, Tables II and III, with states along a trajectory in contact (`situations`). One core, one thread. The time of
a Jacobian is what `jacobian` takes right after `step` at the same state, asked for that block alone: ours come out of
one pass, so that one of them costs as much as all. The clock runs around single calls from Python, and it is that of
the thread: differences take long enough for the system to put others on the core in between, which would count for
us. Tools take turns over the states, pass by pass, and medians count. Ratios are quotients of the medians in the rows.

Differences are of our own step (`differences`). They start from the step at the state itself, as our Jacobians do, get
their perturbed states for free, and all together share their steps: 6 nv of them, not the 10 nv that the five blocks
take one by one, as the paper counts. Ridders' method, which is slow, sees few states. The `error` in their rows is
‖D − J‖ / ‖J‖, the median over the states. That in our rows is the same for one-sided differences, on the nearer side of
each column: where it is small and that of central differences is not, they straddle a kink (a contact about to part or
to slip) and ours is the derivative on one of its sides. Nimble (`peers.nimble_peer`) has models of its own.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.lab.bench import bars
from tangens.lab.bench import published_jacobians as published
from tangens.lab.bench.differences import Block, Evaluation, central, extrapolated, nearer_side
from tangens.lab.bench.peers import nimble_peer
from tangens.lab.bench.request import OURS, BenchRequest, Report, Table, at_least, measure_all, not_measured
from tangens.lab.bench.situations import WRT, Sample, Situation, available, situation
from tangens.lab.report import new_figure, save_figure
from tangens.results import Jacobian, Step

Array = NDArray[np.float64]

SYSTEMS = ("half_cheetah", "worm", "catapult", "g1", "talos", "atlas")
PEERS = ("nimble",)
DEFAULT_PEERS = ()  # Nimble needs an environment of its own
CENTRAL, RIDDERS = "tangens central differences", "tangens Ridders"
ALL = "all"
CLOCK = time.thread_time_ns
BLOCKS: dict[str, tuple[Block, ...]] = {
    "dq_dq": (("q", "q"),),
    "dv_dq": (("v", "q"),),
    "dq_dv": (("q", "v"),),
    "dv_dv": (("v", "v"),),
    "dv_dtau": (("v", "tau"),),
}
NIMBLE_ALONE = {quantity: [nimble_peer.BLOCKS[block]] for quantity, (block,) in BLOCKS.items()}
NIMBLE_TOGETHER = {"blocks": list(nimble_peer.BLOCKS.values()), "whole": list(nimble_peer.WHOLE)}
QUANTITIES = {ALL: tuple(block for (block,) in BLOCKS.values())} | BLOCKS


class Effort(NamedTuple):
    """How much is measured: states of a trajectory, passes over them; every how many-th is differenced in a pass."""

    states: int
    passes: int
    stride: int
    ridders: int
    """States on which Ridders' method is tried."""


EFFORTS = {"quick": Effort(10, 4, 10, 1), "normal": Effort(40, 10, 10, 4), "full": Effort(40, 40, 10, 10)}

# At least, as in the paper: how much quicker all Jacobians are than central differences, and than Nimble's.
OVER_DIFFERENCES = {"half_cheetah": 22.0, "g1": 88.0, "talos": 88.0, "atlas": 88.0}
OVER_NIMBLE = {"half_cheetah": 10.0, "atlas": 10.0}


def run(request: BenchRequest) -> dict[str, Any]:
    """Measure all systems that are at hand."""
    systems = [name for name in SYSTEMS if available(name)]
    facts = {
        "peers": dict.fromkeys(request.peers, nimble_peer.SETTINGS),
        "published": published.CITATION,
        "not_at_hand": [name for name in SYSTEMS if name not in systems],
    }
    return measure_all(request, systems, _measure, lambda rows: _plot(rows, request.out / "jacobians.png"), facts)


def _measure(name: str, request: BenchRequest) -> Report:
    effort = EFFORTS[request.effort]
    report = Report(name)
    start = time.perf_counter()
    scenario = situation(name, effort.states, contact="lcp")  # compiles the step and its derivative, if need be
    report.notes |= scenario.facts | {"preparation_s": time.perf_counter() - start}
    title = f"{name}: central differences / all Jacobians"
    if scenario.samples:
        nimble = None
        if "nimble" in request.peers and name in nimble_peer.SYSTEMS:
            nimble = nimble_peer.Turns(name, effort.states, NIMBLE_ALONE | NIMBLE_TOGETHER, CLOCK.__name__)
        _measure_in_turns(scenario, effort, report, nimble)
        if name in OVER_DIFFERENCES:
            gain = report.time(ALL, CENTRAL) / report.time(ALL)
            report.ratios.append(at_least(title, gain, OVER_DIFFERENCES[name]))
        if nimble:
            _report_nimble(nimble, report)
    elif name in OVER_DIFFERENCES:
        reason = f"no state in contact with a derivative; the trajectory ended {scenario.facts['trajectory_ended']}"
        report.ratios.append(not_measured(title, f">= {OVER_DIFFERENCES[name]:g}", reason))
    report.rows += published.rows(name, tuple(QUANTITIES))
    return report


def _measure_in_turns(scenario: Situation, effort: Effort, report: Report, nimble: nimble_peer.Turns | None) -> None:
    """Our Jacobians, differences of our steps, and Nimble, pass by pass."""
    samples = scenario.samples
    analytical, by_central, by_ridders = _Times(), _Times(), _Times()
    for k in range(effort.passes):
        _time_jacobians(scenario, analytical)
        if nimble:
            nimble.take()
        for sample in samples[k % effort.stride :: effort.stride]:  # another share of the states in each pass
            _time_differences(scenario, sample, central, by_central)
            _compare_to_nearer_side(scenario, sample, analytical)
    for sample in samples[:: max(1, len(samples) // effort.ridders)][: effort.ridders]:
        _time_differences(scenario, sample, extrapolated, by_ridders)
    report.add("step", OURS, median(analytical.times["step"]) / 1e3, len(analytical.times["step"]))
    for tool, found in ((OURS, analytical), (CENTRAL, by_central), (RIDDERS, by_ridders)):
        for quantity in QUANTITIES:
            times, errors = found.times[quantity], found.errors[quantity]
            report.add(quantity, tool, median(times) / 1e3, len(times))
            report.rows[-1]["error"] = median(errors)
    report.notes["solved_by"] = dict(Counter(_along_the_way(scenario, s).solver.method for s in samples))


class _Times:
    """Times [ns] and errors of one method, by quantity."""

    def __init__(self) -> None:
        self.times: defaultdict[str, list[int]] = defaultdict(list)
        self.errors: defaultdict[str, list[float]] = defaultdict(list)

    def in_turn(self) -> list[tuple[str, tuple[Block, ...]]]:
        """The quantities, each time with another one first, which finds colder caches."""
        order, k = list(QUANTITIES.items()), len(self.times[ALL]) % len(QUANTITIES)
        return order[k:] + order[:k]


def _time_jacobians(scenario: Situation, found: _Times) -> None:
    """The step, and after it the Jacobian for each block and for all, state by state."""
    step, jacobian = scenario.simulator.step, scenario.simulator.jacobian
    for state, u, before, u_before in scenario.samples:
        guess = step(before, u_before)  # so that the solver starts where it does along a trajectory
        start = CLOCK()
        out = step(state, u, guess=guess)
        found.times["step"].append(CLOCK() - start)
        for quantity, blocks in found.in_turn():
            wrt = tuple(dict.fromkeys(name for _, name in blocks))
            start = CLOCK()
            jacobian(out, wrt=wrt)
            found.times[quantity].append(CLOCK() - start)


def _along_the_way(scenario: Situation, sample: Sample) -> Step:
    """The step from a sample, started from the one before."""
    guess = scenario.simulator.step(sample.before, sample.u_before)
    return scenario.simulator.step(sample.state, sample.u, guess=guess)


def _time_differences(scenario: Situation, sample: Sample, method: Callable[..., Evaluation], found: _Times) -> None:
    state, u, *_ = sample
    simulator = scenario.simulator
    J = simulator.jacobian(state, u, wrt=WRT)
    for quantity, blocks in found.in_turn():
        evaluate = method(simulator, state, u, blocks)
        start = CLOCK()
        D = evaluate()
        found.times[quantity].append(CLOCK() - start)
        found.errors[quantity].append(_error(D, J))


def _error(D: dict[Block, Array], J: Jacobian) -> float:
    """How far differences are from the Jacobian; of several blocks, the furthest."""
    return max(float(np.linalg.norm(found - J[block]) / np.linalg.norm(J[block])) for block, found in D.items())


def _compare_to_nearer_side(scenario: Situation, sample: Sample, found: _Times) -> None:
    state, u, *_ = sample
    J = scenario.simulator.jacobian(state, u, wrt=WRT)
    D = nearer_side(scenario.simulator, state, u, {block: J[block] for block in QUANTITIES[ALL]})
    for quantity, blocks in QUANTITIES.items():
        found.errors[quantity].append(_error({block: D[block] for block in blocks}, J))


def _report_nimble(nimble: nimble_peer.Turns, report: Report) -> None:
    title, target = f"{report.system}: Nimble Jacobians / all Jacobians", OVER_NIMBLE[report.system]
    if nimble.missing:
        report.notes["nimble"] = f"not measured: {nimble.missing}"
        report.ratios.append(not_measured(title, f">= {target:g}", nimble.missing))
        return
    best = min(NIMBLE_TOGETHER, key=lambda name: median(nimble.times[name]))
    report.notes["nimble"] = {"set": best} | nimble.facts
    report.add("step", nimble_peer.FORWARD, median(nimble.times["forward"]) / 1e3, len(nimble.times["forward"]))
    for quantity in QUANTITIES:
        times = nimble.times[best if quantity == ALL else quantity]
        report.add(quantity, nimble_peer.JACOBIANS, median(times) / 1e3, len(times))
    report.ratios.append(at_least(title, report.time(ALL, nimble_peer.JACOBIANS) / report.time(ALL), target))


# ---------------------------------------------------------------------- table and figure


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Our times, those of differences in multiples of them, and the errors."""
    entries = {(r["system"], r["quantity"], r["tool"]): r for r in rows}
    cells = []
    for system in dict.fromkeys(r["system"] for r in rows if r["tool"] == OURS):
        for quantity in QUANTITIES:
            ours, *others = (entries[system, quantity, tool] for tool in (OURS, CENTRAL, RIDDERS))
            line = [system if quantity == ALL else "", quantity, f"{ours['median_us']:,.1f}", f"{ours['error']:.0e}"]
            for r in others:
                line += [f"{r['median_us'] / ours['median_us']:,.0f}x", f"{r['error']:.0e}"]
            cells.append(line)
    columns = ("system", "block", "µs", "error", "central", "error", "Ridders", "error")
    return Table("Our Jacobians, and how many times longer differences take", columns, cells)


_KINDS = {
    OURS: ("tangens, on top of the step", "C0"),
    CENTRAL: ("tangens central differences", "#9ec9e8"),
    RIDDERS: ("tangens Ridders", "#d6e8f5"),
    nimble_peer.JACOBIANS: ("Nimble, on top of the step", "C4"),
    published.JACOBIANS: ("Nimble, as published", "0.75"),
    published.CENTRAL: ("Nimble central differences, as published", "0.85"),
}


def _plot(rows: list[dict[str, Any]], file: Path) -> Path:
    """All Jacobians of all systems, and block by block those of the first and of the last."""
    systems = list(dict.fromkeys(r["system"] for r in rows))
    ends = list(dict.fromkeys((systems[0], systems[-1])))
    figure, axes = new_figure(1 + len(ends), 1, width=12, height=4.5 * (1 + len(ends)))
    together = {(r["system"], r["tool"]): r["median_us"] for r in rows if r["quantity"] == ALL}
    bars.draw(axes[0], "All five Jacobians", systems, _KINDS, together)
    for panel, system in zip(axes[1:], ends, strict=True):
        alone = {(r["quantity"], r["tool"]): r["median_us"] for r in rows if r["system"] == system}
        bars.draw(panel, f"{system}: each by itself", list(BLOCKS), _KINDS, alone)
    return save_figure(figure, file)
