"""Pairs of edges as contacts (paper 4, Sec. IV-D3): distances, normals, whether they count (Eqs. 12, 15, 16).

Three things differ from the paper. The normal of a pair of edges is the direction perpendicular to both, turned to the
side that the signed distances name out, and its distance is measured along that: so both are defined where edges
touch, too, where the paper's normal Δe / ‖Δe‖ vanishes. One contact stands for a pair's two witness points, half way
between them. And pairs that overlap need not be each other's nearest (Eqs. 13, 14): an edge that lies askew across a
face crosses two of its rims, and the one it has hardly reached is nearer than the one that it is deep in. Which pairs
are no contacts is for normals and separating axes to say.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tangens.collision.edge_edge import edge_edge
from tangens.collision.sides import Manifold, Side, Smoothing, projected
from tangens.dynamics.spatial import vector_product
from tangens.geometry.smooth_operators import greater, length, sign, unit

Array = jax.Array

_BLEND = 1e-3
"""Sine of the angle below which edges count as parallel, and their normal is that of the signed distances: 0.06°."""
_ASIDE = 0.02
"""Weight of the direction between two edges beside that of signed distances: it counts where those say nothing."""
_NEAREST = 0.7
"""Of the distance of two edges: one is the nearest feature of its solid where that is no nearer. Polyhedra, whose
distance is that from the farthest plane, are nearer than their edges by up to √½ at right angles."""


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


class AtWitnesses(NamedTuple):
    """Signed distances and normals at the witness points of pairs of edges."""

    own1: Array
    """Of solid 1 at its own witness points: 0 but for meshes that do not fit their field."""
    normal1: Array
    own2: Array
    normal2: Array
    depth1: Array
    """Of solid 2 at the witness points of solid 1."""
    depth2: Array


def edge_pairs(sides: list[Side], ends: list[Array], s: Smoothing, projections: int) -> Pairs:
    """All pairs of edges, given by their ends (k, 2, 3), with witness points (Sec. IV-D2) on their surfaces."""
    shape = (len(ends[0]), len(ends[1]), 2, 3)
    first, second = jnp.broadcast_to(ends[0][:, None], shape), jnp.broadcast_to(ends[1][None], shape)
    found = edge_edge(first, second, s.regularization, s.along)
    e1, e2 = (
        projected(side, point.reshape(-1, 3), s, projections)
        for side, point in zip(sides, (found.point1, found.point2), strict=True)
    )
    return Pairs(first, second, e1, e2, found.crossing)


def between_edges(sides: list[Side], pairs: Pairs, there: AtWitnesses, s: Smoothing, soft: bool) -> Manifold:
    """Pairs of edges as contacts."""
    n1, n2 = there.normal1, there.normal2
    r1, r2 = sides[0].solid.radius, sides[1].solid.radius
    apart = pairs.point1 - pairs.point2
    # Thick edges are seen from their axis, where signed distances have no direction.
    thick = jnp.where((r1 > 0) | (r2 > 0), 1.0, 0.0)
    # Out of solid 2 and into solid 1.
    out = n2 - n1 + (thick + _ASIDE)[..., None] * unit(apart, s.distance)
    normal = _perpendicular(pairs.edge1.reshape(-1, 2, 3), pairs.edge2.reshape(-1, 2, 3), out, s.angle)
    distance = jnp.sum(apart * normal, -1) - r1 - r2
    between = length(apart, s.distance)
    # Parallel edges, beside or behind each other, are far apart however small their distance along the normal.
    far = between - r1 - r2
    inside = jnp.ones_like(distance)
    before = greater(s.margin + s.ahead - distance, 0.0, s.distance) * greater(
        distance - _NEAREST * far, 0.0, s.distance
    )
    for depth, radius in ((there.depth1, r1), (there.depth2, r2)):  # Eq. 12, of both witness points
        inside *= greater(s.margin - depth + radius, 0.0, s.distance)
        # Before they touch: the nearest point of the other solid is that on its edge. Planes of polyhedra are nearer.
        before *= greater(depth - radius - _NEAREST * far, 0.0, s.distance)
    activity = inside + before - inside * before
    activity *= pairs.crossing.reshape(-1)
    # Out of solid 2 and into solid 1: near a corner, edges may face each other and pass behind each other.
    for own, out in ((n1, -normal), (n2, normal)):
        activity *= greater(thick + jnp.sum(own * out, -1), 0.0, s.angle)
    facing = thick - jnp.sum(n1 * n2, -1)  # Eq. 15; edges whose normals are at a right angle do face each other
    activity *= greater(facing + s.angle / 2, 0.0, s.angle)
    if soft:  # Supp. II-B: mixed edges may leave their solid
        for own in (there.own1, there.own2):
            activity *= greater(2 * s.distance - own, 0.0, s.distance)
    point = (pairs.point1 + pairs.point2 + normal * (r2 - r1)) / 2
    return Manifold(point, distance, -normal, activity)


def _perpendicular(edge1: Array, edge2: Array, out: Array, tau: Any) -> Array:
    """The direction perpendicular to both edges, on the side of `out`; that of `out` where they are parallel."""
    t1, t2 = (unit(e[..., 1, :] - e[..., 0, :], 1e-12) for e in (edge1, edge2))
    across = vector_product(t1, t2)
    side = sign(jnp.sum(unit(across, _BLEND) * out, -1, keepdims=True), tau)
    return unit(side * across + _BLEND * out, 0.05 * _BLEND)
