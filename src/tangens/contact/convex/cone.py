"""Compliant contact with friction as a convex cost of its velocity: the law, its cost and its curvature.

With regularisation R = (R_t, R_t, R_n) [1/kg] and target speed v̂ = −φ / (h + τ_d), a contact that moves with velocity
c (3,) has the impulse

    y = R⁻¹ (v̂ n − c),   γ = the point of the friction cone nearest to y, in the norm of R,   ℓ(c) = ½ γᵀ R γ

(Castro, Permenter and Han 2023, after Anitescu 2006 and Todorov 2014), with γ = −∂ℓ/∂c. Three cases: y is in the cone
(sticking), in its polar (no force), or neither (sliding). The activity of a contact scales ℓ, and so γ.

Everything is in world axes: friction is the same in all directions, so that no frame has to be chosen.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array

_NO_SLIP = 1e-40  # kept under the root of a squared impulse, for its derivative [N² s²]


class Cone(NamedTuple):
    """The numbers of contacts, each (n,) or (n, 3)."""

    normal: Array
    target: Array
    """v̂ [m/s]."""
    normal_regularization: Array
    """R_n [1/kg]."""
    tangent_regularization: Array
    """R_t [1/kg]."""
    friction: Array
    activity: Array


class Impulse(NamedTuple):
    """What contacts do at given velocities."""

    impulse: Array
    """γ on body 2 [N s], (n, 3)."""
    normal_impulse: Array
    """(n,)."""
    curvature: Array
    """−∂γ/∂c [kg], (n, 3, 3)."""


def impulses(cone: Cone, c: Array) -> Impulse:
    """γ and its curvature at the velocities c (n, 3) of body 2 relative to body 1."""
    n, mu, r_n, r_t, active = (
        cone.normal,
        cone.friction,
        cone.normal_regularization,
        cone.tangent_regularization,
        cone.activity,
    )
    v_n = jnp.sum(n * c, -1)
    y_n = (cone.target - v_n) / r_n
    y_t = -(c - v_n[:, None] * n) / r_t[:, None]
    y_r = jnp.sqrt(jnp.sum(y_t**2, -1) + _NO_SLIP)
    slip = y_t / y_r[:, None]
    steep = 1 + mu**2 * r_t / r_n
    sliding_n = (y_n + mu * r_t / r_n * y_r) / steep
    sticks = y_r <= mu * y_n
    slides = ~sticks & (sliding_n > 0)
    normal = active * jnp.where(sticks, y_n, jnp.where(slides, sliding_n, 0.0))
    tangent = active[:, None] * jnp.where(
        sticks[:, None], y_t, jnp.where(slides[:, None], (mu * sliding_n)[:, None] * slip, 0.0)
    )
    edge = n + mu[:, None] * slip
    nn, one = _outer(n, n), jnp.eye(3, dtype=c.dtype)
    stick = nn / _mat(r_n) + (one - nn) / _mat(r_t)
    across = one - nn - _outer(slip, slip)
    slide = _outer(edge, edge) / _mat(r_n * steep) + _mat(mu * sliding_n / (r_t * y_r)) * across
    curvature = jnp.where(_mat(sticks), stick, jnp.where(_mat(slides), slide, 0.0))
    return Impulse(normal[:, None] * n + tangent, normal, _mat(active) * curvature)


def _outer(a: Array, b: Array) -> Array:
    return a[:, :, None] * b[:, None, :]


def _mat(x: Array) -> Array:
    return x[:, None, None]
