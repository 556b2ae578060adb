"""Relaxed contact of convex shapes: the laws of physics, other models, and the edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tangens as tg
from tangens.contact.interior.engine import InteriorEngine
from tangens.contact.interior.pairs import PairTable

RHO = 1e-7
pytestmark = pytest.mark.xdist_group("interior")  # compiled functions are shared within a process


@pytest.fixture(scope="module")
def cube() -> tg.Simulator:
    return tg.Simulator(tg.scenes.cube(), contact=tg.SingleLevel(relaxation=RHO))


def test_a_cube_at_rest_is_carried_at_the_point_under_its_centre_of_mass(cube: tg.Simulator) -> None:
    weight = 9.81 * cube.scene.parameters["mass"][1]
    traj = cube.rollout(cube.initial_state("resting"), 20)
    last = traj.contacts[-1]
    assert last.distance.shape == (1,)
    np.testing.assert_allclose(last.force[0], [0, 0, weight], rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(last.position[0, :2], traj.q[-1, :2], atol=1e-6)
    assert 0 < traj.q[-1, 2] - traj.q[0, 2] < 20 * RHO  # it hovers, and not by much
    assert all(report.converged for report in traj.solver)


def test_a_thrown_cube_moves_as_ncp_says(cube: tg.Simulator) -> None:
    exact = tg.Simulator(cube.scene, contact="ncp")
    start = tg.State(cube.initial_state("resting").q, [0.6, 0.4, 0, 0, 0, 0])
    ours, theirs = cube.rollout(start, 60), exact.rollout(start, 60)
    # A relaxed cube hovers: in the first step it rises by 0.65 ρ and tilts by 1.4 ρ, for any ρ from 1e-8 to 1e-6.
    assert np.abs(ours.v - theirs.v).max() < 3 * RHO / cube.scene.timestep
    assert np.abs(ours.q - theirs.q).max() < 2 * RHO


def test_reverse_mode_says_the_same_as_the_jacobian(cube: tg.Simulator) -> None:
    rng = np.random.default_rng(0)
    start = tg.State(cube.initial_state("resting").q, 0.1 * rng.normal(size=6))
    J = cube.jacobian(start, wrt=("q", "v", "tau", "friction", "mass", "size"))
    dq, dv = rng.normal(size=6), rng.normal(size=6)
    back = cube.pullback(cube.rollout(start, 1), dq=dq, dv=dv, wrt=("friction", "mass", "size"))
    for name, value in (("q", back.state.q), ("v", back.state.v), ("tau", back.tau[0])):
        np.testing.assert_allclose(value, dq @ J["q", name] + dv @ J["v", name], rtol=1e-8, atol=1e-10)
    for name in ("friction", "mass", "size"):
        expected = np.tensordot(dq, J["q", name], 1) + np.tensordot(dv, J["v", name], 1)
        np.testing.assert_allclose(back.parameters[name], expected, rtol=1e-8, atol=1e-10)


def test_scenes_that_differ_in_parameters_share_what_is_compiled(cube: tg.Simulator) -> None:
    heavy = tg.Simulator(
        cube.scene.replace(mass=2.0, friction=0.1, timestep=0.004), contact=tg.SingleLevel(relaxation=RHO)
    )
    assert engine_of(heavy).shared_model(16) is engine_of(cube).shared_model(16)
    force = heavy.step(heavy.initial_state("resting")).contacts.force
    np.testing.assert_allclose(force.sum(axis=0), [0, 0, 2 * 9.81], rtol=1e-2, atol=1e-6)


def test_a_step_does_not_depend_on_the_steps_before(cube: tg.Simulator) -> None:
    start = tg.State(cube.initial_state("resting").q, [0.5, 0, 0, 0, 0, 1])
    first = cube.step(start).state
    cube.step(cube.initial_state("thrown"))
    again = cube.step(start).state
    assert np.array_equal(first.q, again.q)
    assert np.array_equal(first.v, again.v)


def test_a_warm_start_takes_fewer_iterations_to_the_same_answer(cube: tg.Simulator) -> None:
    scratch = tg.Simulator(cube.scene, contact=tg.SingleLevel(relaxation=RHO, warm_start=False))
    start = tg.State(cube.initial_state("resting").q, [0.5, 0, 0, 0, 0, 0])
    ours, cold = cube.rollout(start, 20), scratch.rollout(start, 20)
    assert all(report.converged for report in ours.solver)
    assert sum(r.iterations for r in ours.solver) < 0.7 * sum(r.iterations for r in cold.solver)
    assert np.abs(ours.q - cold.q).max() < 1e-6


TOP = """<mujoco><option timestep="0.005"/><worldbody><geom type="plane" size="1 1 1"/>
<body pos="0 0 0.02"><freejoint/><geom type="cylinder" size="0.05 0.02" mass="1" friction="0.5 0.02 0"/></body>
</worldbody></mujoco>"""


def test_torsional_friction_stops_a_spinning_puck() -> None:
    scene = tg.load(TOP)
    spinning = tg.State(scene.initial_state().q, [0, 0, 0, 0, 0, 3])
    free = tg.Simulator(scene, contact=tg.SingleLevel(relaxation=RHO)).step(spinning).state
    assert free.v[5] == pytest.approx(3, rel=1e-6)  # one contact point on the axis: nothing to resist
    held = tg.Simulator(scene, contact=tg.SingleLevel(relaxation=RHO, torsional_friction=True)).step(spinning).state
    spin_down = 0.02 * 9.81 / scene.parameters["inertia"][1, 2] * 0.005  # μ_t m g h / I
    assert held.v[5] == pytest.approx(3 - spin_down, rel=1e-3)


CAN = """<mujoco><option timestep="0.01"/><default><geom friction="0.5"/></default><worldbody>
<geom type="plane" size="1 1 1"/><body><freejoint/><inertial pos="0 0 0" mass="1" diaginertia="0.004 0.004 0.004"/>
<geom type="cylinder" size="0.08 0.1"/></body></worldbody></mujoco>"""


def test_friction_turns_far_in_an_impact() -> None:
    """It hits the floor sliding. With one height for all products, friction meets its cone too early: 64."""
    sim = tg.Simulator(tg.load(CAN), contact=tg.SingleLevel(relaxation=RHO))
    q = [0, 0, 0.118429632693, -0.503013692354, 0.415986764077, 0.736529898658, 0.177358241420]
    v = [-1.87671892736, -0.9139052886, -2.7407083664, -1.133357505, 0.4065071775, 2.1674500319]
    out = sim.step(tg.State(q, v))
    assert out.solver.converged
    assert out.solver.iterations < 25
    assert out.contacts.distance[0] == pytest.approx(0, abs=1e-6)


PENDULUM = """<mujoco><option timestep="0.01"/><worldbody><body><joint axis="0 1 0" range="-30 30" limited="true"/>
<geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.02" mass="1"/></body></worldbody></mujoco>"""


