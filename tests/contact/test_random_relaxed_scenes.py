"""Random numbers in scenes of few structures: what models in JAX promise holds in each step, or the step says so.

A structure takes a minute to compile, so that numbers vary instead: sizes and masses over decades, friction from 0 to
2, timesteps from 1 to 20 ms, poses and velocities. Bodies start apart and meet within ten steps. The first structure is
that of the contract, compiled anyway; the second one, with the other shapes and joints, is for the slow tests.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

import tangens as tg

Array = NDArray[np.float64]

CONTRACT = Path(__file__).with_name("contract.xml").read_text()
SHAPES = """<mujoco><option timestep="0.005"/><worldbody><geom type="plane" size="5 5 0.1" conaffinity="3"/>
  <body pos="0 0 0.5"><freejoint/><geom type="cylinder" size="0.08 0.12" mass="1" conaffinity="2"/>
    <geom type="capsule" size="0.03 0.1" pos="0.1 0 0.1" euler="40 0 0" mass="0.3" contype="0" conaffinity="1"/></body>
  <body pos="0.5 0 0.6"><joint type="slide" axis="0 0 1" damping="0.1"/><joint type="hinge" axis="0 1 0"/>
    <geom type="capsule" size="0.02 0.05" mass="0.2" contype="0" conaffinity="0"/>
    <body pos="-0.15 0 -0.1"><joint type="ball" damping="0.01"/>
      <geom type="ellipsoid" size="0.08 0.06 0.1" mass="0.5" contype="2" conaffinity="0"/></body></body>
  </worldbody></mujoco>"""
STEPS = 10


class Promise(NamedTuple):
    """What a model promises, of steps that it does not flag."""

    model: tg.ContactModel
    momentum: float
    """How well forces explain the motion; pairs that are far apart push as well where contact is relaxed."""
    apart: bool = False
    """Whether nothing overlaps at the end of a step."""
    derivative: float = 1e-4
    solved: float = 0.95
    """The share of steps that are not flagged."""


PROMISES = {
    "single-level": Promise(tg.SingleLevel(relaxation=1e-3, tolerance=1e-7, max_iterations=120), 0.03, apart=True),
    "bilevel": Promise(
        tg.Bilevel(relaxation=1e-3, tolerance=1e-7, max_iterations=120), 0.03, apart=True, derivative=1e-2, solved=0.4
    ),
    "soft": Promise(tg.Soft(), 1e-4, derivative=1e-5),
    "convex": Promise(tg.Convex(tolerance=1e-12), 1e-8),
}
_LENGTHS = (1e-4, 1e-5, 1e-6, 1e-7)


def random_case(xml: str, rng: np.random.Generator) -> tuple[tg.Scene, tg.State]:
    """A scene of this structure with numbers of its own, and a state in which nothing overlaps."""
    scene = tg.load(xml.replace('timestep="0.005"', f'timestep="{rng.uniform(0.001, 0.02):.6f}"'))
    size, mass = np.array(scene.parameters["size"]), np.array(scene.parameters["mass"])
    friction = rng.uniform(0, 2, len(size)) * (rng.uniform(size=len(size)) < 0.8)
    size[1:] *= 10 ** rng.uniform(-0.4, 0.4, (len(size) - 1, 1))
    scene = scene.replace(size=size, mass=mass * 10 ** rng.uniform(-1.5, 1.5, len(mass)), friction=friction)
    ncp, m = tg.Simulator(scene, "ncp"), scene.model
    free = np.flatnonzero(m.jnt_type == int(mujoco.mjtJoint.mjJNT_FREE))
    while True:
        q = scene.integrate(m.qpos0, rng.uniform(-1, 1, scene.nv) * np.where(np.isin(m.dof_jntid, 0), 1.0, 0.5))
        state = tg.State(q, np.zeros(scene.nv))
        for joint in free:  # down to the floor, or up from it
            q = np.array(state.q)
            q[m.jnt_qposadr[joint] + 2] -= _above_floor(m, q, int(m.jnt_bodyid[joint])) - rng.uniform(0, 0.01)
            state = state.replace(q=q)
        v = rng.normal(size=scene.nv) * rng.uniform(0, 2)
        if ncp.step(state).contacts.distance.min(initial=1.0) > 0.0:
            return scene, state.replace(v=v)


def _above_floor(m: mujoco.MjModel, q: Array, body: int) -> float:
    """How far a body is above the floor."""
    d = mujoco.MjData(m)
    d.qpos[:] = q
    mujoco.mj_kinematics(m, d)
    geoms = np.flatnonzero(m.geom_bodyid == body)
    return min(mujoco.mj_geomDistance(m, d, 0, int(geom), 10.0, None) for geom in geoms)


def _energy(m: mujoco.MjModel, state: tg.State) -> float:
    m.opt.enableflags |= int(mujoco.mjtEnableBit.mjENBL_ENERGY)
    d = mujoco.MjData(m)
    d.qpos[:], d.qvel[:] = state.q, state.v
    mujoco.mj_forward(m, d)
    return float(d.energy.sum())


def _check_step(scene: tg.Scene, promise: Promise, state: tg.State, out: tg.Step) -> None:
    """Forces push, inside their cones, and explain the motion of free bodies; energy does not grow."""
    m, contacts, h = scene.model, out.contacts, scene.timestep
    push = np.einsum("ci,ci->c", contacts.normal, contacts.force)
    pull = np.linalg.norm(contacts.force - push[:, None] * contacts.normal, axis=1)
    friction = np.maximum(*m.geom_friction[contacts.geom, 0].T) if len(contacts) else np.zeros(0)
    slack = 1e-6 * (1 + push.max(initial=0.0))
    assert (push >= -slack).all()
    floor = (contacts.geom == 0).any(axis=1)  # elsewhere `soft` reports the mean of normals
    assert (pull <= friction * push + slack)[floor].all()
    if promise.apart:
        assert contacts.distance.min(initial=0.0) >= 0.0
    for joint in np.flatnonzero(m.jnt_type == int(mujoco.mjtJoint.mjJNT_FREE)):
        body, dofs = m.jnt_bodyid[joint], slice(m.jnt_dofadr[joint], m.jnt_dofadr[joint] + 3)
        sign = (m.geom_bodyid[contacts.geom] == body).astype(float) @ [-1.0, 1.0]
        gained = (out.state.v[dofs] - state.v[dofs]) / h
        if np.abs(m.body_ipos[body]).max() == 0.0:  # else v is not that of the centre of mass
            expected = sign @ contacts.force / m.body_mass[body] + m.opt.gravity
            assert np.abs(gained - expected).max() <= promise.momentum * (9.81 + np.abs(gained).max())
    # Levers and inertias turn within a step: an error of second order, as that of the Euler step in free flight.
    turn = h * max(np.abs(state.v).max(), np.abs(out.state.v).max())
    before, after = _energy(m, state), _energy(m, out.state)
    slack = (2e-3 + turn**2) * (abs(before) + 0.1 * 9.81 * m.body_mass.sum())
    assert after <= before + slack + _lifted(m, out.state.v - state.v), after - before


def _lifted(m: mujoco.MjModel, change: Array) -> float:
    """What Euler's step adds: a body that is struck upwards rises at v⁺ all along the step, as if it began with it."""
    free = np.flatnonzero(m.jnt_type == int(mujoco.mjtJoint.mjJNT_FREE))
    upwards = np.maximum(change[m.jnt_dofadr[free] + 2], 0.0)
    return float(9.81 * m.opt.timestep * m.body_mass[m.jnt_bodyid[free]] @ upwards)


