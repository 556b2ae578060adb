"""Restitution in the same problem as contact and friction: bodies leave at e times the speed of their approach."""

from __future__ import annotations

import numpy as np
import pytest

import tangens as tg
from tangens.errors import NotDifferentiable

pytestmark = pytest.mark.xdist_group("interior")  # compiled functions are shared within a process

TEXT = """
<mujoco>
  <option timestep="0.002" integrator="Euler"/>
  <default><geom friction="0.4"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="9 9 1"/>
    <body name="ball" pos="0 0 0.3"><freejoint/><geom name="ball" size="0.05" mass="0.3"/></body>
    <body name="box" pos="1 0 0.2"><freejoint/><geom name="box" type="box" size="0.05 0.04 0.06" mass="0.3"/></body>
  </worldbody>
</mujoco>
"""
RADIUS, DROP = 0.05, 0.25


def simulator(restitution: float, relaxation: float = 1e-6, tolerance: float = 1e-4) -> tg.Simulator:
    scene = tg.load(TEXT).replace(restitution={"ball": restitution, "box": restitution})
    return tg.Simulator(scene, contact=tg.SingleLevel(relaxation=relaxation, tolerance=tolerance))


@pytest.mark.parametrize("restitution", [0.5, 0.8, 1.0])
def test_a_ball_rises_to_the_square_of_its_restitution(restitution: float) -> None:
    sim = simulator(restitution)
    traj = sim.rollout(sim.scene.initial_state(), 240)
    assert all(report.converged for report in traj.solver)
    speed, height = traj.v[:, 2], traj.q[:, 2] - RADIUS
    bounce = int(np.argmax(speed > 0)) - 1
    assert speed[bounce + 1] == pytest.approx(-restitution * speed[bounce], rel=1e-5)
    # Where within its step the floor is met is not resolved: that is worth a step's way, up and down.
    assert height[bounce:].max() == pytest.approx(restitution**2 * DROP, abs=abs(speed[bounce]) * sim.scene.timestep)
    assert height.min() > 0


def test_what_bounces_comes_to_rest_and_is_carried() -> None:
    sim = simulator(0.4)
    traj = sim.rollout(sim.scene.initial_state(), 700)
    last = traj.contacts[-1]
    np.testing.assert_allclose(traj.v[-1][[2, 8]], 0, atol=1e-6)  # nothing keeps a ball from rolling
    np.testing.assert_allclose(last.force[:, 2], 9.81 * 0.3, rtol=1e-3)


def test_friction_takes_part_in_a_bounce() -> None:
    """Of what a ball loses sideways, friction takes μ times what the bounce gives upwards."""
    sim = simulator(0.5)
    q = sim.scene.initial_state().q.copy()
    q[2] = RADIUS + 1e-4
    v = np.zeros(12)
    v[:3] = 3.0, 0.0, -1.0
    after = sim.step(tg.State(q, v)).state.v
    assert after[2] == pytest.approx(0.5, rel=1e-5)
    kick = after[2] - v[2] + 9.81 * sim.scene.timestep
    assert v[0] - after[0] == pytest.approx(0.4 * kick, rel=1e-4)


@pytest.mark.slow
def test_two_balls_that_collide_exchange_their_velocities() -> None:
    ball = '<body pos="{0} 0 1"><freejoint/><geom name="{1}" size="0.1" mass="1" condim="1"/></body>'
    balls = ball.format(0.0, "a") + ball.format(0.205, "b")
    scene = tg.load(f"<mujoco><option gravity='0 0 0' timestep='0.01'/><worldbody>{balls}</worldbody></mujoco>")
    sim = tg.Simulator(scene.replace(restitution=1.0), contact="single-level")
    v = np.zeros(12)
    v[0], v[6] = 1.0, -0.5
    after = sim.step(scene.initial_state().replace(v=v)).state.v
    np.testing.assert_allclose(after[[0, 6]], [-0.5, 1.0], atol=1e-4)


def test_derivatives_of_a_bounce() -> None:
    """By q, v and restitution, of a ball that lands spinning and a box that lands on a corner, against differences."""
    sim, precise = simulator(0.6, 1e-4), simulator(0.6, 1e-4, 1e-9)
    q, rng = sim.scene.initial_state().q.copy(), np.random.default_rng(0)
    q[2], q[9] = RADIUS + 1e-3, 0.0865  # its lowest corner is 1 mm above the floor
    q[10:] = np.array([0.9, 0.3, 0.25, 0.1]) / np.linalg.norm([0.9, 0.3, 0.25, 0.1])
    state = tg.State(q, np.array([1.0, 0.2, -1.5, 2, 1, 3, 0.3, 0.1, -2.0, 1, -2, 1]) + 0.1 * rng.normal(size=12))
    out = sim.step(state)
    assert out.solver.converged
    assert out.state.v[2] > 0.5
    assert out.state.v[8] > state.v[8] + 1
    J = sim.jacobian(out, wrt=("q", "v", "restitution"))
    assert np.abs(J["v", "restitution"]).max() > 1

    def after(dq: np.ndarray, dv: np.ndarray) -> np.ndarray:
        return precise.step(tg.State(sim.scene.integrate(state.q, dq), state.v + dv)).state.v

    none, d = np.zeros(12), 1e-7
    for name in ("q", "v"):
        moves = [(d * e, none) if name == "q" else (none, d * e) for e in np.eye(12)]
        found = np.stack([(after(*move) - after(*(-m for m in move))) / (2 * d) for move in moves], axis=1)
        assert np.abs(J["v", name] - found).max() < 1e-5 * np.abs(found).max()
    for g, name in ((1, "ball"), (2, "box")):
        ends = [
            tg.Simulator(precise.scene.replace(restitution={name: 0.6 + s}), precise.contact).step(state).state.v
            for s in (d, -d)
        ]
        found = (ends[0] - ends[1]) / (2 * d)
        assert np.abs(J["v", "restitution"][:, g] - found).max() < 1e-5 * np.abs(found).max()


def test_without_a_bounce_there_is_no_derivative_by_restitution() -> None:
    sim = tg.Simulator(tg.scenes.cube(), contact="single-level")
    with pytest.raises(NotDifferentiable, match="restitution where it is zero"):
        sim.jacobian(sim.initial_state("resting"), wrt=("restitution",))
    assert "restitution" not in sim.pullback(sim.rollout(sim.initial_state("resting"), 1), dv=np.ones(6)).parameters
