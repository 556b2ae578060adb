"""The few deepest vertices of two solids as their contacts, chosen as paper 3 chooses points (Eqs. 12, 13).

No edges, and one choice for both solids together, by the weights of a soft minimum over all vertices. `separation` does
this for point clouds; here, vertices are those of solids, whose fields may be clouds, too. Picked by default; `mixing`
above 0 makes each contact a soft top-K of all vertices, which is smooth, and puts contacts of equal depth in their
common middle.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tangens.collision.sides import Manifold, Pose, Smoothing, evaluate, placed_pair
from tangens.geometry.smooth_operators import greater, is_exact, top_k, unit
from tangens.geometry.solids import Solid

Array = jax.Array


def deepest_points(
    one: Solid, two: Solid, pose1: Pose, pose2: Pose, smoothing: Smoothing, count: int, mixing: Any = 0
) -> Manifold:
    """The `count` deepest vertices, or all where there are fewer; `mixing` is a share of the largest weight."""
    s, found = smoothing, list[Manifold]()
    sides = placed_pair((one, two), (pose1, pose2), s.distance)
    for i, side in enumerate(sides):
        distance, normal = evaluate(sides[1 - i], side.vertices, s.distance)
        distance = distance - side.solid.radius
        point = side.vertices - normal * (side.solid.radius + distance / 2)[:, None]
        active = greater(s.margin + s.ahead - distance, 0.0, s.distance)
        active = active if side.counts is None else active * side.counts
        found.append(Manifold(point, distance, -normal if i == 0 else normal, active))
    every: Manifold = jax.tree.map(lambda *rows: jnp.concatenate(rows), *found)
    if count >= len(every.distance):
        return every
    if is_exact(mixing):
        chosen = jax.lax.top_k(jax.lax.stop_gradient(-every.distance), count)[1]
        few: Manifold = jax.tree.map(lambda rows: rows[chosen], every)
        return few
    weights = jnp.exp((jnp.min(every.distance) - every.distance) / s.distance)  # of the soft minimum, over the largest
    shares = top_k(weights, count, mixing)
    mixed: Manifold = jax.tree.map(lambda rows: jnp.tensordot(shares, rows, 1), every)
    return mixed._replace(normal=unit(mixed.normal, 1e-9))
