"""Candidate lists of large clouds: what they leave out is bounded, and the bound is small where forces are."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import tangens as tg
from tangens.contact.soft.candidates import LEAF, NO_POINT, candidates, in_leaves, left_out
from tangens.contact.soft.fields import mean_candidate, mean_plane
from tangens.geometry import primitive_cloud

CLOUD = primitive_cloud("ellipsoid", np.array([0.1, 0.08, 0.06]), 1900)
ORDER, BIAS = in_leaves(CLOUD.points, 2048)
POINTS, NORMALS = jnp.asarray(CLOUD.points[ORDER].T), jnp.asarray(CLOUD.normals[ORDER].T)
TEMPERATURE = jnp.asarray(0.05 * CLOUD.spacing**2)


def test_leaves_hold_every_point_once() -> None:
    assert len(ORDER) == 2048
    counted = ORDER[BIAS == 0]
    np.testing.assert_array_equal(np.sort(counted), np.arange(len(CLOUD)))
    assert set(np.unique(BIAS)) <= {0.0, NO_POINT}
    spread = np.ptp(CLOUD.points[ORDER].reshape(-1, LEAF, 3), axis=1).max()
    assert spread < 10 * CLOUD.spacing


@pytest.mark.parametrize(("away", "sure"), [(0.0, True), (0.003, True), (-0.005, True), (0.1, False), (-0.05, False)])
def test_what_is_left_out_is_within_the_bound(away: float, sure: bool) -> None:
    """Also far away and deep inside, where the bound may be large."""
    vertices = CLOUD.vertices[::7]
    y = jnp.asarray((vertices + away * np.random.default_rng(0).normal(size=vertices.shape)).T)
    bound = np.asarray(left_out(y, POINTS, jnp.asarray(BIAS), TEMPERATURE))
    full, _ = mean_plane(y, POINTS, NORMALS, jnp.asarray(BIAS), TEMPERATURE)
    listed, _ = mean_candidate(y, candidates(y, POINTS, NORMALS, jnp.asarray(BIAS)), TEMPERATURE)
    farthest = 0.3 + 6 * abs(away)
    assert (np.abs(full - listed) <= 2 * farthest * bound + 1e-12).all()
    if sure:
        assert bound.max() < 1e-9


def test_a_simulator_tells_how_much_it_leaves_out() -> None:
    geom = '<freejoint/><geom type="ellipsoid" size="0.1 0.08 0.06" mass="1"/>'
    bodies = f'<body>{geom}</body><body pos="0 0 0.119">{geom}</body>'
    scene = tg.load(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")
    few, many, round_ = (
        tg.Simulator(scene, tg.Soft(points=n, smoothing=(warm, None, None))).engine.left_out(scene.initial_state())  # type: ignore[attr-defined]
        for n, warm in ((96, None), (1900, None), (1900, 1e-4))
    )
    assert few == 0.0
    assert many < 1e-9
    assert round_ > 1e-9, "planes that are mixed from afar are missed"
