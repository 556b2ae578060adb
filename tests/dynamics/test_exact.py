"""Exact smooth dynamics: every kind of joint, spring, damper, tendon and actuator, against MuJoCo and differences."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tangens as tg
from tangens.cli.check import check_scene
from tangens.dynamics.parameter_forces import PARAMETERS
from tangens.testing import Sample, agreement_with_mujoco, gradient_errors, parameter_errors, random_sample

EVERYTHING = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <body name="base" pos="0 0 .3" gravcomp="0.7">
      <joint name="free" type="free" stiffness="2" damping=".1"/>
      <geom size=".1" mass="2" pos=".1 0 0"/><geom type="box" size=".1 .2 .3" pos=".1 .2 .3" mass="1"/>
      <body name="upper" pos=".3 .1 0" quat="1 .2 .3 .1">
        <joint name="ball" type="ball" pos=".02 .01 .05" stiffness="2 1 3" damping=".5 .2 .1" armature=".01"
               actuatorgravcomp="true"/>
        <geom type="capsule" size=".05 .2" pos=".1 0 .1"/>
        <body name="lower" pos="0 0 .3" gravcomp="1">
          <joint name="hinge" axis="1 2 3" pos=".1 0 0" ref="20" springref="10" stiffness="2 1 3" damping="1 2 3"
                 armature=".1"/>
          <joint name="slide" type="slide" axis="0 1 .3" ref=".2" damping=".3" actuatorfrcrange="-.1 .1"
                 actuatorgravcomp="true"/>
          <geom type="capsule" size=".05 .2" pos=".1 0 .1"/>
          <body name="tool" pos=".1 0 0"><geom type="box" size=".1 .02 .03" pos=".01 .02 .03" mass="1"/></body>
        </body>
      </body>
    </body>
    <body name="other" pos="1 0 0">
      <joint name="other" axis="0 -1 0"/><geom type="box" size=".1 .02 .03" pos=".1 0 0"/>
    </body>
  </worldbody>
  <tendon>
    <fixed name="t" stiffness="2 1 3" damping="1 2 3" springlength=".1 .2">
      <joint joint="hinge" coef="2"/><joint joint="other" coef="-1"/>
    </fixed>
  </tendon>
  <actuator>
    <position tendon="t" kp="5" gear="2" damping="2 1 1"/>
    <motor joint="free" gear="1 2 3 4 5 6"/>
    <position joint="ball" gear="1 2 3" kp="3" kv="1"/>
    <general joint="hinge" gaintype="affine" gainprm="1 2 3" biastype="affine" biasprm="1 2 3" damping=".2 .1 .1"
             armature=".1" gear="2"/>
    <motor joint="hinge" damping=".1" armature=".2" gear="-3"/>
    <motor joint="slide" ctrlrange="-.5 .5"/>
    <velocity jointinparent="other" kv="2" forcerange="-1 1" gear="3"/>
  </actuator>
</mujoco>
"""


@pytest.fixture(scope="module")
def everything() -> tg.Scene:
    return tg.load(EVERYTHING)


def test_all_elements_at_once(everything: tg.Scene) -> None:
    errors = check_scene(everything, samples=6, seed=0)
    assert errors["ok"], errors["errors"]


@pytest.mark.parametrize(
    "flag", ["spring", "damper", "gravity", "clampctrl", "actuation", "eulerdamp"], ids=lambda flag: f"without {flag}"
)
def test_disable_flags_are_respected(flag: str) -> None:
    xml = EVERYTHING.replace('<option timestep="0.01"/>', f'<option timestep="0.01"><flag {flag}="disable"/></option>')
    errors = check_scene(tg.load(xml), samples=2, seed=1)
    assert errors["ok"], errors["errors"]


def test_gravity_compensation_vanishes_where_mujoco_drops_it() -> None:
    flags = '<option timestep="0.01"><flag spring="disable" damper="disable"/></option>'
    bare = EVERYTHING[: EVERYTHING.index("<actuator>")] + "</mujoco>"
    for xml in (EVERYTHING.replace('<option timestep="0.01"/>', flags), bare):
        errors = check_scene(tg.load(xml), samples=2, seed=0)
        assert errors["ok"], errors["errors"]


def test_a_servo_on_a_ball_joint_takes_the_nearest_winding(everything: tg.Scene) -> None:
    state, u, tau = random_sample(everything, np.random.default_rng(0))
    u[2] = 30.0
    sample = Sample(state, u, tau)
    assert agreement_with_mujoco(everything, sample)["step"] < 1e-9
    assert max(gradient_errors(tg.Simulator(everything), sample).values()) < 1e-6


