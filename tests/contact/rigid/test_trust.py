"""Derivatives where contacts are redundant, frictionless or about to switch; and what a Jacobian says of itself."""

from __future__ import annotations

import numpy as np
import pytest

import tangens as tg
from tangens import robots
from tangens.testing import check_gradients

TIGHT = {"ncp": tg.Ncp(tolerance=1e-13), "lcp": tg.Lcp(tolerance=1e-13)}


def _on_floor(body: str, friction: float = 1.0, extra: str = "") -> tg.Scene:
    return tg.load(f"""<mujoco><default><geom friction="{friction}"/></default><worldbody>
      <geom name="floor" type="plane" size="5 5 1"/>{body}</worldbody>{extra}</mujoco>""")


BOX = '<body pos="0 0 0.05"><freejoint/><geom name="box" type="box" size="0.05 0.05 0.05" mass="1"/></body>'
PUSHER = '<body pos="-0.07 0 0.05"><joint type="slide" axis="1 0 0"/><geom size="0.02" mass="0.5"/></body>'
FLAT = '<body pos="0 0 0.01"><freejoint/><geom type="box" size="0.1 0.1 0.01" mass="1"/></body>'


class TestRedundantContacts:
    @pytest.mark.parametrize("model", TIGHT)
    def test_a_box_without_friction_that_is_pushed(self, model: str) -> None:
        scene = _on_floor(BOX + PUSHER, friction=0.0)
        sim, tau = tg.Simulator(scene, TIGHT[model]), np.eye(7)[6]
        J = sim.jacobian(scene.initial_state(), tau=tau, wrt=("v",))
        assert np.abs(J["v", "v"]).max() <= 1 + 1e-9
        assert check_gradients(sim, scene.initial_state(), tau=tau, wrt=("v",)).ok

    def test_friction_gives_way_where_a_body_has_one_way_to_move(self) -> None:
        scene = _on_floor('<body pos="0 0 0.1"><joint type="slide" axis="0.3 0 1"/><geom size="0.1" mass="1"/></body>')
        J = tg.Simulator(scene, TIGHT["ncp"]).jacobian(scene.initial_state(), wrt=("q",))
        assert J["v", "q"][0, 0] * scene.timestep == pytest.approx(-1, abs=1e-6)

    @pytest.mark.parametrize("spin", [0.0, 1e-8, 1e-6, 1e-4])
    def test_a_flat_box_that_slides_almost_straight(self, spin: float) -> None:
        scene = _on_floor(FLAT, friction=0.3)
        J = tg.Simulator(scene, TIGHT["ncp"]).jacobian(tg.State(scene.model.qpos0, [1, 0, 0, 0, 0, spin]), wrt=("v",))
        assert J["v", "v"][0, 2] == pytest.approx(0.3, abs=1e-6)

    def test_a_cube_that_slides_to_rest(self) -> None:
        """Every tenth step of the slide, pressed down along a random direction."""
        scene = _on_floor(BOX, friction=0.3).replace(timestep=0.001)
        sim, rng = tg.Simulator(scene, TIGHT["ncp"]), np.random.default_rng(0)
        out = sim.step(tg.State(scene.model.qpos0, [1, 0, 0, 0, 0, 0]))
        for t in range(400):
            before, out = out, sim.step(out)
            if t % 10:
                continue
            J, d = sim.jacobian(out, wrt=("v",)), rng.normal(size=6)
            d[2] = -abs(d[2])
            ends = [sim.step(before.state.replace(v=before.state.v + e * d)).state.v for e in (1e-7, -1e-7)]
            slopes = [(ends[0] - out.state.v) / 1e-7, (out.state.v - ends[1]) / 1e-7]
            miss = min(np.abs(J["v", "v"] @ d - slope).max() for slope in slopes)
            assert miss < 1e-4 or not J.unique or J.switch.distance < 1e-5, (t, miss, J.switch)

    @pytest.mark.parametrize("model", TIGHT)
    def test_nothing_slides_that_does_not_move(self, model: str) -> None:
        scene = _on_floor(BOX, friction=0.5)
        sim = tg.Simulator(scene, model)
        traj = sim.rollout(tg.State(scene.model.qpos0, [0.3, 0.1, 0, 0, 0, 0]), 300)
        assert set(traj.contacts[-1].mode) == {"sticking"}


