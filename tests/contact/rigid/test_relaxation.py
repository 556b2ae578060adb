"""Overlaps that nothing can undo have an answer of their own: defined, unique, continuous, and differentiable."""

from __future__ import annotations

import numpy as np
import pytest

import tangens as tg
from tangens.testing import check_gradients

HUNDREDTH = 0.02  # a relaxed step undoes all but a hundredth of what it can, to a factor of two in a body's response
TIGHT = {"ncp": tg.Ncp(tolerance=1e-13), "lcp": tg.Lcp(tolerance=1e-13)}
# The hand overlaps the upper arm by 3 cm in its own pose; neither hinge can pull it out.
ARM = """<mujoco><worldbody><body><joint axis="0 1 0"/>
  <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.05" mass="1"/><body pos="0.3 0 0"><joint axis="0 0 1"/>
  <geom type="capsule" fromto="0 0 0 0.1 0 0" size="0.05" mass="1"/><body pos="0.1 0 0"><joint axis="0 1 0"/>
  <geom type="box" pos="0 0 0.02" size="0.08 0.06 0.06" mass="1"/></body></body></body></worldbody></mujoco>"""


def _vice(left: float, right: float) -> tg.Scene:
    """A ball of 0.1 m between two walls that overlap it by so much."""
    return tg.load(f"""<mujoco><option gravity="0 0 0"/><worldbody>
      <geom type="box" size="1 1 1" pos="{-1.1 + left} 0 0"/><geom type="box" size="1 1 1" pos="{1.1 - right} 0 0"/>
      <body><freejoint/><geom size="0.1" mass="1"/></body></worldbody></mujoco>""")