def test_disabled_actuator_groups_do_nothing() -> None:
    xml = EVERYTHING.replace('timestep="0.01"', 'timestep="0.01" actuatorgroupdisable="3"').replace(
        '<motor joint="free"', '<motor group="3" joint="free"'
    )
    scene = tg.load(xml)
    assert check_scene(scene, samples=2, seed=0)["ok"]
    J = tg.Simulator(scene).jacobian(scene.initial_state(), wrt=("u",))
    assert not J["v", "u"][:, 1].any()


def test_other_integrators_become_euler() -> None:
    implicit = tg.load(EVERYTHING.replace('timestep="0.01"', 'timestep="0.01" integrator="implicitfast"'))
    euler = tg.load(EVERYTHING)
    sample = random_sample(euler, np.random.default_rng(0))
    assert tg.Simulator(implicit).step(*sample).state == tg.Simulator(euler).step(*sample).state


def test_a_saturated_control_has_no_effect(everything: tg.Scene) -> None:
    state, u, tau = random_sample(everything, np.random.default_rng(2))
    u[5] = 3.0  # beyond the slide motor's ctrlrange
    J = tg.Simulator(everything).jacobian(state, u, tau, wrt=("u",))
    assert not J["v", "u"][:, 5].any()
    assert J["v", "u"][:, 0].any()


@pytest.mark.parametrize("velocity", [0.0, 1e-9, 5.0], ids=["at rest", "nearly at rest", "fast"])
def test_derivatives_hold_at_the_reference_pose(velocity: float) -> None:
    """At identity orientation and zero velocity, where careless formulas divide by zero."""
    # Without v|v| and x|x| terms, in which differences across zero are off by their own step.
    smooth = re.sub(r'(damping|stiffness)="([^" ]+)[^"]*"', r'\1="\2"', EVERYTHING)
    everything = tg.load(smooth)
    rng = np.random.default_rng(3)
    state = everything.initial_state().replace(v=velocity * rng.normal(size=everything.nv))
    sample = Sample(state, 0.1 * rng.normal(size=everything.nu), rng.normal(size=everything.nv))
    errors = gradient_errors(tg.Simulator(everything), sample)
    assert max(errors.values()) < 1e-6, errors


def test_a_pendulum_swings_by_the_book() -> None:
    """v⁺ = v − h·g/l·sin(q) for a point mass; its derivatives by every parameter in closed form."""
    length, mass, g, h = 0.7, 1.3, 9.81, 0.01
    xml = f"""<mujoco><option timestep="{h}"/><worldbody><body name="bob">
      <joint axis="0 1 0" damping="0.2" armature="0.3"/>
      <inertial pos="0 0 {-length}" mass="{mass}" diaginertia="0.01 0.02 0.03"/></body></worldbody></mujoco>"""
    simulator = tg.Simulator(tg.load(xml))
    q, v, damping = 0.4, 0.5, 0.2
    state = tg.State([q], [v])
    inertia = mass * length**2 + 0.02 + 0.3 + h * damping
    torque = -mass * g * length * np.sin(q) - damping * v
    a = torque / inertia
    assert simulator.step(state).state.v[0] == pytest.approx(v + h * a, rel=1e-12)
    J = simulator.jacobian(state, wrt=("q", "v", "tau", *PARAMETERS))
    closed = {
        "q": -mass * g * length * np.cos(q) / inertia,
        "v": 1 / h - damping / inertia,
        "tau": 1 / inertia,
        "armature": -a / inertia,
        "damping": -(v + h * a) / inertia,
    }
    for name, value in closed.items():
        assert J["v", name].item() == pytest.approx(h * value, rel=1e-9), name
    assert J["v", "mass"][0, 1] == pytest.approx(h * (-g * length * np.sin(q) - length**2 * a) / inertia, rel=1e-9)
    assert J["v", "com"][0, 1, 2] == pytest.approx(
        h * (mass * g * np.sin(q) + 2 * mass * length * a) / inertia, rel=1e-9
    )
    assert J["v", "inertia"][0, 1, 1] == pytest.approx(-h * a / inertia, rel=1e-9)
    assert J["v", "gravity"][0, 2] == pytest.approx(h * mass * length * np.sin(q) / inertia, rel=1e-9)


def test_the_world_bodies_have_no_influence(everything: tg.Scene) -> None:
    J = tg.Simulator(everything).jacobian(everything.initial_state(), wrt=("mass",))
    assert not J["v", "mass"][:, 0].any()


def test_inertial_parameters_of_bodies_without_joints_count(everything: tg.Scene) -> None:
    """The tool is welded to the lower arm: its own mass, com and inertia are parameters all the same."""
    simulator = tg.Simulator(everything)
    sample = random_sample(everything, np.random.default_rng(5))
    errors = parameter_errors(simulator, sample, ("mass", "com", "inertia"), np.random.default_rng(0))
    assert max(errors.values()) < 1e-6
    tool = everything.body_names.index("tool")
    assert np.abs(simulator.jacobian(*sample, wrt=("inertia",))["v", "inertia"][:, tool]).max() > 0
