"""`ncp`: contact obeys the laws it is named after, and its derivative is the derivative of that very step."""

from __future__ import annotations

import copy
from typing import Any

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangens as tg
from tangens import robots
from tangens.dynamics.parameter_forces import PARAMETERS
from tangens.testing import Sample, gradient_errors, parameter_errors

# Differences see the solver's own error divided by their step.
TIGHT = tg.Ncp(tolerance=1e-13)


def at_rest(scene: tg.Scene, state: tg.State) -> Sample:
    return Sample(state, np.zeros(scene.nu), np.zeros(scene.nv))


class TestPhysics:
    def test_a_box_at_rest_carries_its_weight_and_stays(self) -> None:
        scene = tg.scenes.cube()
        simulator = tg.Simulator(scene, contact="ncp")
        start = simulator.initial_state("resting")
        trajectory = simulator.rollout(start, 1000)
        np.testing.assert_allclose(trajectory.q[-1], start.q, atol=1e-9)
        weight = scene.parameters["mass"][1] * 9.81
        np.testing.assert_allclose(trajectory.contacts[-1].force.sum(axis=0), [0, 0, weight], atol=1e-6)
        assert set(trajectory.contacts[-1].mode) == {"sticking"}

    def test_contacts_of_a_step_outlive_the_next_ones(self) -> None:
        simulator = tg.Simulator(tg.scenes.cube(), contact="ncp")
        state = simulator.initial_state("resting")
        out = simulator.step(state)
        kept = copy.deepcopy(out.contacts)
        moved = simulator.scene.integrate(state.q, [0.3, 0.2, 1e-3, 0, 0, 0])
        simulator.step(state.replace(q=moved))
        for name in ("position", "normal", "distance", "force", "geom"):
            before, after = getattr(kept, name), getattr(out.contacts, name)
            np.testing.assert_array_equal(before, after)

    def test_a_pair_of_condim_one_has_no_friction(self) -> None:
        xml = """<mujoco><worldbody><geom type="plane" size="5 5 1" condim="1" friction="1"/>
          <body pos="0 0 0.1"><freejoint/><geom size="0.1" mass="1" condim="1" friction="1"/></body>
          </worldbody></mujoco>"""
        scene = tg.load(xml)
        simulator = tg.Simulator(scene, contact=TIGHT)
        for velocity in ([1.0, 0, -0.1, 0, 5, 0], [0.0, 0, -0.1, 0, 0, 0]):
            state = tg.State(scene.model.qpos0, velocity)
            out = simulator.step(state)
            assert out.contacts.mode == ("sliding",)
            np.testing.assert_allclose(out.state.v[[0, 1, 3, 4, 5]], np.array(velocity)[[0, 1, 3, 4, 5]], atol=1e-12)
            errors = gradient_errors(simulator, at_rest(scene, state), ("q", "v", "tau"), step=1e-6)
            assert max(errors[f"v/{name}"] for name in ("q", "v", "tau")) < 1e-6, errors

    def test_a_sphere_rolls_down_at_five_sevenths(self) -> None:
        angle = 0.3
        xml = f"""<mujoco><option timestep="0.001" gravity="{9.81 * np.sin(angle)} 0 {-9.81 * np.cos(angle)}"/>
          <worldbody><geom type="plane" size="5 5 1" friction="1"/><body pos="0 0 0.1"><freejoint/>
          <geom size="0.1" mass="1"/></body></worldbody></mujoco>"""
        simulator = tg.Simulator(tg.load(xml), contact="ncp")
        trajectory = simulator.rollout(simulator.initial_state(), 300)
        assert trajectory.v[-1, 0] == pytest.approx(5 / 7 * 9.81 * np.sin(angle) * 0.3, rel=1e-6)

    @pytest.mark.parametrize("restitution", [0.0, 0.5, 1.0])
    def test_colliding_spheres_keep_momentum_and_part_by_restitution(self, restitution: float) -> None:
        xml = """<mujoco><option gravity="0 0 0"/><worldbody>
          <body><freejoint/><geom size="0.1" mass="1"/></body>
          <body pos="0.19999 0 0"><freejoint/><geom size="0.1" mass="3"/></body></worldbody></mujoco>"""
        scene = tg.load(xml).replace(restitution=restitution, friction=0.5)
        state = tg.State(scene.model.qpos0, [1, 0.2, 0, 0, 0, 3, -0.5, 0, 0, 0, 0, 0])
        out = tg.Simulator(scene, contact=tg.Ncp(correction=0.0)).step(state)
        before, after = (v.reshape(2, 6)[:, :3] for v in (state.v, out.state.v))
        np.testing.assert_allclose([1, 3] @ after, [1, 3] @ before, atol=1e-12)
        assert after[1, 0] - after[0, 0] == pytest.approx(-restitution * (before[1, 0] - before[0, 0]), abs=1e-9)

    @settings(max_examples=40)
    @given(
        height=st.floats(-0.02, 0.03), turn=st.lists(st.floats(-3, 3), min_size=3, max_size=3),
        velocity=st.lists(st.floats(-3, 3), min_size=6, max_size=6), friction=st.floats(0.05, 1.5),
    )  # fmt: skip
    def test_signorini_coulomb_and_dissipation_hold(
        self, height: float, turn: list[float], velocity: list[float], friction: float
    ) -> None:
        scene = _cube().replace(friction=friction)
        q = scene.integrate(scene.initial_state("resting").q, [0, 0, height, *turn])
        out = tg.Simulator(scene, contact="ncp").step(tg.State(q, velocity))
        if not out.solver.converged:
            assert out.solver.residual < 1e-6
            return
        v = out.state.v
        R = np.zeros(9)
        mujoco.mju_quat2Mat(R, q[3:7])
        for normal, force, position, mode in zip(
            out.contacts.normal, out.contacts.force, out.contacts.position, out.contacts.mode, strict=True
        ):
            push = force @ normal
            pull = force - push * normal
            assert push >= -1e-9
            assert np.linalg.norm(pull) <= friction * push + 1e-6
            slip = v[:3] + np.cross(R.reshape(3, 3) @ v[3:], position - q[:3])
            slip -= (slip @ normal) * normal
            if mode == "sticking":
                assert np.linalg.norm(slip) < 1e-8
            elif mode == "sliding":
                assert np.linalg.norm(pull) == pytest.approx(friction * push, rel=1e-6, abs=1e-9)
                assert pull @ slip == pytest.approx(-np.linalg.norm(pull) * np.linalg.norm(slip), rel=1e-6, abs=1e-9)


