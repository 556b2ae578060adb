"""Derivatives of relaxed steps by all that they depend on, against central differences of the very same steps.

The laws of contact relaxed by ρ bend over a length of ρ over the force. Differences must take steps well below that: on
a cube at ρ = 1e-2 (2 mm), those over 5e-4 miss the derivative by 3e-4, over 1e-4 by 3e-7, over 3e-5 by 1e-8. That is
their own error, of fourth order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from numpy.typing import NDArray

import tangens as tg

pytestmark = pytest.mark.xdist_group("interior")  # compiled functions are shared within a process

Array = NDArray[np.float64]

RHO = 1e-3
MODELS = {
    "single-level": tg.SingleLevel(relaxation=RHO, tolerance=1e-7, max_iterations=120),
    "bilevel": tg.Bilevel(relaxation=RHO, tolerance=1e-7, max_iterations=120),
}

# Of the structure of other tests' cube, which spares a compilation.
FREE = tg.scenes.cube().replace(
    timestep=0.01,
    size={"cube": [0.1, 0.08, 0.1]},
    friction={"floor": 0.3, "cube": 0.5},
    mass={"cube": 1.0},
    com={"cube": [0.01, 0.0, 0.005]},
    inertia={"cube": [0.01, 0.012, 0.014, 0.001, 0.0005, -0.001]},
    damping=0.01,
    armature=0.01,
)
ARM = tg.load("""
<mujoco>
  <option timestep="0.01" integrator="Euler"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <body name="upper" pos="0 0 0.3">
      <joint name="shoulder" axis="0 1 0" range="-170 170" limited="true"/>
      <inertial pos="0.01 0 -0.1" mass="0.4" fullinertia="0.002 0.003 0.0015 0.0001 0.0002 0.0001"/>
      <body name="lower" pos="0 0 -0.2">
        <joint name="elbow" axis="0 1 0"/>
        <inertial pos="0 0 -0.05" mass="0.3" diaginertia="0.001 0.001 0.001"/>
        <geom name="tip" type="sphere" size="0.03" pos="0 0 -0.1" friction="0.7" contype="1"/>
      </body>
    </body>
    <body name="box" pos="0.1 0 0">
      <joint name="x" type="slide" axis="1 0 0"/>
      <joint name="z" type="slide" axis="0 0 1"/>
      <inertial pos="0 0 0" mass="0.5" diaginertia="0.001 0.001 0.001"/>
      <geom name="box" type="box" size="0.07 0.05 0.06" friction="0.4" conaffinity="1"/>
    </body>
  </worldbody>
  <actuator><motor name="motor" joint="shoulder" gear="2"/></actuator>
