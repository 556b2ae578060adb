"""Checks with a report: whether a robot is simulated and differentiated as it should be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.errors import OptionError
from tangens.results import Jacobian
from tangens.scene import Scene
from tangens.simulate import Simulator
from tangens.state import State
from tangens.testing.comparisons import (
    Sample,
    agreement_with_mujoco,
    central_column,
    parameter_errors,
    random_sample,
    stepped,
)
from tangens.testing.report import Report

Array = NDArray[np.float64]

# Lengths of the differences, the next one where the one before disagrees: long ones suffer least from rounding, short
# ones fit between switches of contact modes. At 1e-7 the rounding of a step near 1 is 1e-9, still below the tolerance.
LENGTHS = (5e-4, 2e-5, 1e-6, 1e-7)
_ON_SWITCH = 1e-6  # a switch this near [m/s] is closer than differences are long
_ONE_SIDED = 1e-5  # relative error of differences to one side, which see rounding at 1e-7 and bends at 1e-5
_INPUTS = ("q", "v", "u", "tau")


def check_physics(scene: Scene, samples: int = 2, seed: int = 0, tolerance: float = 1e-9) -> Report:
    """Compare the smooth physics with MuJoCo's own, at random states: nothing here touches.

    The errors are those of mass matrix, bias force, body poses, and of a step computed from them.
    """
    if samples < 1:
        raise OptionError(f"samples={samples!r} must be at least 1")
    rng, errors = np.random.default_rng(seed), dict[str, float]()
    for _ in range(samples):
        for name, error in agreement_with_mujoco(scene, random_sample(scene, rng)).items():
            errors[name] = max(errors.get(name, 0.0), error)
    return Report(f"physics of {_name(scene)} against MuJoCo", tolerance, errors)


def check_gradients(
    simulator: Simulator,
    state: State,
    u: ArrayLike | None = None,
    tau: ArrayLike | None = None,
    wrt: Sequence[str] = _INPUTS,
    tolerance: float = 1e-6,
    seed: int = 0,
) -> Report:
    """Compare the Jacobian of one step with central differences of the same step.

    Args:
        simulator: scene and contact model.
        state: where to compare; `random_sample` draws one.
        u: controls, shape (nu,).
        tau: generalised forces, shape (nv,).
        wrt: inputs, compared entry by entry, and parameters, compared along a random direction each.
        tolerance: the largest relative error allowed.
        seed: of the random directions.

    Errors are relative to the largest entry of a block, or to a thousandth of the one without contact where contact
    holds everything still. An entry of an input along which the step has a kink right at
    this state (a contact or limit about to switch) is compared with differences to one side; if it agrees with
    neither, it has no derivative: it is named in the notes and not compared.
    Parameters are compared on a variation of the scene with a little more damping, armature and inertia, where each
    of them can change both ways. Differences see the error of an iterative solver divided by their length, so let it
    solve well: `tg.Ncp(tolerance=1e-13)`.

    """
    scene = simulator.scene
    sample = Sample(state, _vector(u, scene.nu), _vector(tau, scene.nv))
    out = simulator.step(*sample)
    J = simulator.jacobian(out, wrt=wrt)
    free = Simulator(scene).jacobian(*sample, wrt=tuple(name for name in wrt if name in _INPUTS))
    errors, details, notes = dict[str, float](), dict[str, str](), list[str]()
    for name in wrt:
        if name in _INPUTS:
            near = J.switch.distance <= _ON_SWITCH
            found = _compare_input(simulator, sample, name, _both(J, name), _both(free, name), tolerance, near)
            errors |= found.errors
            details |= found.details
            notes += found.notes
        else:
            errors |= _compare_parameter(simulator, sample, name, tolerance, seed)
    if not out.solver.converged:
        notes.append(f"the step is not solved (residual {out.solver.residual:.1e})")
    if J.switch.distance <= LENGTHS[0]:
        notes.append(f"the nearest switch: {J.switch}")
    if not J.unique:
        notes.append("the contact laws leave v⁺ open here (J.unique is false): another answer has another derivative")
    ordered = {key: errors[key] for output in ("q", "v") for key in errors if key.startswith(f"{output}/")}
    title = f"derivatives of {_name(scene)} with contact {simulator.contact.name} against central differences"
    return Report(title, tolerance, ordered, details, tuple(notes))


class _Found(NamedTuple):
    errors: dict[str, float]
    details: dict[str, str]
    notes: list[str]


def _compare_input(
    simulator: Simulator, sample: Sample, name: str, ours: Array, free: Array, tolerance: float, near: bool
) -> _Found:
    """The blocks ∂q⁺ and ∂v⁺ by one input, given both and what they are without contact, shape (2, nv, n).

    `near` says that the step is on a switch: there, differences to one side count, where J agrees with them.
    """
    columns = _labels(simulator.scene, name)
    found = _Found({}, {}, [])
    scale = np.maximum(_largest(ours), np.maximum(1e-3 * _largest(free), 1e-6))
    units = _units(name, free)
    misses, references = np.zeros_like(ours), np.zeros_like(ours)
    kinks, jumps, sides = list[str](), list[str](), list[str]()
    for k in range(ours.shape[2]):
        reference, miss = _closest(simulator, sample, name, k, units[k], ours[:, :, k], scale, tolerance)
        if miss.max(initial=0.0) > tolerance:
            trouble = _trouble(simulator, sample, name, k, units[k], tolerance * scale)
            if trouble == "kink" or near:
                reference, miss = _one_side(simulator, sample, name, k, units[k], ours[:, :, k], scale)
                agrees = miss.max(initial=0.0) <= max(tolerance, _ONE_SIDED)
                (sides if agrees else kinks).append(columns[k])
                continue
            jumps += [columns[k]] if trouble == "jump" else []
        references[:, :, k], misses[:, :, k] = reference, miss
    for row, output in enumerate(("q", "v")):
        key = f"{output}/{name}"
        found.errors[key] = float(misses[row].max(initial=0.0))
        if not found.errors[key] <= tolerance:
            i, k = divmod(int(np.argmax(misses[row])), ours.shape[2])
            here, there = ours[row, i, k], references[row, i, k]
            found.details[key] = (
                f"{output}⁺ of {_labels(simulator.scene, 'v')[i]} by {name} of {columns[k]}: "
                f"{here:.6g}, differences {there:.6g}"
            )
    if sides:
        found.notes.append(f"by {name} of {', '.join(sides)} the step has a kink here: compared with one side, agrees")
    if kinks:
        found.notes.append(f"no derivative by {name} of {', '.join(kinks)}: the step has a kink here, not compared")
    if jumps:
        found.notes.append(
            f"the step jumps with {name} of {', '.join(jumps)}: by the solver's error (then give the contact model a "
            "smaller tolerance), or because contacts come and go at this very state"
        )
    return found


def _closest(
    simulator: Simulator, sample: Sample, name: str, k: int, unit: float, ours: Array, scale: Array, tolerance: float
) -> tuple[Array, Array]:
    """One column by the first differences that agree, or by those that come closest; and the relative misses."""
    best: tuple[Array, Array] | None = None
    for length in LENGTHS:
        reference = central_column(simulator, sample, name, k, length * unit)
        miss = np.abs(ours - reference) / scale[:, None]
        miss[np.isnan(miss)] = np.inf
        if best is None or miss.max(initial=0.0) < best[1].max(initial=0.0):
            best = reference, miss
        if miss.max(initial=0.0) <= tolerance:
            break
    assert best is not None
    return best


def _one_side(
    simulator: Simulator, sample: Sample, name: str, k: int, unit: float, ours: Array, scale: Array
) -> tuple[Array, Array]:
    """One column by differences to the side that comes closest, and the relative misses."""
    scene = simulator.scene
    best: tuple[Array, Array] | None = None
    here = stepped(simulator, sample, name, k, 0.0)
    for length in (sign * length * unit for length in LENGTHS[1:] for sign in (1, -1)):
        once, twice = (stepped(simulator, sample, name, k, multiple * length) for multiple in (1, 2))
        dq = 4 * scene.difference(here.q, once.q) - scene.difference(here.q, twice.q)
        reference = np.array([dq, 4 * once.v - twice.v - 3 * here.v]) / (2 * length)
        miss = np.abs(ours - reference) / scale[:, None]
        if best is None or miss.max(initial=0.0) < best[1].max(initial=0.0):
            best = reference, miss
    assert best is not None
    return best


def _trouble(simulator: Simulator, sample: Sample, name: str, k: int, unit: float, allowed: Array) -> str:
    """What differences suffer from: "kink", "jump" or "".

    Slopes to both sides are apart by as much as the differences are long in a smooth step, by the same at any length
    at a kink, and by more the shorter they are where the step jumps or is noisy.
    """
    short, long = (_gap(simulator, sample, name, k, length * unit) for length in (LENGTHS[-1], 100 * LENGTHS[-1]))
    apart = short > allowed
    if np.any(apart & (short > 3 * long)):
        return "jump"
    return "kink" if np.any(apart & (short > 0.3 * long)) else ""


def _gap(simulator: Simulator, sample: Sample, name: str, k: int, length: float) -> Array:
    """How far the slopes to both sides are apart, of q⁺ and of v⁺."""
    scene = simulator.scene
    before, here, after = (stepped(simulator, sample, name, k, multiple * length) for multiple in (-1, 0, 1))
    dq = scene.difference(here.q, after.q) + scene.difference(here.q, before.q)
    dv = after.v + before.v - 2 * here.v
    return np.abs([dq, dv]).max(axis=1) / length


def _compare_parameter(
    simulator: Simulator, sample: Sample, name: str, tolerance: float, seed: int
) -> dict[str, float]:
    best: dict[str, float] = {}
    for length in LENGTHS[:-1]:
        rng = np.random.default_rng(seed)
        found = parameter_errors(simulator, sample, (name,), rng, directions=1, step=length)
        if not best or max(found.values()) < max(best.values()):
            best = found
        if max(best.values()) <= tolerance:
            break
    return best


def _both(J: Jacobian, name: str) -> Array:
    return np.stack([J["q", name], J["v", name]])


def _largest(blocks: Array) -> Array:
    return np.abs(blocks).max(axis=(1, 2), initial=0.0)


def _units(name: str, free: Array) -> Array:
    """By how much to change each entry of an input, for lengths of 1: forces and controls so that v⁺ changes by 1."""
    if name in ("q", "v"):
        return np.ones(free.shape[2])
    response = np.abs(free[1]).max(axis=0, initial=0.0)
    return np.divide(1.0, response, out=np.ones_like(response), where=response > 0)


def _labels(scene: Scene, name: str) -> list[str]:
    """Names of an input's entries: actuators, or joints with the number of the degree of freedom."""
    if name == "u":
        return [label or f"actuator {k}" for k, label in enumerate(scene.actuator_names)]
    m = scene.shared_model
    labels = []
    for dof, joint in enumerate(m.dof_jntid):
        label = scene.joint_names[joint] or f"joint {joint}"
        width = int(np.sum(m.dof_jntid == joint))
        labels.append(f"{label}[{dof - m.jnt_dofadr[joint]}]" if width > 1 else label)
    return labels


def _name(scene: Scene) -> str:
    return scene.source.rsplit("/", 1)[-1]


def _vector(given: ArrayLike | None, size: int) -> Array:
    return np.zeros(size) if given is None else np.array(given, dtype=float)
