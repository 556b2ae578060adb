"""The contact-free dynamics in JAX: MuJoCo's numbers, right derivatives, none of them NaN, clear refusals."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from mujoco import mjtDisableBit as Off

from tangens.dynamics.smooth import SmoothDynamics
from tangens.dynamics.tangent_jax import difference, integrate
from tangens.errors import OptionError, SceneError, StateError

# Each function runs a few times only: compile quickly rather than well.
jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False})
ROBOTS = Path(gymnasium.__file__).parent / "envs/mujoco/assets"

# Every joint, spring, damper, tendon and transmission that is supported, and geoms that MJX could not collide.
ZOO = """<mujoco>
  <option timestep="0.004" gravity="1 2 -9.81" cone="elliptic" solver="PGS" integrator="RK4">
    <flag energy="enable"/></option>
  <asset><mesh name="tetrahedron" vertex="0 0 0 .2 0 0 0 .3 0 0 0 .4"/>
    <hfield name="hills" nrow="3" ncol="3" size="1 1 .1 .1"/></asset>
  <worldbody>
    <geom type="hfield" hfield="hills"/> <geom type="plane" size="1 1 1"/>
    <body mocap="true" pos=".3 .2 .1"><geom size=".1"/></body>
    <body name="base" pos="0 0 1" gravcomp=".4">
      <joint name="free" type="free" stiffness="3 1 2" damping=".3 .2 .1" armature=".1"/>
      <geom name="mesh" type="mesh" mesh="tetrahedron" pos=".02 .01 .03" euler="10 20 30" margin=".1"/>
      <site name="thrust" pos=".1 .2 .3" euler="30 20 10"/>
      <body pos=".2 0 .1" euler="0 30 10" gravcomp="1.2">
        <joint name="ball" type="ball" stiffness="5 2 3" damping=".4 .1 .2" pos=".01 .02 -.1" actuatorgravcomp="true"/>
        <geom name="capsule" type="capsule" size=".04 .2" pos="0 .1 .2" euler="20 0 0"/>
        <body pos=".2 .1 .3" gravcomp=".3">
          <joint name="hinge" axis="0 1 .3" ref="20" springref="10" stiffness="2 .5 .3" damping="1 .3 .2"
                 actuatorgravcomp="true" actuatorfrcrange="-2 2"/>
          <joint name="slide" type="slide" axis="1 0 1" ref=".1" springref=".2" stiffness="20" frictionloss="1"/>
          <geom type="ellipsoid" size=".1 .07 .04" pos=".05 0 0"/>
        </body>
        <body pos="-.2 .1 .3">
          <joint name="elbow" axis="1 1 .3" armature=".3" range="-10 10"/>
          <geom type="cylinder" size=".1 .07" pos=".05 0 0"/><site name="hand"/>
        </body>
      </body>
    </body>
    <body pos="2 0 0"><joint name="other" axis="0 1 0" pos="0 0 .3"/><geom size=".1"/></body>
  </worldbody>
  <contact><pair geom1="mesh" geom2="capsule" margin=".2"/></contact>
  <tendon>
    <fixed name="spring" stiffness="10 2 3" damping="1 .3 .2" springlength="-.1 .1" armature=".05">
      <joint joint="hinge" coef="1"/><joint joint="elbow" coef="-.5"/><joint joint="other" coef="2"/></fixed>
    <fixed name="rope" stiffness="4" actuatorfrcrange="-1 2" springlength=".3">
      <joint joint="elbow" coef="1"/><joint joint="other" coef="-1"/></fixed>
    <spatial name="decoration"><site site="thrust"/><site site="hand"/></spatial>
  </tendon>
  <equality><weld body1="base"/><tendon tendon1="spring" tendon2="rope"/></equality>
  <sensor><accelerometer site="hand"/><rangefinder site="hand"/></sensor>
  <actuator>
    <motor joint="hinge" gear="3" ctrlrange="-.5 .5" damping=".2 .1 .05" armature=".03"/>
    <position joint="slide" kp="30" kv="3" forcerange="-2 2"/>
    <velocity joint="elbow" kv="2" gear="2"/>
    <position joint="ball" gear="1 .5 -.3" kp="4"/>
    <position jointinparent="ball" gear=".3 -.5 1.2" kp="4" armature=".02" damping=".1"/>
    <motor jointinparent="free" gear="1 2 3 .3 .2 .1"/>
    <motor joint="free" gear=".3 .2 .1 1 2 3"/>
    <motor site="thrust" gear="1 2 3 .3 .2 .1"/>
    <motor site="hand" gear="0 0 1 0 0 .1"/>
    <general tendon="spring" gear="2" gaintype="affine" gainprm="2 .3 .1" biastype="affine" biasprm=".1 .2 .3"
             damping=".1 .2 .3" armature=".02"/>
    <motor tendon="rope" gear="2"/>
    <motor tendon="rope" forcerange="-1 1"/>
    <motor joint="other" group="3"/>
  </actuator>
