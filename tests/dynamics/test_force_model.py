"""Springs, dampers, tendons and actuators, one by one: both worlds exert what MuJoCo does, and refuse the same."""

from __future__ import annotations

import copy

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from mujoco import mjtDisableBit as Off

import tangens as tg
from tangens.dynamics.exact import ExactDynamics, contact_free
from tangens.dynamics.features import SMOOTH_FEATURES
from tangens.dynamics.forces_jax import JointForces
from tangens.dynamics.layout import JointLayout
from tangens.dynamics.rigid_body_jax import Configuration, RigidBodies
from tangens.dynamics.smooth import SmoothDynamics
from tangens.dynamics.spatial import Ancestry

TENDON = '<tendon><fixed name="t" {}><joint joint="hinge" coef="2"/><joint joint="other" coef="-1"/></fixed></tendon>'
ROPE = '<tendon><spatial name="rope" {}><site site="anchor"/><site site="thrust"/></spatial></tendon>'


def scene(
    *actuators: str, tendon: str = "", gravcomp: float = 0, option: str = "", flag: str = "", **joints: str
) -> str:
    """A free body with an arm on a ball joint, a hinge and a slide; another body beside it."""
    joint = {name: joints.get(name, "") for name in ("free", "ball", "hinge", "slide", "other")}
    return f"""<mujoco><option timestep=".01" {option}><flag {flag}/></option><worldbody><site name="anchor"/>
      <body name="base" pos="0 0 .3" gravcomp="{gravcomp}"><joint name="free" type="free" {joint["free"]}/>
        <geom type="box" size=".1 .2 .3" pos=".1 .2 .1"/><site name="thrust" pos=".1 .2 .3" euler="30 20 10"/>
        <body pos=".2 0 .1" euler="0 30 10" gravcomp="{gravcomp}">
          <joint name="ball" type="ball" pos=".01 .02 -.1" {joint["ball"]}/>
          <geom type="capsule" size=".04 .2" pos="0 .1 .2" euler="20 0 0"/>
          <body pos=".2 .1 .3" gravcomp="{gravcomp}">
            <joint name="hinge" axis="0 1 .3" ref="20" springref="10" {joint["hinge"]}/>
            <joint name="slide" type="slide" axis="1 0 1" ref=".1" springref=".2" {joint["slide"]}/>
            <geom type="ellipsoid" size=".1 .07 .04" pos=".05 0 0"/><site name="hand"/>
          </body>
        </body>
      </body>
      <body pos="2 0 0"><joint name="other" axis="0 1 0" {joint["other"]}/><geom size=".1" pos="0 0 .3"/></body>
    </worldbody>{tendon}<actuator>{"".join(actuators)}</actuator></mujoco>"""


SUPPORTED = {
    "joint springs": scene(hinge='stiffness="2 1 3"', slide='stiffness="3 .5 .2"', free='stiffness="2"'),
    "ball spring": scene(ball='stiffness="2 1 3"'),
    "joint dampers": scene(free='damping=".3 .2 .1"', ball='damping=".4 .1 .2"', hinge='damping="1 .3 .2"'),
    "tendon spring": scene(tendon=TENDON.format('stiffness="5 2 1" springlength="-.1 .4"')),
    "tendon damper": scene(tendon=TENDON.format('damping="1 2 3"')),
    "motors": scene('<motor joint="hinge" gear="3"/>', '<motor joint="slide" ctrlrange="-.5 .5"/>'),
    "servos": scene(
        '<position joint="hinge" kp="5" kv="2" gear="3" forcerange="-1 2"/>',
        '<velocity joint="slide" kv="5" gear="-2"/>',
        '<damper joint="other" kv="5" gear="-2" ctrlrange="0 1"/>',
    ),
    "affine": scene(
        '<general joint="hinge" gaintype="affine" gainprm="1 2 3" biastype="affine" biasprm="1 2 3"/>',
        '<general joint="slide" gaintype="fixed" gainprm="1 2 3" biastype="none" biasprm="1 2 3"/>',
    ),
    "reflected": scene(
        '<motor joint="hinge" gear="3" damping=".2 .1 .05" armature=".03"/>',
        '<motor joint="hinge" gear="-2" damping=".1" armature=".2"/>',
        '<motor joint="ball" gear="2 1 1" damping=".1 .2 .3" armature=".1"/>',
        '<motor joint="free" gear="2 1 1 1 1 1" damping=".1 .2 .3" armature=".1"/>',
    ),
    "on a tendon": scene(
        '<position tendon="t" gear="3" kp="4" kv="1" damping=".2 .1 .05"/>',
        '<motor tendon="t" damping=".3"/>',
        tendon=TENDON.format(""),
    ),
    "on a ball": scene(
        '<motor joint="ball" gear="1 0 -.3"/>',
        '<position joint="ball" gear="1 .5 -.3" kp="4"/>',
        '<position joint="ball" gear="0 .5 0" kp="4" kv="1"/>',
    ),
    "on a free joint": scene(
        '<motor joint="free" gear="1 2 3 4 5 6"/>', '<position joint="free" gear="0 2 0 4 0 6" kp="3" kv="1"/>'
    ),
    "in the parent": scene('<position jointinparent="hinge" gear="2" kp="3"/>'),
    "gravcomp": scene(gravcomp=0.6),
    "gravcomp by actuators": scene(
        '<motor joint="hinge"/>', gravcomp=0.6, free='actuatorgravcomp="true"', ball='actuatorgravcomp="true"',
        hinge='actuatorgravcomp="true" actuatorfrcrange="-.1 .1"',
    ),
    "gravcomp by no actuators": scene(gravcomp=0.6, ball='actuatorgravcomp="true"'),
    "joint force limit": scene(
        '<motor joint="hinge" gear="3"/>', '<motor joint="hinge"/>', hinge='actuatorfrcrange="-.2 .3"'
    ),
    # MuJoCo clamps what disabled actuators exert too.
    "disabled group": scene(
        '<motor joint="hinge" group="2" armature=".1" damping=".2" forcerange="1 2"/>', '<motor joint="slide"/>',
        option='actuatorgroupdisable="2"',
    ),
    "force range without zero": scene('<general joint="hinge" gainprm="0" forcerange="1 2"/>'),
    "decorative spatial tendon": scene(tendon=ROPE.format("")),
}  # fmt: skip
FLAGS = ("spring", "damper", 'spring="disable" damper', "actuation", "gravity", "clampctrl")
SUPPORTED |= {
    f"without {flag}": scene(
        '<motor joint="slide" damping="2" armature="1" ctrlrange="-.1 .1"/>', tendon=TENDON.format('stiffness="5"'),
        gravcomp=0.5, ball='actuatorgravcomp="true"', hinge='stiffness="2" damping="3"', flag=f'{flag}="disable"',
    )
    for flag in FLAGS
}  # fmt: skip

