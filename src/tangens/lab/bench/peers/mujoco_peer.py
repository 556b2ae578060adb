"""MuJoCo on the same states: `mj_step`, and `mjd_transitionFD` with centred differences.

What is done for it to be at its best: Euler, the integrator that is ours as well (the humanoid's file asks for RK4,
which evaluates the dynamics four times); for each of the two functions, the quickest of its solvers and friction cones
on these states; the clock runs around the call alone, with the state set and the memory touched before. `mj_step`
starts its solver from MuJoCo's solution at the previous state, as it does along a trajectory, and as ours does;
`mjd_transitionFD` starts from the solution at the very state. (`mj_step` started there as well, which no simulation can
do, is in the notes.)

A margin of 0.1 mm lets MuJoCo find the contacts that our states hold: bodies there touch to rounding, and without a
margin MuJoCo found no contact at all on most of them. `mjd_transitionFD` perturbs q, v and the controls, whereas our
gradient and our differences have a column for every generalised force: fewer columns for MuJoCo.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.lab.bench.situations import Sample
from tangens.scene import Scene
from tangens.state import State

Array = NDArray[np.float64]

STEP, DIFFERENCES = "MuJoCo mj_step", "MuJoCo mjd_transitionFD"
SETTINGS = (
    "called from Python on data with the state set; Euler; contact margin 0.1 mm; mj_step warm-started from the "
    "previous state's solution; centred mjd_transitionFD with eps 1e-6 over (q, v, u), warm-started from the state's "
    "own; for each of the two the quickest of Newton and CG with pyramidal and elliptic cones and the file's own choice"
)
_MARGIN = 1e-4
_EPS = 1e-6
_TRIED, _ROUNDS = 5, 4  # states and rounds in which the solvers compete


class MujocoPeer:
    """A scene in MuJoCo's own hands."""

    def __init__(self, scene: Scene, samples: Sequence[Sample]) -> None:
        models = _candidates(scene)
        few = samples[:: max(1, len(samples) // _TRIED)]
        self._stepped, step = _quickest(models, few, _time_steps)
        self._differenced, differences = _quickest(models, few, _time_differences)
        self.facts = {
            "mj_step": step,
            "mjd_transitionFD": differences,
            "contacts": float(np.median([_contacts(self._stepped, sample) for sample in samples])),
            "mj_step_started_at_its_solution_us": float(np.median(_time_solved_steps(self._stepped, samples))) / 1e3,
        }

    def steps(self, samples: Sequence[Sample]) -> list[int]:
        """Time of `mj_step` at each state [ns]."""
        return _time_steps(self._stepped, samples)

    def differences(self, samples: Sequence[Sample]) -> list[int]:
        """Time of `mjd_transitionFD` at each state [ns]."""
        return _time_differences(self._differenced, samples)


def _candidates(scene: Scene) -> dict[str, mujoco.MjModel]:
    own = scene.model
    own.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    own.geom_margin[:] = np.maximum(own.geom_margin, _MARGIN)
    models = {}
    choices = [(int(own.opt.solver), int(own.opt.cone))]
    solvers, cones = mujoco.mjtSolver, mujoco.mjtCone
    for solver in (solvers.mjSOL_NEWTON, solvers.mjSOL_CG):
        choices += [(int(solver), int(cone)) for cone in (cones.mjCONE_PYRAMIDAL, cones.mjCONE_ELLIPTIC)]
    for solver, cone in choices:
        m = mujoco.MjModel.__copy__(own)
        m.opt.solver, m.opt.cone = solver, cone
        name = f"{solvers(solver).name.removeprefix('mjSOL_')}, {cones(cone).name.removeprefix('mjCONE_').lower()}"
        models[name] = m
    return models


def _quickest(
    models: dict[str, mujoco.MjModel], samples: Sequence[Sample], times: Callable[..., list[int]]
) -> tuple[mujoco.MjModel, str]:
    """The model with the least median in any of a few rounds, in which the models take turns."""
    medians = [{name: float(np.median(times(m, samples))) for name, m in models.items()} for _ in range(_ROUNDS)]
    best = min(models, key=lambda name: min(found[name] for found in medians))
    return models[best], best


def _set(d: mujoco.MjData, state: State, u: Array) -> None:
    d.qpos[:], d.qvel[:], d.ctrl[:] = state.q, state.v, u


def _solve(m: mujoco.MjModel, d: mujoco.MjData, state: State, u: Array) -> None:
    """Leave MuJoCo's own solution at a state where its solver starts the next time."""
    _set(d, state, u)
    mujoco.mj_forward(m, d)
    d.qacc_warmstart[:] = d.qacc


def _contacts(m: mujoco.MjModel, sample: Sample) -> int:
    d = mujoco.MjData(m)
    _solve(m, d, sample.state, sample.u)
    return int(d.ncon)


def _time_steps(m: mujoco.MjModel, samples: Sequence[Sample]) -> list[int]:
    d, times, clock = mujoco.MjData(m), [], time.perf_counter_ns
    for state, u, before, u_before in samples:
        _solve(m, d, before, u_before)
        _set(d, state, u)
        start = clock()
        mujoco.mj_step(m, d)
        times.append(clock() - start)
    return times


def _time_solved_steps(m: mujoco.MjModel, samples: Sequence[Sample]) -> list[int]:
    d, times, clock = mujoco.MjData(m), [], time.perf_counter_ns
    for state, u, *_ in samples:
        _solve(m, d, state, u)
        start = clock()
        mujoco.mj_step(m, d)
        times.append(clock() - start)
    return times


def _time_differences(m: mujoco.MjModel, samples: Sequence[Sample]) -> list[int]:
    d, times, clock = mujoco.MjData(m), [], time.perf_counter_ns
    A, B = np.zeros((2 * m.nv + m.na, 2 * m.nv + m.na)), np.zeros((2 * m.nv + m.na, m.nu))
    for state, u, *_ in samples:
        _solve(m, d, state, u)
        start = clock()
        mujoco.mjd_transitionFD(m, d, _EPS, True, A, B, None, None)
        times.append(clock() - start)
    return times
