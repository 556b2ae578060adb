"""Smooth operators and signed distances: exact limits, true values, derivatives that are finite everywhere."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tangens.geometry import smooth_operators as smooth
from tangens.geometry.field_unions import ConvexPolyhedra, Difference, Moved, Union
from tangens.geometry.signed_distances import BoxField, CylinderField, PlaneField, SegmentField
from tangens.geometry.solids import hull_solid
from tangens.geometry.superquadrics import Superquadrics, first_order_distance, radial_distance, superquadric

HALF = jnp.array([0.05, 0.08, 0.03])
CORNERS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * np.asarray(HALF)
TAU = 1e-5

FIELDS: dict[str, Any] = {
    "plane": PlaneField(),
    "ball": SegmentField(jnp.array(0.0), jnp.array(0.05)),
    "capsule": SegmentField(jnp.array(0.1), jnp.array(0.05)),
    "box": BoxField(HALF),
    "cylinder": CylinderField(jnp.array(0.05), jnp.array(0.08)),
    "ellipsoid": superquadric(HALF),
    "boxy superquadric": superquadric(HALF, (0.1, 0.1)),
    "star-like superquadric": superquadric(HALF, (1.5, 1.3)),
    "hull": hull_solid(CORNERS).field,
}
FIELDS["union"] = Union((FIELDS["box"], Moved(FIELDS["ball"], jnp.array([0.05, 0.0, 0.0]), jnp.eye(3))))
FIELDS["difference"] = Difference(FIELDS["union"], Moved(FIELDS["capsule"], jnp.array([0.0, 0.08, 0.0]), jnp.eye(3)))


class TestOperators:
    x = jnp.array([-1.3, -0.2, 0.4, 0.9])

    @pytest.mark.parametrize(
        "run",
        [
            lambda x, t: smooth.greater(x, 0.1, t),
            lambda x, t: smooth.within(x, -0.5, 0.5, t),
            smooth.sign,
            smooth.relu,
            lambda x, t: smooth.clip(x, -0.5, 0.5, t),
            smooth.maximum,
            smooth.minimum,
            smooth.argmax,
            smooth.argmin,
            lambda x, t: smooth.top_k(x, 3, t),
            lambda x, t: smooth.top_k(x, 3, t) @ x,
            smooth.length,
            smooth.unit,
        ],
    )
    def test_the_exact_operator_is_the_limit(self, run: Any) -> None:
        exact = run(self.x, 0)
        errors = [float(jnp.abs(run(self.x, tau) - exact).max()) for tau in (0.3, 0.1, 1e-3)]
        assert errors[0] > errors[1] > errors[2], "less smoothing is no better"
        assert errors[2] < 1e-6 + 1e-3 * 1e-3

    def test_top_k_picks_the_largest_in_order(self) -> None:
        np.testing.assert_allclose(smooth.top_k(self.x, 2, 0) @ self.x, [0.9, 0.4])

    def test_nothing_overflows_or_is_lost(self) -> None:
        big = jnp.array([1e5, -1e5])
        for run in (smooth.maximum, smooth.minimum, smooth.argmax):
            value, slope = run(big, 1e-6), jax.jacfwd(lambda x, run=run: run(x, 1e-6))(big)
            assert jnp.isfinite(value).all()
            assert jnp.isfinite(slope).all()


def evaluate(name: str, points: Any, tau: float = TAU) -> Any:
    return jax.vmap(lambda x: FIELDS[name].evaluate(x, tau))(jnp.asarray(points))


def true_distance(name: str, p: np.ndarray) -> np.ndarray:
    if name == "plane":
        return p[:, 2]
    if name in ("ball", "capsule"):
        half = 0.1 if name == "capsule" else 0.0
        off = p - np.array([0, 0, 1]) * np.clip(p[:, 2:], -half, half)
        return np.linalg.norm(off, axis=1) - 0.05
    sides = np.abs(p) - np.asarray(HALF)
    if name == "cylinder":
        sides = np.stack([np.hypot(p[:, 0], p[:, 1]) - 0.05, np.abs(p[:, 2]) - 0.08], 1)
    return np.linalg.norm(np.maximum(sides, 0), axis=1) + np.minimum(sides.max(1), 0)


class TestFields:
    @pytest.mark.parametrize("name", ["plane", "ball", "capsule", "box", "cylinder"])
    def test_values_are_true_inside_and_outside(self, name: str) -> None:
        p = np.random.default_rng(0).uniform(-0.15, 0.15, (500, 3))
        np.testing.assert_allclose(evaluate(name, p)[0], true_distance(name, p), atol=5e-5)

    def test_a_hull_is_the_box_where_faces_are_nearest(self) -> None:
        p = np.random.default_rng(1).uniform(-0.03, 0.03, (200, 3))
        np.testing.assert_allclose(evaluate("hull", p)[0], true_distance("box", p), atol=5e-5)

    def test_superquadrics_are_exact_for_balls_and_nearly_for_boxes(self) -> None:
        p = jnp.asarray(np.random.default_rng(2).uniform(-0.15, 0.15, (200, 3)))
        ball = jax.vmap(lambda x: first_order_distance(jnp.full(3, 0.05), jnp.ones(2), x)[0])(p)
        np.testing.assert_allclose(ball, true_distance("ball", np.asarray(p)), atol=1e-6)
        inside = p / 6  # the nearest side counts: also what the gauge measures
        box = jax.vmap(lambda x: first_order_distance(HALF, jnp.array([0.01, 0.01]), x)[0])(inside)
        close = true_distance("box", np.asarray(inside))
        assert np.quantile(np.abs(np.asarray(box) - close), 0.5) < 1e-3

    def test_near_its_surface_the_first_order_distance_is_true_and_the_radial_one_is_not(self) -> None:
        axes, exponents = jnp.array([0.2, 0.05, 0.03]), jnp.array([0.8, 0.6])
        rng = np.random.default_rng(3)
        on = []
        for x in rng.normal(size=(50, 3)):
            for _ in range(60):
                x = x - np.asarray(first_order_distance(axes, exponents, jnp.asarray(x))[1]) * float(  # noqa: PLW2901
                    first_order_distance(axes, exponents, jnp.asarray(x))[0]
                )
            on.append(x)
        step = 1e-4
        ours, radial = [], []
        for x in on:
            n = np.asarray(first_order_distance(axes, exponents, jnp.asarray(x))[1])
            out = jnp.asarray(x + step * n)
            ours.append(float(first_order_distance(axes, exponents, out)[0]) / step)
            radial.append(float(radial_distance(axes, exponents, out)) / step)
        assert np.abs(np.array(ours) - 1).max() < 0.02
        assert np.max(radial) > 1.2

    @pytest.mark.parametrize("name", list(FIELDS))
    def test_normals_are_the_direction_of_the_gradient(self, name: str) -> None:
        p = np.random.default_rng(4).uniform(-0.1, 0.1, (3000, 3))
        distance, normal = evaluate(name, p, 1e-3)
        slope = jax.vmap(jax.grad(lambda x: FIELDS[name].evaluate(x, 1e-3)[0]))(jnp.asarray(p))
        slope /= np.linalg.norm(slope, axis=1, keepdims=True)
        cosine = np.sum(np.asarray(normal) * slope, 1)
        # Superquadrics take the gradient of the gauge, which is that of the distance on the surface only (footnote 2).
        near = np.abs(distance) < 1e-3 if "superquadric" in name or name == "ellipsoid" else np.full(3000, True)
        assert near.sum() >= 9
        assert np.median(cosine[near]) > 0.999
        assert cosine[near].min() > 0.95

    @pytest.mark.parametrize("name", list(FIELDS))
    def test_nothing_is_lost_at_centres_edges_and_axes(self, name: str) -> None:
        middle = np.zeros((1, 3))
        axes = np.concatenate([s * np.eye(3) * d for s in (-1, 1) for d in (0.03, 0.05, 0.08, 1.0, 1e3)])
        edges = CORNERS * np.array([1, 1, 0]) + 0.0
        points = jnp.asarray(np.concatenate([middle, axes, edges, CORNERS, 1e-12 * CORNERS]))

        def both(x: Any) -> Any:
            return jnp.concatenate([jnp.atleast_1d(part) for part in FIELDS[name].evaluate(x, 1e-4)])

        for value in (jax.vmap(both)(points), jax.vmap(jax.jacfwd(both))(points), jax.vmap(jax.jacrev(both))(points)):
            assert jnp.isfinite(value).all()

    def test_unions_hold_what_their_parts_hold_and_differences_do_not(self) -> None:
        p = np.random.default_rng(5).uniform(-0.12, 0.12, (500, 3))
        parts = true_distance("box", p), true_distance("ball", p - np.array([0.05, 0, 0]))
        cut = true_distance("capsule", p - np.array([0, 0.08, 0]))
        np.testing.assert_allclose(evaluate("union", p)[0], np.minimum(*parts), atol=5e-5)
        np.testing.assert_allclose(evaluate("difference", p)[0], np.maximum(np.minimum(*parts), -cut), atol=5e-5)

    def test_many_superquadrics_are_one_union(self) -> None:
        rng = np.random.default_rng(6)
        turns = np.stack([np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(4)])
        turns *= np.linalg.det(turns)[:, None, None]
        many = Superquadrics(
            *map(
                jnp.asarray,
                (rng.uniform(0.02, 0.1, (4, 3)), rng.uniform(0.3, 1.5, (4, 2)), rng.normal(0, 0.1, (4, 3)), turns),
            )
        )
        single = Union(tuple(jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], many) for i in range(4)))
        x = jnp.asarray(rng.normal(0, 0.1, (50, 3)))
        for a, b in zip(*(jax.vmap(lambda p, f=f: f.evaluate(p, 1e-3))(x) for f in (many, single)), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-6)  # their normals are blunted once more

    def test_polyhedra_with_fewer_faces_repeat_one(self) -> None:
        box: ConvexPolyhedra = FIELDS["hull"]
        normals, offsets = (jnp.concatenate([x, x[:, :1]], 1) for x in (box.normals, box.offsets))
        longer = ConvexPolyhedra(normals, offsets, jnp.concatenate([box.repeats, jnp.ones((1, 1), bool)], 1))
        x = jnp.array([0.05, 0.079, 0.03])
        np.testing.assert_allclose(longer.evaluate(x, 1e-3)[0], box.evaluate(x, 1e-3)[0], atol=1e-12)
