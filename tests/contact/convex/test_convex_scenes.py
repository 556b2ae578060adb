"""`convex` on scenes with known answers: slopes, rolling, a robot that stands, a gripper that holds a shell."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tangens as tg
from tangens import robots
from tangens.lab.creatures import body_of

pytestmark = pytest.mark.xdist_group("convex")

SLOPE = """<mujoco><option timestep="0.005"/><worldbody>
<geom type="plane" size="5 5 .1" euler="0 {angle} 0" friction="0.5"/>
<body euler="0 {angle} 0" pos="{x} 0 {z}"><freejoint/>
  <geom type="box" size=".05 .05 .05" mass="1" friction="0.5"/></body></worldbody></mujoco>"""
ROLLING = """<mujoco><option timestep="0.005"/><worldbody><geom type="plane" size="5 5 .1" euler="0 5 0" friction="1"/>
<body pos="{x} 0 {z}" euler="{turn}"><freejoint/><geom type="{kind}" size="{size}" mass="1" friction="1"/></body>
</worldbody></mujoco>"""
BALL = """<mujoco><option timestep="0.002"/><worldbody><geom type="plane" size="5 5 .1" friction="0.3"/>
<body pos="0 0 .05"><freejoint/><geom type="sphere" size=".05" mass="1" friction="0.3"/></body></worldbody></mujoco>"""
GRIPPER = """<mujoco><option timestep="0.004"/><worldbody><geom name="floor" type="plane" size="1 1 .1"/>
<body pos="0 0 0.06"><joint name="lift" type="slide" axis="0 0 1" damping="20"/>
  <geom type="box" size=".1 .01 .01" pos="0 0 .12" mass="1" contype="0" conaffinity="0"/>
  <body pos="-.08 0 0"><joint name="left" type="slide" axis="1 0 0" damping="5"/>
    <geom type="box" size=".01 .02 .03" mass=".2" friction="0.8"/></body>
  <body pos=".08 0 0"><joint name="right" type="slide" axis="-1 0 0" damping="5"/>
    <geom type="box" size=".01 .02 .03" mass=".2" friction="0.8"/></body></body>
<body pos="0 0 {z}"><freejoint/><inertial pos="0 0 0" mass="{mass}" diaginertia="{inertia}"/>
  <geom name="mug" type="sphere" size=".04" friction=".8"/></body></worldbody>
