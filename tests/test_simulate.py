"""The simulator without contact: MuJoCo's Euler step, and its derivatives forwards and backwards."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tangens as tg
from tangens.contact.base import Point
from tangens.dynamics.exact import contact_free
from tangens.dynamics.parameter_forces import PARAMETERS
from tangens.testing import random_sample


@pytest.fixture(scope="module")
def quadruped() -> tg.Simulator:
    return tg.Simulator(tg.scenes.quadruped())


# Motions that do not amplify rounding errors: damped, or regular.
@pytest.mark.parametrize("name", ["arm", "ball", "cartpole", "cheetah", "gripper", "gyro", "quadruped"])
def test_thousand_steps_are_mujocos(name: str) -> None:
    scene = tg.scenes.get(name)
    controls = 0.1 * np.sin(np.linspace(0, 20, 1000))[:, None] * np.ones(scene.nu)
    trajectory = tg.Simulator(scene).rollout(scene.initial_state(), controls)
    m = contact_free(scene.model)
    d = mujoco.MjData(m)
    for t in range(1000):
        d.ctrl[:] = controls[t]
        mujoco.mj_step(m, d)
        np.testing.assert_allclose(trajectory.q[t + 1], d.qpos, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(trajectory.v[t + 1], d.qvel, rtol=1e-9, atol=1e-9)


def test_a_free_body_falls_as_galileo_says() -> None:
    scene = tg.scenes.ball().replace(timestep=1e-3)
    state = scene.initial_state("dropped")
    last = tg.Simulator(scene).rollout(state, 1000).state(-1)
    # Semi-implicit Euler adds g·h·t/2 to the parabola.
    assert last.q[2] - state.q[2] == pytest.approx(-0.5 * 9.81 * 1.0 * (1.0 + 1e-3), rel=1e-12)
    assert last.v[2] == pytest.approx(-9.81, rel=1e-12)


def test_a_spinning_body_keeps_its_angular_momentum_without_torque() -> None:
    scene = tg.scenes.polytope().replace(gravity=[0, 0, 0], timestep=1e-4)
    simulator = tg.Simulator(scene)
    state = tg.State(scene.initial_state().q, [0, 0, 0, 1.0, -2.0, 3.0])

    def momentum(state: tg.State) -> np.ndarray:
        m, d = scene.model, mujoco.MjData(scene.model)
        d.qpos[:], d.qvel[:] = state.q, state.v
        mujoco.mj_forward(m, d)
        mujoco.mj_subtreeVel(m, d)
        return d.subtree_angmom[0].copy()

    last = simulator.rollout(state, 1000).state(-1)
    # Euler conserves it to first order in the time step.
    np.testing.assert_allclose(momentum(last), momentum(state), rtol=2e-3)


def test_a_step_leaves_its_arguments_alone(quadruped: tg.Simulator) -> None:
    state, u, tau = random_sample(quadruped.scene, np.random.default_rng(0))
    kept = state.q.copy(), state.v.copy(), u.copy(), tau.copy()
    quadruped.step(state, u, tau)
    quadruped.jacobian(state, u, tau)
    for before, after in zip(kept, (state.q, state.v, u, tau), strict=True):
        np.testing.assert_array_equal(before, after)


def test_steps_depend_on_their_arguments_alone(quadruped: tg.Simulator) -> None:
    rng = np.random.default_rng(1)
    first, second = random_sample(quadruped.scene, rng), random_sample(quadruped.scene, rng)
    before = quadruped.step(*first).state
    quadruped.step(*second)
    quadruped.jacobian(*second)
    assert quadruped.step(*first).state == before


def test_rollout_is_repeated_steps(quadruped: tg.Simulator) -> None:
    rng = np.random.default_rng(2)
    state = quadruped.initial_state("home")
    controls = rng.normal(size=(5, quadruped.scene.nu))
    tau = rng.normal(size=(5, quadruped.scene.nv))
    trajectory = quadruped.rollout(state, controls, tau)
    for t in range(5):
        state = quadruped.step(state, controls[t], tau[t]).state
        assert trajectory.state(t + 1) == state
    assert len(trajectory) == len(trajectory.contacts) == len(trajectory.solver) == 5


def test_results_do_not_depend_on_how_arrays_lie_in_memory() -> None:
    sim = tg.Simulator(tg.scenes.catapult(), "ncp")
    start, rng = sim.initial_state("loaded"), np.random.default_rng(0)
    controls = rng.normal(size=(20, 3))
    plain = sim.rollout(start, controls)
    assert np.array_equal(sim.rollout(start, np.asfortranarray(controls)).v, plain.v)
    strided = np.repeat(controls, 2, axis=1)[:, ::2]
    assert np.array_equal(sim.step(start, strided[0]).state.v, plain.v[1])
    x = Point(plain.q[:-1], plain.v[:-1], controls, np.zeros_like(plain.v[:-1]))
    many = sim.engine.steps(Point(*map(np.asfortranarray, x)))
    assert np.array_equal(many.v, sim.engine.steps(x).v)


def test_pullback_is_the_transpose_of_the_jacobians(quadruped: tg.Simulator) -> None:
    rng = np.random.default_rng(3)
    scene, T = quadruped.scene, 4
    trajectory = quadruped.rollout(
        scene.initial_state("home"), rng.normal(size=(T, scene.nu)), rng.normal(size=(T, scene.nv))
    )
    dq, dv = rng.normal(size=(T + 1, scene.nv)), rng.normal(size=(T + 1, scene.nv))
    ours = quadruped.pullback(trajectory, dq=dq, dv=dv)

    at_q, at_v = dq[T], dv[T]
    totals = {name: np.zeros_like(scene.parameters[name]) for name in PARAMETERS}
    for t in reversed(range(T)):
        J = quadruped.jacobian(
            trajectory.state(t), trajectory.u[t], trajectory.tau[t], wrt=("q", "v", "u", "tau", *PARAMETERS)
        )

        def back(name: str, J: tg.Jacobian = J, at_q: np.ndarray = at_q, at_v: np.ndarray = at_v) -> np.ndarray:
            return np.tensordot(at_q, J["q", name], axes=1) + np.tensordot(at_v, J["v", name], axes=1)

        np.testing.assert_allclose(ours.controls[t], back("u"), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(ours.tau[t], back("tau"), rtol=1e-9, atol=1e-12)
        for name in PARAMETERS:
            totals[name] += back(name)
        at_q, at_v = back("q") + dq[t], back("v") + dv[t]
    np.testing.assert_allclose(ours.state.q, at_q, rtol=1e-9)
    np.testing.assert_allclose(ours.state.v, at_v, rtol=1e-9)
    for name in PARAMETERS:
        np.testing.assert_allclose(ours.parameters[name], totals[name], rtol=1e-8, atol=1e-12)


def test_pullback_of_a_long_motion_agrees_with_differences() -> None:
    simulator = tg.Simulator(tg.scenes.gyro())
    state = simulator.initial_state("spinning")
    weights = np.random.default_rng(4).normal(size=simulator.scene.nv)

    def loss(v: np.ndarray) -> float:
        return float(weights @ simulator.rollout(state.replace(v=v), 100).v[-1])

    ours = simulator.pullback(simulator.rollout(state, 100), dv=weights, wrt=()).state.v
    step = 1e-5
    for k, unit in enumerate(np.eye(simulator.scene.nv)):
        difference = (loss(state.v + step * unit) - loss(state.v - step * unit)) / (2 * step)
        assert ours[k] == pytest.approx(difference, rel=1e-6, abs=1e-8)


def test_final_state_cotangent_stands_for_the_last_row(quadruped: tg.Simulator) -> None:
    trajectory = quadruped.rollout(quadruped.initial_state("home"), 3)
    full = np.zeros((4, quadruped.scene.nv))
    full[-1] = 1.0
    short, long = (quadruped.pullback(trajectory, dv=dv, wrt=("mass",)) for dv in (full[-1], full))
    np.testing.assert_array_equal(short.state.q, long.state.q)
    assert tuple(short.parameters) == ("mass",)


class TestBadInput:
    def test_wrong_sizes_name_both_sizes(self, quadruped: tg.Simulator) -> None:
        with pytest.raises(tg.StateError, match="nq=19, nv=18"):
            quadruped.step(tg.State(np.zeros(3), np.zeros(18)))
        state = quadruped.initial_state()
        with pytest.raises(tg.StateError, match="u must have 12 entries; got 3"):
            quadruped.step(state, u=np.zeros(3))
        with pytest.raises(tg.StateError, match=r"shape \(T, 12\)"):
            quadruped.rollout(state, np.zeros((4, 3)))

    def test_quaternions_must_have_unit_length(self, quadruped: tg.Simulator) -> None:
        state = quadruped.initial_state()
        q = state.q.copy()
        q[3:7] = [1.0, 1.0, 0.0, 0.0]
        with pytest.raises(tg.StateError, match=r"q\[3:7\].*length is 1.414"):
            quadruped.step(state.replace(q=q))

    @pytest.mark.parametrize("name", ["u", "tau"])
    def test_nan_is_refused_where_it_enters(self, quadruped: tg.Simulator, name: str) -> None:
        size = quadruped.scene.nu if name == "u" else quadruped.scene.nv
        value = np.zeros(size)
        value[2] = np.nan
        with pytest.raises(tg.StateError, match=rf"{name}\[2\] is nan"):
            quadruped.step(quadruped.initial_state(), *((value,) if name == "u" else (None, value)))

    def test_divergence_is_an_error_not_a_nan(self) -> None:
        scene = tg.scenes.cartpole()
        huge = tg.State(scene.initial_state().q, [1e200, 1e200])
        with pytest.raises(tg.SolverError, match="timestep"):
            tg.Simulator(scene).rollout(huge, 10)

    def test_what_does_not_appear_in_the_motion_has_no_derivative(self, quadruped: tg.Simulator) -> None:
        with pytest.raises(tg.NotDifferentiable, match="friction"):
            quadruped.jacobian(quadruped.initial_state(), wrt=("q", "friction"))

    def test_missing_blocks_say_how_to_ask(self, quadruped: tg.Simulator) -> None:
        J = quadruped.jacobian(quadruped.initial_state(), wrt=("q",))
        with pytest.raises(tg.OptionError, match="wrt"):
            J["v", "mass"]
        assert ("v", "q") in J
        assert ("v", "mass") not in J
        assert J.get(("v", "mass")) is None
        assert len(J) == 2

    def test_cotangents_must_be_numbers(self, quadruped: tg.Simulator) -> None:
        trajectory = quadruped.rollout(quadruped.initial_state(), 1)
        for dq in ("x", [[1.0], [2.0, 3.0]], np.zeros(3), np.full(18, np.nan)):
            with pytest.raises(tg.StateError, match="dq"):
                quadruped.pullback(trajectory, dq=dq)

    def test_unknown_contact_models_are_refused(self) -> None:
        with pytest.raises(tg.OptionError, match="unknown contact model"):
            tg.Simulator(tg.scenes.cube(), contact="glue")

    def test_a_simulator_needs_a_scene(self) -> None:
        with pytest.raises(tg.OptionError, match=r"tangens\.load"):
            tg.Simulator("cube.xml")  # type: ignore[arg-type]

    @settings(max_examples=60)
    @given(
        q=st.lists(st.floats(-1e3, 1e3), min_size=0, max_size=9),
        v=st.lists(st.floats(-1e3, 1e3), min_size=0, max_size=9),
        u=st.one_of(st.none(), st.text(), st.lists(st.floats(), max_size=3)),
    )
    def test_any_state_ends_in_a_finite_step_or_in_our_error(self, q: list[float], v: list[float], u: object) -> None:
        simulator = _cube()
        try:
            out = simulator.step(tg.State(q, v), u)  # type: ignore[arg-type]
        except tg.Error:
            return
        assert np.isfinite(out.state.q).all()
        assert np.isfinite(out.state.v).all()


def _cube(cache: list[tg.Simulator] = []) -> tg.Simulator:  # noqa: B006  (made once for all examples)
    if not cache:
        cache.append(tg.Simulator(tg.scenes.cube()))
    return cache[0]