def _agrees(sim: tg.Simulator, promise: Promise, state: tg.State, out: tg.Step, rng: np.random.Generator) -> list[bool]:
    """Whether ∂v⁺/∂q and ∂v⁺/∂v agree with differences along random directions, as short as these laws bend."""
    J, agree = sim.jacobian(out, wrt=("q", "v")), []
    for name in ("q", "v"):
        direction = rng.normal(size=len(state.v))
        ours, errors = J["v", name] @ direction, []
        for length in _LENGTHS:
            ends = []
            for half in (0.5 * length * direction, -0.5 * length * direction):
                q = sim.scene.integrate(state.q, half) if name == "q" else state.q
                ends.append(sim.step(tg.State(q, state.v + half if name == "v" else state.v)))
            if all(end.solver.converged for end in ends):
                found = (ends[0].state.v - ends[1].state.v) / length
                errors.append(np.abs(ours - found).max() / (1 + np.abs(found).max()))
        agree += [min(errors) <= promise.derivative] if errors else []
    return agree


def _check_cases(name: str, xml: str, seeds: range) -> None:
    promise, counts = PROMISES[name], np.zeros(5, dtype=int)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        scene, state = random_case(xml, rng)
        sim = tg.Simulator(scene, promise.model)
        for step in range(STEPS):
            try:
                out = sim.step(state)
            except tg.SolverError:
                break
            solved = out.solver.converged
            counts += [1, solved, len(out.contacts) > 0, 0, 0]
            if solved:
                _check_step(scene, promise, state, out)
            if solved and (step + seed) % 5 == 0:
                with suppress(tg.SolverError):  # of a step beside this one
                    good = _agrees(sim, promise, state, out, rng)
                    counts += [0, 0, 0, len(good), sum(good)]
            state = out.state
    steps, solved, touching, compared, agree = counts
    print(f"{name}: {steps} steps, {steps - solved} flagged, {touching} in contact; {agree} of {compared} derivatives")
    assert steps >= 0.95 * STEPS * len(seeds)  # the others ended in speeds beyond reason, which is flagged, too
    assert touching >= 0.3 * steps
    assert solved >= promise.solved * steps
    assert agree >= 0.98 * compared


def _parameter(name: str) -> Any:
    """Next to the contract's tests, which compile the same functions."""
    slow = (pytest.mark.slow,) if name == "bilevel" else ()
    return pytest.param(name, marks=(pytest.mark.xdist_group(f"contract-{name}"), *slow))


@pytest.mark.parametrize("name", [_parameter(name) for name in PROMISES])
def test_promises_in_random_cases(name: str) -> None:
    _check_cases(name, CONTRACT, range(4))


@pytest.mark.slow
@pytest.mark.parametrize("xml", [CONTRACT, SHAPES], ids=["contract", "shapes"])
@pytest.mark.parametrize("name", [_parameter(name) for name in PROMISES])
def test_promises_in_ten_thousand_steps(name: str, xml: str) -> None:
    _check_cases(name, xml, range(100, 225))
