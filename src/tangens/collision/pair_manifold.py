"""Contact manifolds of two solids, smooth and of fixed size (paper 4, Sec. IV).

Vertices of each solid are contacts with the other's signed distance; pairs of edges of polyhedra are contacts where
they cross, edges on curved surfaces where they are deepest. An *activity* between 0 and 1 says which of them count. For
a pair of edges it is the product of indicators: they have to cross, to be inside the other solid, and to face each
other (Eqs. 12, 15, 16).

Derivatives of every order flow through poses, vertices, radii and the numbers of fields. Frozen: which edges and
vertices a selection with smoothing 0 picks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tangens.collision.edge_contacts import AtWitnesses, Pairs, between_edges, edge_pairs
from tangens.collision.edges_on_surfaces import on_surface
from tangens.collision.separating_axes import on_best_axes
from tangens.collision.sides import Manifold, Pose, Side, Smoothing, evaluate, placed_pair
from tangens.geometry.smooth_operators import greater, is_exact, length, top_k
from tangens.geometry.solids import Solid

__all__ = ["Manifold", "Pose", "Side", "Smoothing", "evaluate", "pair_manifold"]

Array = jax.Array


class Probes(NamedTuple):
    """Vertices of one solid that are looked at, and what the other solid is like there."""

    at: Array
    """[m], (n, 3)."""
    own: Array
    """Outward normals of their own solid."""
    distance: Array | None = None
    """From the other solid; None if not evaluated yet."""
    normal: Array | None = None
    counts: Array | None = None
    """How much each of them counts, beside points that slide; all of them if None."""


def pair_manifold(
    one: Solid,
    two: Solid,
    pose1: Pose,
    pose2: Pose,
    smoothing: Smoothing,
    *,
    edges: bool = True,
    both_sides: bool = True,
    vertices_kept: int | None = None,
    edges_kept: int | None = None,
    soft_selection: bool = False,
    projections: int = 0,
) -> Manifold:
    """The contacts of two solids.

    Of each solid, the `vertices_kept` and `edges_kept` deepest are looked at; all of them where it has fewer. Without
    `both_sides`, only vertices of solid 1 are, and without `edges`, no edges. `projections` is how often
    witness points are moved towards their own surface (Supp. II-C).
    """
    s, tau = smoothing, smoothing.distance if soft_selection else 0
    sides = placed_pair((one, two), (pose1, pose2), s.distance)
    with_edges = edges and bool(one.edges and two.edges)
    probes = [Probes(side.vertices, side.normals @ side.pose.rotation.T, counts=side.counts) for side in sides]
    by_depth = _is_less(vertices_kept, sides, "vertices") or (with_edges and _is_less(edges_kept, sides, "edges"))
    if by_depth:
        probes = [_seen(probe, sides[1 - i], s) for i, probe in enumerate(probes)]
    ends = [_edges(probe, side, edges_kept, tau) for probe, side in zip(probes, sides, strict=True)]
    probes = [_kept(probe, vertices_kept, tau) for probe in probes]
    if not both_sides:
        probes[1] = jax.tree.map(lambda rows: rows[:0], probes[1])
    if with_edges and all(side.solid.is_polyhedron for side in sides):
        return _of_polyhedra(sides, probes, ends, s, soft_selection, projections)
    found = [_vertices(sides, _seen(probe, sides[1 - i], s), s, i) for i, probe in enumerate(probes)]
    if with_edges:
        found += [on_surface(sides[i], sides[1 - i], ends[i], s, i, projections) for i in (0, 1)]
    return _joined(found)


def _of_polyhedra(
    sides: list[Side], probes: list[Probes], ends: list[Array], s: Smoothing, soft: bool, projections: int
) -> Manifold:
    """With pairs of edges."""
    pairs = edge_pairs(sides, ends, s, projections)
    probes, there = _all_together(sides, probes, pairs, s)
    between = between_edges(sides, pairs, there, s, soft)
    vertices = _joined([_vertices(sides, probe, s, i) for i, probe in enumerate(probes)])
    return _joined([vertices, on_best_axes(sides, between, vertices.normal, s.distance)])


def _is_less(kept: int | None, sides: list[Side], what: str) -> bool:
    return kept is not None and any(kept < len(getattr(side.solid, what)) for side in sides)


def _joined(parts: list[Manifold]) -> Manifold:
    joined: Manifold = jax.tree.map(lambda *rows: jnp.concatenate(rows), *parts)
    return joined


def _seen(probes: Probes, other: Side, s: Smoothing) -> Probes:
    """With the other solid's distances and normals."""
    if probes.distance is not None:
        return probes
    distance, normal = evaluate(other, probes.at, s.distance)
    return probes._replace(distance=distance, normal=normal)


