"""Shapes made of shapes: sums, unions and other frames."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tangens import OptionError
from tangens import geometry as geo

coordinate = st.floats(-1, 1)
points = st.tuples(coordinate, coordinate, coordinate).map(np.array)
HALF, RADIUS = np.array([0.3, 0.2, 0.5]), 0.15
BOX = geo.box(HALF)
BALL = geo.sphere(RADIUS)
PADDED = geo.PaddedPolytope(BOX.A, BOX.b, RADIUS)
SUM = geo.MinkowskiSum(BOX, BALL)
TURN = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])

rows = jax.jit(lambda shape, p, alpha, inner: shape.rows(p, alpha, inner))


@given(points)
def test_a_box_plus_a_ball_is_a_padded_box(p: np.ndarray) -> None:
    nearest = np.clip(p, -HALF, HALF)  # on the box: no other choice of p₁ or ε leaves less to the ball
    inside = np.linalg.norm(p - nearest) <= RADIUS
    summed, padded = rows(SUM, p, 1.0, nearest), rows(PADDED, p, 1.0, p - nearest)
    np.testing.assert_allclose(summed, padded, atol=1e-12)
    if abs(np.linalg.norm(p - nearest) - RADIUS) > 1e-9:
        assert (np.max(padded) <= 1e-12) == inside


@given(points, st.floats(0.1, 3))
def test_a_placed_shape_holds_what_the_shape_holds_from_there(p: np.ndarray, alpha: float) -> None:
    position = np.array([0.1, 0.2, -0.3])
    placed = geo.Placed(BOX, position, TURN)
    moved = alpha * position + TURN @ p
    np.testing.assert_allclose(rows(placed, moved, alpha, np.zeros(0)), rows(BOX, p, alpha, np.zeros(0)), atol=1e-12)


def test_without_a_rotation_axes_stay() -> None:
    np.testing.assert_array_equal(geo.Placed(BALL, [0, 0, 1]).rotation, np.eye(3))


def test_frames_within_frames_are_one_frame() -> None:
    x, y = np.array([0.1, 0.2, -0.3]), np.array([0.0, 1.0, 0.5])
    nested, flat = geo.Placed(geo.Placed(BOX, x, TURN), y, TURN), geo.Placed(BOX, y + TURN @ x, TURN @ TURN)
    p = np.array([0.3, -0.2, 0.6])
    np.testing.assert_allclose(rows(nested, p, 1.3, np.zeros(0)), rows(flat, p, 1.3, np.zeros(0)), atol=1e-12)


def test_a_centred_shape_is_the_same_set_about_its_middle() -> None:
    far = geo.Placed(BOX, [3, 0, 0], TURN)
    shape, centre = geo.centred(far)
    np.testing.assert_allclose(centre, [3, 0, 0])
    p = np.array([0.1, 0.2, 0.4])
    np.testing.assert_allclose(rows(shape, p, 1.0, np.zeros(0)), rows(far, p + centre, 1.0, np.zeros(0)), atol=1e-12)
    assert np.all(rows(shape, np.zeros(3), 1e-3, np.zeros(0)) < 0)
    assert geo.centred(BOX)[0] is BOX


def test_bundles_within_bundles_are_one_bundle() -> None:
    capsule = geo.Capsule(0.1, 0.2)
    assert geo.parts(geo.Bundle([BOX, geo.Bundle([BALL, geo.Bundle([capsule])])])) == (BOX, BALL, capsule)
    assert geo.parts(BOX) == (BOX,)


def test_a_sum_with_a_bundle_is_the_bundle_of_sums() -> None:
    capsule = geo.Capsule(0.1, 0.2)
    sums = geo.parts(geo.MinkowskiSum(geo.MinkowskiSum(BALL, geo.Bundle([BOX, capsule])), geo.Bundle([BALL, BOX])))
    assert [(type(s.first.second), type(s.second)) for s in sums if isinstance(s, geo.MinkowskiSum)
            and isinstance(s.first, geo.MinkowskiSum)] == [
        (geo.Polytope, geo.Ellipsoid), (geo.Polytope, geo.Polytope),
        (geo.Capsule, geo.Ellipsoid), (geo.Capsule, geo.Polytope),
    ]  # fmt: skip


def test_a_placed_bundle_places_its_parts() -> None:
    first, second = geo.parts(geo.Placed(geo.Bundle([BOX, BALL]), [1, 2, 3], TURN))
    assert isinstance(first, geo.Placed)
    assert isinstance(second, geo.Placed)
    np.testing.assert_array_equal(first.position, second.position)


def test_a_bundle_reaches_as_far_as_its_farthest_part() -> None:
    bundle = geo.Bundle([BALL, geo.Placed(BALL, [0, 0, 2])])
    assert bundle.reach == pytest.approx(2 + RADIUS)
    assert bundle.girth == pytest.approx(RADIUS)
    assert bundle.dim == 3


def test_derivatives_reach_the_numbers_of_every_part() -> None:
    position = np.array([0.1, 0.2, -0.3])
    by_shape = jax.grad(lambda shape: shape.rows(np.zeros(3), 2.0, np.zeros(3)).sum())(
        geo.MinkowskiSum(geo.Placed(BOX, position, TURN), BALL)
    )
    np.testing.assert_allclose(by_shape.first.shape.b, -2)
    np.testing.assert_allclose(by_shape.first.position, 0, atol=1e-12)  # opposite faces cancel
    assert np.abs(by_shape.second.E).max() > 0


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: geo.MinkowskiSum(BOX, geo.sphere(1, dim=2)), "one dimension"),
        (lambda: geo.MinkowskiSum(BOX, 0.1), "takes shapes"),  # type: ignore[arg-type]
        (lambda: geo.Bundle([]), "at least one"),
        (lambda: geo.Bundle([BOX, geo.sphere(1, dim=2)]), "one dimension"),
        (lambda: geo.Bundle([BOX, "ball"]), "takes shapes"),  # type: ignore[list-item]
        (lambda: geo.Placed("box", [0, 0, 0]), "takes shapes"),  # type: ignore[arg-type]
        (lambda: geo.Placed(BOX, [0, 0]), r"position \(3,\)"),
        (lambda: geo.Placed(BOX, [0, 0, 0], np.eye(2)), r"rotation \(3, 3\)"),
        (lambda: geo.Placed(BOX, [0, 0, 0], 2 * np.eye(3)), "rotation matrix"),
        (lambda: geo.Placed(BOX, [0, 0, 0], -np.eye(3)), "rotation matrix"),
        (lambda: geo.parts("box"), "takes shapes"),  # type: ignore[arg-type]
        (lambda: geo.Bundle([BOX]).n_rows, "take each of tangens.geometry.parts"),
        (lambda: geo.Bundle([BOX]).rows(np.zeros(3), 1.0, np.zeros(0)), "take each of"),  # type: ignore[arg-type]
        (lambda: geo.MinkowskiSum(geo.Bundle([BOX]), BALL).n_inner, "take each of"),
    ],
)
def test_what_cannot_be_composed_is_refused(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        make()
