"""The smoothed step is a function of its own, with a derivative that sees both sides of a switch."""

from __future__ import annotations

import numpy as np
import pytest

import tangens as tg
from tangens.testing import Sample, gradient_errors

MODEL = tg.Smoothed(tg.Ncp(tolerance=1e-13), samples=8)


def _landing_ball() -> tuple[tg.Scene, tg.State]:
    scene = tg.scenes.ball().replace(restitution=0.0)
    height = 2e-5  # touched from below by half of the samples' steps
    q = scene.integrate(scene.initial_state("resting").q, [0, 0, height, 0.1, 0.2, 0.3])
    return scene, tg.State(q, [0.3, 0.2, -height / scene.timestep, 1, 2, 3])


def test_its_derivative_is_that_of_the_mean_step() -> None:
    scene, state = _landing_ball()
    simulator = tg.Simulator(scene, contact=MODEL)
    errors = gradient_errors(simulator, Sample(state, np.zeros(0), np.zeros(6)), ("q", "v", "tau"), step=1e-7)
    assert max(errors[f"v/{name}"] for name in ("q", "v", "tau")) < 1e-5, errors


def test_it_sees_the_contact_that_the_exact_derivative_misses() -> None:
    scene, state = _landing_ball()
    above = state.replace(q=scene.integrate(state.q, [0, 0, 1e-4, 0, 0, 0]))
    exact = tg.Simulator(scene, contact="ncp").jacobian(above, wrt=("q",))["v", "q"]
    smooth = tg.Simulator(scene, contact=MODEL).jacobian(above, wrt=("q",))["v", "q"]
    assert exact[2, 2] == pytest.approx(0.0, abs=1e-9)
    assert smooth[2, 2] < -10


def test_pullback_is_its_transpose() -> None:
    scene, state = _landing_ball()
    simulator = tg.Simulator(scene, contact=MODEL)
    trajectory = simulator.rollout(state, 1)
    dq, dv = np.random.default_rng(0).normal(size=(2, 6))
    J = simulator.jacobian(state, wrt=("q", "v"))
    back = simulator.pullback(trajectory, dq=dq, dv=dv, wrt=())
    np.testing.assert_allclose(back.state.q, dq @ J["q", "q"] + dv @ J["v", "q"], atol=1e-8)
    np.testing.assert_allclose(back.state.v, dq @ J["q", "v"] + dv @ J["v", "v"], atol=1e-8)


def test_options_are_checked() -> None:
    with pytest.raises(tg.OptionError, match="samples"):
        tg.Smoothed(tg.Ncp(), samples=3)
    with pytest.raises(tg.OptionError, match="contact model"):
        tg.Smoothed("ncp")  # type: ignore[arg-type]