@pytest.mark.parametrize("model", ["ncp", "lcp"])
class TestRelief:
    def test_a_ball_in_a_vice_is_centred_and_the_report_says_so(self, model: str) -> None:
        scene = _vice(0.001, 0.0015)
        out = tg.Simulator(scene, model).step(scene.initial_state())
        assert out.solver.converged
        assert out.solver.relaxed == pytest.approx(0.0015 / scene.timestep)
        assert out.state.v[0] == pytest.approx(-0.00025 / scene.timestep, rel=HUNDREDTH)
        assert "relieved" in out.solver.status

    def test_nothing_gives_way_to_what_only_touches(self, model: str) -> None:
        scene = _vice(0.001, 0.0)
        out = tg.Simulator(scene, model).step(scene.initial_state())
        np.testing.assert_allclose(out.state.v, 0.0, atol=1e-8)

    def test_the_answer_does_not_jump_where_the_vice_opens(self, model: str) -> None:
        ends = []
        for right in (1e-9, -1e-9):
            scene = _vice(0.001, -0.001 + right)
            ends.append(tg.Simulator(scene, model).step(scene.initial_state()).state.v)
        np.testing.assert_allclose(ends[0], ends[1], atol=1e-5)

    def test_derivatives_of_a_robot_that_overlaps_itself(self, model: str) -> None:
        sim = tg.Simulator(tg.load(ARM), TIGHT[model])
        state = tg.State([0.1, 0.2, 0.05], [0.3, -0.2, 0.5])
        assert sim.step(state).solver.relaxed > 0
        report = check_gradients(sim, state, wrt=("q", "v", "tau"), tolerance=1e-6)
        assert report.ok, report

    def test_a_derivative_that_is_not_known_is_refused(self, model: str) -> None:
        scene = _vice(0.001, 0.0015)
        with pytest.raises(tg.NotDifferentiable, match="placement"):
            tg.Simulator(scene, model).jacobian(scene.initial_state(), wrt=("placement",))

    def test_forward_and_reverse_mode_agree(self, model: str) -> None:
        sim = tg.Simulator(tg.load(ARM), TIGHT[model])
        traj = sim.rollout(tg.State([0.1, 0.2, 0.05], [0.3, -0.2, 0.5]), 1)
        J, dv = sim.jacobian(traj.steps[0], wrt=("q", "v", "tau", "mass")), np.array([0.3, -1.0, 2.0])
        back = sim.pullback(traj, dv=dv, wrt=("mass",))
        np.testing.assert_allclose(back.state.q, dv @ J["v", "q"], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(back.parameters["mass"], dv @ J["v", "mass"], rtol=1e-9, atol=1e-9)


def _wedge(depth: float) -> tg.Scene:
    """A ball of 0.1 m in a groove of 30 degrees along y, inside both walls by so much: friction 1 holds it there."""
    wall = '<geom type="box" size="1 1 0.1" pos="{} 0 {}" euler="0 {} 0" friction="1"/>'
    x, z = 1.0 * np.cos(np.radians(75)), 1.0 * np.sin(np.radians(75))
    nx, nz = 0.1 * np.sin(np.radians(75)), -0.1 * np.cos(np.radians(75))
    walls = "".join(wall.format(s * (x + nx), z + nz, -s * 75) for s in (1, -1))
    height = (0.1 - depth) / np.sin(np.radians(15))
    return tg.load(f"""<mujoco><option gravity="0 0 0"/><worldbody>{walls}<body pos="0 0 {height}"><freejoint/>
      <geom size="0.1" mass="1" friction="1"/></body></worldbody></mujoco>""")


@pytest.mark.parametrize("model", ["ncp", "lcp"])
class TestFrictionThatJams:
    """A ball that sits inside a narrow groove: pushing it out, friction would hold it back."""

    def test_it_leaves_and_the_report_says_so(self, model: str) -> None:
        scene = _wedge(1e-4)
        sim = tg.Simulator(scene, model)
        out = sim.step(scene.initial_state())
        assert out.solver.converged
        assert out.solver.relaxed == pytest.approx(0.05, rel=1e-6)
        # two walls push sideways, and each moves the ball by sin² 15° = 1/15 of what it would do to a free one
        assert out.state.v[2] * np.sin(np.radians(15)) == pytest.approx(0.05, rel=15 / 2 * 0.01)
        after = sim.step(sim.step(sim.step(out)))
        assert after.contacts.distance.min(initial=0.0) > -1e-8

    def test_whatever_the_guess(self, model: str) -> None:
        sim = tg.Simulator(_wedge(1e-4), model)
        start = tg.State(sim.scene.model.qpos0, [0, 0.3, 0, 0, 0, 0])
        cold = sim.step(start)
        warm = sim.step(start, guess=sim.step(sim.step(cold)))
        np.testing.assert_allclose(warm.state.v, cold.state.v, atol=1e-8)

    def test_derivatives(self, model: str) -> None:
        sim = tg.Simulator(_wedge(1e-4), TIGHT[model])
        state = tg.State(sim.scene.model.qpos0, [0.01, 0.2, 0.03, 0.3, 0.1, -0.2])
        assert sim.step(state).solver.relaxed > 0
        report = check_gradients(sim, state, wrt=("q", "v", "tau", "mass", "friction", "size"), tolerance=1e-5)
        assert report.ok, report

    @pytest.mark.parametrize("sideways", [-0.1, 0.05])
    def test_the_answer_does_not_jump_with_the_speed_at_which_it_comes_out(self, model: str, sideways: float) -> None:
        """Fast enough, the ball leaves by itself, and the laws have an answer again: that decides nothing."""
        sim = tg.Simulator(_wedge(1e-4), model)
        speeds = np.linspace(0, 0.5, 101)
        starts = [tg.State(sim.scene.model.qpos0, [sideways, 0.2, speed, 0, 0, 0]) for speed in speeds]
        ends = np.array([sim.step(start).state.v for start in starts])
        assert np.abs(np.diff(ends, axis=0)).max() <= 10 * (speeds[1] - speeds[0])


def test_every_solver_finds_the_same_answer() -> None:
    start = tg.State(_wedge(1e-4).model.qpos0, [-0.1, 0.2, 0.23, 0, 0, 0])
    ends = [tg.Simulator(_wedge(1e-4), tg.Ncp(solver=name)).step(start).state.v for name in ("newton", "admm")]
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-8)


def _corner(friction: float, free: bool = True) -> tg.Scene:
    """A ball of 0.1 m that slides without turning, inside a floor and a wall by 0.1 mm."""
    turning = "" if free else '<geom type="box" size="1 1 1" pos="1.0999 0 0"/>'
    return tg.load(f"""<mujoco><option gravity="0 0 0"/><worldbody><geom type="box" size="1 1 1" pos="-1.0999 0 0"/>
      <geom type="box" size="1 1 1" pos="0 0 -1.0999"/>{turning}<body><joint type="slide" axis="1 0 0"/>
      <joint type="slide" axis="0 1 0"/><joint type="slide" axis="0 0 1"/><geom size="0.1" mass="1"/></body></worldbody>
      </mujoco>""").replace(friction=friction)