</mujoco>
""").replace(damping=0.05, armature=0.01)


class Situation(NamedTuple):
    """Where a step starts, and what drives it."""

    scene: tg.Scene
    state: tg.State
    u: Array
    tau: Array


def _free(height: float, tilt: tuple[float, float, float], v: list[float]) -> Situation:
    q = FREE.integrate([0.0, 0.0, 0.1, 1.0, 0.0, 0.0, 0.0], [0.01, 0.02, height, *tilt])
    return Situation(FREE, tg.State(q, v), np.zeros(0), np.array([0.3, -0.2, 0.5, 0.01, 0.02, -0.01]))


SITUATIONS = {
    "flying": _free(0.05, (0.3, -0.2, 0.1), [0.1, 0.2, -0.1, 1.0, 0.5, -0.5]),
    "sticking": _free(0.0, (0.0, 0.0, 0.2), [0.005, 0.002, -0.1, 0.0, 0.0, 0.01]),
    "sliding": _free(0.0, (0.0, 0.0, 0.2), [0.4, 0.3, -0.1, 0.0, 0.0, 0.1]),
    "on an edge": _free(0.008, (0.06, -0.04, 0.02), [0.3, 0.0, -0.3, 1.0, 0.0, 0.5]),
    "just touching": _free(1e-4, (0.0, 0.0, 0.1), [0.1, 0.0, 0.0, 0.0, 0.0, 0.0]),
    "pushing": Situation(
        ARM,
        tg.State([-0.02, 0.05, 0.0, 0.01], [-0.8, -0.4, 0.0, 0.1]),
        np.array([-1.0]),
        np.array([0.1, 0.0, 0.2, 0.3]),
    ),
}

# Lengths of differences; a mass of a kilogram, a force of a newton and so on change laws of contact less than a metre.
_LENGTHS = {"q": 3e-6, "v": 1e-4, "u": 1e-3, "tau": 1e-3, "com": 3e-6, "size": 3e-6, "inertia": 1e-6}
_LENGTH = 1e-4
_STENCIL = ((1, 8 / 12), (-1, -8 / 12), (2, -1 / 12), (-2, 1 / 12))
ELSEWHERE = {"restitution", "frictionloss"}  # see test_bounces and test_relaxed_constraints: here there are none
INPUTS = ("q", "v", "u", "tau", *(name for name in tg.SingleLevel.parameters if name not in ELSEWHERE))

CASES: list[Any] = [
    *(("single-level", name) for name in SITUATIONS),
    ("bilevel", "flying"),
    ("bilevel", "on an edge"),
    pytest.param("bilevel", "pushing", marks=pytest.mark.slow),
]


def simulator(model: str, at: Situation, **options: Any) -> tg.Simulator:
    return tg.Simulator(at.scene, MODELS[model], **options)


@pytest.mark.parametrize(("model", "situation"), CASES)
def test_jacobians_are_those_of_the_very_step(model: str, situation: str) -> None:
    at = SITUATIONS[situation]
    sim = simulator(model, at)
    out = sim.step(at.state, at.u, at.tau)
    assert out.solver.converged
    J = sim.jacobian(out, wrt=INPUTS)
    assert J.solver is out.solver
    errors = {}
    for name in INPUTS:
        where, reference = differences(sim, at, name)
        for row, output in enumerate(("q", "v")):
            ours = J[output, name][:, *where]
            scale = max(np.abs(reference[row]).max(initial=0.0), 1e-3)
            errors[output, name] = float(np.abs(ours - reference[row]).max(initial=0.0) / scale)
    assert {key: error for key, error in errors.items() if not error < 1e-5} == {}


@pytest.mark.parametrize(("model", "situation"), CASES)
def test_reverse_mode_is_the_transpose(model: str, situation: str) -> None:
    at = SITUATIONS[situation]
    sim, rng = simulator(model, at), np.random.default_rng(0)
    dq, dv = rng.normal(size=(2, sim.scene.nv))
    traj = sim.rollout(at.state, at.u[None], at.tau[None])
    J, back = sim.jacobian(traj.steps[0], wrt=INPUTS), sim.pullback(traj, dq=dq, dv=dv)
    found = {"q": back.state.q, "v": back.state.v, "u": back.controls[0], "tau": back.tau[0], **back.parameters}
    for name in INPUTS:
        expected = np.tensordot(dq, J["q", name], 1) + np.tensordot(dv, J["v", name], 1)
        np.testing.assert_allclose(found[name], expected, rtol=1e-10, atol=1e-12)


def test_the_relaxed_rule_differentiates_the_relaxed_step() -> None:
    at = SITUATIONS["on an edge"]
    hard = tg.Simulator(at.scene, tg.SingleLevel(relaxation=1e-6, tolerance=1e-4), gradient=tg.Relaxed(relaxation=RHO))
    out = hard.step(at.state, at.u, at.tau)
    relaxed = simulator("single-level", at).jacobian(at.state, at.u, at.tau, wrt=INPUTS)
    ours, exact = hard.jacobian(out, wrt=INPUTS), hard.jacobian(out, wrt=INPUTS, gradient="exact")
    for name in INPUTS:
        np.testing.assert_allclose(ours["v", name], relaxed["v", name], rtol=1e-4, atol=1e-6)
    assert np.abs(exact["v", "v"] - relaxed["v", "v"]).max() > 0.01


@pytest.mark.slow
def test_a_scan_of_the_pure_function_is_a_rollout_forward_and_in_reverse() -> None:
    """From a quaternion that is not normalised: the derivative is zero along it."""
    at, T, rng = SITUATIONS["sliding"], 5, np.random.default_rng(0)
    sim = simulator("single-level", at)
    step: Any = sim.engine.function(tg.Exact())
    names = ("mass", "com", "inertia", "friction", "size")
    x = {"q": at.state.q * np.repeat([1.0, 1.3], [3, 4]), "v": at.state.v, "tau": np.tile(at.tau, (T, 1))}
    x |= {name: sim.scene.parameters[name] for name in names}
    direction = {name: rng.normal(size=value.shape) for name, value in x.items()}
    weights = rng.normal(size=7), rng.normal(size=6)

    def end(x: dict[str, Any]) -> Any:
        def one(carry: Any, tau: Any) -> Any:
            q, v = carry
            return step({name: x[name] for name in names}, q, v, None, tau), None

        return jax.lax.scan(one, (x["q"], x["v"]), x["tau"])[0]

    @jax.jit
    def both(x: Any) -> Any:  # as jvp and grad do it, compiled once
        ends, forward = jax.linearize(end, x)
        return ends, forward(direction), jax.linear_transpose(forward, x)(weights)[0]

    (q, v), along, found = jax.tree.map(np.asarray, both(x))
    traj = sim.rollout(at.state, T, x["tau"])
    np.testing.assert_allclose(np.concatenate([q, v]), np.concatenate([traj.q[-1], traj.v[-1]]), rtol=0, atol=1e-10)
    back = sim.pullback(traj, dq=tangents(sim.scene, q) @ weights[0], dv=weights[1], wrt=names)
    by_q = tangents(sim.scene, at.state.q) * np.repeat([1.0, 1.3], [3, 4]) @ found["q"]
    expected = {"v": back.state.v, "tau": back.tau, **back.parameters}
    np.testing.assert_allclose(by_q, back.state.q, rtol=1e-8, atol=1e-8)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-8, atol=1e-8 * np.abs(value).max())
    assert abs(x["q"][3:] @ found["q"][3:]) < 1e-10
    forward, reverse = (
        sum(np.sum(a * b) for a, b in zip(weights, along, strict=True)),
        sum(np.sum(direction[name] * found[name]) for name in x),
    )
    assert forward == pytest.approx(reverse, rel=1e-10)


def tangents(scene: tg.Scene, q: Array) -> Array:
    """How the numbers of q change along the tangent space, (nv, nq)."""
    h = 1e-5
    steps = [
        (8 * (scene.integrate(q, d) - scene.integrate(q, -d)) - scene.integrate(q, 2 * d) + scene.integrate(q, -2 * d))
        for d in h * np.eye(scene.nv)
    ]
    return np.stack(steps) / (12 * h)


@pytest.mark.slow
def test_the_pure_function_works_where_jax_is_set_to_single_precision() -> None:
    at = SITUATIONS["sliding"]
    sim = simulator("single-level", at)
    step, mass = sim.engine.function(tg.Exact()), sim.scene.parameters["mass"]
    w = np.arange(1.0, 7.0)
    with jax.enable_x64(False):
        q, v, tau = (jnp.asarray(x) for x in (at.state.q, at.state.v, at.tau))
        by_v = jax.jit(jax.grad(lambda v: w @ step({"mass": mass}, q, v, None, tau)[1]))(v)
    assert by_v.dtype == jnp.float32
    traj = sim.rollout(at.state, 1, at.tau[None])
    np.testing.assert_allclose(by_v, sim.pullback(traj, dv=w).state.v, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "situation"), [("single-level", "on an edge"), ("bilevel", "pushing")])
def test_jax_finds_nothing_wrong_with_the_pure_function(model: str, situation: str) -> None:
    at = SITUATIONS[situation]
    step = jax.jit(simulator(model, at).engine.function(tg.Exact()))
    friction = jnp.asarray(at.scene.parameters["friction"])

    def end(q: Any, v: Any, tau: Any, friction: Any) -> Any:
        return step({"friction": friction}, q, v, at.u, tau)

    x = jnp.asarray(at.state.q), jnp.asarray(at.state.v), jnp.asarray(at.tau), friction
    check_grads(end, x, order=1, modes=("fwd", "rev"), eps=1e-6, atol=1e-4, rtol=1e-4)
    with pytest.raises(tg.NotDifferentiable, match="first derivatives only"):
        jax.hessian(lambda v: end(x[0], v, *x[2:])[1][0])(x[1])


def differences(sim: tg.Simulator, at: Situation, name: str) -> tuple[Any, Array]:
    """Which entries of an input were varied, and the derivatives of q⁺ and v⁺ by them, (2, nv, k)."""
    where = _entries(sim.scene, name)
    length, end = _LENGTHS.get(name, _LENGTH), sim.step(at.state, at.u, at.tau).state
    columns = []
    for k in zip(*where, strict=True):
        column = np.zeros((2, sim.scene.nv))
        for multiple, weight in _STENCIL:
            out = _moved(sim, at, name, k, multiple * length).state
            column += weight / length * np.stack([sim.scene.difference(end.q, out.q), out.v])
        columns.append(column)
    return where, np.stack(columns, -1) if columns else np.zeros((2, sim.scene.nv, 0))


def _entries(scene: tg.Scene, name: str) -> Any:
    """Entries of an input that mean something: bodies that move, sizes that a shape has."""
    if name in ("q", "v", "tau"):
        return (np.arange(scene.nv),)
    if name == "u":
        return (np.arange(scene.nu),)
    value = scene.parameters[name]
    counts = np.ones(value.shape, bool)
    if name in ("mass", "com", "inertia"):
        counts[0] = False
    elif name == "size":
        counts = (value > 0) & (np.array(scene.geom_names) != "floor")[:, None]
    return np.nonzero(counts)


def _moved(sim: tg.Simulator, at: Situation, name: str, k: tuple[int, ...], delta: float) -> tg.Step:
    """The step from where one entry of an input is larger."""
    move: dict[str, Callable[[Array], tg.Step]] = {
        "q": lambda d: sim.step(at.state.replace(q=sim.scene.integrate(at.state.q, d)), at.u, at.tau),
        "v": lambda d: sim.step(at.state.replace(v=at.state.v + d), at.u, at.tau),
        "u": lambda d: sim.step(at.state, at.u + d, at.tau),
        "tau": lambda d: sim.step(at.state, at.u, at.tau + d),
    }
    if name in move:
        d = np.zeros(sim.scene.nu if name == "u" else sim.scene.nv)
        d[k] = delta
        return move[name](d)
    value = sim.scene.parameters[name].copy()
    value[k] += delta
    changed: dict[str, Any] = {name: value}
    other = tg.Simulator(sim.scene.replace(**changed), sim.contact)
    return other.step(at.state, at.u, at.tau)