class TestParameters:
    def test_condim_one_has_no_derivative_by_friction(self) -> None:
        scene = tg.load("""<mujoco><worldbody><geom type="plane" size="5 5 1" condim="1" friction="0"/>
          <body pos="0 0 0.1"><freejoint/><geom size="0.1" mass="1" condim="1" friction="0"/></body>
          </worldbody></mujoco>""")
        J = tg.Simulator(scene, "ncp").jacobian(tg.State(scene.model.qpos0, [1, 0, -0.1, 0, 0, 0]), wrt=("friction",))
        np.testing.assert_array_equal(J["v", "friction"], 0.0)

    def test_a_centre_of_mass_half_a_micrometre_off_counts(self) -> None:
        scene = tg.load("""<mujoco><worldbody><body><inertial pos="5e-7 0 0" mass="1" diaginertia="0.01 0.01 0.01"/>
          <joint axis="0 1 0"/><geom size="0.1"/></body></worldbody></mujoco>""")
        v = tg.Simulator(scene).step(scene.initial_state()).state.v[0]
        assert v == pytest.approx(5e-7 * 9.81 / 0.01 * scene.timestep, rel=1e-6)

    def test_forces_of_a_scene_without_actuators(self) -> None:
        scene = _on_floor(BOX)
        J = tg.Simulator(scene, "ncp").jacobian(scene.initial_state(), outputs=("q", "v", "force"))
        assert J["force", "u"].shape == (4, 3, 0)
        assert J["force", "v"].shape == (4, 3, 6)


def test_a_step_that_is_not_solved_says_so_in_its_derivatives() -> None:
    scene = tg.scenes.get("stack")
    v = 0.3 * np.random.default_rng(0).normal(size=scene.nv)
    sim = tg.Simulator(scene, tg.Ncp(max_iterations=1))
    traj = sim.rollout(tg.State(scene.model.qpos0, v), 1)
    assert not sim.jacobian(traj.steps[0]).converged
    assert not sim.pullback(traj, dv=np.ones(scene.nv)).converged


class TestOtherAnswers:
    def test_feet_that_stick_or_slide(self) -> None:
        """Three answers obey the laws here: cold steps from neighbouring states take one or the other."""
        scene = robots.get("dm_walker")
        v = [-0.18996, -0.11327, -0.32729, -0.38328, 0.18905, 0.17434, 0.38845, -0.22639, 0.50665]
        sim, state = tg.Simulator(scene, TIGHT["ncp"]), scene.initial_state().replace(v=v)
        out = sim.step(state)
        other = sim.step(state.replace(q=state.q + 1e-9 * np.eye(9)[6]))
        assert np.abs(out.state.v - other.state.v).max() > 0.1
        assert sim.jacobian(out).determinate
        assert not sim.jacobian(out).unique
        assert not sim.pullback(sim.rollout(state, 1), dv=np.ones(9), wrt=()).unique

    def test_a_ball_on_the_floor_has_one(self) -> None:
        scene = _on_floor('<body pos="0 0 0.1"><freejoint/><geom size="0.1" mass="1"/></body>')
        for speed in (0.0, 1.0):
            assert tg.Simulator(scene, "ncp").jacobian(tg.State(scene.model.qpos0, [speed, 0, 0, 0, 0, 0])).unique

    def test_a_contact_along_whose_normal_nothing_moves_bears_no_load(self) -> None:
        """Two links side by side that overlap along the axes of their joints, as in many URDF files."""
        scene = tg.load("""<mujoco><worldbody><geom type="box" size="0.05 0.02 0.1" pos="0 0.03 0"/>
          <body><joint axis="0 1 0"/><geom type="box" size="0.05 0.02 0.1" pos="0 0 -0.05" mass="1"/></body>
          </worldbody></mujoco>""")
        state = tg.State([0.3], [0.5])
        out = tg.Simulator(scene, "ncp").step(state)
        assert out.solver.relaxed > 0
        assert set(out.contacts.mode) == {"breaking"}
        J, free = (tg.Simulator(scene, contact).jacobian(state) for contact in ("ncp", None))
        np.testing.assert_allclose(J["v", "v"], free["v", "v"], rtol=1e-9)

    @pytest.mark.parametrize("model", TIGHT)
    def test_nor_does_it_later_whatever_else_happens_in_the_scene(self, model: str) -> None:
        """A finger that slides in the plane of the floor and overlaps it, while a box tumbles half a metre away."""
        finger = """<body pos="-0.5 0 0.01"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/>
          <geom size="0.015" mass="0.1"/></body>"""
        scene, tau = _on_floor(BOX + finger), np.zeros((200, 8))
        tau[:, 6] = 0.01
        traj = tg.Simulator(scene, TIGHT[model]).rollout(
            tg.State(scene.model.qpos0, [0.3, 0.1, -0.2, 1, 2, 3, 0, 0]), 200, tau=tau
        )
        assert traj.v[-1, 6] == pytest.approx(0.01 / 0.1 * 200 * scene.timestep, rel=1e-9)