REGIMES: dict[str, tuple[list[float], list[float]]] = {
    "flying": ([0, 0, 0.05, 0.3, 0.4, 0.5], [1, 2, 0, 1, 2, 3]),
    "corner sticks": ([0, 0, 0.0268, 0.3, 0.4, 0.5], [0, 0, -1, 0, 0, 0]),
    "corner slides": ([0, 0, 0.0268, 0.3, 0.4, 0.5], [3, 1, -0.3, 0.3, 0.2, 0.5]),
    "overlapping": ([0, 0, 0.0258, 0.3, 0.4, 0.5], [0.3, 0.1, -0.3, 0.3, 0.2, 0.5]),
}


def _cube(cache: list[tg.Scene] = []) -> tg.Scene:  # noqa: B006  (made once for all examples)
    if not cache:
        cache.append(tg.scenes.cube())
    return cache[0]


def _keeps_its_modes(simulator: tg.Simulator, sample: Sample, step: float) -> bool:
    """Whether no contact appears, vanishes or changes its mode within `step` of the sample."""
    scene, (state, u, tau) = simulator.scene, sample
    contacts = simulator.step(*sample).contacts
    for delta in step * np.concatenate([np.eye(scene.nv), -np.eye(scene.nv)]):
        for moved in (state.replace(q=scene.integrate(state.q, delta)), state.replace(v=state.v + delta)):
            near = simulator.step(moved, u, tau).contacts
            if near.mode != contacts.mode or not np.array_equal(near.geom, contacts.geom):
                return False
    return True