# What is refused, and a scene that uses it.
REFUSED = {
    "polynomial free-joint spring": scene(free='stiffness="2 1 3"'),
    "tendon armature": scene('<motor tendon="t" gear="3" armature=".05"/>', tendon=TENDON.format('armature=".3"')),
    "tendon force limit": scene(
        '<motor tendon="t" gear="2"/>', '<motor tendon="t"/>', tendon=TENDON.format('actuatorfrcrange="-.3 .2"')
    ),
    "turning transmission": scene(
        '<motor site="thrust" gear="1 2 3 .3 .2 .1"/>', '<position site="hand" gear="0 0 1 0 0 .1" kp="3" kv="2"/>',
        '<position jointinparent="ball" gear=".3 -.5 1.2" kp="4" armature=".02" damping=".1"/>',
        '<motor jointinparent="free" gear="1 2 3 .3 .2 .1"/>',
    ),
    "transmission": scene(
        '<motor site="thrust" refsite="hand" gear="1 2 3 .3 .2 .1"/>', '<adhesion body="base" ctrlrange="0 1"/>',
        '<motor cranksite="thrust" slidersite="hand" cranklength=".5" forcerange="1 2"/>', '<motor joint="slide"/>',
    ),
    "spatial tendon": scene(
        '<position tendon="rope" kp="3" damping="1 2 3" armature=".4"/>',
        '<motor joint="slide"/>', tendon=ROPE.format('stiffness="3 1 1" damping="1" armature=".2" range="0 1"'),
    ),
    "muscle": scene('<muscle joint="hinge" lengthrange="0 1"/>', '<motor joint="slide"/>'),
    "activation": scene('<intvelocity joint="hinge" kp="1" actrange="-1 1"/>', '<motor joint="slide"/>'),
    "actuator law": scene('<pid joint="hinge" kp="3"/>', '<motor joint="slide"/>'),  # has two controls
    "plastic spring": scene(hinge='stiffness="2" springyield=".1"'),
    "plastic tendon": scene(tendon=TENDON.format('stiffness="2" springyield=".1"')),
    "fluid": scene(option='density="1.2" viscosity=".1"'),
    "actuator delay": scene('<motor joint="hinge" delay=".1" nsample="20"/>'),
}  # fmt: skip
SMOOTH_ONLY = [f.name for f in SMOOTH_FEATURES if f.refused_by == ("exact",)]


def compiled(xml: str) -> mujoco.MjModel:
    """The model without contacts; dampers explicit, as MuJoCo's `qacc_smooth` has them."""
    model = contact_free(mujoco.MjModel.from_xml_string(xml))
    model.opt.disableflags |= Off.mjDSBL_EULERDAMP
    return model