def _differences(sim: tg.Simulator, state: tg.State, name: str) -> np.ndarray:
    """∂v⁺/∂v or ∂v⁺/∂q of joints that move along lines, by central differences of the step."""
    ends = [
        [sim.step(state.replace(**{name: getattr(state, name) + side * e})).state.v for e in np.eye(sim.scene.nv)]
        for side in (1e-6, -1e-6)
    ]
    return (np.transpose(ends[0]) - np.transpose(ends[1])) / 2e-6


class TestWhatAStepDependsOn:
    """J follows state and parameters; a step must not listen to anything else."""

    @pytest.mark.parametrize("model", TIGHT)
    def test_contacts_of_a_mesh_do_not_move_with_how_far_they_are_looked_for(self, model: str) -> None:
        """MuJoCo puts a capsule's points on a mesh by its margins, which follow from velocities."""
        corners = " ".join(f"{x} {y} {z}" for x in (-0.1, 0.1) for y in (-0.1, 0.1) for z in (-0.1, 0.1))
        scene = tg.load(f"""<mujoco><asset><mesh name="m" vertex="{corners}"/></asset><worldbody>
          <geom type="mesh" mesh="m"/><body pos="0.02 0.03 0.147" euler="0 88 20"><freejoint/>
          <geom type="capsule" size="0.05 0.2" mass="1"/></body></worldbody></mujoco>""").replace(friction=0.0)
        sim, state = tg.Simulator(scene, TIGHT[model]), scene.initial_state().replace(v=[1, 0.5, -0.3, 0.3, -0.2, 2])
        J = sim.jacobian(state, wrt=("v",))
        assert len(J["v", "v"]) == 6
        np.testing.assert_allclose(J["v", "v"], _differences(sim, state, "v"), atol=1e-6)

    @pytest.mark.parametrize("model", TIGHT)
    def test_an_overlap_that_parts_by_itself_may_be_a_switch(self, model: str) -> None:
        """A ball in a slot that jams flies out of the floor. It counts as soon as something else is off by a hair."""
        scene = tg.load("""<mujoco><compiler angle="radian"/><worldbody><geom type="plane" size="5 5 1"/>
          <body pos="0 0 0.09"><joint type="slide" axis="1 0 0.3"/><geom size="0.1" mass="1"/></body>
          <body pos="0 2 2"><joint name="hip" axis="0 1 0"/>
            <geom type="capsule" size="0.05" fromto="0 0 0 0.5 0 0" mass="1"/></body></worldbody>
          <equality><joint joint1="hip"/></equality></mujoco>""")
        sim, state = tg.Simulator(scene, TIGHT[model]), tg.State([0, 0], [5, 0])
        J = sim.jacobian(state, wrt=("q",))
        assert np.abs(J["v", "q"] - _differences(sim, state, "q")).max() > 1.0
        assert (J.switch.distance, J.switch.kind) == (0.0, "overlaps")