CAPSULE = 'type="capsule" size="0.1 0.3" zaxis="1 0.2 0.1"'
ACROSS = 'type="capsule" size="0.1 0.3" zaxis="0.1 1 -0.2"'
BOX = 'type="box" size="0.2 0.3 0.1"'
BALL = 'type="sphere" size="0.15"'
PAIRS: dict[str, tuple[str, str, list[float]]] = {
    "sphere on sphere": ('type="sphere" size="0.1"', BALL, [0.05, 0.02, 0.245]),
    "sphere on capsule": (CAPSULE, BALL, [0.1, 0.03, 0.26]),
    "capsule across capsule": (CAPSULE, ACROSS, [0, 0, 0.2]),
    "sphere on box face": (BOX, BALL, [0.05, 0.02, 0.249]),
    "sphere on box edge": (BOX, BALL, [0.28, 0.02, 0.22]),
    "sphere on box corner": (BOX, BALL, [0.26, 0.38, 0.19]),
    "sphere on cylinder side": (CAPSULE.replace("capsule", "cylinder"), BALL, [0.1, 0.03, 0.26]),
    "ellipsoid on box face": (BOX, 'type="ellipsoid" size="0.1 0.15 0.2" euler="20 30 0"', [0.05, 0.02, 0.279]),
    "ellipsoid on ellipsoid": (
        'type="ellipsoid" size="0.2 0.15 0.1"', 'type="ellipsoid" size="0.1 0.15 0.2" euler="20 30 0"',
        [0.02, 0.03, 0.276],
    ),
    "cylinder rim on box face": (BOX, 'type="cylinder" size="0.1 0.2" euler="30 20 0"', [0.0, 0.0, 0.325]),
    "box edge across box edge": (
        'type="box" size="0.3 0.1 0.1" euler="45 0 0"', 'type="box" size="0.1 0.3 0.1" euler="0 45 0"', [0, 0, 0.282],
    ),
}  # fmt: skip


def _pair(pair: str, velocity: list[float]) -> tuple[tg.Scene, tg.State]:
    one, two, offset = PAIRS[pair]
    xml = f"""<mujoco><option gravity="0 0 0"/><worldbody>
      <body><freejoint/><geom {one} mass="1" friction="0.4"/></body>
      <body pos="{offset[0]} {offset[1]} {offset[2]}"><freejoint/><geom {two} mass="2" friction="0.4"/></body>
      </worldbody></mujoco>"""
    scene = tg.load(xml)
    return scene, tg.State(scene.model.qpos0, velocity)


def _cheetah_in_contact() -> tuple[tg.Scene, Sample, tg.Simulator]:
    scene = robots.get("half_cheetah")
    simulator = tg.Simulator(scene, contact=TIGHT)
    rng = np.random.default_rng(0)
    state = simulator.rollout(simulator.initial_state(), 0.3 * rng.uniform(-1, 1, size=(80, scene.nu))).state(-1)
    return scene, Sample(state, 0.2 * rng.uniform(-1, 1, size=scene.nu), np.zeros(scene.nv)), simulator


def _moved(scene: tg.Scene, sample: Sample, name: str, delta: np.ndarray) -> Sample:
    state, u, tau = sample
    if name == "q":
        return Sample(state.replace(q=scene.integrate(state.q, delta)), u, tau)
    if name == "v":
        return Sample(state.replace(v=state.v + delta), u, tau)
    return Sample(state, u + delta if name == "u" else u, tau + delta if name == "tau" else tau)


