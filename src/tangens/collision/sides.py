"""Solids at their places, and contacts between them: what all parts of a manifold share."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from tangens.geometry.signed_distances import evaluate_many
from tangens.geometry.solids import Solid

Array = jax.Array


class Pose(NamedTuple):
    """Where a solid is."""

    position: Array
    """[m], (3,)."""
    rotation: Array
    """(3, 3)."""


class Smoothing(NamedTuple):
    """How much each of the choices is smoothed; all may be traced, and 0 is exact."""

    distance: Any
    """τ of distances: fields, penetration, nearest neighbours [m]."""
    angle: Any = 0.05
    """τ of cosines: edges that face each other."""
    along: Any = 0.02
    """τ in shares of an edge: where it ends."""
    regularization: Any = 1e-3
    """λ: how much edges prefer their middles."""
    margin: Any = 0.0
    """Contacts count from this distance on [m]."""
    ahead: Any = 0.0
    """Features that are each other's nearest count from this much farther away on [m]: what a step may lead to."""


class Manifold(NamedTuple):
    """Contacts of two solids: first vertices of solid 1, then of solid 2, then pairs of edges."""

    point: Array
    """Half way between the surfaces [m], (n, 3)."""
    distance: Array
    """Negative where they overlap [m], (n,)."""
    normal: Array
    """From solid 1 to solid 2, (n, 3)."""
    activity: Array
    """(n,)."""


class Side(NamedTuple):
    """A solid somewhere, with its vertices in the world."""

    solid: Solid
    pose: Pose
    vertices: Array

    def vertex_normals(self, tau: Any) -> Array:
        """Outward normals at the vertices, (V, 3). In the solid's frame they are the same for all poses of a batch."""
        own = self.solid.normals
        if own is None:
            own = evaluate_many(self.solid.field, self.solid.vertices, tau)[1]
        return own @ self.pose.rotation.T


def evaluate(side: Side, x: Array, tau: Any) -> tuple[Array, Array]:
    """Signed distance and outward normal of points of the world, (n, 3)."""
    distance, normal = evaluate_many(side.solid.field, (x - side.pose.position) @ side.pose.rotation, tau)
    return distance, normal @ side.pose.rotation.T
