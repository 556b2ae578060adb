"""Optimal control: three methods, one problem. What theory says about linear motion holds, swing-ups are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tangens as tg
from tangens.optimize import (
    ControlProblem,
    ControlResult,
    Effort,
    Expansion,
    Iteration,
    Position,
    TargetState,
    ilqr,
    multiple_shooting,
    stochastic_search,
)

Array = NDArray[np.float64]
Method = Callable[..., ControlResult]
METHODS: list[Method] = [ilqr, multiple_shooting, stochastic_search]
WITH_DERIVATIVES: list[Method] = [ilqr, multiple_shooting]

TROLLEYS = """
<mujoco><option timestep="0.05" gravity="0 0 0"/><worldbody>
  <body><joint name="a" type="slide" axis="1 0 0" damping="0.2"/><geom size=".1" mass="1"/></body>
  <body><joint name="b" type="slide" axis="1 0 0" stiffness="2"/><geom size=".1" mass="2" contype="0" conaffinity="0"/>
  </body></worldbody>
  <tendon><fixed name="spring" stiffness="3"><joint joint="a" coef="1"/><joint joint="b" coef="-1"/></fixed></tendon>
  <actuator><motor joint="a"/><motor joint="b" gear="0.5"/></actuator></mujoco>
"""


def trolleys(**options: Any) -> ControlProblem:
    """Two masses, springs and motors: motion is linear, the problem convex."""
    simulator = tg.Simulator(tg.load(TROLLEYS))
    scene, start = simulator.scene, tg.State([1.0, -0.5], [0.0, 0.3])
    running = [TargetState(scene, q_weight=[1, 2], v_weight=0.1), Effort([0.1, 0.2])]
    final = TargetState(scene, q_weight=20, v_weight=5)
    defaults: dict[str, Any] = {"horizon": 20, "running": running, "final": final}
    return ControlProblem(simulator, start, **defaults | options)


def cartpole(horizon: int = 160, hold: int = 8) -> ControlProblem:
    simulator = tg.Simulator(tg.scenes.cartpole())
    up = TargetState(simulator.scene, [0, 0], q_weight=[100, 1000], v_weight=10)
    start = simulator.initial_state("hanging")
    return ControlProblem(simulator, start, horizon, running=Effort(1e-3), final=up, hold=hold)


def noise(problem: ControlProblem, scale: float = 1.0) -> Array:
    return scale * np.random.default_rng(0).normal(size=(problem.intervals, problem.nu))


def gradient(problem: ControlProblem, u: Array, step: float = 1e-5) -> Array:
    units = step * np.eye(u.size).reshape(-1, *u.shape)
    return np.array([(problem.cost(u + e) - problem.cost(u - e)) / (2 * step) for e in units])


class TestLinearMotion:
    def riccati(self, problem: ControlProblem) -> tuple[Array, Array]:
        """Gains and least cost, by the textbook."""
        J = problem.simulator.jacobian(problem.start)
        A, B = np.block([[J["q", "q"], J["q", "v"]], [J["v", "q"], J["v", "v"]]]), np.vstack([J["q", "u"], J["v", "u"]])
        Q, R, P = np.diag([1, 2, 0.1, 0.1]), np.diag([0.1, 0.2]), np.diag([20.0, 20, 5, 5])
        gains = []
        for _ in range(problem.horizon):
            gains.append(-np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A))
            P = Q + A.T @ P @ (A + B @ gains[-1])
        x = np.concatenate([problem.start.q, problem.start.v])
        return np.array(gains[::-1]), 0.5 * x @ P @ x

    def test_one_iteration_of_ilqr_is_the_riccati_solution(self) -> None:
        problem = trolleys()
        gains, cost = self.riccati(problem)
        result = ilqr(problem, noise(problem), max_iterations=1, damping=0.0)
        assert result.gains is not None
        assert result.cost == pytest.approx(cost, rel=1e-10)
        np.testing.assert_allclose(result.gains, gains, rtol=1e-8, atol=1e-10)
        states = np.hstack([result.trajectory.q, result.trajectory.v])[:-1]
        np.testing.assert_allclose(result.x, np.einsum("tux,tx->tu", gains, states), atol=1e-9)

    def test_one_iteration_of_multiple_shooting_is_too(self) -> None:
        problem = trolleys()
        result = multiple_shooting(problem, noise(problem), max_iterations=1, damping=0.0)
        assert result.cost == pytest.approx(self.riccati(problem)[1], rel=1e-7)

    @pytest.mark.parametrize("options", [{"hold": 7}, {"hold": 4, "lower": -0.5, "upper": [0.6, 0.3]}])
    def test_all_methods_agree(self, options: dict[str, Any]) -> None:
        problem = trolleys(**options)
        found = [method(problem, noise(problem, 0.1)) for method in METHODS]
        assert all(result.converged for result in found)
        np.testing.assert_allclose(found[1].x, found[0].x, atol=1e-4)
        np.testing.assert_allclose(found[2].x, found[0].x, atol=2e-3)
        for result in found:
            assert result.cost == pytest.approx(found[0].cost, rel=1e-6)
            assert result.cost == pytest.approx(problem.cost(result.x), rel=1e-12)

    @pytest.mark.parametrize("method", METHODS)
    def test_limits_hold_and_only_those_at_rest_there_would_go_on(self, method: Method) -> None:
        problem = trolleys(lower=-0.5, upper=[0.6, 0.3], hold=4)
        result = method(problem, noise(problem))
        assert (result.x >= problem.lower).all()
        assert (result.x <= problem.upper).all()
        slope = gradient(problem, np.clip(result.x, problem.lower + 1e-4, problem.upper - 1e-4)).reshape(result.x.shape)
        at_lower, at_upper = result.x < problem.lower + 1e-3, result.x > problem.upper - 1e-3
        assert at_lower.any()
        assert (slope[at_lower] > -1e-2).all()
        assert (slope[at_upper] < 1e-2).all()
        np.testing.assert_allclose(slope[~at_lower & ~at_upper], 0.0, atol=1e-2)

    @pytest.mark.parametrize("segment", [2, 3, 20])
    def test_pieces_may_have_any_length(self, segment: int) -> None:
        problem = trolleys()
        reference = ilqr(problem, noise(problem))
        assert multiple_shooting(problem, noise(problem), segment=segment).cost == pytest.approx(reference.cost)


class TestSwingUp:
    @pytest.mark.parametrize(("method", "options"), [(ilqr, {}), (multiple_shooting, {"segment": 2})])
    def test_the_pole_stands_up(self, method: Method, options: dict[str, Any]) -> None:
        problem = cartpole()
        result = method(problem, noise(problem), target_cost=8.0, **options)
        assert result.converged, result
        end = result.trajectory.state(-1)
        assert abs(end.q[1]) < np.sqrt(2 * 8.0 / 1000)  # its share of the cost, ½·1000·angle², is within the target
        assert np.abs(result.x).max() <= 20.0
        np.testing.assert_allclose(problem.rollout(result.x).q, result.trajectory.q)

    def test_a_guess_of_the_states_may_be_no_motion_at_all(self) -> None:
        problem = cartpole()
        angles = np.linspace(np.pi, 0, 11)[1:]
        guess = [tg.State([0, angle], [0, -2.0]) for angle in angles]
        result = multiple_shooting(problem, noise(problem), guess, segment=2, cost_tolerance=1e-4)
        assert result.history[0].violation > 0.1
        assert result.history[-1].violation <= 1e-7
        assert abs(result.trajectory.q[-1, 1]) < 0.05


def test_multiple_shooting_never_returns_worse_controls_than_it_was_given() -> None:
    """Stopped while its pieces are far apart, it has a cheap sum of pieces and an expensive motion."""
    problem = cartpole()
    best = ilqr(problem, noise(problem), target_cost=8.0).x
    guess = [problem.start] * problem.intervals
    result = multiple_shooting(problem, best, guess, max_iterations=1)
    assert result.history[-1].violation > 0.01
    assert result.cost <= problem.cost(best)


def test_quaternions_turn_to_their_target() -> None:
    """A body on a ball joint is turned over and stopped; pieces fit together on the sphere of rotations."""
    scene = tg.load(
        '<mujoco><option timestep="0.02" gravity="0 0 0"/><worldbody><body><joint name="ball" type="ball"/>'
        '<geom type="box" size=".1 .2 .3" mass="2"/></body></worldbody><actuator><motor joint="ball" gear="1 0 0"/>'
        '<motor joint="ball" gear="0 1 0"/><motor joint="ball" gear="0 0 1"/></actuator></mujoco>'
    )
    simulator = tg.Simulator(scene)
    start = simulator.initial_state()
    goal = scene.integrate(start.q, [1.0, -1.5, 0.7])
    final = TargetState(scene, goal, q_weight=100, v_weight=10)
    problem = ControlProblem(simulator, start, 40, running=Effort(1e-4), final=final, hold=4)
    costs = []
    for method in WITH_DERIVATIVES:
        result = method(problem, np.zeros((10, 3)))
        assert np.abs(scene.difference(goal, result.trajectory.q[-1])).max() < 0.01
        costs.append(result.cost)
    assert costs[0] == pytest.approx(costs[1], rel=1e-5)


class TestDerivatives:
    @pytest.mark.parametrize("hold", [1, 3])
    def test_the_reported_gradient_is_that_of_the_cost(self, hold: int) -> None:
        problem = cartpole(horizon=20, hold=hold)
        u = noise(problem, 3.0)
        first = ilqr(problem, u, max_iterations=0).history[0]
        assert first.gradient_norm == pytest.approx(np.linalg.norm(gradient(problem, u)), rel=1e-6)

    def test_a_piece_changes_as_its_linearisation_says(self) -> None:
        problem = trolleys(hold=2)
        u = noise(problem)
        states, cost = problem.piece(problem.start, u[2:5], 2)
        piece = problem.linearized(states, u[2:5], 2)
        d = np.random.default_rng(1).normal(size=problem.nx + 6)
        moved, there = problem.piece(
            problem.moved(problem.start, d[: problem.nx]), u[2:5] + d[problem.nx :].reshape(3, 2), 2
        )
        change = problem.difference(states[-1], moved[-1])
        np.testing.assert_allclose(change, piece.A @ d[: problem.nx] + piece.B @ d[problem.nx :], atol=1e-10)
        assert there - cost == pytest.approx(piece.gradient @ d + 0.5 * d @ piece.hessian @ d)


def test_a_catapult_hits_its_target_on_time() -> None:
    """Arm and ball part on the way: the controls are found through contacts that open."""
    simulator = tg.Simulator(tg.scenes.catapult(), contact="ncp")
    hit = Position(simulator.scene, [2.0, 0, 0.04], weight=100, body="ball")
    start = simulator.initial_state("loaded")
    problem = ControlProblem(simulator, start, 400, running=Effort(1e-4), final=hit, hold=20)
    swing = noise(problem, 0.05)
    swing[:4] += 0.5
    result = ilqr(problem, swing, target_cost=0.01)
    assert result.converged
    assert np.linalg.norm(result.trajectory.q[-1, 3:] - [2.0, 0.04]) < 0.015
    assert np.linalg.norm(problem.rollout(swing).q[-1, 3:] - [2.0, 0.04]) > 0.5
    assert any(len(contacts.distance) for contacts in result.trajectory.contacts[:50])
    assert not any(len(contacts.distance) for contacts in result.trajectory.contacts[-20:-10])


class Height:
    """Minus the height of the trolley, which is none: a cost that fails beyond a place."""

    def __init__(self, edge: float, failure: float | None = None) -> None:
        self.edge, self.failure = edge, failure

    def value(self, t: int, state: tg.State, u: Array) -> float:
        if state.q[0] > self.edge:
            if self.failure is not None:
                return self.failure
            raise tg.SolverError("beyond the edge")
        return -float(state.q[0])

    def expansion(self, t: int, state: tg.State, u: Array) -> Expansion:
        return Expansion.of_state(np.array([-1.0, 0, 0, 0]), np.zeros((4, 4)), len(u))


class TestStopping:
    @pytest.mark.parametrize("method", METHODS)
    def test_a_callback_sees_the_history_and_may_stop_it(self, method: Method) -> None:
        problem = trolleys(lower=-1, upper=1)
        seen: list[Iteration] = []

        def watch(entry: Iteration, u: Array) -> bool:
            assert u.shape == (20, 2)
            seen.append(entry)
            return len(seen) == 2

        result = method(problem, noise(problem), callback=watch)
        assert result.message == "the callback asked to stop"
        assert not result.converged
        assert tuple(seen) == result.history

    @pytest.mark.parametrize("method", METHODS)
    def test_no_time_is_no_iteration(self, method: Method) -> None:
        problem = cartpole()
        result = method(problem, noise(problem), time_budget=0.0)
        assert result.iterations == 0
        assert result.message == "the time budget of 0 s is spent"

    @pytest.mark.parametrize("method", METHODS)
    def test_good_enough_is_good_enough(self, method: Method) -> None:
        problem = trolleys()
        start = problem.cost(noise(problem))
        result = method(problem, noise(problem), target_cost=0.9 * start)
        assert result.converged
        assert result.cost <= 0.9 * start
        assert "the cost is within" in result.message

    @pytest.mark.parametrize("method", METHODS)
    def test_a_bar_can_be_shown_and_results_print_what_matters(self, method: Method) -> None:
        problem = trolleys()
        result = method(problem, noise(problem), max_iterations=1, progress=True)
        assert repr(result).startswith("ControlResult(cost=")
        assert result.seconds == sum(entry.seconds for entry in result.history)

    def test_the_cost_never_rises(self) -> None:
        problem = cartpole()
        result = ilqr(problem, noise(problem), max_iterations=20)
        assert (np.diff([entry.cost for entry in result.history]) < 0).all()

    def test_the_same_seed_searches_the_same_way(self) -> None:
        problem = cartpole()
        runs = [stochastic_search(problem, noise(problem), max_iterations=5, seed=s) for s in (1, 1, 2)]
        np.testing.assert_array_equal(runs[0].x, runs[1].x)
        assert runs[0].cost != runs[2].cost


class TestTrouble:
    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("failure", [None, np.nan, np.inf])
    def test_motions_that_fail_are_avoided(self, method: Method, failure: float | None) -> None:
        edge = Height(1.2, failure)
        problem = trolleys(running=Effort(0.01), final=edge, lower=-5.0, upper=5.0)
        result = method(problem, np.zeros((20, 2)), max_iterations=30)
        assert np.isfinite(result.cost)
        assert result.cost < result.history[0].cost
        assert result.trajectory.q[-1, 0] <= 1.2
        assert all(np.isfinite(entry.cost) for entry in result.history)

    @pytest.mark.parametrize("method", METHODS)
    def test_a_start_that_fails_is_the_callers(self, method: Method) -> None:
        problem = trolleys(final=Height(1.2))
        with pytest.raises(tg.SolverError, match="beyond the edge"):
            method(problem, np.full((20, 2), 30.0))

    def test_a_hessian_without_a_minimum_is_damped(self) -> None:
        class Saddle(Height):
            def expansion(self, t: int, state: tg.State, u: Array) -> Expansion:
                return Expansion.of_state(np.array([-1.0, 0, 0, 0]), -5 * np.eye(4), len(u))

        problem = trolleys(running=Effort(0.01), final=Saddle(np.inf), lower=-1.0, upper=1.0)
        exact = trolleys(running=Effort(0.01), final=Height(np.inf), lower=-1.0, upper=1.0)
        reference = ilqr(exact, np.zeros((20, 2)))
        assert ilqr(problem, np.zeros((20, 2)), max_iterations=40).cost == pytest.approx(reference.cost, rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        ({"horizon": 0}, tg.OptionError, "horizon=0"),
        ({"horizon": 2.5}, tg.OptionError, "horizon=2.5"),
        ({"hold": 0}, tg.OptionError, "hold=0"),
        ({"lower": 1.0, "upper": -1.0}, tg.OptionError, "lower 1 must be less than upper -1"),
        ({"lower": [1, 2, 3]}, tg.OptionError, r"lower=\[1, 2, 3\]"),
        ({"running": [3]}, tg.OptionError, "running: int is no cost"),
        ({"final": TargetState(tg.scenes.cube())}, tg.StateError, "entries"),
        ({"running": Effort(target=np.zeros((5, 2)))}, tg.OptionError, "none for step 19"),
        ({"running": Effort([1, 2, 3])}, tg.OptionError, "running: Effort does not fit"),
    ],
)  # fmt: skip
def test_bad_problems_are_named(arguments: dict[str, Any], error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        trolleys(**arguments)


def test_a_scene_without_actuators_has_nothing_to_control() -> None:
    simulator = tg.Simulator(tg.scenes.cube())
    with pytest.raises(tg.OptionError, match="no actuators"):
        ControlProblem(simulator, simulator.initial_state(), 10)
    with pytest.raises(tg.StateError, match="nq=2"):
        ControlProblem(tg.Simulator(tg.scenes.cartpole()), simulator.initial_state(), 10)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        ({"problem": "cartpole"}, tg.OptionError, "ControlProblem; got str"),
        ({"controls": np.zeros((3, 2))}, tg.StateError, r"controls must have shape \(20, 2\)"),
        ({"controls": np.full((20, 2), np.nan)}, tg.StateError, r"controls\[0, 0\] is not finite"),
        ({"controls": "full"}, tg.StateError, "not an array of numbers"),
        ({"max_iterations": -1}, tg.OptionError, "max_iterations=-1"),
        ({"time_budget": np.nan}, tg.OptionError, "time_budget=nan"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(
    method: Method, arguments: dict[str, Any], error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        method(**({"problem": trolleys(), "controls": np.zeros((20, 2))} | arguments))


@pytest.mark.parametrize(
    ("method", "arguments", "complaint"),
    [
        (ilqr, {"damping": -1.0}, "damping=-1.0"),
        (ilqr, {"gradient_tolerance": -1.0}, "gradient_tolerance=-1.0"),
        (multiple_shooting, {"segment": 0}, "segment=0"),
        (multiple_shooting, {"states": []}, "states must be 20"),
        (stochastic_search, {"spread": 0.0}, "spread=0.0"),
        (stochastic_search, {"population": 2}, "population=2"),
        (stochastic_search, {"seed": -1}, "seed=-1"),
    ],
)  # fmt: skip
def test_bad_options_of_one_method_are_named(method: Method, arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(tg.OptionError, match=complaint):
        method(trolleys(), np.zeros((20, 2)), **arguments)


class TestSecondOrder:
    def test_the_hessian_of_a_piece_agrees_with_differences_of_its_gradient(self) -> None:
        """Through contact, with controls held for several steps."""
        problem = pushed_puck()
        rng = np.random.default_rng(0)
        x, u = 0.1 * rng.normal(size=problem.nx), rng.normal(size=(1, problem.nu))

        def gradient_and_hessian(z: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            held = z[problem.nx :].reshape(1, -1)
            states, _ = problem.piece(problem.moved(problem.start, z[: problem.nx]), held, 0)
            piece, end = problem.linearized(states, held, 0), problem.final_expansion(states[-1])
            F = np.hstack([piece.A, piece.B])
            return piece.gradient + F.T @ end.x, piece.hessian + F.T @ end.xx @ F + problem.motion_hessian(piece, end.x)

        at = np.concatenate([x, u.ravel()])
        found = gradient_and_hessian(at)[1]
        by_differences = [
            (gradient_and_hessian(at + e)[0] - gradient_and_hessian(at - e)[0]) / 2e-5 for e in 1e-5 * np.eye(len(at))
        ]
        np.testing.assert_allclose(found, by_differences, atol=1e-5 * np.abs(found).max())

    def test_newtons_method_ends_where_ilqr_ends_in_fewer_steps(self) -> None:
        problem = pushed_puck()
        start = np.zeros((problem.intervals, problem.nu))
        rules: Any = {"max_iterations": 60, "gradient_tolerance": 1e-7, "cost_tolerance": 0.0}
        plain, newton = (tg.optimize.ilqr(problem, start, second_order=s, **rules) for s in (False, True))
        assert newton.converged
        assert newton.cost <= plain.cost * (1 + 1e-6)
        assert len(newton.history) <= len(plain.history)

    def test_a_model_without_second_derivatives_says_so(self) -> None:
        sim = tg.Simulator(tg.scenes.push_t(), "ncp")
        problem = tg.optimize.ControlProblem(sim, sim.initial_state("home"), 2, running=tg.optimize.Effort())
        with pytest.raises(tg.NotDifferentiable, match="first derivatives only"):
            tg.optimize.ilqr(problem, np.zeros((2, 2)), second_order=True)


def pushed_puck() -> tg.optimize.ControlProblem:
    """A finger beside a puck, in the plane; soft contact reaches from one to the other."""
    scene = tg.load("""<mujoco><option timestep="0.02" gravity="0 0 0"/>
    <default><joint type="slide" damping="1.5"/></default><worldbody>
    <body><joint name="fx" axis="1 0 0"/><joint name="fy" axis="0 1 0"/><geom size="0.02" mass="0.3"/></body>
    <body pos="0.065 0.01 0"><joint axis="1 0 0"/><joint axis="0 1 0"/><geom size="0.04" mass="0.5"/></body></worldbody>
    <actuator><motor joint="fx"/><motor joint="fy"/></actuator></mujoco>""")
    sim = tg.Simulator(scene, tg.Soft(smoothing=(None, None, 0.01), stiction=0.05))
    goal = tg.optimize.TargetState(scene, [0, 0, 0.1, 0.04], q_weight=[0, 0, 1e3, 1e3], v_weight=[0, 0, 10, 10])
    cost: Any = {"running": tg.optimize.Effort(0.1), "final": goal}
    return tg.optimize.ControlProblem(sim, scene.initial_state(), 20, hold=4, **cost)
