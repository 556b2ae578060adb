"""The point of a triangle that is nearest to a vertex, by its active sets, smoothly (paper 4, Supp. III-C).

Contact manifolds take signed distances instead, which are quicker; this is what they are compared with. Derivatives
flow through the vertex and the triangle's corners.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tangens.collision.coordinates import Vector, coordinates, cross, difference, dot, moved
from tangens.geometry.smooth_operators import argmin_of, clip, greater, sum_of

Array = jax.Array


def vertex_face(vertex: Array, triangle: Array, tau: Any) -> Array:
    """The nearest point (..., 3) of triangles (..., 3, 3); `tau` smooths choices, in shares of a side.

    Projections on the sides are clipped to the side, in shares of it, and compared by squared distances.
    """
    v = coordinates(vertex)
    corners = [coordinates(triangle[..., k, :]) for k in range(3)]
    sides = [difference(corners[(k + 1) % 3], corners[k]) for k in range(3)]
    offs = [difference(v, corner) for corner in corners]
    squares = [dot(side, side) for side in sides]
    on_sides = list[Vector]()
    for corner, side, off, square in zip(corners, sides, offs, squares, strict=True):
        on_sides.append(moved(corner, clip(dot(off, side) / square, 0.0, 1.0, tau), side))
    per = 1 / sum_of(squares)
    weights = argmin_of([dot(d, d) * per for d in (difference(v, x) for x in on_sides)], tau * tau)
    normal = cross(sides[0], sides[1])
    area2 = dot(normal, normal)
    free = moved(v, -dot(offs[0], normal) / area2, normal)
    heights = [dot(cross(side, off), normal) / area2 for side, off in zip(sides, offs, strict=True)]
    # Barycentric coordinates sum to 1: none exceeds it.
    inside = greater(heights[0], 0.0, tau) * greater(heights[1], 0.0, tau) * greater(heights[2], 0.0, tau)
    bound = [sum_of(w * x[k] for w, x in zip(weights, on_sides, strict=True)) for k in range(3)]
    return jnp.stack([b + inside * (f - b) for b, f in zip(bound, free, strict=True)], -1)