class TestSwitch:
    @pytest.mark.parametrize("model", TIGHT)
    def test_a_sliding_box_is_as_far_from_sticking_as_it_is_fast(self, model: str) -> None:
        scene = _on_floor(BOX, friction=0.5)
        J = tg.Simulator(scene, model).jacobian(tg.State(scene.model.qpos0, [0.012, 0.0, 0, 0, 0, 0]))
        assert J.switch.kind == "friction"
        assert J.switch.distance < 0.003
        assert "box" in J.switch.where
        assert "floor" in J.switch.where

    def test_a_ball_that_just_flies_over_the_floor(self) -> None:
        scene = _on_floor('<body pos="0 0 0.1001"><freejoint/><geom name="ball" size="0.1" mass="1"/></body>')
        state = tg.State(scene.model.qpos0, [0, 0, 9.81 * 0.002 - 0.049, 0, 0, 0])
        J = tg.Simulator(scene, "ncp").jacobian(state)
        assert J.switch.kind == "contact"
        assert J.switch.distance == pytest.approx(0.001, abs=1e-9)

    def test_a_joint_near_its_limit_and_dry_friction(self) -> None:
        xml = """<mujoco><compiler angle="radian"/><option gravity="0 0 0"/><worldbody><body>
          <joint name="knee" axis="0 1 0" limited="true" range="-1 1" frictionloss="{}"/><geom size="0.1" mass="1"/>
          </body></worldbody></mujoco>"""
        sim = tg.Simulator(tg.load(xml.format(0)), "ncp")
        near = sim.jacobian(tg.State([1.0], [-1e-3])).switch
        assert (near.kind, "knee" in near.where) == ("limit", True)
        assert near.distance == pytest.approx(1e-3)
        sticks = tg.Simulator(tg.load(xml.format(0.1)), "ncp").jacobian(tg.State([0], [0]), tau=[0.09]).switch
        assert (sticks.kind, "knee" in sticks.where) == ("dry friction", True)
        assert sticks.distance == pytest.approx(0.01 * 0.002 / 0.004, rel=1e-6)

    def test_a_gradient_names_the_step(self) -> None:
        scene = _on_floor('<body pos="0 0 0.11"><freejoint/><geom size="0.1" mass="1"/></body>')
        sim = tg.Simulator(scene, "ncp")
        for checkpoint in (None, 10):
            traj = sim.rollout(scene.initial_state(), 40, checkpoint=checkpoint)
            near = sim.pullback(traj, dq=np.eye(6)[2], wrt=()).switch
            each = [sim.jacobian(step).switch.distance for step in sim.rollout(scene.initial_state(), 40).steps]
            assert near.step == int(np.argmin(each))
            assert near.distance == min(each)

    def test_a_cylinder_that_stands_flat(self) -> None:
        """Its contacts jump along the rim with the first tilt."""
        scene = _on_floor('<body pos="0 0 0.1"><freejoint/><geom name="can" type="cylinder" size="0.05 0.1"/></body>')
        sim = tg.Simulator(scene, "ncp")
        near = sim.jacobian(scene.initial_state()).switch
        assert (near.distance, near.kind, "can" in near.where) == (0.0, "contact", True)
        tilted = tg.State(scene.integrate(scene.model.qpos0, [0, 0, -0.003, 0.1, 0, 0]), np.zeros(6))
        assert sim.jacobian(tilted).switch.distance > 0.1

    def test_a_ball_on_a_height_field(self) -> None:
        """MuJoCo's contacts with it jump from prism to prism: nobody knows how far that is."""
        scene = tg.load("""<mujoco><asset><hfield name="hills" nrow="4" ncol="4" size="1 1 0.1 0.1"/></asset><worldbody>
          <geom type="hfield" hfield="hills"/><body pos="0.1 0.05 0.0999"><freejoint/><geom size="0.1" mass="1"/></body>
          </worldbody></mujoco>""")
        J = tg.Simulator(scene, "ncp").jacobian(scene.initial_state())
        assert J.switch.distance == 0.0
        assert J.switch.kind == "contact"

    def test_redundant_contacts_that_part_with_the_first_change(self) -> None:
        """Two straight legs whose knees are at their limits: bend one a little, and the other one bears it all."""
        sim = tg.Simulator(robots.get("walker2d"), TIGHT["ncp"])
        traj = sim.rollout(sim.initial_state(), 100)
        first = next(t for t, contacts in enumerate(traj.contacts) if contacts.force.any())
        state = traj.state(first)
        J = sim.jacobian(state.replace(v=state.v + 0.3 * np.random.default_rng(0).normal(size=9)))
        assert (J.switch.distance, J.switch.kind) == (0.0, "contact")
        box = tg.Simulator(_on_floor(BOX), TIGHT["ncp"])
        pressed = box.initial_state().replace(v=[0, 0, -0.1, 0, 0, 0])
        assert box.jacobian(pressed).switch.distance > 1e-3  # four corners of one box agree

    def test_models_without_switches_say_so(self) -> None:
        sim = tg.Simulator(tg.scenes.arm())
        assert sim.jacobian(sim.initial_state()).switch.distance == np.inf

    def test_a_healthy_box_at_rest_passes_its_check(self) -> None:
        scene = tg.scenes.cube()
        report = check_gradients(
            tg.Simulator(scene, TIGHT["ncp"]), scene.initial_state("resting"), wrt=("q", "v", "tau")
        )
        assert report.ok, report


