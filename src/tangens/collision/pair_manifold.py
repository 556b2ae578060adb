"""Contact manifolds of two solids, smooth and of fixed size (paper 4, Sec. IV).

Vertices of each solid are contacts with the other's signed distance; pairs of edges are contacts where they cross. An
*activity* between 0 and 1 says which of them count. It is the product of indicators: a pair of edges has to cross, to
be inside the other solid, to be each other's nearest, and to face each other (Eqs. 12 to 16).

Two things differ from the paper. The normal of a pair of edges is the direction perpendicular to both, turned to the
side that the signed distances name out, and its distance is measured along that: so both are defined where edges
touch, too, where the paper's normal Δe / ‖Δe‖ vanishes. And one contact stands for a pair's two witness points, half
way between them.

Derivatives of every order flow through poses, vertices, radii and the numbers of fields. Frozen: which edges and
vertices a selection with smoothing 0 picks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tangens.collision.edge_edge import edge_edge
from tangens.dynamics.spatial import vector_product
from tangens.geometry.smooth_operators import greater, is_exact, length, minimum, sign, top_k, unit
from tangens.geometry.solids import Solid

Array = jax.Array

_BLEND = 1e-3
"""Sine of the angle below which edges count as parallel, and their normal is that of the signed distances: 0.06°."""
_ASIDE = 0.02
"""Weight of the direction between two edges beside that of signed distances: it counts where those say nothing."""
_TIES = 3.0
"""Entries that are nearest alone count 0.95 each, two 0.91, four 0.83; one that is 6 tau farther away, 0.05."""


class Pose(NamedTuple):
    """Where a solid is."""

    position: Array
    """[m], (3,)."""
    rotation: Array
    """(3, 3)."""


class Smoothing(NamedTuple):
    """How much each of the choices is smoothed; all may be traced, and 0 is exact."""

    distance: Any
    """τ of distances: fields, penetration, nearest neighbours [m]."""
    angle: Any = 0.05
    """τ of cosines: edges that face each other."""
    along: Any = 0.02
    """τ in shares of an edge: where it ends."""
    regularization: Any = 1e-3
    """λ: how much edges prefer their middles."""
    margin: Any = 0.0
    """Contacts count from this distance on [m]."""


class Manifold(NamedTuple):
    """Contacts of two solids: first vertices of solid 1, then of solid 2, then pairs of edges."""

    point: Array
    """Half way between the surfaces [m], (n, 3)."""
    distance: Array
    """Negative where they overlap [m], (n,)."""
    normal: Array
    """From solid 1 to solid 2, (n, 3)."""
    activity: Array
    """(n,)."""


class Side(NamedTuple):
    """A solid somewhere, with its vertices in the world."""

    solid: Solid
    pose: Pose
    vertices: Array


class Pairs(NamedTuple):
    """All pairs of edges of two solids, and their witness points."""

    edge1: Array
    """(k₁, k₂, 2, 3)."""
    edge2: Array
    point1: Array
    """(k₁ k₂, 3)."""
    point2: Array
    crossing: Array
    """(k₁, k₂)."""


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
    sides = [Side(x, pose, x.vertices @ pose.rotation.T + pose.position) for x, pose in ((one, pose1), (two, pose2))]
    with_edges = edges and bool(one.edges and two.edges)
    depths: list[Array | None] = [None, None]
    if _is_less(vertices_kept, sides, "vertices") or (with_edges and _is_less(edges_kept, sides, "edges")):
        depths = [-evaluate(sides[1 - i], sides[i].vertices, s.distance)[0] for i in (0, 1)]
    probes = [_selected(depths[i], sides[i].vertices, vertices_kept, tau) for i in (0, 1)]
    if not both_sides:
        probes[1] = probes[1][:0]
    if not with_edges:
        seen = [evaluate(sides[1 - i], probes[i], s.distance) for i in (0, 1)]
        return _joined([_vertices(sides[i], probes[i], *seen[i], s, i) for i in (0, 1)])
    pairs = _pairs(sides, [_edges(sides[i], depths[i], edges_kept, tau) for i in (0, 1)], s, projections)
    # Each field is evaluated once, for all points together: as little as possible is compiled.
    points = [jnp.concatenate([probes[1 - i], pairs.point1, pairs.point2]) for i in (0, 1)]
    fields = [_split(evaluate(sides[i], points[i], s.distance), len(probes[1 - i])) for i in (0, 1)]
    on_vertices = [_vertices(sides[i], probes[i], *fields[1 - i][0], s, i) for i in (0, 1)]
    between = _between_edges(sides, pairs, [fields[0][1:], fields[1][1:]], s, soft_selection)
    return _joined([*on_vertices, between])


def evaluate(side: Side, x: Array, tau: Any) -> tuple[Array, Array]:
    """Signed distance and outward normal of points of the world, (n, 3)."""
    local = (x - side.pose.position) @ side.pose.rotation
    distance, normal = jax.vmap(lambda p: side.solid.field.evaluate(p, tau))(local)
    return distance, normal @ side.pose.rotation.T


def _is_less(kept: int | None, sides: list[Side], what: str) -> bool:
    return kept is not None and any(kept < len(getattr(side.solid, what)) for side in sides)


def _joined(parts: list[Manifold]) -> Manifold:
    joined: Manifold = jax.tree.map(lambda *rows: jnp.concatenate(rows), *parts)
    return joined


def _split(seen: tuple[Array, Array], vertices: int) -> list[tuple[Array, Array]]:
    """Distances and normals of vertices, and of witness points on edges of solid 1 and of solid 2."""
    half = (len(seen[0]) - vertices) // 2
    columns = [jnp.split(column, [vertices, vertices + half]) for column in seen]
    return list(zip(*columns, strict=True))


def _vertices(side: Side, at: Array, distance: Array, normal: Array, s: Smoothing, which: int) -> Manifold:
    """Vertices of one solid as contacts with the other, given how far that is (Sec. IV-C)."""
    radius = side.solid.radius
    distance = distance - radius
    point = at - normal * (radius + distance / 2)[:, None]
    towards = -normal if which == 0 else normal
    activity = greater(s.margin - distance, 0.0, s.distance)
    if side.solid.edges:  # a vertex near an edge of the other solid: which of its faces does it meet?
        own = evaluate(side, at, s.distance)[1]
        activity *= greater(s.angle / 2 - jnp.sum(own * normal, -1), 0.0, s.angle)
    return Manifold(point, distance, towards, activity)


def _edges(side: Side, depth: Array | None, kept: int | None, tau: Any) -> Array:
    """Ends of the edges that are looked at, (k, 2, 3): the deepest, by the mean depth of their ends."""
    at = np.array(side.solid.edges)
    return _selected(None if depth is None else jnp.mean(depth[at], 1), side.vertices[at], kept, tau)


def _selected(depth: Array | None, rows: Array, kept: int | None, tau: Any) -> Array:
    """The rows of the deepest (Sec. III); with smoothing 0 they are picked, else mixed."""
    if depth is None or kept is None or kept >= len(rows):
        return rows
    if is_exact(tau):
        return rows[jax.lax.top_k(jax.lax.stop_gradient(depth), kept)[1]]
    return jnp.tensordot(top_k(depth, kept, tau), rows, 1)


def _pairs(sides: list[Side], ends: list[Array], s: Smoothing, projections: int) -> Pairs:
    """All pairs of edges, with their witness points (Sec. IV-D2), moved to their own surfaces."""
    shape = (len(ends[0]), len(ends[1]), 2, 3)
    first, second = jnp.broadcast_to(ends[0][:, None], shape), jnp.broadcast_to(ends[1][None], shape)
    found = edge_edge(first, second, s.regularization, s.along)
    e1, e2 = (x.reshape(-1, 3) for x in (found.point1, found.point2))
    if projections:
        e1, e2 = _projected(sides[0], e1, s, projections), _projected(sides[1], e2, s, projections)
    return Pairs(first, second, e1, e2, found.crossing)


def _projected(side: Side, x: Array, s: Smoothing, times: int) -> Array:
    """Points moved onto the solid's own surface by sphere tracing (Supp. II-C)."""

    def step(x: Array, _: None) -> tuple[Array, None]:
        distance, normal = evaluate(side, x, s.distance)
        return x - distance[:, None] * normal, None

    return jax.lax.scan(step, x, None, length=times)[0]