def test_joint_limits_hold_where_nothing_touches() -> None:
    scene = tg.load(PENDULUM)
    sim, free = tg.Simulator(scene, contact=tg.SingleLevel(relaxation=RHO)), tg.Simulator(scene)
    start = tg.State([0.1], [0.5])
    assert sim.step(start).state.v == pytest.approx(free.step(start).state.v, abs=1e-5)
    traj = sim.rollout(tg.State([0.4], [6.0]), 30)
    assert traj.q.max() == pytest.approx(np.radians(30), abs=1e-4)
    assert traj.q.max() < np.radians(30)


def test_pairs_of_geoms_that_cannot_move_are_left_out() -> None:
    fixed = '<geom name="a" size="0.1"/><geom name="b" size="0.1" pos="0.1 0 0"/>'
    ball = '<body pos="0 0 1"><freejoint/><geom name="c" size="0.1"/></body>'
    pairs = '<contact><pair geom1="a" geom2="b"/><pair geom1="a" geom2="c"/></contact>'
    table = PairTable(tg.load(f"<mujoco><worldbody>{fixed}{ball}</worldbody>{pairs}</mujoco>"), False)
    assert sorted(sorted(geoms) for group in table.groups for geoms in group.geoms.tolist()) == [[0, 2], [1, 2]]


def test_derivatives_make_room_for_all_pairs_that_are_near() -> None:
    ball = '<body pos="{0} 0 0.1"><joint type="slide" axis="0 0 1"/><geom size="0.1" contype="0" mass="1"/></body>'
    floor = '<geom type="plane" size="9 9 1"/>'
    balls = "".join(ball.format(0.3 * i) for i in range(20))
    scene = tg.load(f"<mujoco><option timestep='0.01'/><worldbody>{floor}{balls}</worldbody></mujoco>")
    sim = tg.Simulator(scene, contact=tg.SingleLevel(relaxation=RHO))
    J = sim.jacobian(scene.initial_state(), wrt=("v",))
    assert np.abs(J["v", "v"]).max() < 0.1  # all of them lie on the floor, whatever their velocity was


def test_other_models_refuse_shapes_that_they_do_not_see() -> None:
    from tangens import geometry

    scene = tg.scenes.cube()
    described = scene.with_shapes({scene.geom_names[-1]: geometry.sphere(0.05)})
    with pytest.raises(tg.SceneError, match="does not take shapes"):
        tg.Simulator(described, contact="ncp")
    with pytest.raises(tg.OptionError, match="no geom 'nobody'"):
        scene.with_shapes({"nobody": geometry.sphere(0.05)})
    flat = scene.with_shapes({scene.geom_names[-1]: geometry.sphere(0.05, dim=2)})
    with pytest.raises(tg.SceneError, match="planar and spatial"):
        tg.Simulator(flat, contact="single-level")


@pytest.mark.parametrize("options", [{"relaxation": 0.0}, {"sharpness": -1.0}, {"max_iterations": 0}])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(tg.OptionError, match=next(iter(options))):
        tg.SingleLevel(**options)


def engine_of(simulator: tg.Simulator) -> InteriorEngine:
    engine = simulator.engine
    assert isinstance(engine, InteriorEngine)
    return engine