_KNEE = """<mujoco><worldbody><body><joint axis="0 1 0" range="0 115" limited="true"/>
  <geom type="capsule" size="0.03" fromto="0 0 0 0 0 -0.3" mass="1"/></body></worldbody></mujoco>"""
_DRY = _KNEE.replace('range="0 115" limited="true"', 'frictionloss="0.5"')


@pytest.mark.parametrize("model", TIGHT)
@pytest.mark.parametrize(
    ("scene", "tau", "which"),
    [(_on_floor(BOX), "about to slide", 0), (tg.load(_KNEE), "at its limit", 0), (tg.load(_DRY), "about to turn", 0)],
    ids=["box", "knee", "dry friction"],
)
def test_the_other_side_of_a_switch_has_its_own_derivative(model: str, scene: tg.Scene, tau: str, which: int) -> None:
    """Differences to one side agree with J, those to the other with the rule "other-side"."""
    friction, mass = float(scene.parameters["friction"].max()), float(scene.parameters["mass"].sum())
    push = {"about to slide": friction * mass * 9.81, "at its limit": 0.0, "about to turn": 0.5}[tau]
    sim, force = tg.Simulator(scene, TIGHT[model]), push * (1 - 1e-9) * np.eye(scene.nv)[which]
    out = sim.step(scene.initial_state(), tau=force)
    J, other = (
        sim.jacobian(out, wrt=("tau",), gradient=rule)["v", "tau"][:, which] for rule in ("exact", "other-side")
    )
    found = []
    for side in (1e-2, -1e-2):
        moved = sim.step(scene.initial_state(), tau=force + side * np.eye(scene.nv)[which])
        found.append((moved.state.v - out.state.v) / side)
    near, far = (found[0], found[1]) if tau == "at its limit" else (found[1], found[0])
    scale = max(np.abs(near).max(), np.abs(far).max())
    np.testing.assert_allclose(J, near, atol=1e-4 * scale)
    np.testing.assert_allclose(other, far, atol=1e-4 * scale)
    assert np.abs(J - other).max() > 0.5 * scale
    back = sim.pullback(sim.rollout(scene.initial_state(), 1, tau=force[None]), dv=J + other, gradient="other-side")
    np.testing.assert_allclose(back.tau[0][which], (J + other) @ other, rtol=1e-6)


def test_a_mesh_that_lies_flat_is_on_a_switch() -> None:
    """Of its four corners MuJoCo finds three, others with the first tilt."""
    corners = " ".join(f"{x} {y} {z}" for x in (-0.1, 0.1) for y in (-0.1, 0.1) for z in (-0.1, 0.1))
    scene = tg.load(f"""<mujoco><asset><mesh name="m" vertex="{corners}"/></asset><worldbody>
      <geom type="plane" size="5 5 1"/><body pos="0 0 0.1"><freejoint/><geom name="box" type="mesh" mesh="m"/></body>
      </worldbody></mujoco>""")
    sim = tg.Simulator(scene, "ncp")
    near = sim.jacobian(scene.initial_state()).switch
    assert (near.distance, near.kind, "box" in near.where) == (0.0, "contact", True)
    tilted = tg.State(scene.integrate(scene.initial_state().q, [0, 0, 0.02, 0.2, 0.1, 0]), [0, 0, -1, 0, 0, 0])
    assert sim.jacobian(tilted).switch.distance > 0.01


