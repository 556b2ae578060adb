"""The point of a triangle that is nearest to a vertex, by its active sets, smoothly (paper 4, Supp. III-C).

Contact manifolds take signed distances instead, which are quicker; this is what they are compared with. Derivatives
flow through the vertex and the triangle's corners.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tangens.dynamics.spatial import vector_product
from tangens.geometry.smooth_operators import argmin, clip, greater

Array = jax.Array


def vertex_face(vertex: Array, triangle: Array, tau: Any) -> Array:
    """The nearest point (..., 3) of triangles (..., 3, 3); `tau` smooths choices, in shares of a side.

    Projections on the sides are clipped to the side, in shares of it, and compared by squared distances.
    """
    a, ends = triangle, jnp.roll(triangle, -1, -2)
    sides = ends - a
    squares = jnp.sum(sides**2, -1)
    share = clip(jnp.sum((vertex[..., None, :] - a) * sides, -1) / squares, 0.0, 1.0, tau)
    on_sides = a + share[..., None] * sides
    scale = jnp.sum(squares, -1, keepdims=True)
    far = jnp.sum((vertex[..., None, :] - on_sides) ** 2, -1) / scale
    bound = jnp.sum(argmin(far, tau * tau)[..., None] * on_sides, -2)
    normal = vector_product(sides[..., 0, :], -sides[..., 2, :])
    area2 = jnp.sum(normal**2, -1)
    off = vertex - a[..., 0, :]
    free = vertex - (jnp.sum(off * normal, -1) / area2)[..., None] * normal
    heights = jnp.sum(vector_product(sides, free[..., None, :] - a) * normal[..., None, :], -1) / area2[..., None]
    inside = jnp.prod(greater(heights, 0.0, tau), -1)  # barycentric coordinates sum to 1: none exceeds it
    return bound + inside[..., None] * (free - bound)
