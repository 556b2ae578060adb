"""Steps converge: hard impacts, small time steps, any scale. What does not is solved more relaxed, and says so."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import tangens as tg
from tangens.contact.base import Point
from tangens.contact.interior.engine import InteriorEngine
from tangens.lab.bench import throws

pytestmark = pytest.mark.xdist_group("interior")  # compiled functions are shared within a process
Array = NDArray[np.float64]

HALF = 0.05  # of the cube's edges [m]


def _thrown(n: int, seed: int) -> tuple[Array, Array]:
    """Cubes of any orientation, their lowest corner just above the floor, that fly into it with up to 3 m/s."""
    rng = np.random.default_rng(seed)
    q, v = np.zeros((n, 7)), rng.uniform([-2, -2, -3, -3, -3, -3], [2, 2, -0.3, 3, 3, 3], (n, 6))
    turn = rng.normal(size=(n, 4))
    w, x, y, z = (turn / np.linalg.norm(turn, axis=1, keepdims=True)).T
    q[:, 3:] = np.stack([w, x, y, z], 1)
    down = np.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], 1)
    q[:, 2] = HALF * np.abs(down).sum(1) + rng.uniform(0.001, 0.01, n)
    return q, v


@pytest.mark.parametrize(("timestep", "relaxation"), [(0.002, 1e-6), (0.004, 1e-8), (0.01, 1e-3)])
def test_thrown_cubes_converge_but_for_last_resorts(timestep: float, relaxation: float) -> None:
    """1280 steps, of which none fails and one at most needs a last resort (1, 0 and 0 were found)."""
    scene, n = tg.scenes.cube().replace(timestep=timestep), 32
    engine = tg.Simulator(scene, contact=tg.SingleLevel(relaxation=relaxation)).engine
    assert isinstance(engine, InteriorEngine)
    q, v = _thrown(n, seed=0)
    resorts, iterations, touched = 0, 0.0, 0
    for _ in range(40):
        many = engine.steps(Point(q, v, np.zeros((n, 0)), np.zeros((n, 6))), lanes=n // 2)  # slow ones come again
        assert not many.failed.any()
        resorts, iterations = resorts + int((~many.converged).sum()), iterations + many.iterations.mean() / 40
        touched += int((np.abs(many.v[:, :2] - v[:, :2]).max(axis=1) > 1e-3).sum())
        q, v = many.q, many.v
    assert touched > 20
    assert resorts <= 1
    assert iterations < 20


@pytest.mark.slow
@pytest.mark.parametrize("shape", list(throws.GEOMS))
def test_bodies_of_all_shapes_land_at_all_time_steps_and_relaxations(shape: str) -> None:
    """8,000 steps of each shape. One in 10,000 may fail, so that two of 8,000 are a matter of chance."""
    counts = list(throws.count(shape, throws=20, steps=20, seed=7))
    assert sum(c.steps for c in counts) >= 7_900
    assert sum(c.failures for c in counts) <= 2


def _cube(size: float, mass: float) -> tg.Scene:
    moment = 2 / 3 * mass * size**2
    return tg.scenes.cube().replace(
        size={"cube": [size] * 3}, mass={"cube": mass}, inertia={"cube": [moment] * 3 + [0.0] * 3}, friction=0.5
    )


@pytest.mark.parametrize(("size", "mass"), [(0.005, 1e-3), (0.05, 0.5), (5.0, 1e3), (0.05, 1e-3), (0.05, 1e3)])
def test_bodies_of_every_scale_rest_slide_and_land_as_ncp_says(size: float, mass: float) -> None:
    """In units of the scene: lengths of the cube, speeds of √(g·size), weights."""
    rho, scene = 1e-6, _cube(size, mass)
    soft, exact = tg.Simulator(scene, contact=tg.SingleLevel(relaxation=rho)), tg.Simulator(scene, contact="ncp")
    speed, flat = np.sqrt(9.81 * size), [0, 0, size, 1, 0, 0, 0]
    for v in ([0.0, 0, 0, 0, 0, 0], [speed, 0.5 * speed, 0, 0, 0, 0], [0.2 * speed, 0, -speed, 0, 0, 0]):
        ours, theirs = soft.step(tg.State(flat, v)), exact.step(tg.State(flat, v))
        assert ours.solver.converged
        # It hovers by less than 10 ρ of its size; reached in one step, that is a speed.
        most = 10 * rho * max(1.0, size / scene.timestep / speed)
        np.testing.assert_allclose(ours.state.v[:3] / speed, theirs.state.v[:3] / speed, atol=most)
        # Forces explain the motion.
        change = mass * (ours.state.v[:3] - np.array(v[:3])) / scene.timestep
        force = ours.contacts.force.sum(axis=0) + np.array([0, 0, -9.81 * mass])
        np.testing.assert_allclose(force, change, atol=1e-6 * (9.81 * mass + np.abs(change).max()))


BALLS = """<mujoco><option timestep="{h}"/><default><geom friction="0.5"/></default><worldbody>
<geom type="plane" size="9 9 1"/>
<body pos="0 0 {r}"><freejoint/><geom size="{r}" mass="{m}"/></body>
<body pos="{far} 0 {r}"><freejoint/><geom size="{r}" mass="{m}"/></body></worldbody></mujoco>"""


@pytest.mark.slow
@pytest.mark.parametrize(("size", "mass"), [(0.005, 1e-3), (0.05, 1e-3), (0.05, 1e3), (5.0, 1e3)])
def test_balls_of_every_scale_roll_and_collide_as_ncp_says(size: float, mass: float) -> None:
    """In units of the scene; one ball rolls, the other slides into it, a hundredth of its size away."""
    speed, rho = np.sqrt(9.81 * size), 1e-6
    h = 0.01 * size / speed
    scene = tg.load(BALLS.format(h=h, r=size, m=mass, far=2.01 * size))
    soft, exact = tg.Simulator(scene, contact=tg.SingleLevel(relaxation=rho)), tg.Simulator(scene, contact="ncp")
    rolls = [0.5 * speed, 0, 0, 0, 0.5 * speed / size, 0]
    for v in ([*rolls, *np.zeros(6)], [2 * speed, *np.zeros(11)]):
        ours, theirs = (sim.step(tg.State(scene.model.qpos0, v)).state.v for sim in (soft, exact))
        unit = np.tile([*[speed] * 3, *[speed / size] * 3], 2)
        most = 10 * rho * size / h / speed  # to hover by 10 ρ of its size, reached in one step
        np.testing.assert_allclose(ours / unit, theirs / unit, atol=most)


@pytest.mark.parametrize("v", [[0.4, 0.3, -0.1, 0, 0, 0.1], [0, 0, 0, 0, 0, 0], [0.3, 0, -0.5, 1, 2, 0]])
def test_derivatives_are_right_at_default_options(v: list[float]) -> None:
    """ρ = 1e-6: contact laws bend over 5e-8 m, so differences are taken over less, of steps solved to more digits."""
    sim = tg.Simulator(tg.scenes.cube(), contact="single-level")
    precise = tg.Simulator(sim.scene, contact=tg.SingleLevel(tolerance=1e-8))
    state = tg.State([0, 0, HALF + 1e-8, 1, 0, 0, 0], v)
    J = sim.jacobian(state, wrt=("q", "v"))
    for name, d in (("q", 1e-9), ("v", 1e-7)):
        ours, found = J["v", name], np.zeros((6, 6))
        for i, e in enumerate(np.eye(6)):
            for sign, share in ((1, 8 / 12), (-1, -8 / 12), (2, -1 / 12), (-2, 1 / 12)):
                q = sim.scene.integrate(state.q, sign * d * e) if name == "q" else state.q
                moved = tg.State(q, state.v + (sign * d * e if name == "v" else 0))
                found[:, i] += share * precise.step(moved).state.v / d
        assert np.abs(ours - found).max() < 1e-5 * np.abs(ours).max()


def test_a_last_resort_is_a_solution_at_a_larger_relaxation_and_says_so() -> None:
    sim = tg.Simulator(tg.scenes.cube(), contact=tg.SingleLevel(relaxation=1e-6, max_iterations=1))
    state = tg.State([0, 0, HALF, 1, 0, 0, 0], [0.5, 0, -0.5, 0, 0, 0])
    out = sim.step(state)
    assert not out.solver.converged
    assert out.solver.relaxation == pytest.approx(1e-4)
    assert "relaxation=0.0001" in out.solver.status
    there = tg.Simulator(sim.scene, contact=tg.SingleLevel(relaxation=1e-4)).step(state)
    assert there.solver.relaxation == 0
    np.testing.assert_allclose(out.state.v, there.state.v, atol=1e-7)
    J, theirs = sim.jacobian(out, wrt=("v",)), tg.Simulator(sim.scene, contact=tg.SingleLevel(relaxation=1e-4))
    np.testing.assert_allclose(J["v", "v"], theirs.jacobian(there, wrt=("v",))["v", "v"], atol=1e-4)
