"""Limits, dry friction and equalities in the same relaxed problem as contact."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

import tangens as tg
from tangens.contact.compiling import FUNCTIONS
from tangens.testing import Sample, gradient_errors, parameter_errors

RHO = 1e-7
pytestmark = pytest.mark.xdist_group("interior")  # compiled functions are shared within a process

PENDULUM = """<mujoco><option timestep="0.005"/><worldbody><body><joint axis="0 1 0" frictionloss="{loss}"/>
<geom type="capsule" fromto="0 0 0 0.5 0 0" size="0.02" mass="1"/></body></worldbody></mujoco>"""
WEIGHT = 9.81 * 0.25  # N m, at the joint


@pytest.mark.parametrize("loss", [0.5 * WEIGHT, 1.1 * WEIGHT])
def test_dry_friction_holds_what_it_can_and_slows_down_the_rest(loss: float) -> None:
    scene = tg.load(PENDULUM.format(loss=loss))
    ours, exact = (tg.Simulator(scene, contact=c) for c in (tg.SingleLevel(relaxation=RHO), "ncp"))
    moved, expected = ours.rollout(tg.State([0.0], [0.0]), 60), exact.rollout(tg.State([0.0], [0.0]), 60)
    assert all(report.converged for report in moved.solver)
    np.testing.assert_allclose(moved.q, expected.q, atol=1e-4)
    held = loss > WEIGHT
    assert (np.abs(moved.v[-1, 0]) < 100 * RHO) == held  # what is held creeps at a few ρ of √(g/l)


def test_the_derivative_by_a_friction_loss_is_that_of_the_step_and_compiles_nothing() -> None:
    def simulator(loss: float) -> tg.Simulator:
        model = tg.SingleLevel(relaxation=RHO, tolerance=1e-7)
        return tg.Simulator(tg.load(PENDULUM.format(loss=0.5 * WEIGHT)).replace(frictionloss=loss), contact=model)

    state, loss, d = tg.State([0.1], [0.3]), 0.7 * WEIGHT, 1e-4
    J = simulator(loss).jacobian(state, wrt=("frictionloss",))["v", "frictionloss"]
    kept = len(FUNCTIONS)
    ends = [simulator(loss + s).step(state).state.v for s in (d, -d)]
    assert len(FUNCTIONS) == kept
    np.testing.assert_allclose(J[:, 0], (ends[0] - ends[1]) / (2 * d), rtol=1e-5)
    assert J[0, 0] == pytest.approx(-0.005 * 1 / _moment(simulator(loss)), rel=1e-4)  # it slips: F·h / M


def _moment(sim: tg.Simulator) -> float:
    """Of the pendulum, about its joint."""
    m = sim.scene.model
    return float(m.body_inertia[1].max() + m.body_mass[1] * np.sum(m.body_ipos[1] ** 2))


def test_a_four_bar_linkage_stays_closed_and_turns_as_ncp_says() -> None:
    scene = tg.scenes.four_bar()
    ours, exact = (tg.Simulator(scene, contact=c) for c in (tg.SingleLevel(relaxation=RHO), "ncp"))
    traj, expected = (sim.rollout(sim.initial_state(), np.full((200, 1), 0.5)) for sim in (ours, exact))
    assert np.abs(traj.v[:, 0]).max() > 1.0  # the crank turns
    # ncp closes the loop by velocities: after a step it is open by h², which adds up to this.
    np.testing.assert_allclose(traj.q, expected.q, atol=1e-3)
    m, d = scene.model, mujoco.MjData(scene.model)
    d.qpos[:] = traj.q[-1]
    mujoco.mj_kinematics(m, d)
    pin = [d.xpos[m.body(n).id] + d.xmat[m.body(n).id].reshape(3, 3) @ m.eq_data[0, 3 * k : 3 * k + 3]
           for k, n in enumerate(("coupler", "rocker"))]  # fmt: skip
    np.testing.assert_allclose(pin[0], pin[1], atol=1e-7)


BALL = """<mujoco><option timestep="{h}"/><worldbody><body><joint type="ball" range="0 {degrees}" limited="true"/>
<geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.02" mass="1"/></body></worldbody></mujoco>"""


