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

from tangens.geometry.smooth_operators import argmin, clip, within

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
    t1, t2 = edge1[..., 1, :] - edge1[..., 0, :], edge2[..., 1, :] - edge2[..., 0, :]
    apart = edge1[..., 0, :] - edge2[..., 0, :]
    l1, l2 = jnp.sum(t1**2, -1), jnp.sum(t2**2, -1)
    scale = l1 + l2
    ridge1, ridge2 = regularization * l1, regularization * l2
    q11, q12, q22 = l1 + ridge1, -jnp.sum(t1 * t2, -1), l2 + ridge2
    c1 = jnp.sum(t1 * apart, -1) - ridge1 / 2
    c2 = -jnp.sum(t2 * apart, -1) - ridge2 / 2
    q11, q12, q22, c1, c2 = (x / scale for x in (q11, q12, q22, c1, c2))
    along, crossing = box_qp(q11, q12, q22, c1, c2, tau)
    point1 = edge1[..., 0, :] + along[..., :1] * t1
    return Witnesses(point1, edge2[..., 0, :] + along[..., 1:] * t2, along, crossing)


def box_qp(q11: Array, q12: Array, q22: Array, c1: Array, c2: Array, tau: Any) -> tuple[Array, Array]:
    """The minimum of ½ αᵀQα + cᵀα over [0, 1]²: α (..., 2), and whether the minimum without bounds is inside.

    Costs are compared with a smoothing of tau², since they are squares of what α is a share of.
    """
    determinant = q11 * q22 - q12**2
    free1, free2 = (q12 * c2 - q22 * c1) / determinant, (q12 * c1 - q11 * c2) / determinant
    inside = within(free1, 0.0, 1.0, tau) * within(free2, 0.0, 1.0, tau)
    low, high = jnp.zeros_like(c1), jnp.ones_like(c1)
    on1 = [clip(-(c2 + q12 * end) / q22, 0.0, 1.0, tau) for end in (0.0, 1.0)]
    on2 = [clip(-(c1 + q12 * end) / q11, 0.0, 1.0, tau) for end in (0.0, 1.0)]
    a1 = jnp.stack([low, high, on2[0], on2[1]], -1)
    a2 = jnp.stack([on1[0], on1[1], low, high], -1)
    quadratic = q11[..., None] * a1**2 + 2 * q12[..., None] * a1 * a2 + q22[..., None] * a2**2
    weights = argmin(quadratic / 2 + c1[..., None] * a1 + c2[..., None] * a2, tau * tau)
    bound1, bound2 = jnp.sum(weights * a1, -1), jnp.sum(weights * a2, -1)
    # Far from the box the minimum without it may be anywhere, and its weight is as good as 0: keep it from overflowing.
    free1, free2 = (jnp.clip(x, -1e3, 1e3) for x in (free1, free2))
    return jnp.stack([bound1 + inside * (free1 - bound1), bound2 + inside * (free2 - bound2)], -1), inside
