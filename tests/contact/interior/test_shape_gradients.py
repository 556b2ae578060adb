"""Jacobians of relaxed steps for pairs of shapes at several ρ, and by the numbers of shapes themselves."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tangens as tg
from tangens.testing import Sample, central_differences, relative_error

geo = tg.geometry
pytestmark = pytest.mark.xdist_group("interior")  # compiled functions are shared within a process

SCENE = """
<mujoco>
  <option timestep="0.01" integrator="Euler"/>
  <worldbody>
    <geom name="fixed" type="box" size="0.1 0.1 0.1" friction="0.5"/>
    <body pos="0 0 0.2">
      <freejoint/>
      <inertial pos="0 0 0" mass="1" diaginertia="0.01 0.012 0.014"/>
      <geom name="free" type="box" size="0.1 0.1 0.1" friction="0.5"/>
    </body>
  </worldbody>
</mujoco>
"""
CORE = geo.box([0.08, 0.08, 0.08])
SHAPES: dict[str, Any] = {
    "half-space": geo.HalfSpace([0.0, 0.0, 1.0]),
    "polytope": geo.box([0.1, 0.1, 0.1]),
    "padded": geo.PaddedPolytope(CORE.A, CORE.b, 0.02),
    "ellipsoid": geo.ellipsoid([0.15, 0.12, 0.1]),
    "capsule": geo.Capsule(0.05, 0.05),
    "cylinder": geo.Cylinder(0.08, 0.1),
    "cone": geo.Cone(0.2, 0.6),
}
TOPS = {"half-space": 0.0, "cone": 0.05}  # how far the shapes reach up and down, where that is not 0.1
BOTTOMS = {"cone": 0.15}
PAIRS = list(itertools.combinations_with_replacement(SHAPES, 2))[1:]
QUICK = ("half-space", "polytope")
# ρ, and the length of differences: well below the length over which the laws of contact bend, ρ over the force.
LEVELS = {1e-2: 3e-5, 1e-4: 1e-6, 1e-6: 2e-8}


def errors(fixed: str, free: str, model: Any) -> dict[tuple[str, float], float]:
    """Relative errors of ∂v⁺/∂(q, v), pressed flat (face to face, or on a tip), and tilted and sliding."""
    scene = tg.load(SCENE).with_shapes({"fixed": SHAPES[fixed], "free": SHAPES[free]})
    height = TOPS.get(fixed, 0.1) + BOTTOMS.get(free, 0.1)
    tilt = np.array([1.0, 0.06, -0.04, 0.02])
    states = {
        "flat": tg.State([0.01, 0.02, height, 1, 0, 0, 0], [0.05, 0.02, -0.1, 0, 0, 0.1]),
        "tilted": tg.State([0.01, 0.02, height, *tilt / np.linalg.norm(tilt)], [0.3, 0, -0.3, 1, 0, 0.5]),
    }
    found = {}
    for (rho, length), (name, state) in itertools.product(LEVELS.items(), states.items()):
        sim = tg.Simulator(scene, model(relaxation=rho, max_iterations=120, tolerance=1e-7))
        at = Sample(state, np.zeros(0), np.zeros(6))
        ours = sim.jacobian(state, wrt=("q", "v"))
        reference = central_differences(sim, at, ("q", "v"), length)
        both = [np.hstack([J["v", "q"], J["v", "v"]]) for J in (ours, reference)]
        found[name, rho] = relative_error(*both)
    return found


@pytest.mark.parametrize(
    "pair", [pytest.param(pair, marks=[] if pair == QUICK else pytest.mark.slow) for pair in PAIRS], ids="-".join
)
def test_jacobians_are_those_of_the_relaxed_step(pair: tuple[str, str]) -> None:
    found = errors(*pair, tg.SingleLevel)
    assert {key: error for key, error in found.items() if not error < 1e-5} == {}


@pytest.mark.slow
def test_derivatives_by_a_shape_and_batches_of_shapes() -> None:
    scene = tg.load(SCENE).with_shapes({"fixed": SHAPES["half-space"], "free": geo.sphere(0.1)})
    step = tg.Simulator(scene, tg.SingleLevel(relaxation=1e-3, tolerance=1e-7)).engine.function(tg.Exact())
    q, v = np.array([0, 0, 0.1, 1.0, 0, 0, 0]), np.array([0.1, 0, -0.1, 0, 0, 0.0])

    def end(radius: Any) -> Any:
        return step({"shapes": {"free": geo.sphere(radius)}}, q, v, None, None)[1]

    length = 1e-6
    radii = jnp.array([0.1, 0.1 + length, 0.1 - length])
    v_next, slope = jax.jit(jax.vmap(lambda r: jax.jvp(end, (r,), (jnp.ones_like(r),))))(radii)
    np.testing.assert_allclose(slope[0], (v_next[1] - v_next[2]) / (2 * length), rtol=1e-5, atol=1e-5)
    assert slope[0, 2] > 1  # a larger ball is pushed up


def test_what_the_pure_function_does_not_know_is_named() -> None:
    step = tg.Simulator(tg.load(SCENE), tg.SingleLevel()).engine.function(tg.Exact())
    with pytest.raises(tg.OptionError, match="no parameter 'weight'"):
        step({"weight": jnp.ones(1)}, jnp.zeros(7), jnp.zeros(6), None, None)
    with pytest.raises(tg.OptionError, match="mass must have the shape"):
        step({"mass": jnp.ones(5)}, jnp.zeros(7), jnp.zeros(6), None, None)
    with pytest.raises(tg.StateError, match="q has shape"):
        step(None, jnp.zeros(6), jnp.zeros(6), None, None)
