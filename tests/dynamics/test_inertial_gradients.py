"""Reverse mode by inertial parameters: the virtual power of inertial forces, against Pinocchio's regressor."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

import tangens as tg
from tangens.dynamics.exact import ExactDynamics
from tangens.dynamics.parameter_forces import PARAMETERS
from tangens.testing import random_sample

COMPENSATED = """
<mujoco>
  <worldbody>
    <body name="post" pos="0 0 1">
      <joint name="swing" type="ball"/>
      <geom size="0.1" pos="0.2 0 0.1" mass="2"/>
      <body name="forearm" pos="0.4 0.1 0" euler="20 30 40" gravcomp="0.7">
        <joint name="bend" axis="0 1 1"/>
        <geom type="box" size="0.1 0.05 0.02" pos="0 0.1 0.2" mass="1.5"/>
        <body name="tool" pos="0 0 0.3" gravcomp="1"><geom size="0.05" pos="0.1 0 0" mass="0.3"/></body>
      </body>
    </body>
    <body name="loose" pos="2 0 1"><freejoint/><geom type="capsule" size="0.1 0.3" mass="3"/></body>
  </worldbody>
</mujoco>
"""


@pytest.mark.parametrize("scene", [tg.scenes.quadruped(), tg.scenes.cheetah(), tg.load(COMPENSATED)])
def test_the_power_of_inertial_forces_changes_as_the_regressor_says(scene: tg.Scene) -> None:
    rng = np.random.default_rng(3)
    dynamics, x = ExactDynamics(scene.shared_model), random_sample(scene, rng)
    q, v, a, z = x.state.q, x.state.v, rng.normal(size=scene.nv), rng.normal(size=scene.nv)
    forces = dynamics.parameter_forces
    found = forces.carried_back(PARAMETERS, z, v, a, lambda at_rest: dynamics._inertial_gradients(q, v, a, z, at_rest))
    regressors: dict[str, np.ndarray] = {}
    for name in PARAMETERS:
        expected = np.tensordot(z, forces.by(name, q, v, a, regressors), axes=1)
        np.testing.assert_allclose(found[name], expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max(), err_msg=name)


def test_a_body_without_mass_has_a_derivative_by_it() -> None:
    spec = mujoco.MjSpec.from_string(COMPENSATED)
    spec.body("tool").add_body(name="marker", pos=[0.3, 0.0, 0.0])
    scene = tg.load(spec)
    sim, x = tg.Simulator(scene), random_sample(scene, np.random.default_rng(0))
    traj = sim.rollout(x.state, 1)
    dv = np.ones(scene.nv)
    by_mass = sim.pullback(traj, dv=dv, wrt=("mass",)).parameters["mass"]
    assert by_mass[-2] != 0.0
    np.testing.assert_allclose(by_mass, dv @ sim.jacobian(x.state, wrt=("mass",))["v", "mass"], rtol=1e-9, atol=1e-15)
