"""The implicit derivative against central differences, at random states of robots in contact.

Differences that reach across a switch of modes say nothing. So a state that misses is looked at again: does a contact,
a joint limit or a joint's dry friction have another mode at one of the points that the differences used, and does the
slope change between them? Or does the step itself say that it is on a switch? If not, do differences with a smaller or
larger step agree, where those of the usual one bend or are noisy? A miss that nothing explains is a wrong derivative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.contact import ContactModel, Lcp
from tangens.contact.rigid.assembly.tangents import set_tangents
from tangens.errors import NotDifferentiable, SolverError
from tangens.lab.papers.motions import random_controls, robot
from tangens.lab.papers.poses import floating, start
from tangens.lab.papers.result_rows import Row, at_least, at_most, info
from tangens.lab.report import new_figure, save_figure
from tangens.results import Contacts, Step
from tangens.scene import Scene
from tangens.simulate import Simulator
from tangens.state import State
from tangens.testing import Sample, gradient_errors

Array = NDArray[np.float64]

STATES = {"quick": 20, "normal": 60, "full": 200}
TOLERANCE, STEP = 1e-5, 1e-6
_FOURTH_ORDER = np.array([-1.0, 7.0, 7.0, -1.0]) / 12.0  # of the slopes between five points: the one in the middle
_NEAR = 1e-6  # [m/s]: a step says itself that it is on a switch
TIGHT = 1e-13  # for the solver: differences see its error divided by their step


class Verdict(NamedTuple):
    """How the derivative of one robot fared."""

    errors: list[float]
    """Relative error of each state that has a derivative."""
    on_switch: int
    """Misses at which the differences reach across a switch of modes, or are too coarse or noisy themselves."""
    ambiguous: int
    """Misses at which `J.unique` is false: the laws leave v⁺ open, and each step takes one answer of many."""
    unsolved: int
    """Misses at which the step says that it is not solved: `converged` is false."""
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
        unexplained = len(errors) - good - verdict.on_switch - verdict.ambiguous - verdict.unsolved
        why = (
            f"of {states} states, {states - good} miss: {verdict.on_switch} on a switch, where differences mix two "
            f"derivatives, {verdict.ambiguous} with other answers, {verdict.unsolved} not solved, "
            f"{verdict.refused} refused, {unexplained} without a reason"
        )
        rows += [
            at_least(
                f"gradient, {name}: states within {TOLERANCE:g}", 100 * good / max(states, 1), 95, unit="%", why=why
            ),
            at_most(f"gradient, {name}: misses away from mode switches", unexplained, 0),
            info(f"gradient, {name}: misses where the step itself is not unique, and says so", verdict.ambiguous),
            info(f"gradient, {name}: misses where the step is not solved, and says so", verdict.unsolved),
            info(f"gradient, {name}: states refused as not differentiable", verdict.refused),
            at_most(f"gradient, {name}: motions that diverged while states were looked for", verdict.lost, 0),
        ]
    return rows, [_plot(found, out / "gradient_accuracy.png")]


def judge(scene: Scene, contact: ContactModel, states: int, seed: int = 0) -> Verdict:
    """Relative errors of ∂v⁺ by state and force at random states in contact."""
    simulator = Simulator(scene, contact)
    errors, lost, explained, ambiguous, unsolved, refused = list[float](), list[str](), 0, 0, 0, 0
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
        if error <= TOLERANCE:
            continue
        J = simulator.jacobian(*sample, wrt=("v",))
        if not J.converged:
            unsolved += 1
        elif not J.unique:
            ambiguous += 1
        else:
            explained += J.switch.distance <= _NEAR or on_switch(simulator, sample)
    return Verdict(errors, explained, ambiguous, unsolved, refused, len(lost))


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
    """Whether every column that misses sits on a switch: modes differ along the differences, and so do slopes.

    Or other differences agree with it: smaller ones where v⁺ is strongly curved, larger ones where it is noisy.
    """
    scene = simulator.scene
    here = _modes(simulator.step(*sample), simulator)
    for name, step in steps(scene).items():
        ours = simulator.jacobian(*sample, wrt=(name,))["v", name]
        outs = [_along(simulator, sample, name, k, step) for k in range(scene.nv)]
        reference = np.column_stack([_FOURTH_ORDER @ _slopes(five, step) for five in outs])
        # a jump makes for a huge reference, behind which other columns must not hide
        allowed = TOLERANCE * max(min(np.abs(reference).max(), np.abs(ours).max()), 1e-6)
        for k in map(int, np.flatnonzero(np.abs(ours - reference).max(axis=0) > allowed)):
            slopes = _slopes(outs[k], step)
            kink = np.ptp(slopes, axis=0).max() > TOLERANCE * np.abs(slopes).max()
            if kink and any(_modes(out, simulator) != here for out in outs[k]):
                continue
            others = [_slopes(_along(simulator, sample, name, k, r * step), r * step) for r in (0.01, 0.1, 10.0, 100.0)]
            if all(np.abs(ours[:, k] - _FOURTH_ORDER @ found).max() > allowed for found in others):
                return False
    return True


def _along(simulator: Simulator, sample: Sample, name: str, k: int, step: float) -> list[Step]:
    """Steps from here, and from two points to each side along one coordinate."""
    delta = step * np.eye(simulator.scene.nv)[k]
    return [simulator.step(*_moved(simulator.scene, sample, name, i * delta)) for i in (-2, -1, 0, 1, 2)]


def _slopes(outs: Sequence[Step], step: float) -> Array:
    return np.diff([out.state.v for out in outs], axis=0) / step


def _moved(scene: Scene, sample: Sample, name: str, delta: Array) -> Sample:
    state, u, tau = sample
    if name == "q":
        return Sample(state.replace(q=scene.integrate(state.q, delta)), u, tau)
    if name == "v":
        return Sample(state.replace(v=state.v + delta), u, tau)
    return Sample(state, u, tau + delta)


def _modes(out: Step, simulator: Simulator) -> tuple[Any, ...]:
    """Modes of contacts that bear load, of joints at their limits, and of joints that dry friction holds or brakes."""
    m, contacts = simulator.scene.shared_model, out.contacts
    limited = m.jnt_limited.astype(bool)
    q, v = out.state.q[m.jnt_qposadr[limited]], out.state.v[m.dof_frictionloss > 0]
    at_limit = np.abs(q[:, None] - m.jnt_range[limited]) < 1e-10
    direction = np.where(np.abs(v) < 1e-10, 0.0, np.sign(v))
    loaded = [(*contacts.geom[c], mode) for c, mode in enumerate(contacts.mode) if mode != "breaking"]
    sides = b""
    if isinstance(simulator.contact, Lcp):
        sides = np.array([_sides(contacts, c) for c, mode in enumerate(contacts.mode) if mode == "sliding"]).tobytes()
    # where pivoting fails, the fallback may come to another of several answers
    return loaded, sides, at_limit.tobytes(), direction.tobytes(), out.solver.method == "fallback"


def _sides(contacts: Contacts, c: int) -> Array:
    """Along which tangents a contact slides, and which way; at least one is at its bound, the other one may stick."""
    frame = np.concatenate([contacts.normal[c], np.zeros(6)])
    set_tangents(frame)
    friction = frame[3:].reshape(2, 3) @ contacts.force[c]
    return np.where(np.abs(friction) < (1.0 - 1e-9) * np.abs(friction).max(), 0.0, np.sign(friction))


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
