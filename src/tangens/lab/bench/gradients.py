"""Contact: our step and the gradient on top of it, against differences, MuJoCo, MJX and Nimble.

All tools but Nimble, which has models of its own, see the same states of a trajectory in contact (`situations`). One
core, one thread. The gradient is the full ∂v⁺/∂(q, v, tau), and its time is what `jacobian` takes right after `step` at
the same state. The clock runs around single calls from Python, ours and the peers' alike; tools take turns over the
states, pass by pass, and medians over all passes count. Ratios are quotients of the medians in the rows.

How each peer is set, and why that is fair, stands at the top of its module in `peers/`: `mujoco_peer`, `mjx_peer`,
`nimble_peer`. Our own differences get their perturbed states for free: only steps and subtractions are timed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tangens.lab.bench import bars, published
from tangens.lab.bench.differences import central
from tangens.lab.bench.peers import PeerUnavailable, mjx_peer, mujoco_peer, nimble_peer
from tangens.lab.bench.request import OURS, BenchRequest, Report, at_least, at_most, measure_all, not_measured
from tangens.lab.bench.situations import WRT, Sample, Situation, available, situation
from tangens.lab.report import new_figure, save_figure

SYSTEMS = ("half_cheetah", "humanoid", "ur5", "go1", "g1", "talos", "atlas")
PEERS = ("mujoco", "mjx", "nimble")
DEFAULT_PEERS = ("mujoco",)  # the others compile for long or need an environment of their own
SETTINGS = {"mujoco": mujoco_peer.SETTINGS, "mjx": mjx_peer.SETTINGS, "nimble": nimble_peer.SETTINGS}
MJX_SYSTEMS = {"quick": ("half_cheetah",), "normal": ("half_cheetah", "humanoid"), "full": SYSTEMS}
BY_VELOCITY = tuple(("v", name) for name in WRT)


class Effort(NamedTuple):
    """How much is measured: states of a trajectory, passes over them, every how many-th of them we difference."""

    states: int
    passes: int
    stride: int


EFFORTS = {"quick": Effort(20, 6, 10), "normal": Effort(40, 10, 10), "full": Effort(40, 40, 10)}

HUMANOID_DOFS = 23  # from this size on, our gradient has to beat our differences by far
GRADIENT_TO_STEP, STEP_TO_MUJOCO = 1.2, 3.0  # at most
# At least, for the gradient on top of the step unless the name says otherwise.
OVER_OWN_DIFFERENCES, WITH_STEP_OVER_MUJOCO = 50.0, 5.0
OVER_MUJOCO = {"half_cheetah": 10.0, "humanoid": 30.0}
OVER_NIMBLE = {"half_cheetah": 10.0, "atlas": 10.0}


def run(request: BenchRequest) -> dict[str, Any]:
    """Measure all systems that are at hand."""
    systems = [name for name in SYSTEMS if available(name)]
    facts = {
        "peers": {name: SETTINGS[name] for name in request.peers},
        "published": published.CITATION,
        "not_at_hand": [name for name in SYSTEMS if name not in systems],
    }
    return measure_all(request, systems, _measure, lambda rows: _plot(rows, request.out / "gradients.png"), facts)


def _measure(name: str, request: BenchRequest) -> Report:
    effort = EFFORTS[request.effort]
    report = Report(name)
    start = time.perf_counter()
    scenario = situation(name, effort.states)  # compiles the step and its derivative, where no cache has them
    report.notes |= scenario.facts | {"preparation_s": time.perf_counter() - start}
    if not scenario.samples:
        reason = f"no state in contact with a derivative; the trajectory ended {scenario.facts['trajectory_ended']}"
        report.ratios.append(not_measured(f"{name}: gradient / step", f"<= {GRADIENT_TO_STEP:g}", reason))
        return report
    _measure_in_turns(scenario, effort, report, with_mujoco="mujoco" in request.peers)
    if "mjx" in request.peers:
        _measure_mjx(scenario, request.effort, report)
    if "nimble" in request.peers and name in nimble_peer.SYSTEMS:
        _measure_nimble(effort, report)
    report.rows += published.rows(name)
    return report


def _measure_in_turns(scenario: Situation, effort: Effort, report: Report, with_mujoco: bool) -> None:
    """Ourselves and MuJoCo, pass by pass, and the ratios between them."""
    samples = scenario.samples
    peer = mujoco_peer.MujocoPeer(scenario.scene, samples) if with_mujoco else None
    ours: list[tuple[int, int]] = []
    own_differences: list[int] = []
    steps: list[int] = []
    their_differences: list[int] = []
    for k in range(effort.passes):
        ours += _time_ours(scenario)
        if peer:
            steps += peer.steps(samples)
            their_differences += peer.differences(samples)
        chosen = samples[k % effort.stride :: effort.stride]  # another share of the states in each pass
        own_differences += _time_differences(scenario, chosen)
    name, trials = report.system, len(ours)
    report.add("step", OURS, median(t for t, _ in ours) / 1e3, trials)
    report.add("gradient", OURS, median(t for _, t in ours) / 1e3, trials)
    report.add("differences", OURS, median(own_differences) / 1e3, len(own_differences))
    step, gradient = report.time("step"), report.time("gradient")
    report.ratios.append(at_most(f"{name}: gradient / step", gradient / step, GRADIENT_TO_STEP))
    if scenario.scene.nv >= HUMANOID_DOFS:
        gain = report.time("differences") / gradient
        report.ratios.append(at_least(f"{name}: own differences / gradient", gain, OVER_OWN_DIFFERENCES))
    if not peer:
        return
    report.notes["mujoco"] = peer.facts
    report.add("step", mujoco_peer.STEP, median(steps) / 1e3, len(steps))
    report.add("differences", mujoco_peer.DIFFERENCES, median(their_differences) / 1e3, len(their_differences))
    theirs = report.time("differences", mujoco_peer.DIFFERENCES)
    report.ratios.append(
        at_most(f"{name}: step / mj_step", step / report.time("step", mujoco_peer.STEP), STEP_TO_MUJOCO)
    )
    if name in OVER_MUJOCO:
        report.ratios.append(at_least(f"{name}: mjd_transitionFD / gradient", theirs / gradient, OVER_MUJOCO[name]))
    if name == "half_cheetah":
        gain = theirs / (step + gradient)
        report.ratios.append(at_least(f"{name}: mjd_transitionFD / (step + gradient)", gain, WITH_STEP_OVER_MUJOCO))


def _time_ours(scenario: Situation) -> list[tuple[int, int]]:
    """Times of the step and of the gradient after it [ns], state by state."""
    times, clock = [], time.perf_counter_ns
    step, jacobian = scenario.simulator.step, scenario.simulator.jacobian
    for state, u, before, u_before in scenario.samples:
        guess = step(before, u_before)  # so that the solver starts where it does along a trajectory
        start = clock()
        out = step(state, u, guess=guess)
        middle = clock()
        jacobian(out, wrt=WRT)
        times.append((middle - start, clock() - middle))
    return times


def _time_differences(scenario: Situation, samples: Sequence[Sample]) -> list[int]:
    times = []
    for state, u, *_ in samples:
        evaluate = central(scenario.simulator, state, u, BY_VELOCITY)
        start = time.perf_counter_ns()
        evaluate()
        times.append(time.perf_counter_ns() - start)
    return times


def _measure_mjx(scenario: Situation, effort: str, report: Report) -> None:
    if report.system not in MJX_SYSTEMS[effort]:
        report.notes["mjx"] = f"not measured in a {effort} run: left out for its long compilation"
        return
    try:
        answer = mjx_peer.measure(scenario.scene, scenario.samples, EFFORTS[effort].passes, effort)
    except PeerUnavailable as reason:
        report.notes["mjx"] = f"not measured: {reason}"
        return
    report.add("step", mjx_peer.STEP, answer["step"], answer["trials"], answer["step_compile"])
    report.add("gradient", mjx_peer.JACFWD, answer["jacfwd"], answer["trials"], answer["jacfwd_compile"])


def _measure_nimble(effort: Effort, report: Report) -> None:
    name = report.system
    title, target = f"{name}: Nimble Jacobians / gradient", OVER_NIMBLE[name]
    try:
        answer = nimble_peer.measure(name, effort.states, effort.passes, nimble_peer.VELOCITY_SETS)
    except PeerUnavailable as reason:
        report.notes["nimble"] = f"not measured: {reason}"
        report.ratios.append(not_measured(title, f">= {target:g}", str(reason)))
        return
    best, times = min(answer["sets"].items(), key=lambda item: median(item[1]))
    report.notes["nimble"] = {"set": best} | {key: answer[key] for key in ("states", "contacts", "dofs")}
    report.add("step", nimble_peer.FORWARD, median(answer["forward"]) / 1e3, len(answer["forward"]))
    report.add("gradient", nimble_peer.JACOBIANS, median(times) / 1e3, len(times))
    theirs = report.time("gradient", nimble_peer.JACOBIANS)
    report.ratios.append(at_least(title, theirs / report.time("gradient"), target))


# ---------------------------------------------------------------------- figure

_PANELS = {
    "One step": {
        ("step", OURS): ("tangens", "C0"),
        ("step", mujoco_peer.STEP): ("MuJoCo", "C1"),
        ("step", mjx_peer.STEP): ("MJX, float32", "C2"),
        ("step", nimble_peer.FORWARD): ("Nimble", "C4"),
        ("step", published.TOOL): ("Simple, as published (Apple M3)", "0.75"),
    },
    "Its derivative": {
        ("gradient", OURS): ("tangens gradient, on top of the step", "C0"),
        ("differences", OURS): ("tangens central differences", "#9ec9e8"),
        ("differences", mujoco_peer.DIFFERENCES): ("MuJoCo central differences", "C1"),
        ("gradient", mjx_peer.JACFWD): ("MJX jacfwd, with the step", "C2"),
        ("gradient", nimble_peer.JACOBIANS): ("Nimble Jacobians, on top of the step", "C4"),
        ("gradient", published.TOOL): ("Simple gradient, as published (Apple M3)", "0.75"),
    },
}


def _plot(rows: list[dict[str, Any]], file: Path) -> Path:
    figure, axes = new_figure(2, 1, width=12, height=9)
    times = {(r["system"], (r["quantity"], r["tool"])): r["median_us"] for r in rows}
    systems = list(dict.fromkeys(r["system"] for r in rows))
    for panel, (title, kinds) in zip(axes, _PANELS.items(), strict=True):
        bars.draw(panel, title, systems, kinds, times)
    return save_figure(figure, file)
