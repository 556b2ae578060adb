"""Superquadrics (paper 4, Sec. IV-B1): ellipsoids, boxes, cylinders and all between them, by six numbers each.

The paper measures along the ray from the centre, φ = ‖x‖ (1 − f^(−ε₁/2)), which is too long by the cosine between ray
and normal, even on the surface. With g = f^(ε₁/2), the *gauge*, by which the solid has to grow to reach x, the distance
to first order is (g − 1) / ‖∇g‖. It is exact for balls and boxes, everywhere; g is convex, so that its gradient points
outwards, everywhere. g is a norm of norms: g = ‖(‖(x/a, y/b)‖_p₂, z/c)‖_p₁ with p = 2/ε, which logarithms compute
without overflow. `radial_distance` is the paper's, for comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tangens.geometry.smooth_operators import argmin, minimum, sum_of, unit

Array = jax.Array

_BLUNT = 1e-3
"""Of a half axis: where |x| is blunted, for its derivative. Surfaces move by half its square."""


class Superquadrics(NamedTuple):
    """The smooth union of n superquadrics in one frame; a field, as in `signed_distances`."""

    axes: Array
    """Half axes a, b, c [m], (n, 3)."""
    exponents: Array
    """ε₁ (along z) and ε₂ (around it), (n, 2): 1 is round, near 0 is a box, 2 an octahedron."""
    position: Array
    """Centres [m], (n, 3)."""
    rotation: Array
    """Of each one's axes, (n, 3, 3)."""

    def evaluate(self, x: Array, tau: Any) -> tuple[Array, Array]:
        """φ and normal of one point."""
        distance, normal = self.evaluate_many(x[None], tau)
        return distance[0], normal[0]

    def evaluate_many(self, x: Array, tau: Any) -> tuple[Array, Array]:
        """φ (k,) and normals (k, 3) of points (k, 3).

        By coordinates, points last: everything but the sums over superquadrics is one loop over points.
        """
        position, turn, axes, exponents = (jnp.moveaxis(part, 0, -1)[..., None] for part in self._ordered())
        off = [x[:, i] - position[i] for i in range(3)]  # (n, k) each
        local = [sum_of(turn[i, j] * off[i] for i in range(3)) for j in range(3)]
        distance, own = _first_order_distance(axes, exponents, local)
        normal = [sum_of(turn[i, j] * own[j] for j in range(3)) for i in range(3)]
        if len(self.axes) == 1:
            return distance[0], jnp.stack([component[0] for component in normal], -1)
        weights = argmin(distance, tau, 0)
        mean = jnp.stack([jnp.sum(weights * component, 0) for component in normal], -1)
        return minimum(distance, tau, 0), unit(mean, 1e-6)

    def _ordered(self) -> tuple[Array, Array, Array, Array]:
        return self.position, self.rotation, self.axes, self.exponents


def superquadric(
    axes: Any,
    exponents: Any = (1.0, 1.0),
    position: Any = (0.0, 0.0, 0.0),
    rotation: Any | None = None,
) -> Superquadrics:
    """One superquadric as a field."""
    turn = jnp.eye(3) if rotation is None else jnp.asarray(rotation)
    return Superquadrics(*(jnp.asarray(value, float)[None] for value in (axes, exponents, position, turn)))


def gauge(axes: Array, exponents: Array, x: Array) -> tuple[Array, Array, Array]:
    """g(x), its gradient, and the length of it that does not vanish at the centre."""
    g, gradient, steep = _gauge(list(axes), list(exponents), list(x))
    return g, jnp.stack(gradient), steep


def _gauge(axes: Sequence[Array], exponents: Sequence[Array], x: Sequence[Array]) -> tuple[Array, list[Array], Array]:
    scaled = [x_i / a for x_i, a in zip(x, axes, strict=True)]
    squares = [share**2 + _BLUNT**2 for share in scaled]
    logs, (p1, p2) = [0.5 * jnp.log(square) for square in squares], [2 / e for e in exponents]
    around, share1 = _log_of_sum(p2 * logs[0], p2 * logs[1])
    around /= p2
    all_of_it, share12 = _log_of_sum(p1 * around, p1 * logs[2])
    g = jnp.exp(all_of_it / p1)
    shares = [share12 * share1, share12 * (1 - share1), 1 - share12]
    lever = [g * share / (a * square) for share, a, square in zip(shares, axes, squares, strict=True)]
    # |∂g/∂x|, had |x| not been blunted
    steep = jnp.sqrt(sum_of(way**2 * square for way, square in zip(lever, squares, strict=True)))
    return g, [way * share for way, share in zip(lever, scaled, strict=True)], steep


def _log_of_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """log(eᵃ + eᵇ), and the share of eᵃ in it: both from one exponential.

    Each branch holds everywhere, so that derivatives of every order are right where a = b, too.
    """
    first = a >= b
    share = jax.nn.sigmoid(a - b)
    return jnp.where(first, a, b) - jnp.log(jnp.where(first, share, 1 - share)), share


def first_order_distance(axes: Array, exponents: Array, x: Array) -> tuple[Array, Array]:
    """(g − 1) / ‖∇g‖ [m] and the normal, of a point in the superquadric's own frame."""
    distance, normal = _first_order_distance(axes, exponents, list(x))
    return distance, jnp.stack(normal)


def _first_order_distance(axes: Any, exponents: Any, x: Sequence[Array]) -> tuple[Array, list[Array]]:
    g, gradient, steep = _gauge(axes, exponents, x)
    size = jnp.sqrt(sum_of(way**2 for way in gradient) + (1e-6 * steep) ** 2)
    return (g - 1) / steep, [way / size for way in gradient]


def radial_distance(axes: Array, exponents: Array, x: Array) -> Array:
    """Eq. 3: along the ray from the centre, ‖x‖ (1 − 1/g) [m]."""
    g, _, _ = gauge(axes, exponents, x)
    return jnp.sqrt(jnp.sum(x**2) + jnp.square(_BLUNT * jnp.min(axes))) * (1 - 1 / g)