@pytest.mark.parametrize("model", [tg.Ncp(), tg.Lcp(), tg.Lcp(bounce="resolved")])
def test_a_row_of_elastic_balls_that_touch_gains_no_energy(model: tg.ContactModel) -> None:
    ball = '<body pos="{} 0 0"><joint type="slide" axis="1 0 0"/><geom size="0.1" mass="1"/></body>'
    balls = "".join(ball.format(0.2 * i) for i in range(5))
    scene = tg.load(f'<mujoco><option gravity="0 0 0"/><worldbody>{balls}</worldbody></mujoco>').replace(
        restitution=1.0
    )
    traj = tg.Simulator(scene, model).rollout(tg.State([-0.0013, 0, 0, 0, 0], [1, 0, 0, 0, 0]), 40)
    assert (0.5 * (traj.v**2).sum(axis=1)).max() <= 0.5 + 1e-9


@pytest.mark.parametrize("model", TIGHT)
@pytest.mark.parametrize("gap", [0.0, 1e-16, 1e-13, 1e-9])
def test_a_ball_that_does_not_bounce_lands_on_the_floor_from_any_gap(model: str, gap: float) -> None:
    """Gaps of the size of rounding count as any other: ∂v⁺/∂q is −1/h on both sides of touching."""
    scene = _on_floor(f'<body pos="0 0 {0.1 + gap}"><freejoint/><geom size="0.1" mass="1"/></body>')
    J = tg.Simulator(scene, TIGHT[model]).jacobian(tg.State(scene.model.qpos0, [0, 0, -0.1, 0, 0, 0]), wrt=("q",))
    assert J["v", "q"][2, 2] * scene.timestep == pytest.approx(-1)


@pytest.mark.parametrize("gap", [0.0, 1e-16, 1e-13, 5e-11, 1e-10])
def test_an_impact_at_the_very_beginning_of_a_step_is_cut_there(gap: float) -> None:
    """Where it ends, and how that changes, is what it is for an impact a moment later."""
    scene = tg.load("""<mujoco><worldbody><geom type="plane" size="5 5 1"/><body pos="0 0 0.1">
      <joint type="slide" axis="0 0 1"/><geom size="0.1" mass="1"/></body></worldbody></mujoco>""")
    sim = tg.Simulator(scene.replace(restitution=0.8), tg.Lcp(bounce="resolved"))
    here, later = (sim.step(tg.State([x], [-1.0])) for x in (gap, 2e-10))
    assert here.state.v[0] == pytest.approx(later.state.v[0], abs=1e-6)
    ours, reference = (sim.jacobian(out, wrt=("q", "v", "tau", "size")) for out in (here, later))
    for key, block in reference.items():
        np.testing.assert_allclose(ours[key], block, rtol=1e-5, atol=1e-9, err_msg=str(key))
    assert ours["q", "q"][0, 0] < -0.7
    assert sim.jacobian(here).switch.distance >= 0.0


class TestParametersNobodyAskedFor:
    """Reverse mode by all parameters leaves out those by which a step has no derivative; by name, they are refused."""

    CLOSED_CHAIN = """<mujoco><worldbody><geom name="floor" type="plane" size="2 2 .1"/>
      <body name="rod" pos="0 0 .5"><joint type="hinge" axis="0 1 0"/>
        <geom name="rod" type="capsule" size=".02" fromto="0 0 0 .3 0 0" mass="1"/></body>
      <body name="slider" pos=".3 0 .5"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
        <geom name="slider" type="sphere" size=".05" mass="1"/></body></worldbody>
      <contact><exclude body1="rod" body2="slider"/></contact>
      <equality><connect body1="rod" body2="slider" anchor=".3 0 0"/></equality></mujoco>"""

    def test_a_closed_chain_is_differentiated_without_placement(self) -> None:
        scene = tg.load(self.CLOSED_CHAIN)
        sim = tg.Simulator(scene, "ncp")
        traj = sim.rollout(sim.initial_state(), 20)
        grads = sim.pullback(traj, dq=np.eye(scene.nv)[0])
        assert set(grads.parameters) == set(tg.Ncp.parameters) - {"placement"}
        with pytest.raises(tg.NotDifferentiable, match="connect"):
            sim.pullback(traj, dq=np.eye(scene.nv)[0], wrt=("placement",))
