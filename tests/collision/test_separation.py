"""The separation field of two point clouds, and the contacts made of it (paper 3, Eqs. 11 to 13)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tangens as tg
from tangens.collision.pair_manifold import Pose
from tangens.collision.separation import contact_points, separation

BOX = tg.geometry.primitive_cloud("box", np.array([0.05, 0.04, 0.03]), 150)
BOXES = BOX, BOX
TEMPERATURE, DEPTH = 0.05 * BOX.spacing**2, 1e-4


def apart(gap: Any, side: Any = 0.0) -> tuple[Pose, Pose]:
    """One box above the other."""
    above = jnp.stack([jnp.asarray(side), jnp.zeros(()), 0.06 + jnp.asarray(gap)])
    return Pose(jnp.zeros(3), jnp.eye(3)), Pose(above, jnp.eye(3))


def test_the_soft_minimum_is_the_gap() -> None:
    for gap in (-1e-3, 0.0, 2e-3):
        found = separation(BOXES, apart(gap), TEMPERATURE, DEPTH)
        assert abs(float(found.distance) - gap) < 1e-4
        assert abs(float(found.distribution.sum()) - 1) < 1e-12
        assert found.field.shape == (2 * len(BOX),)


def test_its_slope_is_that_of_the_gap_and_its_bend_is_finite() -> None:
    def distance(gap: Any) -> Any:
        return separation(BOXES, apart(gap, 0.003), TEMPERATURE, DEPTH).distance

    assert abs(float(jax.grad(distance)(-1e-3)) - 1) < 1e-3
    assert np.isfinite(float(jax.grad(jax.grad(distance))(-1e-3)))


def test_contact_points_lie_between_the_faces() -> None:
    found = contact_points(BOXES, apart(-1e-3, 0.003), TEMPERATURE, DEPTH, count=8)
    assert found.point.shape == (8, 3)
    np.testing.assert_allclose(found.normal, np.tile([0.0, 0.0, 1.0], (8, 1)), atol=1e-6)
    np.testing.assert_allclose(found.distance, -1e-3, atol=1e-5)
    np.testing.assert_allclose(found.point[:, 2], 0.03 - 0.5e-3, atol=1e-5)
    assert (np.asarray(found.activity) > 0.1).all()


def test_contacts_of_a_tilted_box_are_where_it_dips_in() -> None:
    turn = 0.05
    rotation = jnp.array([[np.cos(turn), 0, np.sin(turn)], [0, 1, 0], [-np.sin(turn), 0, np.cos(turn)]])
    still, above = apart(0.05 * turn - 5e-4, -0.012)  # its lower edge is inside the face, not over an edge
    found = contact_points(BOXES, (still, Pose(above.position, rotation)), TEMPERATURE, DEPTH, count=4)
    assert (np.asarray(found.point)[:, 0] > 0.01).all()
    assert (np.asarray(found.normal)[:, 2] > 0.99).all()
