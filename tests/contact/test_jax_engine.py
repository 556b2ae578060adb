"""What `JaxEngine` makes of a model that writes one pure function: a springy floor under a free ball, explicit."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import tangens as tg
from tangens.contact.base import Engine, Point
from tangens.contact.jax_engine import JaxEngine
from tangens.contact.jax_model import ContactArrays, Inputs, PureModel, Solution
from tangens.contact.structure import structure
from tangens.dynamics.parameter_forces import PARAMETERS
from tangens.dynamics.smooth import SmoothDynamics
from tangens.dynamics.tangent_jax import integrate
from tangens.testing import Sample, central_differences, relative_error

BALL = """<mujoco><option timestep="0.01" integrator="Euler"/><worldbody><body><freejoint/>
<inertial pos="0.01 0 0" mass="1" diaginertia="0.01 0.012 0.014"/><geom size="0.1"/></body></worldbody></mujoco>"""
START = tg.State([0, 0, 0.09, 0.9, 0.1, -0.3, np.sqrt(0.09)], [0.1, 0.2, -0.3, 1, 2, 3])


class CushionModel(PureModel):
    """f = k·softplus(r − z), upwards."""

    def __init__(self, scene: tg.Scene) -> None:
        self.dynamics = SmoothDynamics(scene.shared_model)
        self.layout = self.dynamics.layout

    def solve(self, inputs: Inputs, guess: Any = None) -> Solution:
        (q, v, u, tau), p, s = inputs
        depth = 0.01 * jax.nn.softplus((p["size"][0, 0] - q[2]) / 0.01)
        force = s["stiffness"] * depth
        inertial = {name: p[name] for name in PARAMETERS}
        M, f = self.dynamics.equations(q, v, u, tau.at[2].add(force), inertial, s["timestep"])
        v_next = v + s["timestep"] * jnp.linalg.solve(M, f)
        up = jnp.array([[0.0, 0.0, 1.0]], q.dtype)
        contact = ContactArrays(
            depth[None] > 0, q[None, :3], up, -depth[None], force * up, jnp.array([[0, 0]]), jnp.ones(1)
        )
        end = integrate(self.layout, q, s["timestep"] * v_next)
        return Solution(end, v_next, jnp.array(True), jnp.array(0), jnp.array(0.0), (contact,))


class CushionEngine(JaxEngine):
    contact: Cushion

    def key(self) -> tuple[Hashable, ...]:
        return (structure(self.scene.shared_model),)

    def model(self, room: int | None) -> CushionModel:
        return CushionModel(self.scene)

    def numbers(self) -> tuple[dict[str, Any], dict[str, Any]]:
        parameters = {name: self.scene.parameters[name] for name in self.contact.parameters}
        return parameters, {"timestep": np.float64(self.scene.timestep), "stiffness": self.contact.stiffness}


@dataclass(frozen=True)
class Cushion(tg.ContactModel):
    stiffness: float = 2000.0
    name: ClassVar[str] = "cushion"
    parameters: ClassVar[tuple[str, ...]] = (*PARAMETERS, "size")

    def bind(self, scene: tg.Scene) -> Engine:
        return CushionEngine(scene, self)


@pytest.fixture(scope="module")
def sim() -> tg.Simulator:
    return tg.Simulator(tg.load(BALL), Cushion())


def test_a_step_and_its_jacobian(sim: tg.Simulator) -> None:
    out = sim.step(START, tau=0.1 * np.ones(6))
    assert out.contacts.force[0, 2] > 20
    J = sim.jacobian(out, wrt=("q", "v", "tau", "size"))
    reference = central_differences(sim, Sample(START, np.zeros(0), 0.1 * np.ones(6)), ("q", "v", "tau"), 1e-4)
    for key in reference:
        assert relative_error(J[key], reference[key]) < 1e-6
    larger, smaller = (
        tg.Simulator(sim.scene.replace(size=0.1 + d), sim.contact).step(START, tau=0.1 * np.ones(6)).state.v
        for d in (1e-5, -1e-5)
    )
    np.testing.assert_allclose(J["v", "size"][:, 0, 0], (larger - smaller) / 2e-5, rtol=1e-5, atol=1e-8)


def test_reverse_mode_and_the_pure_function(sim: tg.Simulator) -> None:
    step = jax.jit(sim.engine.function(tg.Exact()))
    end = step(None, START.q, START.v, None, None)
    np.testing.assert_allclose(end[1], sim.step(START).state.v, atol=1e-12)
    w = np.arange(1.0, 7.0)
    by_v = jax.grad(lambda v: w @ step(None, START.q, v, None, None)[1])(START.v)
    back = sim.pullback(sim.rollout(START, 1), dv=w, wrt=())
    np.testing.assert_allclose(by_v, back.state.v, rtol=1e-10, atol=1e-12)


def test_an_explicit_model_has_second_derivatives(sim: tg.Simulator) -> None:
    step = jax.jit(sim.engine.function(tg.Exact()))

    def end(q: Any, size: Any) -> Any:
        return step({"size": size}, q, START.v, None, None)

    x = jnp.asarray(1.2 * START.q), jnp.asarray(sim.scene.parameters["size"])
    check_grads(end, x, order=2, modes=("rev",), eps=1e-5, atol=1e-3, rtol=1e-3)


def test_an_explicit_model_computes_in_the_precision_it_is_given(sim: tg.Simulator) -> None:
    step = sim.engine.function(tg.Exact())
    with jax.enable_x64(False):
        q, v = jax.jit(step)(None, jnp.asarray(START.q), jnp.asarray(START.v), None, None)
        slope = jax.jit(jax.grad(lambda v: step(None, START.q, v, None, None)[1][2]))(jnp.asarray(START.v))
    assert q.dtype == v.dtype == slope.dtype == jnp.float32
    np.testing.assert_allclose(v, sim.step(START).state.v, rtol=1e-5, atol=1e-6)


def test_batches(sim: tg.Simulator) -> None:
    assert isinstance(sim.engine, JaxEngine)
    n = 5
    x = Point(*(np.tile(a, (n, 1)) for a in (START.q, START.v, np.zeros(0), np.zeros(6))))
    x.v[:, 2] = np.linspace(-1, 1, n)
    many = sim.engine.steps(x, lanes=2)
    blocks = sim.engine.jacobians(many, ("q",))
    for i in range(n):
        out = sim.step(tg.State(x.q[i], x.v[i]))
        np.testing.assert_allclose(many.v[i], out.state.v, atol=1e-12)
        np.testing.assert_allclose(blocks["q"][i, 1], sim.jacobian(out)["v", "q"], atol=1e-10)
        assert len(many.contacts(i)) == 1