@pytest.mark.parametrize("degrees", [0.5, 30])
def test_a_ball_joint_stays_within_its_range(degrees: float) -> None:
    """Half a degree is passed within one step, from where the joint has no direction."""
    sim = tg.Simulator(tg.load(BALL.format(h=0.01, degrees=degrees)), contact=tg.SingleLevel(relaxation=RHO))
    traj = sim.rollout(tg.State([1, 0, 0, 0], [3, 2, 5]), 40)
    assert all(report.converged for report in traj.solver)
    angle = 2 * np.arctan2(np.linalg.norm(traj.q[:, 1:], axis=1), np.abs(traj.q[:, 0]))
    assert 0.99 * np.radians(degrees) < angle.max() < np.radians(degrees)


CHAIN = """<mujoco><default><geom contype="0" conaffinity="0"/></default><worldbody>
  <body><joint name="a" axis="0 1 0" frictionloss="0.5"/><geom size="0.02 0.1" type="capsule" pos="0 0 0.1" mass="1"/>
    <body pos="0 0 0.2"><joint name="b" axis="0 1 0"/>
      <geom size="0.02 0.1" type="capsule" pos="0 0 0.1" mass="1"/>
      <body name="c" pos="0 0 0.2"><joint type="ball" range="0 30"/>
        <geom size="0.02 0.1" type="capsule" pos="0 0 0.1" mass="1"/>
        <body name="d"><joint name="d" axis="1 0 0"/><geom size="0.1" mass="0.2"/></body></body></body></body>
  <body name="e" pos="0 0 0.7"><freejoint/><geom size="0.1 0.08 0.05" type="box" mass="1"/></body>
  <body name="f" pos="0.3 0 0.7"><freejoint/><geom size="0.1 0.08 0.05" type="box" mass="2"/></body></worldbody>
  <tendon>
    <fixed name="t"><joint joint="a" coef="1"/><joint joint="d" coef="-0.5"/></fixed>
    <fixed name="s"><joint joint="b" coef="2"/></fixed>
    <fixed limited="true" range="-0.1 0.1" frictionloss="0.1">
      <joint joint="a" coef="1"/><joint joint="b" coef="1"/></fixed>
  </tendon>
  <equality>
    <connect body1="c" body2="e" anchor="0 0 0.2"/>
    <weld body1="e" body2="f"/>
    <joint joint1="d" joint2="b" polycoef="0 0.5 0.3 0.1 0"/>
    <tendon tendon1="t" tendon2="s" polycoef="0 0.1 0.2 0 0"/>
  </equality></mujoco>"""


@pytest.mark.parametrize("relaxation", [1e-3, 1e-6])
def test_derivatives_are_those_of_the_very_step(relaxation: float) -> None:
    """Where equalities hold, and where they are off by centimetres."""
    scene, rng = tg.load(CHAIN), np.random.default_rng(0)
    sim = tg.Simulator(scene, contact=tg.SingleLevel(relaxation=relaxation, tolerance=1e-7))
    free = tg.Simulator(scene)
    for off in (0.0, 0.1):
        q = scene.integrate(scene.model.qpos0, off * rng.normal(size=scene.nv))
        at = Sample(tg.State(q, 0.5 * rng.normal(size=scene.nv)), np.zeros(scene.nu), np.zeros(scene.nv))
        out = sim.step(at.state)
        assert out.solver.converged
        assert np.abs(out.state.v - free.step(at.state).state.v).max() > 1e-2, "constraints should act"
        errors = gradient_errors(sim, at, ("q", "v", "tau"), step=1e-3 * relaxation**0.5)
        errors |= parameter_errors(sim, at, ("mass", "inertia", "gravity"), rng, directions=1)
        assert max(errors.values()) < 1e-5, errors


def test_what_is_off_is_brought_back_at_a_speed_of_its_size() -> None:
    """An equality that is off by half a metre does not fling bodies apart."""
    xml = """<mujoco><option timestep="0.01" gravity="0 0 0"/><worldbody>
      <body name="a"><freejoint/><geom size="0.1" mass="1"/></body></worldbody>
      <equality><weld body1="a" body2="world"/></equality></mujoco>"""
    sim = tg.Simulator(tg.load(xml), contact=tg.SingleLevel(relaxation=RHO))
    traj = sim.rollout(tg.State([0.5, 0, 0, np.cos(1), np.sin(1), 0, 0], np.zeros(6)), 100)
    length = np.sqrt(3 * 0.4) * 0.1  # of a ball of 10 cm, as its inertia tells
    assert np.linalg.norm(traj.v[:, :3], axis=1).max() < 1.01 * (9.81 * length) ** 0.5
    np.testing.assert_allclose(traj.q[-1], [0, 0, 0, 1, 0, 0, 0], atol=1e-6)
