"""The implicit derivative against central differences, at random states of robots in contact.

Differences that reach across a switch of modes say nothing. So a state that misses is looked at again: does a contact,
a joint limit or a joint's dry friction have another mode at one of the points that the differences used, and does the
slope change between them? A miss where it does not is a wrong derivative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.contact import ContactModel
from tangens.errors import NotDifferentiable, SolverError
from tangens.papers.motions import random_controls, robot
from tangens.papers.poses import floating, start
from tangens.papers.rows import Row, at_least, at_most, info
from tangens.report import new_figure, save_figure
from tangens.results import Step
from tangens.scene import Scene
from tangens.simulate import Simulator
from tangens.state import State
from tangens.verify import Sample, gradient_errors

Array = NDArray[np.float64]

STATES = {"quick": 20, "normal": 60, "full": 200}
TOLERANCE, STEP = 1e-5, 1e-6
TIGHT = 1e-13  # for the solver: differences see its error divided by their step


class Verdict(NamedTuple):
    """How the derivative of one robot fared."""

    errors: list[float]
    """Relative error of each state that has a derivative."""
    on_switch: int
    """Misses at which the differences reach across a switch of modes."""
    ambiguous: int
    """Misses at which `J.unique` is false: the laws leave v⁺ open, and each step takes one answer of many."""
    refused: int
    """States with contacts of which it is not known how they move."""
    lost: int
    """Motions that could not go on."""


def run(contact: ContactModel, names: Sequence[str], effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Judge these robots."""
    rows: list[Row] = []
    found: dict[str, Verdict] = {}
    for name in names:
        verdict = found[name] = judge(robot(name), contact, STATES[effort])
        errors = np.array(verdict.errors)
        states, good = len(errors) + verdict.refused, int((errors <= TOLERANCE).sum())
        unexplained = len(errors) - good - verdict.on_switch - verdict.ambiguous
        rows += [
            at_least(f"gradient, {name}: states within {TOLERANCE:g}", 100 * good / max(states, 1), 95, unit="%"),
            at_most(f"gradient, {name}: misses away from mode switches", unexplained, 0),
            info(f"gradient, {name}: misses where the step itself is not unique, and says so", verdict.ambiguous),
            info(f"gradient, {name}: states refused as not differentiable", verdict.refused),
            at_most(f"gradient, {name}: motions that diverged while states were looked for", verdict.lost, 0),
        ]
    return rows, [_plot(found, out / "gradient_accuracy.png")]


def judge(scene: Scene, contact: ContactModel, states: int, seed: int = 0) -> Verdict:
    """Relative errors of ∂v⁺ by state and force at random states in contact."""
    simulator = Simulator(scene, contact)
    errors, lost, explained, ambiguous, refused = list[float](), list[str](), 0, 0, 0
    for sample in in_contact(simulator, states, np.random.default_rng(seed), lost):
        try:
            blocks = dict[str, float]()
            for name, step in steps(scene).items():
                blocks |= gradient_errors(simulator, sample, (name,), step=step)
        except NotDifferentiable:
            refused += 1
            continue
        # ∂q⁺ is h·∂v⁺, too small next to the rounding of q to be judged by such small differences.
        error = max(error for name, error in blocks.items() if name.startswith("v/"))
        errors.append(error)
        if not error <= TOLERANCE:
            open_answer = not simulator.jacobian(*sample, wrt=("v",)).unique
            ambiguous += open_answer
            explained += not open_answer and on_switch(simulator, sample)
    return Verdict(errors, explained, ambiguous, refused, len(lost))


def steps(scene: Scene) -> dict[str, float]:
    """The step of the differences by q, v and τ; a force gets one that changes velocities as much as the others do."""
    lightest = float(scene.shared_model.dof_M0.min())
    return {"q": STEP, "v": STEP, "tau": STEP * lightest / scene.timestep}


def in_contact(
    simulator: Simulator, states: int, rng: np.random.Generator, lost: list[str] | None = None, touching: bool = True
) -> Iterator[Sample]:
    """States along motions under random controls, each from a new start above the floor; only those in contact.

    A motion that cannot go on is given up; `lost` hears why. Without `touching`, states out of contact count as well.
    """
    scene, found = simulator.scene, 0
    first, controls = start(scene), random_controls(scene, rng)
    spread = np.full(scene.nv, 0.1)
    spread[: 6 if floating(scene) else 0] = 0.0
    for _ in range(100 * states):
        state = State(scene.integrate(first.q, spread * rng.normal(size=scene.nv)), 0.1 * rng.normal(size=scene.nv))
        pause = int(rng.integers(60, 200))
        for t in range(pause + 100):
            u = next(controls)
            try:
                out = simulator.step(state, u)
            except SolverError as error:
                if lost is not None:
                    lost.append(str(error))
                break
            in_touch = any(mode != "breaking" for mode in out.contacts.mode)
            if t >= pause and t % 25 == 0 and (in_touch or not touching):
                yield Sample(state, u, np.zeros(scene.nv))
                found += 1
                if found == states:
                    return
            state = out.state


def on_switch(simulator: Simulator, sample: Sample) -> bool:
    """Whether every column that misses sits on a switch: modes differ along the differences, and so do slopes."""
    scene = simulator.scene
    here = _modes(simulator.step(*sample), scene)
    for name, step in steps(scene).items():
        ours = simulator.jacobian(*sample, wrt=(name,))["v", name]
        reference, switching = np.zeros_like(ours), np.zeros(scene.nv, dtype=bool)
        for k in range(scene.nv):
            delta = np.zeros(scene.nv)
            delta[k] = step
            outs = [simulator.step(*_moved(scene, sample, name, i * delta)) for i in (-2, -1, 0, 1, 2)]
            slopes = np.diff([out.state.v for out in outs], axis=0) / step
            reference[:, k] = slopes.mean(axis=0)
            kink = np.ptp(slopes, axis=0).max() > TOLERANCE * np.abs(slopes).max()
            switching[k] = kink and any(_modes(out, scene) != here for out in outs)
        misses = np.abs(ours - reference).max(axis=0) > TOLERANCE * max(np.abs(reference).max(), 1e-6)
        if (misses & ~switching).any():
            return False
    return True


def _moved(scene: Scene, sample: Sample, name: str, delta: Array) -> Sample:
    state, u, tau = sample
    if name == "q":
        return Sample(state.replace(q=scene.integrate(state.q, delta)), u, tau)
    if name == "v":
        return Sample(state.replace(v=state.v + delta), u, tau)
    return Sample(state, u, tau + delta)


def _modes(out: Step, scene: Scene) -> tuple[Any, ...]:
    """Modes of contacts that bear load, of joints at their limits, and of joints that dry friction holds or brakes."""
    m = scene.shared_model
    limited = m.jnt_limited.astype(bool)
    q, v = out.state.q[m.jnt_qposadr[limited]], out.state.v[m.dof_frictionloss > 0]
    at_limit = np.abs(q[:, None] - m.jnt_range[limited]) < 1e-10
    direction = np.where(np.abs(v) < 1e-10, 0.0, np.sign(v))
    loaded = [(*geom, mode) for geom, mode in zip(out.contacts.geom.tolist(), out.contacts.mode, strict=True)
              if mode != "breaking"]  # fmt: skip
    return loaded, at_limit.tobytes(), direction.tobytes()


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