class TestWhatTheLawsCanUndo:
    """By the geometry of the contacts and their friction alone, whatever moves and whoever solves."""

    @pytest.mark.parametrize("speed", [0.0, 0.3, 3.0])
    @pytest.mark.parametrize(("friction", "jams"), [(0.5, False), (0.99, False), (1.01, True), (2.0, True)])
    def test_a_corner_jams_where_friction_exceeds_one(self, friction: float, jams: bool, speed: float) -> None:
        out = tg.Simulator(_corner(friction), "ncp").step(tg.State([0, 0, 0], [0, speed, 0]))
        assert out.solver.converged
        assert (out.solver.relaxed > 0) == jams
        np.testing.assert_allclose(out.state.v[[0, 2]], 0.05, rtol=HUNDREDTH if jams else 1e-9)  # undone in any case

    def test_a_vice_jams_without_friction(self) -> None:
        out = tg.Simulator(_corner(0.0, free=False), "ncp").step(tg.State(np.zeros(3), np.zeros(3)))
        assert out.solver.relaxed > 0
        assert out.state.v[2] == pytest.approx(0.05, rel=HUNDREDTH)  # the floor is left all the same

    @pytest.mark.parametrize("ratio", [1.0, 1e4, 1e-4])
    def test_stacks_do_not(self, ratio: float) -> None:
        """However high or heavy: 20 boxes that overlap by 0.1 mm each, and 5 of masses over four decades."""
        masses = np.geomspace(1, ratio, 20 if ratio == 1.0 else 5)
        bodies = "".join(
            f'<body pos="0 0 {0.0499 + 0.0999 * i}"><freejoint/><geom type="box" size="0.05 0.05 0.05" mass="{mass}"/>'
            f"</body>"
            for i, mass in enumerate(masses)
        )
        scene = tg.load(f'<mujoco><worldbody><geom type="plane" size="5 5 1"/>{bodies}</worldbody></mujoco>')
        out = tg.Simulator(scene, "ncp").step(scene.initial_state())
        assert out.solver.converged
        assert out.solver.relaxed == 0.0
        np.testing.assert_allclose(out.state.v[2::6], 0.05 * np.arange(1, len(masses) + 1), rtol=1e-6)


def test_a_robot_that_overlaps_itself_is_not_flung_apart() -> None:
    """In its own pose the hand of this arm is inside of the upper arm: nothing moves that did not before."""
    out = tg.Simulator(tg.load(ARM), "ncp").step(tg.State(np.zeros(3), np.zeros(3)))
    free = tg.Simulator(tg.load(ARM)).step(tg.State(np.zeros(3), np.zeros(3)))
    assert out.solver.relaxed > 0
    assert np.abs(out.state.v).max() <= np.abs(free.state.v).max() + 1e-9


@pytest.mark.parametrize("model", ["ncp", "lcp"])
def test_an_overlap_that_can_be_undone_is_whatever_the_guess(model: str) -> None:
    """Three boxes that overlap by 0.1 mm part at 0.05 m/s each: once, twice, and from any guess."""
    boxes = "".join(
        f'<body pos="0 0 {0.0499 + 0.0999 * i}"><freejoint/><geom type="box" size="0.05 0.05 0.05" mass="1"/></body>'
        for i in range(3)
    )
    scene = tg.load(f'<mujoco><worldbody><geom type="plane" size="5 5 1"/>{boxes}</worldbody></mujoco>')
    sim, start = tg.Simulator(scene, model), scene.initial_state()
    cold = sim.step(start)
    assert cold.solver.relaxed == 0.0
    np.testing.assert_allclose(cold.state.v[2::6], [0.05, 0.1, 0.15], atol=1e-9)
    warm = sim.step(start, guess=sim.step(sim.step(sim.step(cold))))
    np.testing.assert_allclose(warm.state.v, cold.state.v, atol=1e-9)