</mujoco>"""

# Few bodies, to compile quickly; no clamps, so that derivatives exist everywhere.
CHAIN = """<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <body pos="0 0 1" gravcomp=".4">
      <joint type="free" damping=".3"/> <geom type="box" size=".2 .1 .05" pos=".02 .01 .03" euler="10 20 30"/>
      <site name="thrust" pos=".1 .2 .3" euler="30 20 10"/>
      <body pos=".2 0 .1">
        <joint name="ball" type="ball" stiffness="5" damping=".4" armature=".02"/>
        <geom type="capsule" size=".04 .2" pos="0 .1 .2" euler="20 0 0"/>
        <body pos=".2 .1 .3">
          <joint name="hinge" axis="0 1 .3" stiffness="2 .5 .3" damping="1 .3 .2"/>
          <joint name="slide" type="slide" axis="1 0 1"/> <geom size=".1" pos=".05 0 0"/>
        </body>
      </body>
    </body>
  </worldbody>
  <tendon><fixed name="rope" stiffness="10" damping="1"><joint joint="hinge" coef="1"/><joint joint="slide" coef="2"/>
  </fixed></tendon>
  <actuator><position joint="ball" gear="1 .5 -.3" kp="4" kv=".2"/><motor site="thrust" gear="0 0 1 .1 0 .1"/>
    <general tendon="rope" gaintype="affine" gainprm="2 .3 .1" biastype="affine" biasprm=".1 .2 .3"/></actuator>
