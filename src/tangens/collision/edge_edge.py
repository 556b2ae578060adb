"""Where two edges are nearest: a quadratic program in a box, solved by its active sets, smoothly (paper 4, Sec. IV-D).

    min over α in [0, 1]²:  ‖e₁(α₁) − e₂(α₂)‖² + λ ℓ₁² (α₁ − ½)² + λ ℓ₂² (α₂ − ½)²

No iteration and no branch: the minimum without the box, those on its four sides, and smooth choices between them. The
second term, with edges of length ℓ, decides where parallel edges meet, in their middles; as λ grows, all edges do. With
smoothing 0 the choices are exact. Derivatives flow through all end points.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tangens.collision.coordinates import coordinates, difference, dot, moved
from tangens.geometry.smooth_operators import argmin_of, clip, sum_of, within

Array = jax.Array


class Witnesses(NamedTuple):
    """The nearest points of two edges."""

    point1: Array
    """[m], (..., 3)."""
    point2: Array
    along: Array
    """α, (..., 2)."""
    crossing: Array
    """ᶜᵒⁿγ: whether the lines are nearest within both edges, (...)."""


def edge_edge(edge1: Array, edge2: Array, regularization: Any, tau: Any) -> Witnesses:
    """Witness points of edges with ends (..., 2, 3); `tau` smooths choices, in shares of an edge."""
    a1, b1, a2, b2 = (coordinates(edge[..., end, :]) for edge in (edge1, edge2) for end in (0, 1))
    t1, t2, apart = difference(b1, a1), difference(b2, a2), difference(a1, a2)
    l1, l2 = dot(t1, t1), dot(t2, t2)
    per = 1 / (l1 + l2)
    ridge1, ridge2 = regularization * l1, regularization * l2
    c1, c2 = dot(t1, apart) - ridge1 / 2, -dot(t2, apart) - ridge2 / 2
    q11, q12, q22, c1, c2 = (x * per for x in (l1 + ridge1, -dot(t1, t2), l2 + ridge2, c1, c2))
    x1, x2, crossing = box_qp(q11, q12, q22, c1, c2, tau)
    point1, point2 = moved(a1, x1, t1), moved(a2, x2, t2)
    return Witnesses(jnp.stack(point1, -1), jnp.stack(point2, -1), jnp.stack([x1, x2], -1), crossing)


def box_qp(q11: Array, q12: Array, q22: Array, c1: Array, c2: Array, tau: Any) -> tuple[Array, Array, Array]:
    """The minimum of ½ αᵀQα + cᵀα over [0, 1]²: α₁, α₂, and whether the minimum without bounds is inside.

    Costs are compared with a smoothing of tau², since they are squares of what α is a share of.
    """
    determinant = q11 * q22 - q12**2
    free1, free2 = (q12 * c2 - q22 * c1) / determinant, (q12 * c1 - q11 * c2) / determinant
    inside = within(free1, 0.0, 1.0, tau) * within(free2, 0.0, 1.0, tau)
    low, high = jnp.zeros_like(c1), jnp.ones_like(c1)
    sides = [(end, clip(-(c2 + q12 * end) / q22, 0.0, 1.0, tau)) for end in (low, high)]
    sides += [(clip(-(c1 + q12 * end) / q11, 0.0, 1.0, tau), end) for end in (low, high)]
    costs = [q11 * x**2 / 2 + q12 * x * y + q22 * y**2 / 2 + c1 * x + c2 * y for x, y in sides]
    weights = argmin_of(costs, tau * tau)
    bound1, bound2 = (sum_of(w * side[k] for w, side in zip(weights, sides, strict=True)) for k in (0, 1))
    # Far from the box the minimum without it may be anywhere, and its weight is as good as 0: keep it from overflowing.
    free1, free2 = (jnp.clip(x, -1e3, 1e3) for x in (free1, free2))
    return bound1 + inside * (free1 - bound1), bound2 + inside * (free2 - bound2), inside
