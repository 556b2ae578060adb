"""Superquadrics (paper 4, Sec. IV-B1): ellipsoids, boxes, cylinders and all between them, by six numbers each.

The paper measures along the ray from the centre, φ = ‖x‖ (1 − f^(−ε₁/2)), which is too long by the cosine between ray
and normal, even on the surface. With g = f^(ε₁/2), the *gauge*, by which the solid has to grow to reach x, the distance
to first order is (g − 1) / ‖∇g‖. It is exact for balls and boxes, everywhere; g is convex, so that its gradient points
outwards, everywhere. g is a norm of norms: g = ‖(‖(x/a, y/b)‖_p₂, z/c)‖_p₁ with p = 2/ε, which logarithms compute
without overflow. `radial_distance` is the paper's, for comparison.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tangens.geometry.smooth_operators import argmin, minimum, unit

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
        distance, normal = jax.vmap(first_order_distance, (0, 0, 0))(
            self.axes, self.exponents, jnp.einsum("nij,ni->nj", self.rotation, x - self.position)
        )
        if len(self.axes) == 1:
            return distance[0], self.rotation[0] @ normal[0]
        weights = argmin(distance, tau)
        turned = jnp.einsum("n,nij,nj->i", weights, self.rotation, normal)
        return minimum(distance, tau), unit(turned, 1e-6)


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
    scaled = jnp.sqrt((x / axes) ** 2 + _BLUNT**2)
    logs, (p1, p2) = jnp.log(scaled), 2 / exponents
    around = jnp.logaddexp(p2 * logs[0], p2 * logs[1]) / p2
    g = jnp.exp(jnp.logaddexp(p1 * around, p1 * logs[2]) / p1)
    share12, share1 = jax.nn.sigmoid(p1 * (around - logs[2])), jax.nn.sigmoid(p2 * (logs[0] - logs[1]))
    shares = jnp.stack([share12 * share1, share12 * (1 - share1), 1 - share12])
    steep = g * shares / (axes * scaled)  # |∂g/∂x|, had |x| not been blunted
    return g, steep * x / (axes * scaled), jnp.sqrt(jnp.sum(steep**2))


def first_order_distance(axes: Array, exponents: Array, x: Array) -> tuple[Array, Array]:
    """(g − 1) / ‖∇g‖ [m] and the normal, of a point in the superquadric's own frame."""
    g, gradient, steep = gauge(axes, exponents, x)
    return (g - 1) / steep, unit(gradient, 1e-6 * steep)


def radial_distance(axes: Array, exponents: Array, x: Array) -> Array:
    """Eq. 3: along the ray from the centre, ‖x‖ (1 − 1/g) [m]."""
    g, _, _ = gauge(axes, exponents, x)
    return jnp.sqrt(jnp.sum(x**2) + jnp.square(_BLUNT * jnp.min(axes))) * (1 - 1 / g)