class TestGradients:
    @pytest.mark.parametrize("regime", REGIMES)
    def test_a_cube_in_every_regime(self, regime: str) -> None:
        scene = _cube()
        shift, velocity = REGIMES[regime]
        state = tg.State(scene.integrate(scene.initial_state("resting").q, shift), velocity)
        errors = gradient_errors(tg.Simulator(scene, contact=TIGHT), at_rest(scene, state), step=1e-6)
        assert max(errors.values()) < 1e-6, errors

    def test_a_cube_that_sticks_on_four_corners_answers_to_its_position_alone(self) -> None:
        """Twelve rows for six degrees of freedom: the impulses are not unique, the motion is."""
        scene = _cube()
        simulator = tg.Simulator(scene, contact=TIGHT)
        state = scene.initial_state("resting")
        assert simulator.step(state).contacts.mode == ("sticking",) * 4
        J = simulator.jacobian(state, wrt=("q", "v", "tau"))
        np.testing.assert_allclose(J["v", "tau"], 0.0, atol=1e-10)
        np.testing.assert_allclose(J["v", "v"], 0.0, atol=1e-10)
        errors = gradient_errors(simulator, at_rest(scene, state), ("q",), step=1e-6)
        assert errors["v/q"] < 1e-6

    @pytest.mark.parametrize("name", ["half_cheetah", "ant", "dm_humanoid", "humanoid", "dm_cheetah", "quadruped"])
    def test_robots_along_a_motion_in_contact(self, name: str) -> None:
        scene = tg.scenes.quadruped() if name == "quadruped" else robots.get(name)
        simulator = tg.Simulator(scene, contact=TIGHT)
        rng = np.random.default_rng(1)
        state = simulator.initial_state("home" if name == "quadruped" else None)
        scale, errors, switching = 0.0 if name == "quadruped" else 0.3, [], 0
        for step in range(200):
            u = scale * rng.uniform(-1, 1, size=scene.nu)
            out = simulator.step(state, u)
            if step % 10 == 9 and any(mode != "breaking" for mode in out.contacts.mode):
                sample = Sample(state, u, np.zeros(scene.nv))
                if _keeps_its_modes(simulator, sample, 2e-6):
                    found = gradient_errors(simulator, sample, ("q", "v", "tau"), step=1e-6)
                    # ∂q⁺ is h·∂v⁺, too small next to the rounding of q to be judged by such small differences
                    errors.append(max(found[f"v/{name}"] for name in ("q", "v", "tau")))
                else:  # differences across a switch of modes say nothing
                    switching += 1
            state = out.state
        assert len(errors) >= 3
        assert switching <= 2 * len(errors)
        # A slow slide may turn its direction within the step of the differences.
        assert np.mean(np.array(errors) < 1e-5) >= 0.9, errors
        assert max(errors) < 1e-3, errors

    @pytest.mark.parametrize("pair", PAIRS)
    def test_pairs_of_free_bodies_with_curvature(self, pair: str) -> None:
        scene, _ = _pair(pair, [0.0] * 12)
        simulator = tg.Simulator(scene, contact=TIGHT)
        for velocity in ([0, 0, 0, 0.3, 0.2, 0.1, 0, 0, -8, 0.1, 0.3, 0.2], [2, 1, 0, 3, 2, 1, -2, 1, -8, 1, -3, 2]):
            state = tg.State(scene.model.qpos0, velocity)
            modes = set(simulator.step(state).contacts.mode) - {"breaking"}
            assert modes, "the bodies should touch"
            errors = gradient_errors(simulator, at_rest(scene, state), ("q", "v", "tau"), step=1e-6)
            assert max(errors.values()) < 1e-5, (modes, errors)

    def test_bouncing(self) -> None:
        scene = tg.scenes.ball()
        state = scene.initial_state("resting")
        state = tg.State(scene.integrate(state.q, [0, 0, -1e-3, 0.3, 0.2, 0.1]), [1, 0.5, -2, 1, 2, 3])
        simulator = tg.Simulator(scene, contact=TIGHT)
        assert simulator.step(state).state.v[2] > 1.5
        errors = gradient_errors(simulator, at_rest(scene, state), ("q", "v", "tau"), step=1e-6)
        assert max(errors.values()) < 1e-6

    def test_parameters_act_through_contact(self) -> None:
        scene = robots.get("half_cheetah")
        simulator = tg.Simulator(scene, contact=TIGHT)
        rng = np.random.default_rng(0)
        state = simulator.rollout(simulator.initial_state(), 0.3 * rng.uniform(-1, 1, size=(80, scene.nu))).state(-1)
        sample = Sample(state, 0.2 * rng.uniform(-1, 1, size=scene.nu), np.zeros(scene.nv))
        errors = parameter_errors(simulator, sample, (*PARAMETERS, "friction", "size", "placement"), rng, step=1e-6)
        assert max(errors.values()) < 1e-5, errors

    @pytest.mark.parametrize("pair", ["sphere on box face", "capsule across capsule", "sphere on cylinder side"])
    def test_friction_restitution_and_size_of_colliding_bodies(self, pair: str) -> None:
        scene, state = _pair(pair, [2, 1, 0, 3, 2, 1, -2, 1, -8, 1, -3, 2])
        scene = scene.replace(restitution=[0.3, 0.5], friction=[0.05, 0.1])
        state = state.replace(q=scene.integrate(state.q, [0, 0, 0.01, 0, 0, 0, 0, 0, 0, 0, 0, 0]))
        simulator = tg.Simulator(scene, contact=tg.Ncp(tolerance=1e-13, correction_speed=100.0))
        assert simulator.step(state).contacts.mode == ("sliding",)
        rng = np.random.default_rng(0)
        wrt = ("friction", "restitution", "size", "mass", "inertia")
        errors = parameter_errors(simulator, at_rest(scene, state), wrt, rng, step=1e-6)
        assert max(errors.values()) < 1e-5, errors
        J = simulator.jacobian(state, wrt=("friction",))["v", "friction"]
        np.testing.assert_array_equal(J[:, 0], 0.0)  # the rougher of the two decides
        assert np.abs(J[:, 1]).max() > 1e-3

    def test_gravity_compensation_on_a_touching_arm(self) -> None:
        xml = """<mujoco><worldbody><geom type="plane" size="1 1 1"/>
          <body pos="0 0 0.2" gravcomp="0.5"><joint axis="0 1 0"/>
            <geom type="capsule" size="0.02" fromto="0 0 0 0.3 0 0" mass="1"/>
            <body pos="0.3 0 0" gravcomp="0.7"><joint axis="0 1 0"/><geom size="0.05" pos="0.1 0 0" mass="1"/></body>
          </body></worldbody></mujoco>"""
        scene = tg.load(xml)
        simulator = tg.Simulator(scene, contact=TIGHT)
        state = tg.State([0.5, -0.42], [0.5, 1.0])
        assert set(simulator.step(state).contacts.mode) & {"sticking", "sliding"}
        errors = gradient_errors(simulator, at_rest(scene, state), ("q", "v", "tau"), step=1e-6)
        assert max(errors[f"v/{name}"] for name in ("q", "v", "tau")) < 1e-6, errors

    def test_frictionloss_of_a_joint_that_slips(self) -> None:
        xml = """<mujoco><worldbody>
          <body><joint axis="0 1 0" frictionloss="0.2"/><geom size="0.1" pos="0.3 0 0" mass="1"/>
          <body pos="0.3 0 0"><joint axis="0 1 0" frictionloss="50"/><geom size="0.1" pos="0.3 0 0" mass="1"/></body>
          </body></worldbody></mujoco>"""
        scene = tg.load(xml)
        simulator = tg.Simulator(scene, contact=TIGHT)
        state = tg.State([0.1, 0.2], [0.5, 0.0])
        errors = parameter_errors(
            simulator, at_rest(scene, state), ("frictionloss",), np.random.default_rng(0), step=1e-6
        )
        assert errors["v/frictionloss"] < 1e-6
        assert simulator.jacobian(state, wrt=("frictionloss",))["v", "frictionloss"][0, 0] < 0

    def test_contact_forces_are_differentiable_outputs(self) -> None:
        scene, sample, simulator = _cheetah_in_contact()
        state, u, tau = sample
        forces = simulator.jacobian(*sample, wrt=("q", "v", "tau", "u"), outputs=("q", "v", "force"))
        for name in ("q", "v", "tau", "u"):
            ours = forces["force", name]
            for k in range(ours.shape[-1]):
                delta = np.zeros(ours.shape[-1])
                delta[k] = 1e-6
                ends = [
                    simulator.step(*moved).contacts.force
                    for moved in (_moved(scene, sample, name, delta), _moved(scene, sample, name, -delta))
                ]
                difference = (ends[0] - ends[1]) / 2e-6
                np.testing.assert_allclose(ours[..., k], difference, atol=1e-5 * np.abs(ours).max())
        by_friction = simulator.jacobian(*sample, wrt=("friction",), outputs=("force",))["force", "friction"]
        assert by_friction.shape == (
            *simulator.step(state, u, tau).contacts.force.shape,
            len(scene.parameters["friction"]),
        )

    def test_pullback_takes_forces_and_all_parameters_in_one_go(self) -> None:
        scene, sample, simulator = _cheetah_in_contact()
        state, u, tau = sample
        rng = np.random.default_rng(1)
        wrt = simulator.contact.parameters
        J = simulator.jacobian(*sample, wrt=("q", "v", "u", "tau", *wrt), outputs=("q", "v", "force"))
        trajectory = simulator.rollout(state, u[None], tau[None])
        dq, dv = rng.normal(size=(2, scene.nv))
        dforce = rng.normal(size=trajectory.contacts[0].force.shape)
        back = simulator.pullback(trajectory, dq=dq, dv=dv, dforce=[dforce], wrt=wrt)
        found = {"q": back.state.q, "v": back.state.v, "u": back.controls[0], "tau": back.tau[0], **back.parameters}
        for name, value in found.items():
            expected = np.tensordot(dq, J["q", name], 1) + np.tensordot(dv, J["v", name], 1)
            expected = expected + np.tensordot(dforce, J["force", name], 2)
            np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(expected).max()))

    def test_the_derivative_right_after_a_step_is_that_of_any_other_time(self) -> None:
        _, sample, simulator = _cheetah_in_contact()
        simulator.step(*sample)
        after = simulator.jacobian(*sample, wrt=("q", "v"))
        simulator.step(simulator.initial_state())
        fresh = simulator.jacobian(*sample, wrt=("q", "v"))
        for key in after:
            np.testing.assert_allclose(after[key], fresh[key], rtol=1e-9, atol=1e-9)

    def test_stacked_boxes_touch_with_their_faces(self) -> None:
        scene = tg.scenes.stack()
        simulator = tg.Simulator(scene, contact=TIGHT)
        state = scene.initial_state("resting")
        J = simulator.jacobian(state, wrt=("v", "tau"))
        np.testing.assert_allclose(J["v", "tau"], 0.0, atol=1e-8)
        np.testing.assert_allclose(J["v", "v"], 0.0, atol=1e-8)

    def test_a_joint_at_its_limit_follows_the_limit_despite_dry_friction(self) -> None:
        xml = """<mujoco><worldbody>
          <body><joint type="slide" axis="0 0 1" range="-0.05 1" limited="true" frictionloss="1"/>
          <geom size="0.1" mass="1"/></body></worldbody></mujoco>"""
        scene = tg.load(xml)
        J = tg.Simulator(scene, contact=TIGHT).jacobian(tg.State([-0.05], [0.0]), wrt=("q",))
        assert J["v", "q"][0, 0] == pytest.approx(-1 / scene.timestep)

    def test_a_plate_that_spins_on_many_points_is_called_ambiguous(self) -> None:
        scene = _cube().replace(friction=0.3)
        simulator = tg.Simulator(scene, contact=TIGHT)
        state = scene.initial_state("resting")
        assert simulator.jacobian(state).unique
        assert not simulator.jacobian(state.replace(v=[0.5, 0, 0, 0, 0, 3])).unique

    @pytest.mark.parametrize("rule", [tg.Randomized(scale=1e-4), tg.FixedContacts()])
    def test_other_rules_for_the_motion_of_contacts(self, rule: tg.GradientRule) -> None:
        """A ball on the floor: samples see what the analytical rule sees; without any rule, rolling is lost."""
        scene = tg.scenes.ball()
        state = tg.State(scene.initial_state("resting").q, [1, 0.5, -1, 3, 2, 1])
        simulator = tg.Simulator(scene, contact="ncp")
        out = simulator.step(state)
        exact = simulator.jacobian(out, wrt=("q",))["v", "q"]
        other = simulator.jacobian(out, wrt=("q",), gradient=rule)
        again = tg.Simulator(scene, contact="ncp", gradient=rule).jacobian(state, wrt=("q",))
        np.testing.assert_array_equal(other["v", "q"], again["v", "q"])
        error = np.abs(other["v", "q"] - exact).max() / np.abs(exact).max()
        assert error < 1e-3 if isinstance(rule, tg.Randomized) else error > 1e-3

    def test_pullback_through_a_landing(self) -> None:
        scene = tg.scenes.cube()
        simulator = tg.Simulator(scene, contact=TIGHT)
        q = scene.integrate(scene.initial_state("resting").q, [0, 0, 0.04, 0.3, 0.4, 0.5])
        weights = np.random.default_rng(0).normal(size=scene.nv)

        def loss(v: np.ndarray) -> float:
            return float(weights @ simulator.rollout(tg.State(q, v), 30).v[-1])

        start = np.array([0.2, 0.1, -1.0, 0.1, 0.2, 0.3])
        ours = simulator.pullback(simulator.rollout(tg.State(q, start), 30), dv=weights, wrt=()).state.v
        for k, unit in enumerate(np.eye(6)):
            difference = (loss(start + 1e-6 * unit) - loss(start - 1e-6 * unit)) / 2e-6
            assert ours[k] == pytest.approx(difference, rel=1e-4, abs=1e-5)


class TestLimits:
    @pytest.mark.parametrize("option", [{"correction": 2.0}, {"solver": "magic"}, {"tolerance": -1.0}])
    def test_options_are_checked(self, option: dict[str, Any]) -> None:
        with pytest.raises(tg.OptionError, match=next(iter(option))):
            tg.Ncp(**option)

    def test_deep_overlap_stays_finite(self) -> None:
        scene = tg.scenes.cube()
        q = scene.integrate(scene.initial_state("resting").q, [0, 0, -0.04, 0.1, 0.2, 0.3])
        out = tg.Simulator(scene, contact="ncp").step(tg.State(q, np.zeros(6)))
        assert np.isfinite(out.state.v).all()
        assert np.abs(out.state.v[:3]).max() < 2.0
