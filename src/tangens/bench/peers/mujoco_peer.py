"""MuJoCo on the same states: `mj_step`, and `mjd_transitionFD` with centred differences.

What is done for it to be at its best: Euler, the integrator that is ours as well (the humanoid's file asks for RK4,
four times the work); for each of the two functions, the quickest of its solvers and friction cones on these states;
the clock runs around the call alone, on data where the state is set and `mj_forward` has just solved this very step,
so that its solver starts from the solution. A margin of 0.1 mm lets it find the contacts that our states hold: they
touch to rounding, and half of them would be open by 1e-17 m. `mjd_transitionFD` perturbs q, v and the controls, whereas
our differences and gradient have a column for every generalised force: fewer columns for MuJoCo.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.scene import Scene
from tangens.state import State

Array = NDArray[np.float64]
Sample = tuple[State, Array]

STEP, DIFFERENCES = "MuJoCo mj_step", "MuJoCo mjd_transitionFD"
SETTINGS = (
    "Euler, centred mjd_transitionFD with eps 1e-6 over (q, v, u), called from Python on data with the state set and "
    "warm-started by mj_forward at the same state; contact margin 0.1 mm; per function the quickest of Newton and CG with "
    "pyramidal and elliptic cones and of the file's own solver"
)
_MARGIN = 1e-4
_EPS = 1e-6
_TRIED = 4  # states on which the solvers compete


class MujocoPeer:
    """A scene in MuJoCo's own hands."""

    def __init__(self, scene: Scene, samples: Sequence[Sample]) -> None:
        models = _candidates(scene)
        few = samples[:: max(1, len(samples) // _TRIED)]
        steps = {name: float(np.median(_time_steps(m, few * 3))) for name, m in models.items()}
        differences = {name: float(np.median(_time_differences(m, few))) for name, m in models.items()}
        best_step, best_differences = min(steps, key=steps.__getitem__), min(differences, key=differences.__getitem__)
        self._stepped, self._differenced = models[best_step], models[best_differences]
        self.chosen = {"mj_step": best_step, "mjd_transitionFD": best_differences}
        self.contacts = float(np.median([_contacts(self._stepped, sample) for sample in samples]))

    def steps(self, samples: Iterable[Sample]) -> list[int]:
        """Time of `mj_step` at each state [ns]."""
        return _time_steps(self._stepped, samples)

    def differences(self, samples: Iterable[Sample]) -> list[int]:
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


def _prepare(m: mujoco.MjModel, d: mujoco.MjData, sample: Sample) -> None:
    state, u = sample
    d.qpos[:], d.qvel[:], d.ctrl[:] = state.q, state.v, u
    mujoco.mj_forward(m, d)
    d.qacc_warmstart[:] = d.qacc


def _contacts(m: mujoco.MjModel, sample: Sample) -> int:
    d = mujoco.MjData(m)
    _prepare(m, d, sample)
    return int(d.ncon)


def _time_steps(m: mujoco.MjModel, samples: Iterable[Sample]) -> list[int]:
    d, times, clock = mujoco.MjData(m), [], time.perf_counter_ns
    for sample in samples:
        _prepare(m, d, sample)
        start = clock()
        mujoco.mj_step(m, d)
        times.append(clock() - start)
    return times


def _time_differences(m: mujoco.MjModel, samples: Iterable[Sample]) -> list[int]:
    d, times, clock = mujoco.MjData(m), [], time.perf_counter_ns
    A, B = np.zeros((2 * m.nv + m.na, 2 * m.nv + m.na)), np.zeros((2 * m.nv + m.na, m.nu))
    for sample in samples:
        _prepare(m, d, sample)
        start = clock()
        mujoco.mjd_transitionFD(m, d, _EPS, True, A, B, None, None)
        times.append(clock() - start)
    return times
