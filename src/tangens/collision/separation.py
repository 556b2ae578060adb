"""Collision of two oriented point clouds as a field over all their points (paper 3, Eqs. 11 to 13), in JAX.

The separation field has the soft distance of each point of one cloud from the other; its soft minimum is how far the
surfaces are apart. A contact model that wants a few points gets the K deepest vertices by a soft top-K, as a
`Manifold`.

Derivatives of any order flow to both poses. K, and which quads share which vertices, are structure. Soft selection goes
by the K largest weights, so that where two vertices change ranks the points have a kink.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tangens.collision.pair_manifold import Manifold, Pose
from tangens.geometry.oriented_points import OrientedPoints
from tangens.geometry.smooth_operators import top_k, unit
from tangens.geometry.soft_distance import soft_distance

Array = jax.Array


class Separation(NamedTuple):
    """How far two surfaces are apart, all over: first the points of cloud 1, then those of cloud 2."""

    field: Array
    """Φ₁₂ [m], (n₁ + n₂,)."""
    distribution: Array
    """σ_ε₂(−Φ₁₂): the deepest count, (n₁ + n₂,)."""

    @property
    def distance(self) -> Array:
        """The soft minimum of the field [m], negative where surfaces overlap."""
        return self.distribution @ self.field


def separation(
    clouds: tuple[OrientedPoints, OrientedPoints], poses: tuple[Pose, Pose], temperature: float, depth: float
) -> Separation:
    """The field of two clouds; `temperature` is ε₁ [m²], `depth` is ε₂ [m]."""
    seen = [
        _distances(clouds[other], poses[other], _placed(poses[own], clouds[own].points), temperature)
        for own, other in ((0, 1), (1, 0))
    ]
    field = jnp.concatenate(seen)
    return Separation(field, jax.nn.softmax(-field / depth))


def contact_points(
    clouds: tuple[OrientedPoints, OrientedPoints],
    poses: tuple[Pose, Pose],
    temperature: float,
    depth: float,
    count: int = 8,
    mixing: float = 1e-3,
) -> Manifold:
    """The `count` deepest vertices of both clouds as contacts (Eqs. 12, 13).

    `mixing` is the temperature of the soft top-K, as a share of the largest weight. The activity of a contact is the
    weight of its vertex over the largest one.
    """
    found = separation(clouds, poses, temperature, depth)
    weights = _on_vertices(clouds, found.distribution)
    largest = jnp.max(weights)
    chosen = top_k(weights / largest, count, mixing)
    vertices = [_placed(pose, cloud.vertices) for cloud, pose in zip(clouds, poses, strict=True)]
    own, first = jnp.concatenate(vertices), len(vertices[0])
    seen = [_distances(clouds[1 - k], poses[1 - k], at, temperature) for k, at in enumerate(vertices)]
    slopes = [
        jax.vmap(jax.grad(lambda x, k=k: _distances(clouds[1 - k], poses[1 - k], x[None], temperature)[0]))(at)
        for k, at in enumerate(vertices)
    ]
    out = jnp.concatenate(slopes)  # away from the other surface
    towards = jnp.where((jnp.arange(len(own)) < first)[:, None], -out, out)
    distance = chosen @ jnp.concatenate(seen)
    point = chosen @ (own - 0.5 * jnp.concatenate(seen)[:, None] * out)
    return Manifold(point, distance, unit(chosen @ towards, 1e-9), chosen @ (weights / largest))


def _placed(pose: Pose, x: np.ndarray) -> Array:
    return jnp.asarray(x) @ pose.rotation.T + pose.position


def _distances(cloud: OrientedPoints, pose: Pose, x: Array, temperature: float) -> Array:
    points, normals = jnp.asarray(cloud.points), jnp.asarray(cloud.normals)
    return jax.vmap(lambda p: soft_distance(points, normals, temperature, p))((x - pose.position) @ pose.rotation)


def _on_vertices(clouds: tuple[OrientedPoints, OrientedPoints], distribution: Array) -> Array:
    """The z of Eq. 12: weights of quads, passed on to their vertices; a triangle's last vertex counts once."""
    parts = jnp.split(distribution, [len(clouds[0])])
    out = []
    for cloud, part in zip(clouds, parts, strict=True):
        once = np.ones(cloud.quads.shape)
        once[cloud.quads[:, 2] == cloud.quads[:, 3], 3] = 0.0
        spread = (part[:, None] * once).ravel()
        out.append(jnp.zeros(len(cloud.vertices), part.dtype).at[cloud.quads.ravel()].add(spread))
    return jnp.concatenate(out)
