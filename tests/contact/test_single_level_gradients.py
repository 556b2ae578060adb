"""Jacobians of relaxed steps, against central differences of the very same relaxed steps.

The laws of contact relaxed by ρ bend over a length of ρ over the force. Differences must take steps well below that:
on the cube of `tg.scenes.cube()` at ρ = 1e-2 (2 mm), those over 5e-4 miss the derivative by 3e-4, over 1e-4 by 3e-7,
over 3e-5 by 1e-8. That is their own error, of fourth order.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import tangens as tg
from tangens.contact.interior.engine import compiled
from tangens.contact.interior.function import StepFunction, implicit
from tangens.dynamics.tangent_jax import integrate
from tangens.errors import OptionError

Array = NDArray[np.float64]
geo = tg.geometry

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
# All pairs take a quarter of an hour to compile.
QUICK = ("half-space", "polytope")
PAIRS = [
    pytest.param(*pair, marks=() if pair == QUICK else pytest.mark.slow)
    for pair in itertools.combinations_with_replacement(SHAPES, 2)
    if pair != ("half-space", "half-space")
]
# ρ, and the length of differences.
LEVELS = {1e-2: 3e-5, 1e-4: 1e-6, 1e-6: 2e-8}


def errors(fixed: str, free: str, bilevel: bool = False) -> dict[tuple[str, float], float]:
    """Relative errors of ∂v⁺/∂(q, v), pressed flat (face to face, or on a tip), and tilted and sliding."""
    scene = tg.load(SCENE).with_shapes({"fixed": SHAPES[fixed], "free": SHAPES[free]})
    model = tg.Bilevel if bilevel else tg.SingleLevel
    function = StepFunction(scene, model(max_iterations=120, tolerance=1e-7))
    layout = function.dynamics.layout

    def end(x: Any, q: Any, v: Any, relaxation: Any) -> Any:
        return function.solve({"q": integrate(layout, q, x[:6]), "v": v + x[6:]}, relaxation)

    def both(x: Any, q: Any, v: Any, relaxation: Any) -> Any:
        solution = end(x, q, v, relaxation)

        def column(dx: Any) -> Any:
            inputs = {"q": integrate(layout, q, x[:6]), "v": v + x[6:]}
            _, dq = jax.jvp(lambda x: integrate(layout, q, x[:6]), (x,), (dx,))
            return implicit(function, solution, inputs, {"q": dq, "v": dx[6:]})

        return solution.v, jax.vmap(column, out_axes=1)(jnp.eye(12))

    run = compiled(jax.vmap(both, (0, None, None, None)))
    height = TOPS.get(fixed, 0.1) + BOTTOMS.get(free, 0.1)
    tilt = np.array([1.0, 0.06, -0.04, 0.02])
    states = {
        "flat": (np.array([0.01, 0.02, height, 1, 0, 0, 0]), np.array([0.05, 0.02, -0.1, 0, 0, 0.1])),
        "tilted": (np.array([0.01, 0.02, height, *tilt / np.linalg.norm(tilt)]), np.array([0.3, 0, -0.3, 1, 0, 0.5])),
    }
    found = {}
    for name, (q, v) in states.items():
        for rho, step in LEVELS.items():
            x = np.concatenate([k * step * np.eye(12) for k in (1, -1, 2, -2, 0)])[:49]
            v_next, J = (np.asarray(a) for a in run(x, q, v, rho))
            near, far = v_next[:12] - v_next[12:24], v_next[24:36] - v_next[36:48]
            reference = ((8 * near - far) / (12 * step)).T
            error = np.abs(J[48] - reference).max() / np.abs(reference).max()
            found[name, rho] = float(error)
    return found


@pytest.mark.parametrize(("fixed", "free"), PAIRS)
def test_jacobians_are_those_of_the_relaxed_step(fixed: str, free: str) -> None:
    found = errors(fixed, free)
    assert {key: error for key, error in found.items() if not error < 1e-5} == {}


def test_derivatives_by_a_shape_and_batches_of_shapes() -> None:
    scene = tg.load(SCENE).with_shapes({"fixed": SHAPES["half-space"], "free": geo.sphere(0.1)})
    with jax.enable_x64(True):
        function = StepFunction(scene, tg.SingleLevel(relaxation=1e-3, tolerance=1e-7))
        q, v = np.array([0, 0, 0.1, 1.0, 0, 0, 0]), np.array([0.1, 0, -0.1, 0, 0, 0.0])

        def end(radius: Any) -> Any:
            return function(q, v, parameters={"shapes": {"free": geo.sphere(radius)}})[1]

        step = 1e-6
        radii = jnp.array([0.1, 0.1 + step, 0.1 - step])
        v_next, slope = compiled(jax.vmap(lambda r: jax.jvp(end, (r,), (jnp.ones_like(r),))))(radii)
    np.testing.assert_allclose(slope[0], (v_next[1] - v_next[2]) / (2 * step), rtol=1e-5, atol=1e-5)
    assert slope[0, 2] > 1  # a larger ball is pushed up


def test_unknown_parameters_are_named() -> None:
    function = StepFunction(tg.load(SCENE), tg.SingleLevel())
    with pytest.raises(OptionError, match="no parameter 'weight'"):
        function(jnp.zeros(7), jnp.zeros(6), parameters={"weight": jnp.ones(1)})