def _all_together(
    sides: list[Side], probes: list[Probes], pairs: Pairs, s: Smoothing
) -> tuple[list[Probes], AtWitnesses]:
    """Each field evaluated once, for vertices and witness points together: as little as possible is compiled."""
    found, seen = [], list[Probes]()
    for i, side in enumerate(sides):
        probe = probes[1 - i]
        count = 0 if probe.distance is not None else len(probe.at)
        points = jnp.concatenate([probe.at[:count], pairs.point1, pairs.point2])
        (d, d1, d2), (n, n1, n2) = (
            jnp.split(column, [count, count + len(pairs.point1)]) for column in evaluate(side, points, s.distance)
        )
        seen.append(probe if probe.distance is not None else probe._replace(distance=d, normal=n))
        found.append((d1, n1, d2, n2))
    (own1, normal1, depth2, _), (depth1, _, own2, normal2) = found
    return seen[::-1], AtWitnesses(own1, normal1, own2, normal2, depth1, depth2)


def _vertices(sides: list[Side], probes: Probes, s: Smoothing, which: int) -> Manifold:
    """Vertices of one solid as contacts with the other, given how far that is (Sec. IV-C)."""
    assert probes.distance is not None
    assert probes.normal is not None
    side, other, normal = sides[which].solid, sides[1 - which].solid, probes.normal
    distance = probes.distance - side.radius
    point = probes.at - normal * (side.radius + distance / 2)[:, None]
    towards = -normal if which == 0 else normal
    activity = greater(s.margin + s.ahead - distance, 0.0, s.distance)
    if side.edges and other.edges and other.normals is None:  # near an edge of it: which of its faces does it meet?
        activity *= greater(s.angle / 2 - jnp.sum(probes.own * normal, -1), 0.0, s.angle)
    return Manifold(point, distance, towards, activity if probes.counts is None else activity * probes.counts)


def _edges(probes: Probes, side: Side, kept: int | None, tau: Any) -> Array:
    """Ends of the edges that are looked at, (k, 2, 3): those that may be deepest.

    Between ends at distances d₁ and d₂, an edge of length ℓ is nowhere nearer than (d₁ + d₂ − ℓ) / 2.
    They are chosen in the solid's frame and moved then: the transpose of a choice is a scatter, one row at a time, and
    there is none as long as nobody asks for derivatives by vertices.
    """
    at = np.array(side.solid.edges, int).reshape(-1, 2)
    long = length(side.solid.vertices[at[:, 1]] - side.solid.vertices[at[:, 0]], 1e-12)
    depth = None if probes.distance is None else long / 2 - jnp.mean(probes.distance[at], 1)
    if depth is None or kept is None or kept >= len(at) or is_exact(tau):
        ends = side.solid.vertices[_selected(depth, jnp.asarray(at), kept, tau)]
    else:
        ends = _selected(depth, side.solid.vertices[at], kept, tau)
    return ends @ side.pose.rotation.T + side.pose.position


def _kept(probes: Probes, kept: int | None, tau: Any) -> Probes:
    """The deepest vertices; what is known of them is known of a mixture only if nothing is mixed."""
    if probes.distance is None or kept is None or kept >= len(probes.at):
        return probes
    fewer: Probes = jax.tree.map(lambda rows: _selected(-probes.distance, rows, kept, tau), probes)  # type: ignore[operator]
    return fewer if is_exact(tau) else fewer._replace(distance=None, normal=None)


def _selected(depth: Array | None, rows: Array, kept: int | None, tau: Any) -> Array:
    """The rows of the deepest (Sec. III); with smoothing 0 they are picked, else mixed."""
    if depth is None or kept is None or kept >= len(rows):
        return rows
    if is_exact(tau):
        return rows[jax.lax.top_k(jax.lax.stop_gradient(depth), kept)[1]]
    return jnp.tensordot(top_k(depth, kept, tau), rows, 1)
