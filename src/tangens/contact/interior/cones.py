"""Second-order cones |x₁| ≤ x₀, as Newton's method sees them.

z∘s = ρ (1, 0) may be linearised as it stands, which is accurate down to the smallest ρ. But z and s need not be
parallel before the end. Where they are not, and z∘s itself has left the cone, such steps run into the cones' sides:
sliding in space jams, while in the plane, where all is parallel, it does not. There, both are first seen through a
symmetric W that maps the cone onto itself and makes them the same point (Nesterov and Todd), W z = W⁻¹ s = λ:

    λ ∘ (W dz + W⁻¹ ds) = wanted change of λ∘λ

which leads to the same end, where z∘s = ρ (1, 0) means λ∘λ = ρ (1, 0).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array

_TINY = 1e-300


class Scaling(NamedTuple):
    """Two points inside the cone, and how they are seen: plainly, or by W = β [w₀, w₁ᵀ; w₁, 1 + w₁w₁ᵀ/(1 + w₀)]."""

    z: Array
    s: Array
    plain: Array
    """Whether W is left out."""
    size: Array
    """β."""
    head: Array
    """w₀ = √(1 + |w₁|²)."""
    tail: Array
    """w₁."""


def scaling(z: Array, s: Array) -> Scaling:
    """How to see z and s."""
    det_z, det_s = (jnp.maximum(x[0] ** 2 - x[1:] @ x[1:], _TINY) for x in (z, s))
    a, b = z * jax.lax.rsqrt(det_z), s * jax.lax.rsqrt(det_s)
    tail = (b[1:] - a[1:]) / jnp.sqrt(2 * (1 + a @ b))
    both = product(z, s)
    plain = (both[1:] @ both[1:] <= both[0] ** 2) | (tail @ tail > 10**2)
    return Scaling(z, s, plain, jnp.sqrt(jnp.sqrt(det_s / det_z)), jnp.sqrt(1 + tail @ tail), tail)


def product(x: Array, y: Array) -> Array:
    """x∘y."""
    return jnp.concatenate([(x @ y)[None], x[0] * y[1:] + y[0] * x[1:]])


def scaled_product(W: Scaling, dz: Array, ds: Array) -> Array:
    """dz∘ds, or (W dz)∘(W⁻¹ ds)."""
    scaled = product(_mapped(W.head, W.tail, dz), _mapped(W.head, -W.tail, ds))
    return jnp.where(W.plain, product(dz, ds), scaled)


def completed(W: Scaling, change: Array, dz_head: Array, ds_tail: Array) -> tuple[Array, Array]:
    """The tail of dz and the head of ds, the other halves given, for a wanted change of the product of z and s."""
    plain, scaled = _plain(W, change, dz_head, ds_tail), _scaled(W, change, dz_head, ds_tail)
    return jnp.where(W.plain, plain[0], scaled[0]), jnp.where(W.plain, plain[1], scaled[1])


def _plain(W: Scaling, change: Array, dz_head: Array, ds_tail: Array) -> tuple[Array, Array]:
    (z0, z1), (s0, s1) = ((x[0], x[1:]) for x in (W.z, W.s))
    tail = change[1:] - z0 * ds_tail - s1 * dz_head
    ds_head = (change[0] - z1 @ ds_tail - s0 * dz_head - s1 @ tail / s0) / (z0 - s1 @ z1 / s0)
    return (tail - z1 * ds_head) / s0, ds_head


def _scaled(W: Scaling, change: Array, dz_head: Array, ds_tail: Array) -> tuple[Array, Array]:
    """W² dz + ds = W (λ⁻¹∘change), where W² = β² (2wwᵀ − J) and J flips the sign of the tail."""
    square, w0, w1 = W.size**2, W.head, W.tail
    point = W.size * _mapped(w0, w1, W.z)
    head = (point[0] * change[0] - point[1:] @ change[1:]) / jnp.maximum(point[0] ** 2 - point[1:] @ point[1:], _TINY)
    divided = jnp.concatenate([head[None], (change[1:] - head * point[1:]) / point[0]])
    wanted = W.size * _mapped(w0, w1, divided)
    rest = (wanted[1:] - ds_tail) / square - 2 * w0 * w1 * dz_head
    dz_tail = rest - w1 * (2 * (w1 @ rest) / (1 + 2 * (w1 @ w1)))
    return dz_tail, wanted[0] - square * ((2 * w0**2 - 1) * dz_head + 2 * w0 * (w1 @ dz_tail))


def central(head: Array, tail: Array, wanted: Array) -> tuple[Array, Array]:
    """The tail of z and the head of s with z∘s = (wanted, 0), the other halves given: Coulomb's law, relaxed."""
    half = wanted / (2 * head)
    ds_head = half + jnp.sqrt(half**2 + tail @ tail)
    return -head / ds_head * tail, ds_head


def largest_step(x: Array, dx: Array) -> Array:
    """How far x can go along dx inside the cone: a root of a quadratic."""
    a, b, c = (y[0] * z[0] - y[1:] @ z[1:] for y, z in ((dx, dx), (x, dx), (x, x)))
    square = b * b - a * c
    q = -(b + jnp.where(b >= 0, 1.0, -1.0) * jnp.sqrt(jnp.maximum(square, 0.0)))
    roots = jnp.stack([q / jnp.where(a == 0, 1.0, a), c / jnp.where(q == 0, 1.0, q)])
    exists = jnp.stack([a != 0, q != 0]) & (roots > 0) & (square >= 0)
    return jnp.min(jnp.where(exists, roots, jnp.inf))


def _mapped(head: Array, tail: Array, y: Array) -> Array:
    along = tail @ y[1:]
    return jnp.concatenate([(head * y[0] + along)[None], y[1:] + tail * (y[0] + along / (1 + head))])
