"""Problems about simulations: their Jacobians are those of their residuals, and they can be solved."""

from __future__ import annotations

import numpy as np
import pytest

import tangens as tg
from tangens import optimize

STEPS = 30


def cube() -> tuple[tg.Simulator, tg.State]:
    simulator = tg.Simulator(tg.scenes.cube(), contact="ncp")
    return simulator, simulator.initial_state("resting")


class TestInitialCondition:
    @pytest.mark.parametrize("by", ["velocity", "impulse"])
    @pytest.mark.parametrize(("name", "contact"), [("arm", None), ("gyro", None), ("ball", "ncp")])
    def test_the_jacobian_is_that_of_the_residual(self, name: str, contact: str | None, by: str) -> None:
        scene = tg.scenes.get(name).replace(
            restitution=0.0
        )  # a ball that just touches would be on the verge of bouncing
        simulator = tg.Simulator(scene, contact=contact)
        start = simulator.initial_state("resting" if name == "ball" else None)
        rng = np.random.default_rng(0)
        target = simulator.scene.integrate(start.q, 0.3 * rng.normal(size=simulator.scene.nv))
        problem = optimize.initial_condition(simulator, start, target, STEPS, by)
        x = 0.1 * rng.normal(size=problem.size)
        if name == "ball":  # slides along the floor
            x = np.array([1.0, 0.5, -0.2, 0.1, 0.2, 0.3])
        if by == "impulse":
            x *= simulator.scene.shared_model.dof_M0
        ours, reference = problem.jacobian(x), optimize.by_differences(problem).jacobian(x)
        np.testing.assert_allclose(ours, reference, atol=1e-4 * np.abs(reference).max())

    @pytest.mark.parametrize("by", ["velocity", "impulse"])
    def test_gauss_newton_finds_how_a_cube_was_thrown(self, by: str) -> None:
        simulator, start = cube()
        truth = np.array([2.0, 1.0, -0.5, 0, 0, 0]) * (1.0 if by == "velocity" else 0.5)
        tau = np.zeros((STEPS, 6))
        tau[0] = truth / simulator.scene.timestep if by == "impulse" else 0.0
        thrown = start if by == "impulse" else start.replace(v=truth)
        target = simulator.rollout(thrown, STEPS, tau).q[-1]
        problem = optimize.initial_condition(simulator, start, target, STEPS, by)
        result = optimize.gauss_newton(problem, 0.7 * truth + [0, 0.1, 0, 0, 0, 0])
        assert result.error < 1e-9, result

    def test_controls_act_all_along(self) -> None:
        simulator = tg.Simulator(tg.scenes.arm())
        start = simulator.initial_state("home")
        controls = np.tile(start.q + 0.1, (STEPS, 1))
        target = simulator.rollout(start, controls).q[-1]
        problem = optimize.initial_condition(simulator, start, target, STEPS, controls=controls)
        np.testing.assert_allclose(problem.residual(np.zeros(6)), 0.0, atol=1e-12)

    @pytest.mark.parametrize(
        ("arguments", "error", "complaint"),
        [
            ({"by": "force"}, tg.OptionError, "by='force'"),
            ({"steps": 0}, tg.OptionError, "steps=0"),
            ({"steps": 1.5}, tg.OptionError, "steps=1.5"),
            ({"target_q": np.zeros(7)}, tg.StateError, "length 1"),
            ({"target_q": [1.0]}, tg.StateError, "target_q must have 7 entries"),
            ({"start": tg.State([1.0], [1.0])}, tg.StateError, "nq=7"),
            ({"controls": np.zeros((3, 0))}, tg.StateError, "one row for each step"),
            ({"controls": "fast"}, tg.StateError, "not an array of numbers"),
        ],
    )
    def test_bad_arguments_are_named(self, arguments: dict, error: type[Exception], complaint: str) -> None:  # type: ignore[type-arg]
        simulator, start = cube()
        with pytest.raises(error, match=complaint):
            optimize.initial_condition(
                **({"simulator": simulator, "start": start, "target_q": start.q, "steps": 5} | arguments)
            )


class TestInverseDynamics:
    def test_torques_hold_a_quadruped(self) -> None:
        scene = tg.scenes.quadruped()
        simulator = tg.Simulator(scene, contact="ncp")
        problem = optimize.inverse_dynamics(simulator, simulator.initial_state("home"))
        assert problem.size == scene.nv - 6
        result = optimize.gauss_newton(problem, np.zeros(problem.size))
        assert result.error < 1e-9 < result.errors[0], result

    def test_controls_of_an_arm_give_a_velocity(self) -> None:
        scene = tg.scenes.arm()
        simulator, state = tg.Simulator(scene), scene.initial_state("home")
        target = simulator.step(state, state.q + 0.05).state.v
        problem = optimize.inverse_dynamics(simulator, state, target, by="u")
        result = optimize.gauss_newton(problem, state.q)
        assert result.converged
        np.testing.assert_allclose(result.x, state.q + 0.05, atol=1e-6)

    def test_joints_are_chosen_by_name_or_index(self) -> None:
        scene = tg.scenes.cartpole()
        simulator, state = tg.Simulator(scene), scene.initial_state("hanging")
        problem = optimize.inverse_dynamics(simulator, state, [0.1, 0.0], actuated=[scene.joint_names[0]])
        assert problem.size == 1
        same = optimize.inverse_dynamics(simulator, state, [0.1, 0.0], actuated=[0])
        np.testing.assert_array_equal(problem.jacobian(np.ones(1)), same.jacobian(np.ones(1)))
        reference = optimize.by_differences(problem).jacobian(np.ones(1))
        np.testing.assert_allclose(problem.jacobian(np.ones(1)), reference, rtol=1e-6)

    @pytest.mark.parametrize(
        ("arguments", "error", "complaint"),
        [
            ({"by": "force"}, tg.OptionError, "by='force'"),
            ({"by": "u"}, tg.OptionError, "no actuators"),
            ({"target_v": [1.0]}, tg.StateError, "target_v must have 6"),
            ({"actuated": ["knee"]}, tg.OptionError, "no joint 'knee'"),
            ({"actuated": [6]}, tg.OptionError, "index from 0 to 5"),
            ({"actuated": [1, 1]}, tg.OptionError, "twice"),
            ({"state": tg.State([1.0], [1.0])}, tg.StateError, "nq=7"),
            ({}, tg.OptionError, "no degree of freedom is actuated"),
        ],
    )
    def test_bad_arguments_are_named(self, arguments: dict, error: type[Exception], complaint: str) -> None:  # type: ignore[type-arg]
        simulator, start = cube()
        with pytest.raises(error, match=complaint):
            optimize.inverse_dynamics(**({"simulator": simulator, "state": start} | arguments))


def test_a_scene_without_derivatives_keeps_the_start() -> None:
    simulator = tg.Simulator(tg.scenes.cube(), contact="ncp")
    start = simulator.initial_state("resting")
    inner = optimize.initial_condition(simulator, start, start.q, 2)

    def refuse(x: np.ndarray) -> np.ndarray:
        raise tg.NotDifferentiable("not here")

    result = optimize.gauss_newton(optimize.LeastSquares(inner.residual, refuse, 6), [1.0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(result.x, [1, 0, 0, 0, 0, 0])
    assert "not here" in result.message
