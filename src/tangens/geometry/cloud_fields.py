"""Oriented point clouds as fields (paper 4, Sec. IV-B3): the most faithful to any surface, and the most work."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tangens.geometry.oriented_points import OrientedPoints
from tangens.geometry.smooth_operators import unit
from tangens.geometry.soft_distance import squared_distances

Array = jax.Array

_SHARE = 0.05
"""ε₁ over the squared spacing of the points, at least: less would show the planes one by one."""
_OPPOSED = 1e-3


class CloudField(NamedTuple):
    """The soft signed distance of points with normals: planes, weighted by how near their points are (Eq. 6)."""

    points: Array
    """[m], (n, 3)."""
    normals: Array
    temperature: Array
    """ε₁ without smoothing [m²]."""

    def evaluate(self, x: Array, tau: Any) -> tuple[Array, Array]:
        """φ and normal of one point; `tau` adds to the width of the weights."""
        weights = jax.nn.softmax(-squared_distances(self.points, x) / (self.temperature + jnp.square(tau)))
        return weights @ jnp.sum(self.normals * (x - self.points), -1), unit(weights @ self.normals, _OPPOSED)


def cloud_field(cloud: OrientedPoints) -> CloudField:
    """The field of a cloud."""
    with jax.enable_x64(True):
        return CloudField(jnp.asarray(cloud.points), jnp.asarray(cloud.normals), jnp.asarray(_SHARE * cloud.spacing**2))
