"""Edges on curved surfaces: they touch where a search says they are deepest, and their rows are those of distances."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from tangens.collision.edges_on_surfaces import on_surface
from tangens.collision.pair_manifold import pair_manifold
from tangens.collision.sides import Pose, Side, Smoothing, evaluate, placed
from tangens.dynamics.tangent_jax import exp_matrix
from tangens.geometry.solids import Solid, solid_of_geom
from tangens.lab.creatures import creature_solid

BOX, CYLINDER = mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CYLINDER
TAU = 1e-4

Array = NDArray[np.float64]


def at(pose: Any) -> Pose:
    return Pose(pose[:3], exp_matrix(pose[3:]))


def near(rng: np.random.Generator, reach: float) -> Array:
    direction = rng.normal(size=3)
    return np.concatenate([reach * direction / np.linalg.norm(direction), rng.normal(size=3)])


def drum() -> Side:
    return placed(solid_of_geom(CYLINDER, np.array([0.04, 0.05, 0.0])), at(jnp.zeros(6)), TAU)


def box(pose: Array) -> Side:
    return placed(solid_of_geom(BOX, np.array([0.05, 0.03, 0.04])), at(jnp.asarray(pose)), TAU)


class TestOneEdge:
    def test_it_touches_where_a_search_finds_it_deepest(self) -> None:
        """Edges of a box on a cylinder, in 30 poses."""
        rng, share = np.random.default_rng(0), np.linspace(0, 1, 2001)
        run = jax.jit(self._edges)
        for _ in range(30):
            pose = near(rng, rng.uniform(0.07, 0.1))
            ends, contacts = run(pose, Smoothing(TAU, regularization=1e-6))
            points = ends[:, :1] + share[None, :, None] * (ends[:, 1:] - ends[:, :1])
            distances, _ = jax.jit(evaluate)(drum(), points.reshape(-1, 3), TAU)
            least = np.asarray(distances).reshape(len(ends), -1).min(1)
            np.testing.assert_allclose(contacts.distance, least, atol=2e-6)

    def _edges(self, pose: Any, s: Smoothing) -> Any:
        side = box(pose)
        ends = side.vertices[np.array(side.solid.edges)]
        return ends, on_surface(side, drum(), ends, s, 0, 0)

    def test_one_along_a_surface_touches_it_in_its_middle(self) -> None:
        """A box lies on its back across a cylinder: of its edges along the axis, the two lower ones touch half way."""
        lying = jnp.array([0.0, 0.0, 0.079, 0.0, 0.0, 0.0])
        thin = placed(solid_of_geom(BOX, np.array([1e-4, 0.03, 0.04])), at(lying), TAU)
        across = placed(
            solid_of_geom(CYLINDER, np.array([0.04, 0.05, 0.0])), at(jnp.array([0, 0, 0, jnp.pi / 2, 0, 0])), TAU
        )
        ends = thin.vertices[np.array(thin.solid.edges)]
        along = ends[np.abs(np.asarray(ends[:, 1] - ends[:, 0])[:, 1]) > 0.05]
        found = jax.jit(on_surface, static_argnums=(4, 5))(thin, across, along, Smoothing(TAU), 0, 0)
        below = np.asarray(found.distance) < 0
        assert below.sum() == 2
        np.testing.assert_allclose(np.asarray(found.point)[below][:, 1], 0.0, atol=1e-6)


@pytest.fixture(scope="module", params=["box on cylinder", "creatures"])
def pair(request: pytest.FixtureRequest) -> tuple[Solid, Solid, float]:
    if request.param == "creatures":
        return creature_solid(3, 0, 80), creature_solid(3, 1, 80), 0.09
    return solid_of_geom(BOX, np.array([0.05, 0.03, 0.04])), solid_of_geom(CYLINDER, np.array([0.04, 0.05, 0.0])), 0.08


class TestPairs:
    """In random poses near each other; `found` are the contacts of edges only."""

    def _found(self, pair: tuple[Solid, Solid, float]) -> Any:
        first = [len(s.vertices) + (2 if s.support is not None else 0) for s in pair[:2]]

        @partial(jax.jit, static_argnames="which")
        def of(pose: Any, which: str = "") -> Any:
            manifold = pair_manifold(
                pair[0], pair[1], at(jnp.zeros(6)), at(pose), Smoothing(1e-3), edges_kept=24, projections=3
            )
            edges = jax.tree.map(lambda rows: rows[sum(first) :], manifold)
            return getattr(edges, which) if which else edges

        return of

    def test_derivatives_by_the_pose_agree_with_differences(self, pair: tuple[Solid, Solid, float]) -> None:
        of, rng, h = self._found(pair), np.random.default_rng(1), 1e-6
        by_pose = {which: jax.jit(jax.jacfwd(partial(of, which=which))) for which in ("distance", "point")}
        for _ in range(6):
            pose = near(rng, pair[2])
            for which in ("distance", "point"):
                exact = np.asarray(by_pose[which](pose))
                sides = [np.stack([of(pose + s * h * e, which) for e in np.eye(6)], -1) for s in (1, -1)]
                wrong = np.abs(exact - (sides[0] - sides[1]) / (2 * h))
                # But for edges that have just been chosen, and those whose deepest point comes to their end.
                assert np.quantile(wrong, 0.9) < 1e-5 * max(np.abs(exact).max(), 1.0), which

    def test_distances_change_as_the_points_of_contact_move(self, pair: tuple[Solid, Solid, float]) -> None:
        """∂d/∂pose is along the normal, for a point that stays where it is: the witness points do not slide.

        Its length is 1 but where two faces of the other solid meet: 1/√2 at a right angle, inside.
        """
        of, rng = self._found(pair), np.random.default_rng(2)
        by_pose = jax.jit(jax.jacfwd(lambda x: of(x, "distance")))
        lengths = list[float]()
        for _ in range(20):
            pose = near(rng, pair[2])
            contacts = jax.tree.map(np.asarray, of(pose))
            moved = np.asarray(by_pose(pose))[:, :3]  # by translations of solid 2
            for slope, normal, distance in zip(moved, contacts.normal, contacts.distance, strict=True):
                if abs(distance) < 1e-3:
                    lengths.append(float(np.linalg.norm(slope)))
                    assert slope @ normal > 0.998 * lengths[-1]
        assert len(lengths) > 20
        assert np.median(lengths) == pytest.approx(1.0, abs=0.02)
        assert min(lengths) > 0.55