</mujoco>"""

# A free body beside one on a sprung ball joint: all that is singular at rest.
PAIR = """<mujoco><worldbody><body><freejoint/><geom type="box" size=".2 .1 .05" pos=".02 .01 .03"/></body>
  <body pos=".2 0 .1"><joint name="ball" type="ball" stiffness="5" damping=".4"/><geom size=".1" pos="0 .1 .2"/></body>
  </worldbody><actuator><position joint="ball" gear="1 .5 -.3" kp="4"/></actuator></mujoco>"""

PENDULUM = """<mujoco><worldbody><body gravcomp=".3">
  <joint name="hinge" axis="0 1 0" stiffness="3" damping="2" actuatorgravcomp="{}"/><geom size=".1" pos="0 0 -.5"/>
  </body></worldbody><actuator><motor joint="hinge"/></actuator></mujoco>"""


def free_of_constraints(model: mujoco.MjModel) -> mujoco.MjModel:
    model = copy.copy(model)
    model.opt.disableflags |= Off.mjDSBL_CONSTRAINT
    if model.opt.integrator != mujoco.mjtIntegrator.mjINT_IMPLICITFAST:
        model.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    return model


def mujocos_answer(model: mujoco.MjModel, *state: np.ndarray) -> dict[str, Any]:
    """Return what MuJoCo computes, by the names of our methods."""
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:], data.ctrl[:], data.qfrc_applied[:] = state
    mujoco.mj_forward(model, data)
    inertia = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, inertia)
    answer = {
        "acceleration": data.qacc_smooth.copy(),
        "bias": data.qfrc_bias.copy(),
        "mass_matrix": inertia,
        "body_poses": (data.xpos.copy(), data.xquat.copy()),
    }
    mujoco.mj_step(model, data)
    return answer | {"step": (data.qpos.copy(), data.qvel.copy())}


def our_answer(dynamics: SmoothDynamics, methods: Sequence[str], q: Any, v: Any, u: Any, tau: Any) -> dict[str, Any]:
    arguments = {"step": (q, v, u, tau), "acceleration": (q, v, u, tau), "bias": (q, v)}
    return {name: getattr(dynamics, name)(*arguments.get(name, (q,))) for name in methods}


def random_states(model: mujoco.MjModel, count: int) -> list[np.ndarray]:
    """Return q, v, u and tau, stacked."""
    rng = np.random.default_rng(0)
    q = np.tile(model.qpos0, (count, 1))
    for row in q:
        mujoco.mj_integratePos(model, row, rng.normal(size=model.nv), 1.0)
    return [q, *(2 * rng.normal(size=(count, n)) for n in (model.nv, model.nu, model.nv))]


def assert_agreement(model: mujoco.MjModel, *methods: str, count: int = 20) -> None:
    model, states = free_of_constraints(model), random_states(model, count)
    dynamics = SmoothDynamics(model)
    ours = jit(jax.vmap(partial(our_answer, dynamics, methods)))(*states)
    for k, state in enumerate(zip(*states, strict=True)):
        theirs = mujocos_answer(model, *state)
        for name in methods:
            for mine, expected in zip(jax.tree.leaves(ours[name]), jax.tree.leaves(theirs[name]), strict=True):
                scale = max(1.0, np.abs(expected).max())
                np.testing.assert_allclose(mine[k], expected, rtol=0, atol=1e-11 * scale, err_msg=name)


def test_a_scene_with_everything_in_it_moves_as_in_mujoco() -> None:
    assert_agreement(mujoco.MjModel.from_xml_string(ZOO), "step")


def test_tendons_and_actuators_damp_implicitly_as_in_mujoco() -> None:
    assert_agreement(mujoco.MjModel.from_xml_string(ZOO.replace('"RK4"', '"implicitfast"')), "step")


def test_a_cheetah_accelerates_as_in_mujoco() -> None:
    assert_agreement(mujoco.MjModel.from_xml_path(str(ROBOTS / "half_cheetah.xml")), "acceleration")


def test_an_ant_weighs_what_it_does_in_mujoco() -> None:
    model = mujoco.MjModel.from_xml_path(str(ROBOTS / "ant.xml"))
    assert_agreement(model, "body_poses", "mass_matrix", "bias")


def test_far_from_the_origin_nothing_cancels() -> None:
    model = mujoco.MjModel.from_xml_string(PAIR)
    q, d = model.qpos0.copy(), mujoco.MjData(model)
    q[:3] = 3e3, -2e3, 1e3
    d.qpos[:] = q
    mujoco.mj_forward(model, d)
    expected = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, d, expected)
    single = SmoothDynamics(model).mass_matrix(q.astype(np.float32))
    np.testing.assert_allclose(single, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize(
    "flags",
    [
        Off.mjDSBL_SPRING,
        Off.mjDSBL_DAMPER,
        Off.mjDSBL_SPRING | Off.mjDSBL_DAMPER,
        Off.mjDSBL_GRAVITY,
        Off.mjDSBL_ACTUATION,
        Off.mjDSBL_EULERDAMP,
    ],
)
def test_what_the_scene_disables_stays_off(flags: int) -> None:
    model = mujoco.MjModel.from_xml_string(PENDULUM.format("true"))
    model.opt.disableflags |= flags
    assert_agreement(model, "step", count=3)


def test_actuators_of_a_disabled_group_are_idle() -> None:
    model = mujoco.MjModel.from_xml_string(PENDULUM.format("false"))
    model.opt.disableactuator = 1
    assert_agreement(model, "step", count=3)


class Varied:
    """A scene's step as a function of z, which displaces q (in the tangent space), v, u, tau and all parameters."""

    def __init__(self, xml: str) -> None:
        self.model = free_of_constraints(mujoco.MjModel.from_xml_string(xml))
        self.dynamics = SmoothDynamics(self.model)
        self.defaults = self.dynamics.parameters
        nv, nu = self.model.nv, self.model.nu
        parts = {"q": (nv,), "v": (nv,), "u": (nu,), "tau": (nv,)} | {k: x.shape for k, x in self.defaults.items()}
        ends = np.cumsum([0, *(int(np.prod(shape)) for shape in parts.values())])
        self.slices = {name: slice(*ends[i : i + 2]) for i, name in enumerate(parts)}
        self.shapes, self.size = parts, int(ends[-1])

    def parts(self, z: Any) -> dict[str, Any]:
        return {name: z[where].reshape(self.shapes[name]) for name, where in self.slices.items()}

    def step(self, z: jax.Array, q: jax.Array, *rest: jax.Array) -> jax.Array:
        """Return the change of q, and v⁺."""
        d, joints = self.parts(z), self.dynamics.layout
        parameters = {name: value + d[name] for name, value in self.defaults.items()}
        v, u, tau = (x + d[name] for x, name in zip(rest, ("v", "u", "tau"), strict=True))
        q_next, v_next = self.dynamics.step(integrate(joints, q, d["q"]), v, u, tau, parameters)
        return jnp.concatenate([difference(joints, q, q_next), v_next])

    def mujocos_step(self, z: np.ndarray, q: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        """Return the same from MuJoCo, for which each change of a parameter is another model."""
        d, m, moved, change = self.parts(z), copy.copy(self.model), q.copy(), np.zeros(self.model.nv)
        m.body_mass += d["mass"]
        m.body_ipos += d["com"]
        m.dof_damping += d["damping"]
        m.dof_armature += d["armature"]
        m.opt.gravity += d["gravity"]
        m.body_sameframe[:] = 0  # no shortcuts for bodies that are no longer centred
        for body, (xx, yy, zz, xy, xz, yz) in enumerate(self.defaults["inertia"] + d["inertia"]):
            moments, axes = np.linalg.eigh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
            m.body_inertia[body] = moments
            mujoco.mju_mat2Quat(m.body_iquat[body], (axes * np.linalg.det(axes)).ravel())
        mujoco.mj_integratePos(m, moved, d["q"], 1.0)
        v, u, tau = (x + d[name] for x, name in zip(rest, ("v", "u", "tau"), strict=True))
        q_next, v_next = mujocos_answer(m, moved, v, u, tau)["step"]
        mujoco.mj_differentiatePos(m, change, 1.0, q, q_next)
        return np.concatenate([change, v_next])

    def mujocos_jacobian(self, *state: np.ndarray, h: float = 1e-6) -> np.ndarray:
        slopes = [self.mujocos_step(h * e, *state) - self.mujocos_step(-h * e, *state) for e in np.eye(self.size)]
        return np.stack(slopes, axis=-1) / (2 * h)

    def state_at_rest(self) -> list[np.ndarray]:
        """Identity orientations, no velocity, relaxed springs: where careless derivatives are 0/0."""
        return [self.model.qpos0.copy(), *(np.zeros(n) for n in (self.model.nv, self.model.nu, self.model.nv))]


def random_state(model: mujoco.MjModel) -> list[np.ndarray]:
    return [x[0] for x in random_states(model, 1)]


def test_derivatives_of_a_step_are_differences_of_mujocos_steps() -> None:
    chain = Varied(CHAIN)
    jacobian = jit(jax.jacfwd(chain.step))
    for state in (random_state(chain.model), chain.state_at_rest()):
        ours, expected = jacobian(np.zeros(chain.size), *state), chain.mujocos_jacobian(*state)
        for name, columns in chain.slices.items():
            scale = max(1e-3, np.abs(expected[:, columns]).max())
            np.testing.assert_allclose(
                ours[:, columns], expected[:, columns], rtol=0, atol=1e-6 * scale, err_msg=f"∂step/∂{name}"
            )


def test_gradients_and_hessians_are_differences_of_mujocos_steps() -> None:
    pair = Varied(PAIR)
    rng, n, h = np.random.default_rng(1), pair.size, 1e-4
    weights = rng.normal(size=2 * pair.model.nv)

    def gradient(z: jax.Array, *state: jax.Array) -> tuple[jax.Array, jax.Array]:
        g = jax.grad(lambda z: weights @ pair.step(z, *state))(z)
        return g, g

    compiled = jit(jax.jacfwd(gradient, has_aux=True))
    for state in (random_state(pair.model), pair.state_at_rest()):
        hessian, first = compiled(np.zeros(n), *state)
        expected = weights @ pair.mujocos_jacobian(*state)
        np.testing.assert_allclose(first, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
        assert np.isfinite(hessian).all()
        for a, b in rng.normal(size=(20, 2, n)) / np.sqrt(n):
            corners = [s * t * pair.mujocos_step(h * (s * a + t * b), *state) for s in (1, -1) for t in (1, -1)]
            curvature = weights @ np.sum(corners, axis=0) / (4 * h**2)
            np.testing.assert_allclose(a @ hessian @ b, curvature, rtol=1e-4, atol=1e-4)


def test_a_pendulum_swings_as_the_textbook_says() -> None:
    length, inertia, armature, theta = 0.7, 0.2, 0.1, 0.4
    xml = f"""<mujoco><worldbody><body><joint axis="0 1 0"/><inertial pos="0 0 -{length}" mass="2"
              diaginertia="{inertia} {inertia} {inertia}"/></body></worldbody></mujoco>"""
    dynamics = SmoothDynamics(mujoco.MjModel.from_xml_string(xml))

    def ours(g: jax.Array, mass: jax.Array) -> jax.Array:
        p = {"gravity": jnp.array([0, 0, -g]), "mass": jnp.array([0, mass]), "armature": jnp.array([armature])}
        return dynamics.acceleration(jnp.array([theta]), jnp.zeros(1), parameters=p)[0]

    def textbook(g: jax.Array, mass: jax.Array) -> jax.Array:
        return -mass * g * length * np.sin(theta) / (mass * length**2 + inertia + armature)

    a, b = (jit(jax.value_and_grad(f, (0, 1)))(9.81, 2.0) for f in (ours, textbook))
    np.testing.assert_allclose(jax.tree.leaves(a), jax.tree.leaves(b), rtol=1e-12)  # a few dozen operations


def test_a_ball_whose_centre_is_moved_off_its_frame_is_no_longer_simple() -> None:
    """MuJoCo stores only the diagonal of a centred ball's mass matrix; a change of `com` must fill the rest."""
    ball = mujoco.MjModel.from_xml_string(
        '<mujoco><worldbody><body><freejoint/><geom size=".1"/></body></worldbody></mujoco>'
    )
    spec = mujoco.MjSpec.from_string("<mujoco><worldbody><body><freejoint/></body></worldbody></mujoco>")
    body = spec.bodies[1]
    body.explicitinertial, body.mass, body.inertia = True, ball.body_mass[1], ball.body_inertia[1]
    body.ipos = [0.1, 0.2, 0.3]
    shifted = spec.compile()
    assert ball.body_simple[1]
    assert not shifted.body_simple[1]
    q, v, u, tau = random_state(shifted)
    ours = jit(lambda: SmoothDynamics(ball).step(q, v, u, tau, {"com": shifted.body_ipos}))()
    theirs = mujocos_answer(free_of_constraints(shifted), q, v, u, tau)["step"]
    for mine, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, expected, atol=1e-12)


@pytest.fixture(scope="module")
def pendulum() -> SmoothDynamics:
    return SmoothDynamics(mujoco.MjModel.from_xml_string(PENDULUM.format("false")))


def test_results_have_the_precision_of_the_arguments(pendulum: SmoothDynamics) -> None:
    one, step = np.ones(1), jit(pendulum.step)
    assert {x.dtype for x in step(one, one, one, one)} == {np.dtype(np.float64)}
    one = one.astype(np.float32)
    assert {x.dtype for x in step(one, one, one, one)} == {np.dtype(np.float32)}


def test_parameters_are_the_models_own(pendulum: SmoothDynamics) -> None:
    values = pendulum.parameters
    assert set(values) == {"mass", "com", "inertia", "damping", "armature", "gravity"}
    values["mass"][:] = 0  # ours to change
    assert pendulum.parameters["mass"][1] > 0


def test_wrong_arguments_are_named(pendulum: SmoothDynamics) -> None:
    with pytest.raises(StateError, match=r"u has shape \(2,\)"):
        pendulum.step(np.zeros(1), np.zeros(1), np.zeros(2))
    with pytest.raises(OptionError, match="no parameter 'weight'"):
        pendulum.mass_matrix(np.zeros(1), {"weight": np.zeros(2)})
    with pytest.raises(OptionError, match="mass has shape"):
        pendulum.mass_matrix(np.zeros(1), {"mass": np.zeros(3)})


def scene(joint: str = "", rest: str = "", option: str = "") -> str:
    return f"""<mujoco>{option}<worldbody><site name="anchor"/><body><joint name="hinge" {joint}/><geom size=".1"/>
               <site name="tip"/></body></worldbody>{rest}</mujoco>"""


FLEX = """<mujoco><worldbody><flexcomp name="cloth" type="grid" count="3 3 1" spacing=".1 .1 .1" dim="2" mass="1">{}
          </flexcomp></worldbody></mujoco>"""
SPATIAL = '<tendon><spatial name="rope" {}><site site="anchor"/><site site="tip"/></spatial></tendon>'


@pytest.mark.filterwarnings("ignore:flex")
@pytest.mark.parametrize(
    ("xml", "feature"),
    [
        ("<mujoco/>", "no joints"),
        (scene(option='<option density="1.2"/>'), "fluid"),
        (FLEX.format(""), "flex is not supported"),
        (scene('stiffness="1" springyield=".1"'), "plastic spring"),
        (scene(rest=SPATIAL.format('stiffness="1"')), "spatial tendon"),
        (scene(rest=SPATIAL.format("") + '<actuator><motor tendon="rope"/></actuator>'), "spatial tendon"),
        (scene(rest='<actuator><intvelocity joint="hinge" kp="1"/></actuator>'), "activation"),
        (scene(rest='<actuator><muscle joint="hinge" lengthrange="0 1"/></actuator>'), "muscle"),
        (scene(rest='<actuator><motor joint="hinge" delay=".1" nsample="9"/></actuator>'), "delay"),
        (scene(rest='<actuator><pid joint="hinge" kp="1"/></actuator>'), "actuator law"),
        (scene(rest='<actuator><motor name="grip" site="tip" refsite="anchor"/></actuator>'), "'grip': transmission"),
        (scene(rest='<actuator><adhesion body="world" ctrlrange="0 1"/></actuator>'), "transmission"),
    ],
)
def test_what_is_not_reproduced_is_refused_by_name(xml: str, feature: str) -> None:
    with pytest.raises(SceneError, match=feature):
        SmoothDynamics(mujoco.MjModel.from_xml_string(xml))
