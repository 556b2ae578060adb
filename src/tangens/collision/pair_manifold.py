"""Contact manifolds of two solids, smooth and of fixed size (paper 4, Sec. IV).

Vertices of each solid are contacts with the other's signed distance; pairs of edges are contacts where they cross. An
*activity* between 0 and 1 says which of them count. It is the product of indicators: a pair of edges has to cross, to
be inside the other solid, to be each other's nearest, and to face each other (Eqs. 12 to 16).

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
    `both_sides`, only vertices of solid 1 are, and without `edges`, no pairs of edges. `projections` is how often
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
    if not with_edges:
        return _joined([_vertices(sides, _seen(probes[i], sides[1 - i], s), s, i) for i in (0, 1)])
    if not all(side.solid.is_hull for side in sides):
        probes = [_seen(probe, sides[1 - i], s) for i, probe in enumerate(probes)]
        vertices = [_vertices(sides, probes[i], s, i) for i in (0, 1)]
        return _joined(
            vertices + [on_surface(sides[i], sides[1 - i], ends[i][..., :3], s, i, projections) for i in (0, 1)]
        )
    pairs = edge_pairs(sides, ends, s, projections)
    if by_depth:
        probes = [_seen(probe, sides[1 - i], s) for i, probe in enumerate(probes)]
        there = _at_witnesses(sides, pairs, s, soft_selection)
    else:
        probes, there = _all_together(sides, probes, pairs, s)
    between = between_edges(sides, pairs, there, s, soft_selection)
    vertices = _joined([_vertices(sides, probes[i], s, i) for i in (0, 1)])
    between = on_best_axes(sides, between, vertices.normal, s.distance)
    return _joined([vertices, between])


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
    found = []
    for i in (0, 1):
        count = len(probes[1 - i].at)
        points = jnp.concatenate([probes[1 - i].at, pairs.point1, pairs.point2])
        columns = evaluate(sides[i], points, s.distance)
        found.append([jnp.split(column, [count, count + len(pairs.point1)]) for column in columns])
    (d1, n1), (d2, n2) = found
    seen = [probes[0]._replace(distance=d2[0], normal=n2[0]), probes[1]._replace(distance=d1[0], normal=n1[0])]
    return seen, AtWitnesses(d1[1], n1[1], d2[2], n2[2], d2[1], d1[2])


def _at_witnesses(sides: list[Side], pairs: Pairs, s: Smoothing, soft: bool) -> AtWitnesses:
    """What fields are like at witness points, if vertices are many: normals from the ends of edges, where known."""
    points, normals, own = (pairs.point1, pairs.point2), (pairs.normal1, pairs.normal2), list[Array]()
    for side, point, normal in zip(sides, points, normals, strict=True):
        known = side.solid.normals is not None and not soft
        distance, exact = (jnp.zeros_like(point[:, 0]), normal) if known else evaluate(side, point, s.distance)
        own += [distance, exact]
    across = [evaluate(sides[1 - i], points[i], s.distance)[0] for i in (0, 1)]
    return AtWitnesses(own[0], own[1], own[2], own[3], across[0], across[1])


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
    """Ends of the edges that are looked at and normals there, (k, 2, 6): those that may be deepest.

    Between ends at distances d₁ and d₂, an edge of length ℓ is nowhere nearer than (d₁ + d₂ − ℓ) / 2.
    They are chosen in the solid's frame and moved then: the transpose of a choice is a scatter, one row at a time, and
    there is none as long as nobody asks for derivatives by vertices.
    """
    at, own = np.array(side.solid.edges, int).reshape(-1, 2), side.normals
    long = length(side.solid.vertices[at[:, 1]] - side.solid.vertices[at[:, 0]], 1e-12)
    depth = None if probes.distance is None else long / 2 - jnp.mean(probes.distance[at], 1)
    if depth is None or kept is None or kept >= len(at) or is_exact(tau):
        chosen = _selected(depth, jnp.asarray(at), kept, tau)
        ends, normals = side.solid.vertices[chosen], own[chosen]
    else:
        ends, normals = (_selected(depth, rows[at], kept, tau) for rows in (side.solid.vertices, own))
    turn = side.pose.rotation.T
    return jnp.concatenate([ends @ turn + side.pose.position, normals @ turn], -1)


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
