"""Differences of steps are the Jacobian where the step is smooth, and say so where it is not."""

from __future__ import annotations

import numpy as np
import pytest

from tangens import State, scenes
from tangens.lab.bench.differences import Block, apart, central, extrapolated, nearer_side
from tangens.lab.bench.jacobians import ALL, QUANTITIES
from tangens.lab.bench.situations import WRT, situation
from tangens.simulate import Simulator

FIVE: tuple[Block, ...] = QUANTITIES[ALL]


@pytest.mark.parametrize(("contact", "system"), [("ncp", "half_cheetah"), ("lcp", "half_cheetah"), ("lcp", "worm")])
def test_both_methods_find_the_jacobian(contact: str, system: str) -> None:
    s = situation(system, 2, contact=contact)
    for state, u, *_ in s.samples:
        J = s.simulator.jacobian(state, u, wrt=WRT)
        for method in (central, extrapolated):
            found = method(s.simulator, state, u, FIVE)()
            assert found.keys() == set(FIVE)
            for block, D in found.items():
                assert np.abs(D - J[block]).max() < 1e-6 * np.abs(J[block]).max()
        for block, D in nearer_side(s.simulator, state, u, {block: J[block] for block in FIVE}).items():
            assert np.abs(D - J[block]).max() < 1e-5 * np.abs(J[block]).max()


def test_blocks_alone_are_those_of_all() -> None:
    s = situation("worm", 1, contact="lcp")
    state, u, *_ = s.samples[0]
    together = central(s.simulator, state, u, FIVE)()
    for block in FIVE:
        alone = central(s.simulator, state, u, [block])()
        assert np.allclose(alone[block], together[block], rtol=1e-9, atol=1e-9)


def test_the_nearer_side_of_a_kink() -> None:
    """A cube that friction can just stop within the step: slower it stays, faster it slides on."""
    scene = scenes.cube()
    simulator = Simulator(scene, contact="lcp")
    speed = 0.5 * 9.81 * scene.timestep
    state, block = State(scene.initial_state().q, np.array([speed, 0, 0, 0, 0, 0])), ("v", "v")
    found = central(simulator, state, np.zeros(0), [block])()[block]
    assert abs(found[0, 0] - 0.5) < 1e-6
    for slope in (0.0, 1.0):
        J = found.copy()
        J[0, 0] = slope
        side = nearer_side(simulator, state, np.zeros(0), {block: J})[block]
        assert abs(side[0, 0] - slope) < 1e-6


def test_many_differences_at_once_are_those_of_the_scene() -> None:
    scene, rng = scenes.cube(), np.random.default_rng(0)
    start = scene.initial_state().q
    a = np.array([scene.integrate(start, rng.normal(size=scene.nv)) for _ in range(20)])
    b = np.array([scene.integrate(start, rng.normal(size=scene.nv)) for _ in range(20)])
    b[0] = a[0]
    b[1, 3:7] *= -1  # the same rotation
    expected = [scene.difference(q1, q2) for q1, q2 in zip(a, b, strict=True)]
    assert np.allclose(apart(scene.joint_layout, a, b), expected, atol=1e-12)