def _between_edges(sides: list[Side], pairs: Pairs, fields: list[Any], s: Smoothing, soft: bool) -> Manifold:
    """Pairs of edges as contacts: distances, normals (Sec. IV-D3) and activity (Eqs. 12 to 16)."""
    ((own1, n1), (depth2, _)), ((depth1, _), (own2, n2)) = fields
    r1, r2 = sides[0].solid.radius, sides[1].solid.radius
    apart, shape = pairs.point1 - pairs.point2, pairs.crossing.shape
    # Out of solid 2 and into solid 1. Thick edges are seen from their axis, where signed distances have no direction.
    thick = jnp.where((r1 > 0) | (r2 > 0), 1.0, 0.0)
    out = n2 - n1 + (thick + _ASIDE)[..., None] * unit(apart, s.distance)
    normal = _perpendicular(pairs.edge1.reshape(-1, 2, 3), pairs.edge2.reshape(-1, 2, 3), out, s.angle)
    distance = jnp.sum(apart * normal, -1) - r1 - r2
    nearest = length(apart, s.distance).reshape(shape)
    activity = pairs.crossing * is_nearest(nearest, s.distance, 0) * is_nearest(nearest, s.distance, 1)
    activity = activity.reshape(-1)
    activity *= greater(s.margin - depth1 + r1, 0.0, s.distance)  # Eq. 12, of both witness points
    activity *= greater(s.margin - depth2 + r2, 0.0, s.distance)
    facing = thick - jnp.sum(n1 * n2, -1)  # Eq. 15; edges whose normals are at a right angle do face each other
    activity *= greater(facing + s.angle / 2, 0.0, s.angle)
    if soft:  # Supp. II-B: mixed edges may leave their solid
        activity *= greater(2 * s.distance - own1, 0.0, s.distance) * greater(2 * s.distance - own2, 0.0, s.distance)
    point = (pairs.point1 + pairs.point2 + normal * (r2 - r1)) / 2
    return Manifold(point, distance, -normal, activity)


def is_nearest(distance: Array, tau: Any, axis: int) -> Array:
    """Whether an entry is the smallest, in place of Eqs. 13 and 14, whose soft argmin counts n entries 1/n each.

    Where an edge crosses two others at the same depth, both are contacts, and each as stiff as one alone.
    """
    least = jnp.expand_dims(minimum(distance, tau, axis), axis)
    if is_exact(tau):
        return jnp.where(distance <= least, 1.0, 0.0)
    return jax.nn.sigmoid(_TIES - (distance - least) / tau)  # least is too small by tau log n


def _perpendicular(edge1: Array, edge2: Array, out: Array, tau: Any) -> Array:
    """The direction perpendicular to both edges, on the side of `out`; that of `out` where they are parallel."""
    t1, t2 = (unit(e[..., 1, :] - e[..., 0, :], 1e-12) for e in (edge1, edge2))
    across = vector_product(t1, t2)
    side = sign(jnp.sum(unit(across, _BLEND) * out, -1, keepdims=True), tau)
    return unit(side * across + _BLEND * out, 0.05 * _BLEND)
