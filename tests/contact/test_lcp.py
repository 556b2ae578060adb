"""`lcp`: contact within boxes, derivatives at the places of the step, bounces at their own time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangens as tg
from tangens import robots
from tangens.dynamics.parameter_forces import PARAMETERS
from tangens.testing import Sample, gradient_errors, parameter_errors, relative_error

# Differences see the solver's own error divided by their step.
TIGHT = tg.Lcp(tolerance=1e-13)


def at_rest(scene: tg.Scene, state: tg.State) -> Sample:
    return Sample(state, np.zeros(scene.nu), np.zeros(scene.nv))


def falling_ball(contact: tg.Lcp, gradient: str = "exact") -> tuple[tg.Simulator, tg.State]:
    """A ball in the step in which it meets the floor, at a speed and with a spin."""
    scene = tg.scenes.ball()
    simulator = tg.Simulator(scene, contact, gradient)
    lifted = scene.integrate(scene.initial_state("resting").q, [0, 0, 2e-3, 0.3, 0.2, 0.1])
    return simulator, tg.State(lifted, [1, 0.5, -2, 1, 2, 3])


class TestPhysics:
    def test_a_box_at_rest_shares_its_weight_evenly_and_stays(self) -> None:
        scene = tg.scenes.cube()
        simulator = tg.Simulator(scene, contact="lcp")
        start = simulator.initial_state("resting")
        trajectory = simulator.rollout(start, 500)
        np.testing.assert_allclose(trajectory.q[-1], start.q, atol=1e-9)
        weight = scene.parameters["mass"][1] * 9.81
        expected = np.tile([0, 0, weight / 4], (4, 1))  # of all answers the smallest
        np.testing.assert_allclose(trajectory.contacts[-1].force, expected, atol=1e-9)
        assert [report.method for report in trajectory.solver[1:]] == ["guess"] * 499

    def test_along_a_diagonal_friction_is_stronger_by_root_two(self) -> None:
        scene = tg.scenes.ball().replace(friction=0.5, restitution=0.0)
        resting = scene.initial_state("resting")
        out = tg.Simulator(scene, contact="lcp").step(resting.replace(v=[3, 3, 0, 0, 0, 0]))
        push = out.contacts.force[0]
        np.testing.assert_allclose(push[:2], -0.5 * push[2], rtol=1e-9)

    def test_it_agrees_with_ncp_where_nothing_slides(self) -> None:
        scene = tg.scenes.cube().replace(friction=1.0)
        tilted = scene.integrate(scene.initial_state("resting").q, [0, 0, 0.0268, 0.3, 0.4, 0.5])
        state = tg.State(tilted, [0.01, 0.02, -1, 0.3, 0.2, 0.1])
        ends = [tg.Simulator(scene, contact=model).step(state) for model in ("ncp", "lcp")]
        assert all("sticking" in end.contacts.mode for end in ends)
        np.testing.assert_allclose(ends[0].state.v, ends[1].state.v, atol=1e-9)

    def test_closed_chains_stay_closed(self) -> None:
        simulator = tg.Simulator(tg.scenes.four_bar(), contact="lcp")
        trajectory = simulator.rollout(simulator.initial_state(), 100)
        assert all(report.converged for report in trajectory.solver)
        assert max(report.residual for report in trajectory.solver) <= 1e-10

    @settings(max_examples=40)
    @given(
        height=st.floats(-0.02, 0.03), turn=st.lists(st.floats(-3, 3), min_size=3, max_size=3),
        velocity=st.lists(st.floats(-3, 3), min_size=6, max_size=6), friction=st.floats(0.05, 1.5),
    )  # fmt: skip
    def test_impulses_stay_in_their_boxes_and_oppose_sliding(
        self, height: float, turn: list[float], velocity: list[float], friction: float
    ) -> None:
        scene = _cube().replace(friction=friction)
        q = scene.integrate(scene.initial_state("resting").q, [0, 0, height, *turn])
        simulator = tg.Simulator(scene, contact="lcp")
        out = simulator.step(tg.State(q, velocity))
        assert np.isfinite(out.state.v).all()
        if not out.solver.converged:
            assert out.solver.method == "fallback"
            return
        for force, mode in zip(out.contacts.force, out.contacts.mode, strict=True):
            assert force[2] >= -1e-9
            assert np.abs(force[:2]).max() <= friction * force[2] + 1e-6  # tangents are x and y on a floor
            assert mode != "breaking" or not force.any()
        assert out.solver.signorini <= 1e-9
        assert out.solver.dissipation <= 1e-8

    def test_contacts_mostly_do_what_they_did_before(self) -> None:
        scene = robots.get("half_cheetah")
        simulator = tg.Simulator(scene, contact="lcp")
        controls = np.repeat(0.3 * np.random.default_rng(0).uniform(-1, 1, size=(15, scene.nu)), 20, axis=0)
        trajectory = simulator.rollout(simulator.initial_state(), controls)
        methods = [report.method for report in trajectory.solver if report.method]
        assert methods.count("guess") > 0.7 * len(methods)


def _cube(cache: list[tg.Scene] = []) -> tg.Scene:  # noqa: B006  (made once for all examples)
    if not cache:
        cache.append(tg.scenes.cube())
    return cache[0]


def _cheetah_in_contact(contact: tg.Lcp = TIGHT) -> tuple[Sample, tg.Simulator]:
    scene = robots.get("half_cheetah")
    simulator = tg.Simulator(scene, contact=contact)
    rng = np.random.default_rng(0)
    state = simulator.rollout(simulator.initial_state(), 0.3 * rng.uniform(-1, 1, size=(80, scene.nu))).state(-1)
    return Sample(state, 0.2 * rng.uniform(-1, 1, size=scene.nu), np.zeros(scene.nv)), simulator


class TestGradients:
    @pytest.mark.parametrize("friction", [0.0, 0.2, 1.0])
    @pytest.mark.parametrize("velocity", [[0, 0, -1, 0, 0, 0], [1, 0.5, -1, 0.1, 0.2, 0.3], [2, 3, -1, 1, -2, 3]])
    def test_a_tilted_cube_that_lands(self, friction: float, velocity: list[float]) -> None:
        scene = tg.scenes.cube().replace(friction=friction)
        tilted = scene.integrate(scene.initial_state("resting").q, [0, 0, 0.0268, 0.3, 0.4, 0.5])
        simulator = tg.Simulator(scene, contact=TIGHT)
        sample = at_rest(scene, tg.State(tilted, velocity))
        assert set(simulator.step(*sample).contacts.mode) - {"breaking"}
        errors = gradient_errors(simulator, sample, ("q", "v", "tau"), step=1e-6)
        assert max(errors[f"v/{name}"] for name in ("q", "v", "tau")) < 1e-6, errors

    def test_the_box_of_friction_turns_with_the_normal(self) -> None:
        """A ball that slides on a ball: normal and tangents turn when either moves."""
        xml = """<mujoco><option gravity="0 0 0"/><worldbody>
          <body><freejoint/><geom size="0.1" mass="1" friction="0.05"/></body>
          <body pos="0.15 0.07 0.18"><freejoint/><geom size="0.15" mass="2" friction="0.05"/></body>
          </worldbody></mujoco>"""
        scene = tg.load(xml)
        simulator = tg.Simulator(scene, contact=TIGHT)
        state = tg.State(scene.model.qpos0, [2, 1, 0, 3, 2, 1, -2, 1, -8, 1, -3, 2])
        assert simulator.step(state).contacts.mode == ("sliding",)
        errors = gradient_errors(simulator, at_rest(scene, state), ("q", "v", "tau"), step=1e-6)
        assert max(errors.values()) < 1e-6, errors

    @pytest.mark.parametrize("name", ["half_cheetah", "ant", "humanoid", "dm_cheetah"])
    def test_robots_in_contact(self, name: str) -> None:
        from tangens.lab.papers.gradient_accuracy import TOLERANCE, judge

        verdict = judge(robots.get(name), TIGHT, 12)
        misses = sum(error > TOLERANCE for error in verdict.errors)
        assert len(verdict.errors) == 12
        assert misses <= 2
        assert misses == verdict.on_switch + verdict.ambiguous

    def test_redundant_contacts_have_the_derivative_of_what_they_hold(self) -> None:
        scene = tg.scenes.cube()
        simulator = tg.Simulator(scene, contact=TIGHT)
        J = simulator.jacobian(scene.initial_state("resting"), wrt=("q", "v", "tau"))
        np.testing.assert_allclose(J["v", "tau"], 0.0, atol=1e-12)
        np.testing.assert_allclose(J["v", "v"], 0.0, atol=1e-12)
        assert J.unique

    def test_parameters_act_through_contact(self) -> None:
        sample, simulator = _cheetah_in_contact()
        names = (*PARAMETERS, "friction", "size", "placement")
        errors = parameter_errors(simulator, sample, names, np.random.default_rng(0), step=1e-6)
        assert max(errors.values()) < 1e-5, errors

    def test_contact_forces_are_differentiable_outputs(self) -> None:
        sample, simulator = _cheetah_in_contact()
        J = simulator.jacobian(*sample, wrt=("v",), outputs=("q", "v", "force"))
        step = 1e-6
        columns = []
        for delta in step * np.eye(simulator.scene.nv):
            ends = [simulator.step(sample.state.replace(v=sample.state.v + s * delta), sample.u) for s in (1, -1)]
            columns.append((ends[0].contacts.force - ends[1].contacts.force) / (2 * step))
        assert relative_error(J["force", "v"], np.stack(columns, axis=2)) < 1e-5

    @pytest.mark.parametrize(("friction", "velocity"), [(0.8, [0.0, 0, 0, 0, 0, 0]), (0.3, [0.7, 0.2, 0, 0, 0, 0])])
    def test_redundant_contacts_share_their_load_by_least_squares(self, friction: float, velocity: list[float]) -> None:
        """Four corners of a cube bear its weight; pushed, they share it anew (Eq. 22)."""
        scene = tg.scenes.cube().replace(friction=friction)
        simulator = tg.Simulator(scene, contact=TIGHT)
        state = scene.initial_state("resting").replace(v=velocity)
        tau, step = np.array([0.1, 0.05, 0.3, 0.02, 0.03, 0.01]), 1e-5
        J = simulator.jacobian(state, tau=tau, wrt=("tau", "v"), outputs=("q", "v", "force"))
        columns = []
        for delta in step * np.eye(scene.nv):
            ends = [simulator.step(state, tau=tau + sign * delta).contacts.force for sign in (1, -1)]
            columns.append((ends[0] - ends[1]) / (2 * step))
        assert relative_error(J["force", "tau"], np.stack(columns, axis=2)) < 1e-6

    def test_a_shared_load_turns_with_the_body(self) -> None:
        scene = tg.scenes.drone().replace(friction=0.8)
        simulator = tg.Simulator(scene, contact=TIGHT)
        state, tau, step = scene.initial_state("resting"), np.array([0.1, 0.05, 0.3, 0.02, 0.03, 0.01]), 1e-6
        J = simulator.jacobian(state, tau=tau, wrt=("q",), outputs=("q", "v", "force"))
        yaw = step * np.eye(scene.nv)[5]  # all four feet go on touching
        ends = [
            simulator.step(state.replace(q=scene.integrate(state.q, sign * yaw)), tau=tau).contacts.force
            for sign in (1, -1)
        ]
        np.testing.assert_allclose(J["force", "q"][:, :, 5], (ends[0] - ends[1]) / (2 * step), atol=1e-8)

    def test_pullback_is_the_transpose(self) -> None:
        sample, simulator = _cheetah_in_contact()
        rng = np.random.default_rng(0)
        dq, dv = rng.normal(size=(2, simulator.scene.nv))
        trajectory = simulator.rollout(sample.state, sample.u[None])
        back = simulator.pullback(trajectory, dq=dq, dv=dv, wrt=("friction", "mass"))
        J = simulator.jacobian(sample.state, sample.u, wrt=("q", "u", "friction", "mass"))
        for name, found in (("q", back.state.q), ("u", back.controls[0]), ("mass", back.parameters["mass"])):
            np.testing.assert_allclose(found, dq @ J["q", name] + dv @ J["v", name], atol=1e-10)


class TestComplementarityAware:
    def test_a_drone_on_the_ground_feels_its_thrust(self) -> None:
        scene = tg.scenes.drone()
        gradients = []
        for choice in ("exact", "complementarity-aware"):
            simulator = tg.Simulator(scene, contact="lcp", gradient=choice)
            trajectory = simulator.rollout(simulator.initial_state("resting"), 3)
            up = np.array([0, 0, -1.0, 0, 0, 0])  # the loss is −height
            gradients.append(simulator.pullback(trajectory, dq=up).controls[:, 0])
        h, mass = scene.timestep, scene.parameters["mass"][1]
        np.testing.assert_allclose(gradients[0], 0.0, atol=1e-15)
        np.testing.assert_allclose(gradients[1], -(h**2) / mass * np.array([3, 2, 1]), rtol=1e-9)

    def test_nothing_changes_where_the_exact_gradient_is_the_larger(self) -> None:
        sample, exact = _cheetah_in_contact()
        aware = tg.Simulator(exact.scene, tg.Lcp(tolerance=1e-13), gradient="complementarity-aware")
        for simulator in (exact, aware):
            trajectory = simulator.rollout(sample.state, sample.u[None])
            back = simulator.pullback(trajectory, dv=np.eye(simulator.scene.nv)[0])
            if simulator is exact:
                drive = back.state.v @ back.state.v + back.tau[0] @ back.tau[0] / exact.scene.timestep
            else:
                larger = back.state.v @ back.state.v + back.tau[0] @ back.tau[0] / exact.scene.timestep
                assert larger >= drive * (1 - 1e-9)


class TestBounces:
    def test_a_discrete_bounce_leaves_by_its_restitution_however_deep_it_is(self) -> None:
        simulator, state = falling_ball(TIGHT)
        for depth in (0.0, 1e-3, 5e-3):
            at = simulator.scene.integrate(state.q, [0, 0, -2e-3 - depth, 0, 0, 0])
            assert simulator.step(state.replace(q=at)).state.v[2] == pytest.approx(0.8 * 2, rel=1e-9)

    def test_in_continuous_time_a_ball_that_starts_lower_ends_higher(self) -> None:
        simulator, state = falling_ball(tg.Lcp(), gradient="continuous-bounce")
        simulator = tg.Simulator(simulator.scene.replace(gravity=np.zeros(3)), tg.Lcp(), "continuous-bounce")
        at = simulator.scene.integrate(state.q, [0, 0, -3e-3, 0, 0, 0])
        state = tg.State(at, [0, 0, -2, 0, 0, 0])
        J = simulator.jacobian(state, wrt=("q", "v"))
        h, restitution = simulator.scene.timestep, 0.8
        assert J["q", "q"][2, 2] == pytest.approx(-restitution, rel=1e-9)
        assert J["q", "v"][2, 2] == pytest.approx(-restitution * h, rel=1e-9)
        np.testing.assert_allclose(J["q", "q"][0], np.eye(6)[0], atol=1e-9)  # nothing else is touched
        trajectory = simulator.rollout(state, 1)
        back = simulator.pullback(trajectory, dq=np.eye(6)[2])
        np.testing.assert_allclose(back.state.q, J["q", "q"][2], atol=1e-12)
        np.testing.assert_allclose(back.state.v, J["q", "v"][2], atol=1e-12)

    def test_in_continuous_time_gravity_counts(self) -> None:
        """The final height by that of the start, and by the speed there, through a bounce."""
        height, restitution, gravity, duration, h = 0.4, 0.8, 9.81, 0.5, 5e-4
        scene = tg.scenes.ball().replace(timestep=h)

        def end(z: float, v: float) -> float:
            fall = (v + np.sqrt(v * v + 2 * gravity * z)) / gravity
            rise = duration - fall
            return float(restitution * (gravity * fall - v) * rise - 0.5 * gravity * rise**2)

        exact = [
            (end(height + 1e-6, 0) - end(height - 1e-6, 0)) / 2e-6,
            (end(height, 1e-6) - end(height, -1e-6)) / 2e-6,
        ]
        simulator = tg.Simulator(scene, "lcp", "continuous-bounce")
        start = simulator.initial_state("resting")
        start = start.replace(q=start.q + height * np.eye(7)[2])
        trajectory = simulator.rollout(start, round(duration / h))
        slope = simulator.pullback(trajectory, dq=np.eye(6)[2], wrt=()).state
        assert [slope.q[2], slope.v[2]] == pytest.approx(exact, abs=10 * h)  # to first order in h
        forward = simulator.sensitivities(trajectory)
        np.testing.assert_allclose([forward["q", "q"][-1][2, 2], forward["q", "v"][-1][2, 2]], [slope.q[2], slope.v[2]])

    def test_a_resolved_step_has_the_exact_derivative_of_impact_and_time(self) -> None:
        simulator, state = falling_ball(tg.Lcp(bounce="resolved", tolerance=1e-13))
        assert simulator.step(state).state.v[2] > 1.5
        sample = at_rest(simulator.scene, state)
        errors = gradient_errors(simulator, sample, ("q", "v", "tau"), step=1e-6)
        assert max(errors.values()) < 1e-6, errors
        names = ("restitution", "friction", "mass", "gravity", "size", "placement")
        # A step of 1e-4 leaves the impact well inside the time step. ∂q⁺/∂gravity is only 7e-6: next to it, q rounded
        # to 1e-17 m over the step is an error of 1e-7 (and of 1e-5 for a step of 1e-6).
        found = parameter_errors(simulator, sample, names, np.random.default_rng(0), step=1e-4)
        assert max(found[f"v/{name}"] for name in names) < 1e-6, found
        assert max(found.values()) < 1e-5, found

    def test_the_height_after_a_resolved_bounce_is_smooth_in_the_start(self) -> None:
        scene = tg.scenes.ball()
        ends = {}
        for bounce in ("discrete", "resolved"):
            simulator = tg.Simulator(scene, contact=tg.Lcp(bounce=bounce))
            start = simulator.initial_state("dropped")
            starts = [start.replace(q=start.q + lift * np.eye(7)[2]) for lift in np.linspace(0, 0.02, 21)]
            ends[bounce] = np.array([simulator.rollout(s, 300).q[-1, 2] for s in starts])
        roughness = {name: np.abs(np.diff(heights, 2)).max() for name, heights in ends.items()}
        assert roughness["discrete"] > 1e-3
        assert roughness["resolved"] < 2e-5

    def test_resolved_bounces_converge_to_continuous_time(self) -> None:
        drop, restitution, gravity, duration = 0.9, 0.8, 9.81, 0.6
        fall = np.sqrt(2 * drop / gravity)
        rise = duration - fall
        exact = 0.1 + restitution * gravity * fall * rise - 0.5 * gravity * rise**2
        errors = []
        for h in (4e-3, 2e-3, 1e-3):
            model = tg.scenes.ball().model
            model.opt.timestep = h
            simulator = tg.Simulator(tg.load(model), contact=tg.Lcp(bounce="resolved"))
            end = simulator.rollout(simulator.initial_state("dropped"), round(duration / h)).q[-1, 2]
            errors.append(abs(end - exact))
        assert errors[1] == pytest.approx(errors[0] / 2, rel=0.2)
        assert errors[2] == pytest.approx(errors[1] / 2, rel=0.2)

    def test_two_impacts_within_a_step_are_both_there(self) -> None:
        """A ball between two walls 1 mm away on either side, fast enough to meet both."""
        xml = """<mujoco><option gravity="0 0 0" timestep="0.01"/><worldbody>
          <geom type="plane" size="1 1 1" pos="-0.101 0 0" zaxis="1 0 0"/>
          <geom type="plane" size="1 1 1" pos="0.101 0 0" zaxis="-1 0 0"/>
          <body><freejoint/><geom size="0.1" mass="1"/></body></worldbody></mujoco>"""
        scene = tg.load(xml).replace(restitution=1.0, friction=0.0)
        simulator = tg.Simulator(scene, contact=tg.Lcp(bounce="resolved"))
        state = simulator.initial_state().replace(v=[0.25, 0, 0, 0, 0, 0])
        out = simulator.step(state)  # 2.5 mm in all: 1 to the right, 1.5 back
        assert out.state.v[0] == pytest.approx(-0.25)
        assert out.state.q[0] == pytest.approx(-0.5e-3, abs=1e-9)
        fast = simulator.step(state.replace(v=[0.5, 0, 0, 0, 0, 0]))  # 5 mm: right, left, and 2 mm to the right again
        assert fast.state.q[0] == pytest.approx(1e-3, abs=1e-9)
        assert simulator.jacobian(state, wrt=("v",))["q", "v"][0, 0] == pytest.approx(-0.01, rel=1e-6)
        errors = gradient_errors(simulator, at_rest(scene, state), ("q", "v", "tau"), step=1e-6)
        assert max(errors.values()) < 1e-5, errors


class TestOptions:
    @pytest.mark.parametrize("option", [{"correction": 2.0}, {"bounce": "high"}])
    def test_options_are_checked(self, option: dict[str, Any]) -> None:
        with pytest.raises(tg.OptionError, match=rf"Lcp\({next(iter(option))}="):
            tg.Lcp(**option)


def test_of_all_ways_to_bear_a_load_the_least_is_taken() -> None:
    """Two boxes that are pushed and do not move: where the shortest impulses obey the laws, they are the answer."""
    box = '<body pos="0 0 {}"><freejoint/><geom type="box" size="0.05 0.05 0.05" mass="1" friction="0.5"/></body>'
    scene = tg.load(f"""<mujoco><worldbody><geom type="plane" size="5 5 1"/>{box.format(0.05)}{box.format(0.15)}
      </worldbody></mujoco>""")
    sim, still = tg.Simulator(scene, "lcp"), 0
    for seed in (*range(20), 34, 36, 72, 77, 83, 136, 193, 238, 265):
        rng = np.random.default_rng(seed)
        tau = rng.normal(size=12) * rng.choice([0.1, 0.5, 1.5]) * np.tile([1, 1, 1, 0.05, 0.05, 0.05], 2)
        out = sim.step(scene.initial_state(), tau=tau)
        solved = sim.engine.linearizer.solved(out.tape.memory)  # type: ignore[attr-defined]
        shortest = np.linalg.pinv(solved.J.T) @ (solved.J.T @ solved.impulse)
        push, pull = shortest[::3], np.abs(shortest.reshape(-1, 3)[:, 1:])
        if np.abs(out.state.v).max() < 1e-9 and (push >= 0).all() and (pull <= 0.5 * push[:, None]).all():
            np.testing.assert_allclose(solved.impulse, shortest, atol=1e-8)
            still += 1
    assert still > 15
