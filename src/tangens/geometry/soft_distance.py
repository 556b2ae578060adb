"""The soft signed distance of an oriented point cloud (paper 3, Eqs. 8 to 10), in JAX.

Each point of the cloud is a plane. The distance of p from the surface is the mean of its distances from all planes,
weighted by a softmax over how near their points are. It is smooth to any order, in p and in every argument, everywhere:
no square root, no branch. As the temperature ε₁ falls, the zero set goes from an ellipsoid to the surface itself.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

Array = jax.Array


def soft_distance(points: Array, normals: Array, temperature: Array | float, p: Array) -> Array:
    """φ̂(p) [m], negative inside (Eq. 9); `temperature` is ε₁ [m²], p has shape (3,)."""
    weights = jax.nn.softmax(-squared_distances(points, p) / temperature)
    return weights @ jnp.sum(normals * (p - points), axis=-1)


def kernel_distance(points: Array, normals: Array, precision: Array, p: Array) -> Array:
    """φ̂(p) with Gaussian kernels of their own for each point (Eq. 10).

    `precision` [1/m²], (n, 3, 3): the kernel is exp(−xᵀ P x). With P = 1/ε₁ for all, this is `soft_distance`.
    """
    x = p - points
    weights = jax.nn.softmax(-jnp.einsum("ni,nij,nj->n", x, precision, x))
    return weights @ jnp.sum(normals * x, axis=-1)


def flat_kernels(normals: Array, along: Array | float, across: Array | float) -> Array:
    """Precisions of kernels that reach `along` [m] within their plane and `across` [m] out of it, (n, 3, 3)."""
    out = normals[:, :, None] * normals[:, None, :]
    return (jnp.eye(3, dtype=normals.dtype) - out) / jnp.square(along) + out / jnp.square(across)


def squared_distances(points: Array, p: Array) -> Array:
    """d(p) of Eq. 8 [m²]: p (..., 3), points (n, 3) -> (..., n)."""
    return jnp.sum(p**2, -1)[..., None] - 2 * p @ points.T + jnp.sum(points**2, -1)
