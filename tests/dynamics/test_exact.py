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


def with_integrator(name: str) -> str:
    return EVERYTHING.replace('timestep="0.01"', f'timestep="0.01" integrator="{name}"')


IMPLICIT = with_integrator("implicitfast")
IMPLICITS = {
    "everything": IMPLICIT,
    "a joint's force at its limit": IMPLICIT.replace(
        '<motor joint="slide" ctrlrange="-.5 .5"/>',
        '<position joint="slide" kp="3" kv="2"/><velocity joint="ball" kv="2" gear=".3 1 -1"/>',
    ),
    "a servo on a tendon along a chain": IMPLICIT.replace('joint="other" coef="-1"', 'joint="slide" coef="-1"').replace(
        'kp="5" gear="2"', 'kp="5" kv="3" gear="2"'
    ),
}


class TestImplicitfast:
    """Damping of tendons and actuators is implicit, as in MuJoCo's `implicitfast`."""

    @pytest.mark.parametrize("xml", IMPLICITS.values(), ids=IMPLICITS)
    def test_without_contact(self, xml: str) -> None:
        errors = check_scene(tg.load(xml), samples=3, seed=0)
        assert errors["ok"], errors["errors"]

    @pytest.mark.parametrize("model", ["ncp", "lcp"])
    @pytest.mark.parametrize("xml", IMPLICITS.values(), ids=IMPLICITS)
    def test_in_flight(self, xml: str, model: str) -> None:
        scene = tg.load(xml)
        sample = random_sample(scene, np.random.default_rng(4))  # where no force reaches its limit within differences
        sim = tg.Simulator(scene, model)
        np.testing.assert_allclose(sim.step(*sample).state.v, tg.Simulator(scene).step(*sample).state.v, rtol=1e-12)
        assert max(gradient_errors(sim, sample).values()) < 1e-6
        assert max(parameter_errors(sim, sample, PARAMETERS, np.random.default_rng(0)).values()) < 1e-6

    def test_inverse_dynamics(self) -> None:
        scene = tg.load(IMPLICIT)
        state, u, tau = random_sample(scene, np.random.default_rng(0))
        sim = tg.Simulator(scene)
        a = (sim.step(state, u, tau).state.v - state.v) / scene.timestep
        np.testing.assert_allclose(sim.inverse_dynamics(state, a, u), tau, atol=1e-8)

    @pytest.mark.parametrize("model", ["ncp", "lcp"])
    def test_a_strong_servo_in_contact(self, model: str) -> None:
        """A hand pushes a block along the floor with a damping that Euler's method does not survive.

        The block, pushed at the height of its centre, would tip at a friction of 1; a hand with friction could press it
        against the floor. So the floor has 0.5 and the hand none: one answer, far from any switch.
        """
        scene = tg.load("""<mujoco><option timestep="0.005" integrator="implicitfast"/>
          <default><geom friction=".5"/></default><worldbody>
          <geom type="plane" size="5 5 1"/>
          <body pos="0 0 .05"><freejoint/><geom type="box" size=".05 .05 .05" mass="1"/></body>
          <body pos="-.1 0 .05"><joint name="x" type="slide" axis="1 0 0"/>
            <geom size=".03" mass=".5" condim="1" priority="1"/></body></worldbody>
          <actuator><position joint="x" kp="2000" kv="500"/></actuator></mujoco>""")
        sim = tg.Simulator(scene, tg.Ncp(tolerance=1e-13) if model == "ncp" else tg.Lcp(tolerance=1e-13))
        traj = sim.rollout(scene.initial_state(), np.full((200, 1), 0.2))
        assert np.abs(traj.v).max() < 1.0
        assert traj.q[-1, 7] == pytest.approx(0.2, abs=0.01)
        assert traj.q[-1, 0] == pytest.approx(0.2 - 0.1 + 0.08, abs=0.01)
        if model == "lcp":  # on the edge of its pyramid, where friction across the motion switches
            return
        t = next(t for t, contacts in enumerate(traj.contacts) if (np.abs(contacts.force[:, 0]) > 1).any()) + 20
        sample = Sample(traj.state(t), np.array([0.2]), np.zeros(7))
        assert sim.jacobian(*sample).unique
        errors = gradient_errors(sim, sample, wrt=("u", "tau", "v"), step=1e-6)
        assert max(errors.values()) < 1e-5, errors

    def test_other_integrators_are_replaced_with_a_word(self) -> None:
        sample = random_sample(tg.load(EVERYTHING), np.random.default_rng(0))
        for asked, taken in (("RK4", "Euler"), ("implicit", "implicitfast")):
            with pytest.warns(tg.SceneWarning, match=f"{asked}.*{taken}"):
                scene = tg.load(with_integrator(asked))
            expected = tg.Simulator(tg.load(with_integrator(taken))).step(*sample).state
            assert tg.Simulator(scene).step(*sample).state == expected


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