<actuator><position joint="lift" kp="400"/><motor joint="left"/><motor joint="right"/></actuator></mujoco>"""


class TestSlope:
    @pytest.mark.parametrize("angle", [20, 35], ids=["sticks", "slides"])
    def test_a_box(self, angle: int) -> None:
        """μ = 0.5 holds up to 26.6°; beyond, what weight and friction leave accelerates it."""
        a = np.radians(angle)
        scene = tg.load(SLOPE.format(angle=angle, x=0.05 * np.sin(a), z=0.05 * np.cos(a)))
        speed = np.linalg.norm(tg.Simulator(scene, "convex").rollout(scene.initial_state(), 100).v[-1, :3])
        if angle == 20:
            assert speed < 1e-6
        else:
            # The first steps glide up to the height of a sliding body, and push less: 0.4 % of the way.
            assert speed == pytest.approx(0.5 * 9.81 * (np.sin(a) - 0.5 * np.cos(a)), rel=0.01)


def test_a_sliding_ball_ends_rolling_with_five_sevenths_of_its_speed() -> None:
    scene = tg.load(BALL)
    start = scene.initial_state().replace(v=[1.0, 0, 0, 0, 0, 0])
    v = tg.Simulator(scene, "convex").rollout(start, 400).v[-1]
    assert v[0] == pytest.approx(5 / 7, rel=2e-3)
    assert v[0] - 0.05 * v[4] == pytest.approx(0.0, abs=1e-4)


class TestRolling:
    """From rest, without slipping: g sin(angle) / (1 + I / m r²)."""

    @pytest.mark.parametrize(
        ("kind", "size", "inertia"),
        [("cylinder", ".05 .05", 1 / 2), ("ellipsoid", ".05 .03 .05", 2 / 5)],
        ids=["cylinder", "ellipsoid"],
    )
    def test_down_a_slope_of_5_degrees(self, kind: str, size: str, inertia: float) -> None:
        a = np.radians(5)
        turn = "90 0 0" if kind == "cylinder" else "0 0 0"
        scene = tg.load(ROLLING.format(kind=kind, size=size, turn=turn, x=0.05 * np.sin(a), z=0.05 * np.cos(a)))
        trajectory = tg.Simulator(scene, "convex").rollout(scene.initial_state(), 160)
        speed = np.linalg.norm(trajectory.v[:, :3], axis=1)
        assert speed[-1] == pytest.approx(0.8 * 9.81 * np.sin(a) / (1 + inertia), rel=0.01)
        assert np.abs(trajectory.v[-1, [1, 3, 5] if kind == "ellipsoid" else [1, 3, 4]]).max() < 1e-3  # straight on

    def test_a_cylinder_stands_on_its_cap(self) -> None:
        scene = tg.load(
            ROLLING.format(kind="cylinder", size=".05 .05", turn="0 2 0", x=0, z=0.052).replace("0 5 0", "0 0 0")
        )
        trajectory = tg.Simulator(scene, "convex").rollout(scene.initial_state(), 200)
        assert np.abs(trajectory.v[-1]).max() < 1e-4
        assert trajectory.q[-1, 2] == pytest.approx(0.05, abs=5e-4)
        assert trajectory.q[-1, 3] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.slow
def test_go1_stands() -> None:
    scene = robots.get("go1", ground=0.0, motors=True)
    sim, state = tg.Simulator(scene, "convex"), scene.initial_state("standing")
    pose, weight = state.q[7:].copy(), 9.81 * scene.model.body_mass.sum()
    for _ in range(400):
        tau = np.concatenate([np.zeros(6), 200 * (pose - state.q[7:]) - 5 * state.v[6:]])
        out = sim.step(state, tau=tau)
        state = out.state
    assert np.abs(state.v).max() < 0.05
    assert state.q[2] > 0.9 * scene.initial_state("standing").q[2]
    assert out.contacts.force[:, 2].sum() == pytest.approx(weight, rel=0.02)
    assert out.contacts.distance.min() > -1e-3


@pytest.mark.slow
def test_a_gripper_lifts_a_mug_made_of_a_shell() -> None:
    """A cylinder without a smaller one: open above, walls of 6 mm."""
    with jax.enable_x64(True):
        inner = tg.geometry.CylinderField(jnp.asarray(0.034), jnp.asarray(0.05))
        outer = tg.geometry.CylinderField(jnp.asarray(0.04), jnp.asarray(0.05))
        hollow = tg.geometry.Moved(inner, jnp.array([0.0, 0.0, 0.008]), jnp.eye(3))
    mug = body_of(
        tg.geometry.Difference(outer, hollow), np.array([[-0.04, -0.04, -0.05], [0.04, 0.04, 0.05]]), 1e-4, 300
    )
    height = 1e-4 - mug.surface.vertices[:, 2].min()
    inertia = " ".join(f"{1000 * x:.9g}" for x in np.diag(mug.inertia))
    scene = tg.load(GRIPPER.format(z=height, mass=1000 * mug.volume, inertia=inertia)).with_shapes({"mug": mug.solid})  # type: ignore[dict-item]
    controls = np.full((300, 3), 10.0)  # newtons on each finger
    controls[:, 0] = 1.8 * 9.81 / 400 + np.clip(1e-3 * np.arange(-60, 240), 0.0, 0.14)
    trajectory = tg.Simulator(scene, "convex").rollout(scene.initial_state(), controls)
    assert all(report.converged for report in trajectory.solver)
    assert trajectory.q[-1, 5] > height + 0.12
    last = trajectory.contacts[-1]
    assert last.distance[np.asarray(last.activity) > 0.1].min() > -1e-3
    assert np.abs(trajectory.v[-1]).max() < 0.1
