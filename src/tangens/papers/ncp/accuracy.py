"""The implicit derivative against central differences, at random states of robots in contact.

Where a state misses, the differences may have reached across a kink of the step: then its two sides disagree about the
slope, or the contacts have other modes there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tangens import robots
from tangens.contact import Ncp
from tangens.errors import NotDifferentiable
from tangens.papers.rows import Row, at_least, at_most, info
from tangens.report import new_figure, save_figure
from tangens.scene import Scene
from tangens.simulate import Simulator
from tangens.verify import Sample, gradient_errors

ROBOTS = ("half_cheetah", "ant", "humanoid", "dm_humanoid", "walker2d", "go1", "g1")
STATES = {"quick": 20, "normal": 60, "full": 200}
TOLERANCE, STEP = 1e-5, 1e-6
_WRT = ("q", "v", "tau")
# Differences see the solver's own error divided by their step.
_TIGHT = Ncp(tolerance=1e-13)


class Verdict(NamedTuple):
    """How the derivative of one robot fared."""

    errors: list[float]
    """Relative error of each state that has a derivative."""
    on_switch: int
    """Misses at which the differences reach across a switch of modes."""
    refused: int
    """States whose contacts `ncp` does not differentiate yet."""


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Judge all robots."""
    rows: list[Row] = []
    found: dict[str, Verdict] = {}
    for name in ROBOTS:
        verdict = found[name] = judge(robot(name), STATES[effort])
        errors = np.array(verdict.errors)
        states, good = len(errors) + verdict.refused, int((errors <= TOLERANCE).sum())
        unexplained = len(errors) - good - verdict.on_switch
        rows += [
            at_least(f"gradient, {name}: states within {TOLERANCE:g}", 100 * good / max(states, 1), 95, unit="%"),
            at_most(f"gradient, {name}: misses away from mode switches", unexplained, 0),
            info(f"gradient, {name}: states refused as not differentiable", verdict.refused),
        ]
    return rows, [_plot(found, out / "gradient_accuracy.png")]


def robot(name: str) -> Scene:
    """A robot that can move on a floor: those from URDF get both."""
    if robots.ROBOTS[name].package == "example-robot-data":
        return robots.get(name, ground=True, motors=True)
    return robots.get(name)


def judge(scene: Scene, states: int, seed: int = 0) -> Verdict:
    """Relative errors of ∂v⁺ by state and force at random states in contact."""
    simulator = Simulator(scene, contact=_TIGHT)
    errors, on_switch, refused = list[float](), 0, 0
    for sample in in_contact(simulator, states, np.random.default_rng(seed)):
        try:
            blocks = gradient_errors(simulator, sample, _WRT, step=STEP)
        except NotDifferentiable:
            refused += 1
            continue
        # ∂q⁺ is h·∂v⁺, too small next to the rounding of q to be judged by such small differences.
        error = max(blocks[f"v/{name}"] for name in _WRT)
        errors.append(error)
        if not error <= TOLERANCE:
            on_switch += _switches(simulator, sample)
    return Verdict(errors, on_switch, refused)


def in_contact(simulator: Simulator, states: int, rng: np.random.Generator) -> Iterator[Sample]:
    """States in contact along motions under random controls, each motion from a new start above the floor."""
    scene, found = simulator.scene, 0
    m = scene.shared_model
    limited = m.actuator_ctrllimited.astype(bool)[:, None]
    low, high = 0.3 * np.where(limited, m.actuator_ctrlrange, [-1.0, 1.0]).T
    lift = _lift(scene)
    for _ in range(100 * states):
        q = scene.integrate(m.qpos0, np.concatenate([lift, rng.normal(scale=0.1, size=scene.nv - len(lift))]))
        state = scene.initial_state().replace(q=q, v=rng.normal(scale=0.1, size=scene.nv))
        pause = int(rng.integers(60, 200))
        for t in range(pause + 100):
            u = rng.uniform(low, high)
            out = simulator.step(state, u)
            if t >= pause and t % 25 == 0 and any(mode != "breaking" for mode in out.contacts.mode):
                yield Sample(state, u, np.zeros(scene.nv))
                found += 1
                if found == states:
                    return
            state = out.state


def _lift(scene: Scene) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A shift of a floating base that puts the robot's lowest point just above the floor."""
    from tangens.papers.ncp.poses import lowest_point

    m = scene.shared_model
    if not m.njnt or m.jnt_type[0] != 0:
        return np.zeros(0)
    return np.array([0, 0, 0.01 - lowest_point(scene, scene.initial_state().q), 0, 0, 0])


def _switches(simulator: Simulator, sample: Sample) -> bool:
    """Whether the step has a kink within the reach of the differences."""
    scene, (state, u, tau) = simulator.scene, sample
    here = simulator.step(*sample)
    scale = max(float(np.abs(simulator.jacobian(*sample, wrt=(name,))["v", name]).max()) for name in _WRT)
    for delta in 2 * STEP * np.eye(scene.nv):
        for moved in (
            lambda d: (state.replace(q=scene.integrate(state.q, d)), u, tau),
            lambda d: (state.replace(v=state.v + d), u, tau),
            lambda d: (state, u, tau + d),
        ):
            sides = [simulator.step(*moved(sign * delta)) for sign in (1.0, -1.0)]
            if any(
                side.contacts.mode != here.contacts.mode
                or not np.array_equal(side.contacts.geom, here.contacts.geom)
                for side in sides
            ):
                return True
            ahead, behind = (np.abs(side.state.v - here.state.v) for side in sides)
            if np.abs(ahead - behind).max() > 2 * STEP * TOLERANCE * scale:
                return True
    return False


def _plot(found: dict[str, Verdict], file: Path) -> Path:
    figure, axes = new_figure(1, 1, width=8)
    for name, verdict in found.items():
        errors = np.sort(np.maximum(verdict.errors, 1e-14))
        axes.semilogx(errors, 100 * np.arange(1, len(errors) + 1) / max(len(errors), 1), ".-", label=name)
    axes.axvline(TOLERANCE, color="0.5", linestyle="--")
    axes.axhline(95, color="0.5", linestyle=":")
    axes.set(
        title="∂v⁺/∂(q, v, τ) against central differences, random states in contact",
        xlabel="relative error", ylabel="share of states at or below [%]",
    )  # fmt: skip
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    return save_figure(figure, file)
