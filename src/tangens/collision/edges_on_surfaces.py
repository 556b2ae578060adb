"""Edges as contacts with a surface, where each is deepest in it: what edges are if one of two solids is round.

Edges of a mesh on a curved surface are where the triangulation put them. Which of two such edges are nearest, and how
deep they are along their perpendicular, changes from pose to pose however little the surfaces move, and each change is
a spring that comes from nothing. So pairs of edges (paper 4, Sec. IV-D) are contacts of flat faces alone. Elsewhere an
edge is a curve x(α) fixed to its solid, and touches where the other one's signed distance is least:

    d = min over α in [0, 1] of φ(x(α)) + ½ λ ℓ (α − ½)²

The second term decides where an edge along a surface touches it, in its middle. Since the derivative by α is 0, or α at
a bound, d changes as the distance of a point that stays where it is on its solid: what a contact's rows say it does.
First derivatives flow through everything, those of α by the implicit function theorem.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tangens.collision.sides import Manifold, Side, Smoothing, evaluate, projected
from tangens.geometry.smooth_operators import greater, length

Array = jax.Array

_GRID = 5
"""Points of an edge that are looked at first: it may enter a solid of several parts twice."""
_BISECTIONS = 10
"""Of half an edge, down to 0.05 %, where edges of boxes are round; two steps of Newton's method follow."""


def on_surface(side: Side, other: Side, ends: Array, s: Smoothing, which: int, projections: int) -> Manifold:
    """The contacts of one solid's edges, given by their ends (k, 2, 3), with the other solid."""
    parabolas, radius = _parabolas(side, ends, s, projections), side.solid.radius
    alpha = _deepest(parabolas, other, s)
    at = _points(parabolas, alpha)
    found, normal = evaluate(other, at, s.distance)
    distance = found + _preference(parabolas, alpha, s) - radius
    activity = greater(s.margin + s.ahead - distance, 0.0, s.distance)
    point = at - normal * (radius + distance / 2)[:, None]
    return Manifold(point, distance, -normal if which == 0 else normal, activity)


class _Parabolas(NamedTuple):
    """Curves through the ends of edges and their middles, which are moved onto their surface (Supp. II-C), (k, 3)."""

    start: Array
    along: Array
    bulge: Array


def _parabolas(side: Side, ends: Array, s: Smoothing, projections: int) -> _Parabolas:
    start, along = ends[:, 0], ends[:, 1] - ends[:, 0]
    middle = start + along / 2

    bulge = 4 * (projected(side, middle, s, projections) - middle)
    return _Parabolas(start, along, bulge)


def _points(of: _Parabolas, alpha: Array) -> Array:
    return of.start + alpha[:, None] * of.along + (alpha * (1 - alpha))[:, None] * of.bulge


def _preference(of: _Parabolas, alpha: Array, s: Smoothing) -> Array:
    return s.regularization * length(of.along, 1e-12) * (alpha - 0.5) ** 2 / 2


def _deepest(of: _Parabolas, other: Side, s: Smoothing) -> Array:
    """α (k,)."""
    still = jax.lax.stop_gradient((of, other, s))
    low, high = _bracket(*still)

    def newton(alpha: Array, of: _Parabolas, other: Side, s: Smoothing) -> Array:
        _, bend = jax.jvp(lambda a: _slope(*still, a), (alpha,), (jnp.ones_like(alpha),))
        convex = bend > 0
        after = alpha - _slope(of, other, s, alpha) / jnp.where(convex, bend, 1.0)
        return jnp.where(convex, jnp.clip(after, low, high), alpha)

    return newton(newton((low + high) / 2, *still), of, other, s)


def _objective(of: _Parabolas, other: Side, s: Smoothing, alpha: Array) -> Array:
    return evaluate(other, _points(of, alpha), s.distance)[0] + _preference(of, alpha, s)


def _slope(of: _Parabolas, other: Side, s: Smoothing, alpha: Array) -> Array:
    return jax.jvp(lambda a: _objective(of, other, s, a), (alpha,), (jnp.ones_like(alpha),))[1]


def _bracket(of: _Parabolas, other: Side, s: Smoothing) -> tuple[Array, Array]:
    """Between what α to look for it."""
    count, width = len(of.start), 1 / (_GRID - 1)
    grid = jnp.linspace(0.0, 1.0, _GRID)
    values = jax.vmap(lambda a: _objective(of, other, s, jnp.full(count, a)))(grid)
    first = grid[jnp.argmin(values, 0)]
    bounds = jnp.maximum(first - width, 0.0), jnp.minimum(first + width, 1.0)

    def halve(bounds: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        low, high = bounds
        middle = (low + high) / 2
        falls = _slope(of, other, s, middle) < 0
        return (jnp.where(falls, middle, low), jnp.where(falls, high, middle)), None

    return jax.lax.scan(halve, bounds, None, length=_BISECTIONS)[0]
