"""How far a point is from a surface, and where that surface faces: half-spaces, thick segments, point clouds.

Points may have a radius. Then distance and normal are those of the ball around them, and `point` is where on it.
Everything is in the surface's own frame, smooth to any order, and finite wherever a point is: at the centre of a ball,
on an edge, on top of a point of the cloud. Vectors have their components first, (3, P): loops over points are then
over neighbours in memory.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tangens.contact.soft.candidates import Candidates, candidates
from tangens.contact.soft.law import dot
from tangens.contact.soft.softplus import softplus

Array = jax.Array

_BLUNT = 0.02
"""Of its radius, a segment is blunted at its axis and its ends; its surface moves outwards by 2e-4 of the radius."""
_FLAT = 0.05
"""Mean normals this short have no direction any more; one at an edge has length 0.7, at a corner 0.58."""


class Near(NamedTuple):
    """Where points are, as seen from a surface."""

    distance: Array
    """φ [m], (P,)."""
    normal: Array
    """(3, P)."""
    point: Array
    """[m], (3, P)."""


def from_half_space(y: Array, radius: Array) -> Near:
    """From z <= 0."""
    up = jnp.array([[0.0], [0.0], [1.0]], y.dtype)
    return Near(y[2] - radius, jnp.broadcast_to(up, y.shape), y - radius * up)


def from_segment(y: Array, radius: Array, half_length: Array | None, thickness: Array) -> Near:
    """From all points within `thickness` of a segment along z, or of its middle: a capsule or a sphere."""
    blunt = _BLUNT * thickness
    off = y
    if half_length is not None:
        ends = (softplus((y[2] + side * half_length) / blunt) for side in (1, -1))
        off = jnp.stack([y[0], y[1], y[2] + half_length - blunt * (next(ends) - next(ends))])
    length = jnp.sqrt(dot(off, off) + blunt**2)
    normal = off / length
    return Near(length - thickness - radius, normal, y - radius * normal)


def from_cloud(
    y: Array, radius: Array | None, points: Array, normals: Array, bias: Array, temperature: Array, listed: bool
) -> Near:
    """From an oriented point cloud (Eq. 9), whose first guess of the normal says where on a ball to look.

    Where `listed`, each probe looks at the points near it only.
    """

    def plane(y: Array) -> tuple[Array, Array]:
        if listed:
            return mean_candidate(y, candidates(y, points, normals, bias), temperature)
        return mean_plane(y, points, normals, bias, temperature)

    looked = y if radius is None else y - radius * plane(y)[1]
    distance, normal = plane(looked)
    return Near(distance, normal, looked)


def mean_plane(y: Array, points: Array, normals: Array, bias: Array, temperature: Array) -> tuple[Array, Array]:
    """φ̂ of Eq. 9 and the mean normal, made of unit length, at each of P points."""
    weights = plane_weights(y, points, bias, temperature)
    mean = jnp.concatenate([normals, dot(normals, points)[None]]) @ weights.T
    return dot(mean, y) - mean[3], unit(mean[:3])


def mean_candidate(y: Array, near: Candidates, temperature: Array) -> tuple[Array, Array]:
    """The same with a list of points for each of the P."""
    logits = dot(2 * y[:, :, None] - near.points, near.points)
    weights = jax.nn.softmax(logits / temperature + near.bias, axis=-1)
    planes = jnp.concatenate([near.normals, dot(near.normals, near.points)[None]])
    mean = jnp.sum(weights * planes, -1)
    return dot(mean, y) - mean[3], unit(mean[:3])


def plane_weights(y: Array, points: Array, bias: Array, temperature: Array) -> Array:
    """σ_ε₁(−d(p)) at each of P points, (P, F)."""
    near = 2 * y.T @ points - dot(points, points)  # |y|² is the same for all
    return jax.nn.softmax(near / temperature + bias, axis=-1)


def unit(normal: Array) -> Array:
    """The same direction at unit length; what has hardly any direction stays short."""
    square = dot(normal, normal)
    return normal / jnp.sqrt(square + (_FLAT * (1 - square)) ** 2)
