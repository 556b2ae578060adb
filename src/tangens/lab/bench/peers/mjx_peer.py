"""MJX on the same states: `mjx.step` and its `jax.jacfwd` by (qpos, qvel, ctrl).

Compiled with model and data closed over, single precision (its default), on one thread, in a process of
its own; Euler and the Newton solver where the file asks for one that MJX does not have; the margin that MuJoCo gets;
its solver starts from MuJoCo's solution at the very state. `jacfwd` computes the step along with its derivative. One
scene at a time: batches on accelerators, which MJX is made for, are no part of this comparison. MJX does not take every
model, and compiles some for longer than anyone waits.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.lab.bench.peers.process import ask
from tangens.lab.bench.situations import Sample
from tangens.scene import Scene

Array = NDArray[np.float64]

STEP, JACFWD = "MJX step", "MJX jacfwd (with its step)"
SETTINGS = (
    "CPU, one thread, float32, jit with model and data closed over, Euler, Newton where MJX lacks the file's solver, "
    "contact margin 0.1 mm, warm-started from MuJoCo's solution at the state; jacfwd of v+ by (qpos, qvel, ctrl), "
    "which includes the step"
)
TIMEOUTS = {"quick": 150.0, "normal": 240.0, "full": 600.0}
_SCRIPT = Path(__file__).with_name("mjx_script.py")
_ONE_THREAD = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_ENABLE_X64": "0",
}


def measure(scene: Scene, samples: Sequence[Sample], passes: int, effort: str) -> dict[str, Any]:
    """Medians in µs and seconds of compilation: `step`, `jacfwd`, `step_compile`, `jacfwd_compile`, `trials`."""
    m = scene.model
    m.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    m.geom_margin[:] = np.maximum(m.geom_margin, 1e-4)
    if m.opt.solver == mujoco.mjtSolver.mjSOL_PGS:
        m.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    with tempfile.TemporaryDirectory() as folder:
        model, states = Path(folder) / "model.mjb", Path(folder) / "states.npz"
        mujoco.mj_saveModel(m, str(model), None)
        q, v = np.array([s.state.q for s in samples]), np.array([s.state.v for s in samples])
        np.savez(states, q=q, v=v, u=np.array([s.u for s in samples]), start=_solutions(m, samples))
        question = {"model": str(model), "states": str(states), "passes": passes}
        return ask(sys.executable, _SCRIPT, question, TIMEOUTS[effort], _ONE_THREAD)


def _solutions(m: mujoco.MjModel, samples: Sequence[Sample]) -> Array:
    """MuJoCo's accelerations at the states."""
    d, found = mujoco.MjData(m), []
    for state, u, *_ in samples:
        d.qpos[:], d.qvel[:], d.ctrl[:] = state.q, state.v, u
        mujoco.mj_forward(m, d)
        found.append(d.qacc.copy())
    return np.array(found)
