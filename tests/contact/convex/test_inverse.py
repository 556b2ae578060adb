"""Inverse dynamics of convex contact: the momentum that is missing at the end of a step, over its length."""

from __future__ import annotations

import numpy as np
import pytest

import tangens as tg

pytestmark = pytest.mark.xdist_group("convex")


def test_it_is_the_inverse_of_a_step() -> None:
    scene = tg.load("""<mujoco><option timestep="0.005"/><worldbody><geom type="plane" size="1 1 1" friction="0.6"/>
    <body pos="0 0 0.0498"><freejoint/><geom type="sphere" size="0.05" mass="0.5"/></body></worldbody></mujoco>""")
    sim = tg.Simulator(scene, tg.Convex(tolerance=1e-13))
    state = scene.initial_state().replace(v=[0.1, 0.05, -0.02, 0.3, 0, 0.1])
    tau = np.array([0.5, -0.2, 1.0, 0.01, 0.02, 0.0])
    out = sim.step(state, tau=tau)
    assert len(out.contacts) == 1
    found = sim.inverse_dynamics(state, (out.state.v - state.v) / scene.timestep)
    np.testing.assert_allclose(found, tau, atol=1e-8)
