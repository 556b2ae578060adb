"""Collisions of free bodies: what becomes of momentum, at any scale, and who rubs against whom."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

import tangens as tg

pytestmark = pytest.mark.xdist_group("interior")  # compiled functions are shared within a process
Array = NDArray[np.float64]

SPHERES = """<mujoco><option timestep="0.01" gravity="0 0 0"/><default><geom friction="0.5"/></default><worldbody>
<body name="a"><freejoint/><geom name="a" type="sphere" size="0.1" mass="1"/></body>
<body name="b" pos="0.201 0.08 0.03"><freejoint/><geom name="b" type="sphere" size="0.1" mass="2"/></body>
</worldbody></mujoco>"""
MEETING = np.array([2, 0.3, 0, 0.3, 1, 2, -0.5, 0, 0.1, 0, 0, 0])  # they meet off-centre, one of them spinning


def _spheres(radius: float = 0.1, mass: float = 1.0) -> tuple[tg.Scene, tg.State]:
    """Two spheres a moment before they meet; speeds and times count in √(g·radius) and √(radius/g)."""
    scene, size = tg.load(SPHERES), radius / 0.1
    state, moment = scene.initial_state(), 0.4 * mass * radius**2
    q, v = state.q.copy(), MEETING * np.sqrt(size)
    q[[0, 1, 2, 7, 8, 9]] *= size
    v[[3, 4, 5]] /= size
    return scene.replace(
        size={"a": [radius, 0, 0], "b": [radius, 0, 0]},
        mass={"a": mass, "b": 2 * mass},
        inertia={"a": [moment] * 3 + [0] * 3, "b": [2 * moment] * 3 + [0] * 3},
        timestep=0.01 * np.sqrt(size),
    ), tg.State(q, v)


def _momenta(scene: tg.Scene, state: tg.State) -> tuple[Array, Array]:
    linear, angular = np.zeros(3), np.zeros(3)
    for body in (1, 2):
        q, v, spin = state.q[7 * body - 7 : 7 * body], state.v[6 * body - 6 : 6 * body], np.zeros(3)
        mass, moment = scene.parameters["mass"][body], scene.parameters["inertia"][body, 0]
        mujoco.mju_rotVecQuat(spin, v[3:], q[3:])
        linear += mass * v[:3]
        angular += mass * np.cross(q[:3], v[:3]) + moment * spin
    return linear, angular


def _run(scene: tg.Scene, state: tg.State, conserve: bool, relaxation: float = 1e-6) -> tg.State:
    sim = tg.Simulator(scene, contact=tg.SingleLevel(relaxation=relaxation, conserve_momentum=conserve))
    for _ in range(5):
        out = sim.step(state)
        assert out.solver.converged
        state = out.state
    assert np.abs(state.v[6:9] - MEETING[6:9]).max() > 0.1  # they have met
    return state


def test_a_collision_off_centre_keeps_its_momentum() -> None:
    scene, start = _spheres()
    before, after = _momenta(scene, start), _momenta(scene, _run(scene, start, conserve=True))
    np.testing.assert_allclose(after[0], before[0], rtol=0, atol=1e-9 * np.abs(before[0]).max())
    np.testing.assert_allclose(after[1], before[1], rtol=0, atol=1e-9 * np.abs(before[1]).max())


def test_what_else_is_lost_is_lost_to_the_placement_at_the_end_and_not_to_relaxation() -> None:
    """Forces at the placement of the end have levers that are off by what slides past in a step."""
    scene, start = _spheres()

    def lost(timestep: float, relaxation: float) -> float:
        some = scene.replace(timestep=timestep)
        before, after = _momenta(some, start)[1], _momenta(some, _run(some, start, False, relaxation))[1]
        return float(np.linalg.norm(after - before) / np.linalg.norm(before))

    assert lost(0.01, 1e-6) == pytest.approx(lost(0.01, 1e-9), rel=1e-2)
    assert 0.02 < lost(0.01, 1e-6) < 0.1
    assert lost(0.005, 1e-6) == pytest.approx(lost(0.01, 1e-6) / 2, rel=0.1)


@pytest.mark.parametrize(("radius", "mass"), [(0.005, 1e-3), (5.0, 1e3)])
def test_collisions_are_alike_at_every_scale(radius: float, mass: float) -> None:
    """In units of the scene, to the bit but for rounding."""
    size = radius / 0.1
    ordinary, state = _spheres()
    other, scaled = _spheres(radius, mass)
    ours, theirs = _run(ordinary, state, False).v, _run(other, scaled, False).v
    turns = np.tile([1.0, 1, 1, size, size, size], 2)
    np.testing.assert_allclose(theirs * turns / np.sqrt(size), ours, rtol=0, atol=1e-7)


def test_derivatives_count_that_forces_act_at_the_beginning() -> None:
    scene, state = _spheres()
    model = tg.SingleLevel(relaxation=1e-4, conserve_momentum=True, tolerance=1e-9)
    sim, d = tg.Simulator(scene, contact=model), 1e-7
    J = sim.jacobian(state, wrt=("q", "v"))
    for i in (0, 1, 4, 8, 9):
        e = d * np.eye(12)[i]
        for name, moved in (
            ("q", [tg.State(scene.integrate(state.q, s * e), state.v) for s in (1, -1)]),
            ("v", [tg.State(state.q, state.v + s * e) for s in (1, -1)]),
        ):
            up, down = (sim.step(at).state.v for at in moved)
            most = 1e-5 * np.abs(J["v", name]).max()
            np.testing.assert_allclose(J["v", name][:, i], (up - down) / (2 * d), rtol=0, atol=most)


SLIPPERY = """<mujoco><option timestep="0.01"/><default><geom condim="1" friction="0.8"/></default><worldbody>
<geom type="plane" size="1 1 1"/><body pos="0 0 0.1"><freejoint/><geom type="sphere" size="0.1" mass="1"/></body>
</worldbody></mujoco>"""


def test_condim_1_means_no_friction() -> None:
    sim = tg.Simulator(tg.load(SLIPPERY), contact="single-level")
    start = tg.State(sim.initial_state().q, [1.0, 0.5, 0, 3, 0, 0])
    out = sim.step(start)
    np.testing.assert_allclose(np.delete(out.state.v, 2), np.delete(start.v, 2), atol=1e-9)
    assert abs(out.state.v[2]) < 10 * 1e-6 * 0.1 / 0.01  # it rises by a few ρ of its size, in one step
    np.testing.assert_allclose(out.contacts.force[0, :2], 0, atol=1e-6)
