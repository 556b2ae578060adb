"""What `ncp` and `lcp` have in common: hard contact, limits and dry friction, whatever the law of friction."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import tangens as tg
from tangens import robots

pytestmark = pytest.mark.parametrize("contact", ["ncp", "lcp"])


@pytest.mark.parametrize("friction", [0.1, 0.3, 0.36, 0.37, 0.6])
def test_a_block_on_a_slope_slides_above_the_friction_angle_only(contact: str, friction: float) -> None:
    scene = tg.scenes.slope().replace(friction=friction)
    simulator = tg.Simulator(scene, contact=contact)
    trajectory = simulator.rollout(simulator.initial_state(), 200)
    angle = np.deg2rad(20)  # downhill is along a tangent, where a box is as wide as the cone
    acceleration = max(0.0, 9.81 * (np.sin(angle) - friction * np.cos(angle)))
    speed = np.linalg.norm(trajectory.v[-1, :3])
    assert speed == pytest.approx(acceleration * 200 * scene.timestep, rel=1e-6, abs=1e-9)


def test_joint_limits_stop_and_dry_friction_holds(contact: str) -> None:
    xml = """<mujoco><worldbody>
      <body><joint type="slide" axis="0 0 1" range="-0.05 1" limited="true"/><geom size="0.1" mass="1"/></body>
      <body pos="1 0 0"><joint type="slide" axis="0 0 1" frictionloss="9"/><geom size="0.1" mass="1"/></body>
      <body pos="2 0 0"><joint type="slide" axis="0 0 1" frictionloss="11"/><geom size="0.1" mass="1"/></body>
      </worldbody></mujoco>"""
    simulator = tg.Simulator(tg.load(xml), contact=contact)
    last = simulator.rollout(simulator.initial_state(), 500).state(-1)
    assert last.q[0] == pytest.approx(-0.05, abs=1e-9)
    assert last.v[1] == pytest.approx(-(9.81 - 9.0), rel=1e-9)  # after one second
    assert last.v[2] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("name", ["half_cheetah", "ant"])
def test_robots_stay_finite_and_solved_under_random_controls(contact: str, name: str) -> None:
    scene = robots.get(name)
    simulator = tg.Simulator(scene, contact=contact)
    controls = np.random.default_rng(0).uniform(-1, 1, size=(300, scene.nu))
    trajectory = simulator.rollout(simulator.initial_state(), controls)
    assert all(report.residual <= 1e-8 for report in trajectory.solver)


def test_contact_parameters_do_nothing_in_flight(contact: str) -> None:
    simulator = tg.Simulator(tg.scenes.ball(), contact=contact)
    wrt = ("friction", "restitution", "size", "mass")
    J = simulator.jacobian(simulator.initial_state("dropped"), wrt=wrt)
    for name in wrt:
        np.testing.assert_array_equal(J["v", name], 0.0)


def test_a_motion_beyond_reason_has_diverged(contact: str) -> None:
    """The velocity is finite, but nothing that moves so fast means anything."""
    scene = tg.scenes.ball()
    simulator = tg.Simulator(scene, contact=contact)
    fast = scene.initial_state("dropped").replace(v=[0, 0, 1e9, 0, 0, 0])
    with pytest.raises(tg.SolverError, match="beyond reason"):
        simulator.step(fast)


WEDGE = """<mujoco><asset><mesh name="wedge" vertex="0 0 0 1 0 0 0 1 0 0 0 0.6 1 1 0.2"/></asset><worldbody>
  <body><geom type="mesh" mesh="wedge"/></body>
  <body pos="0.5 0.4 0.375"><freejoint/><geom size="0.05" mass="1"/></body></worldbody></mujoco>"""


def test_a_ball_touches_a_mesh_straight_before_its_centre(contact: str) -> None:
    """MuJoCo's own point is off by 1e-9 m, whatever other shapes are in the scene."""
    sim = tg.Simulator(tg.load(WEDGE), contact)
    for z in np.linspace(-0.1, 0.1, 41):
        q = sim.initial_state().q + np.array([0.0, 0.0, z, 0.0, 0.0, 0.0, 0.0])
        touching = sim.step(tg.State(q, np.zeros(6))).contacts
        if len(touching):
            break
    assert len(touching) == 1
    towards_ball = touching.normal[0] if touching.geom[0, 1] == 1 else -touching.normal[0]
    expected = q[:3] - towards_ball * (0.05 + touching.distance[0] / 2)
    np.testing.assert_allclose(touching.position[0], expected, atol=1e-15)


def test_many_bodies_take_little_memory(contact: str) -> None:
    """Not nv³ numbers, as second derivatives would: 40 free bodies had a gigabyte."""
    child = """
import resource, sys, tangens as tg
bodies = "".join(f'<body pos="0 0 {i}"><freejoint/><geom size="0.1"/></body>' for i in range(40))
scene = tg.load(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")
begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
sim = tg.Simulator(scene, sys.argv[1])
sim.jacobian(sim.step(scene.initial_state()))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begin)
"""
    grown = subprocess.run([sys.executable, "-c", child, contact], capture_output=True, text=True, check=True).stdout
    assert int(grown) < 300_000, grown  # kilobytes; code that is loaded counts as well