def random_data(m: mujoco.MjModel, seed: int) -> mujoco.MjData:
    """MuJoCo's own answer in a random state."""
    rng, d = np.random.default_rng(seed), mujoco.MjData(m)
    mujoco.mj_integratePos(m, d.qpos, rng.normal(size=m.nv), 1.0)
    d.qvel[:], d.ctrl[:], d.qfrc_applied[:] = (2 * rng.normal(size=n) for n in (m.nv, m.nu, m.nv))
    mujoco.mj_forward(m, d)
    return d


def mass_matrix(m: mujoco.MjModel, d: mujoco.MjData) -> np.ndarray:
    M = np.zeros((m.nv, m.nv))
    mujoco.mj_fullM(m, d, M)
    return M


def assert_close(ours: np.ndarray, theirs: np.ndarray) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9 * max(1.0, np.abs(theirs).max()))


def assert_exact_world_agrees(m: mujoco.MjModel) -> None:
    dynamics = ExactDynamics(m)
    for seed in range(4):
        d = random_data(m, seed)
        assert_close(dynamics.acceleration(d.qpos, d.qvel, d.ctrl, d.qfrc_applied), d.qacc_smooth)
        assert_close(dynamics._force, d.qfrc_applied + d.qfrc_passive + d.qfrc_actuator)


def assert_smooth_world_agrees(m: mujoco.MjModel) -> None:
    """Forces and added inertia, where MuJoCo places bodies; how we place them is tested in test_smooth.py."""
    forces = JointForces(m, JointLayout.from_model(m), Ancestry(m), RigidBodies(m, Ancestry(m)))
    parameters = {"mass": m.body_mass, "com": m.body_ipos, "damping": m.dof_damping, "gravity": m.opt.gravity}
    p = {name: jnp.asarray(value) for name, value in parameters.items()}
    bare = copy.copy(m)
    bare.tendon_armature[:], bare.actuator_armature[:] = 0.0, 0.0
    for seed in range(4):
        d = random_data(m, seed)
        placed = d.xpos, d.xmat.reshape(-1, 3, 3), d.subtree_com[m.body_rootid], d.cdof
        at = Configuration(*(jnp.asarray(part) for part in placed))
        ours = forces(p, at, *(jnp.asarray(x) for x in (d.qpos, d.qvel, d.ctrl)))
        assert_close(np.asarray(ours), d.qfrc_passive + d.qfrc_actuator)
        assert_close(forces.added_inertia, mass_matrix(m, d) - mass_matrix(bare, random_data(bare, seed)))


@pytest.mark.parametrize("name", SUPPORTED)
def test_both_worlds_exert_what_mujoco_does(name: str) -> None:
    model = compiled(SUPPORTED[name])
    assert_exact_world_agrees(model)
    assert_smooth_world_agrees(model)


@pytest.mark.parametrize("name", SMOOTH_ONLY)
def test_what_only_the_smooth_world_knows(name: str) -> None:
    assert_smooth_world_agrees(compiled(REFUSED[name]))


@pytest.mark.parametrize("name", REFUSED)
def test_worlds_refuse_what_the_table_says(name: str) -> None:
    model = mujoco.MjModel.from_xml_string(REFUSED[name])
    with pytest.raises(tg.SceneError, match=f"{name} is not supported"):
        ExactDynamics(model)
    with pytest.raises(tg.SceneError, match=f"{name} is not supported"):
        tg.load(model)
    if name not in SMOOTH_ONLY:
        with pytest.raises(tg.SceneError, match=f"{name} is not supported"):
            SmoothDynamics(model)


@pytest.mark.parametrize("name", [f.name for f in SMOOTH_FEATURES if f.switch_off and f.name in REFUSED])
def test_what_is_switched_off_is_gone_in_both_worlds(name: str) -> None:
    model = compiled(REFUSED[name])
    switched_off = tg.load(model, ignore=(name,)).model
    assert_exact_world_agrees(switched_off)
    assert_smooth_world_agrees(switched_off)
    SmoothDynamics(switched_off)


@pytest.mark.parametrize("name", ["plastic spring", "plastic tendon"])
def test_a_plastic_spring_without_plasticity_is_elastic(name: str) -> None:
    plastic = tg.load(REFUSED[name], ignore=(name,))
    elastic = tg.load(REFUSED[name].replace('springyield=".1"', ""))
    a = b = plastic.initial_state().replace(v=np.ones(plastic.nv))
    one, other = tg.Simulator(plastic, contact=None), tg.Simulator(elastic, contact=None)
    for _ in range(50):
        a, b = one.step(a).state, other.step(b).state
    np.testing.assert_array_equal(a.q, b.q)


def test_fields_altered_after_compilation_count_as_in_mujoco() -> None:
    """MuJoCo notes while compiling which actuators reflect, and whether gravity is compensated at all."""
    model = compiled(scene('<motor joint="hinge"/>'))
    model.actuator_armature[0], model.actuator_damping[0], model.body_gravcomp[:] = 5.0, 5.0, 1.0
    assert_exact_world_agrees(model)
    assert_smooth_world_agrees(model)
