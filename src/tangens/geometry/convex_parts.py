"""Meshes as convex polyhedra, by CoACD (Wei et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tangens.geometry.field_unions import ConvexPolyhedra
from tangens.geometry.mesh_clouds import quiet
from tangens.geometry.mesh_repair import needed
from tangens.geometry.signed_grids import MeshSample
from tangens.geometry.solids import hull_planes

Array = NDArray[np.float64]

_CORNERS = 32
"""Most corners of a polyhedron: as many as MJX takes."""


def convex_parts(mesh: MeshSample, concavity: float, most: int) -> tuple[Array, ...]:
    """Corners of convex polyhedra that a mesh is cut into, each (n, 3).

    `concavity` is how far a part may be from its hull, over the size of the mesh (CoACD's threshold).
    """
    coacd = needed("coacd", "a decomposition into convex polyhedra")
    coacd.set_log_level("off")
    with quiet():
        parts = coacd.run_coacd(
            coacd.Mesh(mesh.vertices, mesh.faces), threshold=min(max(concavity, 0.01), 1.0), max_convex_hull=most,
            decimate=True, max_ch_vertex=_CORNERS, seed=0,
        )  # fmt: skip
    return tuple(np.asarray(vertices, float) for vertices, _ in parts)


def polyhedron_distances(corners: Array, x: Array) -> Array:
    """Of points from the hull of others, by its farthest plane [m], (n,)."""
    normals, offsets = hull_planes(corners)
    return np.asarray((x @ normals.T - offsets).max(1))


def polyhedra_field(parts: Sequence[Array]) -> ConvexPolyhedra:
    """The union of the hulls of points; lists of faces are filled up to one length."""
    planes = [hull_planes(part) for part in parts]
    longest = max(len(offsets) for _, offsets in planes)
    normals, offsets = np.zeros((len(parts), longest, 3)), np.zeros((len(parts), longest))
    repeats = np.ones((len(parts), longest), bool)
    for k, (n, o) in enumerate(planes):
        normals[k, : len(o)], offsets[k, : len(o)], repeats[k, : len(o)] = n, o, False
    with jax.enable_x64(True):
        return ConvexPolyhedra(jnp.asarray(normals), jnp.asarray(offsets), jnp.asarray(repeats))
