"""Jacobians at default options, on robots in contact, against central differences of the same relaxed step.

At ρ = 1e-6 contact bends over 1e-7 m: differences by q over 1e-7 miss the derivative of the quadruped by 2e-4, over
1e-8 by 8e-7, over 1e-9 by 1e-7. That is their own error. So they are taken over 1e-9, of steps that are solved as far
as digits go.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import tangens as tg
from tangens import robots

pytestmark = pytest.mark.xdist_group("interior")  # compiled functions are shared within a process

Array = NDArray[np.float64]
_LENGTHS = {"q": 1e-9, "v": 1e-6, "tau": 1e-5}  # a light joint takes 1e-6 m/s from 1e-5 N m
_STENCIL = ((1, 8 / 12), (-1, -8 / 12), (2, -1 / 12), (-2, 1 / 12))

PUSHER = """
<mujoco>
  <option timestep="0.005" integrator="Euler"/>
  <default><geom contype="0" conaffinity="0" friction="0.6"/><joint damping="0.05" armature="0.01"/></default>
  <worldbody>
    <body name="upper" pos="0 0 0.3"><joint name="shoulder" axis="0 1 0" range="-170 170" frictionloss="0.1"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.02" mass="0.4"/>
      <body name="lower" pos="0 0 -0.2"><joint name="elbow" axis="0 1 0" range="-20 20"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.1" size="0.02" mass="0.3"/>
        <geom name="tip" size="0.03" pos="0 0 -0.1" contype="1" mass="0.1"/></body></body>
    <body name="box" pos="0.1 0 0">
      <joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/>
      <geom name="box" type="box" size="0.07 0.05 0.06" conaffinity="1" mass="0.5"/></body>
  </worldbody>
  <equality><joint joint1="z" polycoef="0.01 0 0 0 0"/></equality>
</mujoco>
"""


def test_of_an_arm_with_dry_friction_that_pushes_a_box() -> None:
    scene = tg.load(PUSHER)
    assert_right(scene, tg.State([-0.02, 0.05, 0.0, 0.01], [-0.8, -0.4, 0.0, 0.0]), touches=True)


@pytest.mark.slow
def test_of_a_quadruped_that_stands() -> None:
    scene = tg.scenes.quadruped()
    settled = tg.Simulator(scene, contact="single-level").rollout(scene.initial_state(), 40).state(-1)
    assert_right(scene, settled, touches=True)


@pytest.mark.slow
def test_of_an_arm_that_swings() -> None:
    scene, rng = tg.scenes.arm(), np.random.default_rng(0)
    assert_right(scene, scene.initial_state().replace(v=0.5 * rng.normal(size=scene.nv)), touches=False)


@pytest.mark.slow
def test_of_a_go1_that_stands() -> None:
    scene = robots.get("go1", ground=True)
    settled = tg.Simulator(scene, contact="single-level").rollout(scene.initial_state("standing"), 40).state(-1)
    assert_right(
        scene, settled.replace(v=settled.v + 0.02 * np.random.default_rng(0).normal(size=scene.nv)), touches=True
    )


@pytest.mark.slow
def test_of_a_ur5_whose_links_are_hulls_of_hundreds_of_faces() -> None:
    """Its derivative by q is small: over 1e-9, rounding leaves 3e-5 of it, over 1e-8 3e-6, over 1e-7 6e-7."""
    scene, rng = robots.get("ur5"), np.random.default_rng(0)
    moving = scene.initial_state().replace(v=0.2 * rng.normal(size=scene.nv))
    assert_right(scene, moving, touches=None, lengths=_LENGTHS | {"q": 1e-7})


def assert_right(scene: tg.Scene, state: tg.State, touches: bool | None, lengths: dict[str, float] = _LENGTHS) -> None:
    sim, tight = (tg.Simulator(scene, contact=model) for model in (tg.SingleLevel(), tg.SingleLevel(tolerance=1e-7)))
    out = sim.step(state)
    assert out.solver.converged
    assert touches is None or (len(out.contacts) > 0) == touches
    J = sim.jacobian(out, wrt=tuple(lengths))
    errors = {}
    for name, length in lengths.items():
        reference = differences(tight, state, name, length)
        for row, output in enumerate(("q", "v")):
            error = np.abs(J[output, name] - reference[row]).max() / np.abs(reference[row]).max()
            errors[output, name] = float(error)
    assert max(errors.values()) < 1e-5, errors


def differences(sim: tg.Simulator, state: tg.State, name: str, length: float) -> Array:
    """Derivatives of q⁺ and v⁺, (2, nv, nv)."""
    nv, end = sim.scene.nv, sim.step(state).state
    found = np.zeros((2, nv, nv))
    for k in range(nv):
        for multiple, weight in _STENCIL:
            d = multiple * length * np.eye(nv)[k]
            moved = {
                "q": lambda d=d: (state.replace(q=sim.scene.integrate(state.q, d)), None),
                "v": lambda d=d: (state.replace(v=state.v + d), None),
                "tau": lambda d=d: (state, d),
            }[name]()
            there = sim.step(moved[0], tau=moved[1]).state
            found[:, :, k] += weight / length * np.stack([sim.scene.difference(end.q, there.q), there.v])
    return found
