"""From a signed distance to a mesh that probes others: marching cubes, even triangles, all vertices on the surface.

Contact manifolds evaluate one solid's signed distance at the vertices and edges of another. A mesh that leaves its own
zero level set would touch before its field does, or after (paper 4, Supp. II-C).
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tangens.errors import OptionError
from tangens.geometry.mesh_clouds import quiet
from tangens.geometry.mesh_repair import needed
from tangens.geometry.signed_distances import evaluate_many
from tangens.geometry.solids import Solid, mesh_edges

Array = NDArray[np.float64]
Ints = NDArray[np.int_]

_CELLS = 200_000
"""Of the grid that marching cubes walks over."""
_PROJECTIONS = 12
_OFF = 1e-6
"""Of its size, how far from the surface a vertex may be."""
_SHARP = 1e-9
"""Of the largest coordinate: τ where 0 is asked for, since compiled functions cannot look at its value."""
_BLOCK = 4096


class SurfaceMesh(NamedTuple):
    """Triangles on the zero level set of a field, facing outwards."""

    vertices: Array
    faces: Ints


def field_values(field: Any, x: Array, tau: float) -> tuple[Array, Array]:
    """φ (n,) and normals (n, 3) of a field at points (n, 3)."""
    found = _in_blocks(_evaluated(), field, x, tau or _SHARP * float(np.abs(x).max()))
    return found[0], found[1]


def surface_mesh(field: Any, low: Array, high: Array, tau: float, cells: int = _CELLS) -> SurfaceMesh:
    """The zero level set of a field within a box, by marching cubes; vertices are projected onto it."""
    measure = needed("skimage.measure", "a collision mesh", "scikit-image")
    extent = high - low
    side = float(np.cbrt(np.prod(np.maximum(extent, 0.02 * extent.max())) / cells))
    low, high = low - 3 * side, high + 3 * side
    axes = [np.arange(a, b + side, side) for a, b in zip(low, high, strict=True)]
    x = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    values = field_values(field, x.reshape(-1, 3), tau)[0].reshape(x.shape[:3])
    if not (values.min() < 0 < values.max()):
        raise OptionError("the signed distance has no surface inside the box that was searched")
    at, faces, _, _ = measure.marching_cubes(values, 0.0, spacing=(side, side, side), gradient_direction="descent")
    return SurfaceMesh(projected(field, np.asarray(at, float) + low, tau), np.asarray(faces, int))


def projected(field: Any, x: Array, tau: float) -> Array:
    """Points moved onto the zero level set of a field, along its normals."""
    return _in_blocks(_projected(), field, x, tau)[0]


@cache
def _evaluated() -> Any:
    return jax.jit(evaluate_many)


@cache
def _projected() -> Any:
    def run(field: Any, x: Any, tau: Any) -> tuple[Any]:
        def step(_: Any, x: Any) -> Any:
            distance, normal = evaluate_many(field, x, tau)
            return x - distance[:, None] * normal

        return (jax.lax.fori_loop(0, _PROJECTIONS, step, x),)

    return jax.jit(run)


def _in_blocks(run: Any, field: Any, x: Array, tau: float) -> list[Array]:
    """A function of points, for so many at a time: one size is compiled, and memory is bounded."""
    blocks = list[list[Array]]()
    with jax.enable_x64(True):
        for first in range(0, len(x), _BLOCK):
            block = x[first : first + _BLOCK]
            full = np.concatenate([block, np.zeros((_BLOCK - len(block), 3))])
            blocks.append([np.asarray(out)[: len(block)] for out in run(field, full, tau)])
    return [np.concatenate(columns) for columns in zip(*blocks, strict=True)]


def evenly_meshed(mesh: SurfaceMesh, field: Any, tau: float, vertices: int) -> SurfaceMesh:
    """About so many vertices, evenly spread (Instant Meshes), on the zero level set again."""
    remesher = needed("pynanoinstantmeshes", "an even collision mesh")
    scale, middle = float(np.ptp(mesh.vertices, axis=0).max()), mesh.vertices.mean(0)
    unit = ((mesh.vertices - middle) / scale).astype(np.float32)
    with quiet():
        at, quads = remesher.remesh(
            unit, mesh.faces.astype(np.uint32), max(6, vertices // 4), creaseAngle=30.0, deterministic=True,
            smooth_iter=2,
        )  # fmt: skip
    if not len(quads):
        raise OptionError("the surface could not be covered with even triangles: a part of it is too thin")
    q = np.asarray(quads, int)
    faces = np.concatenate([q[:, [0, 1, 2]], q[:, [0, 2, 3]]])
    faces = faces[(faces[:, 0] != faces[:, 1]) & (faces[:, 1] != faces[:, 2]) & (faces[:, 2] != faces[:, 0])]
    used, numbers = np.unique(faces, return_inverse=True)
    points = projected(field, np.asarray(at, float)[used] * scale + middle, tau)
    off = np.abs(field_values(field, points, tau)[0]) > _OFF * scale
    if (
        off.any()
    ):  # between the two sides of a thin part, where normals cancel: take the nearest vertex of the fine mesh
        from scipy.spatial import cKDTree

        points[off] = mesh.vertices[cKDTree(mesh.vertices).query(points[off])[1]]
    return SurfaceMesh(points, numbers.reshape(-1, 3))


def solid(field: Any, mesh: SurfaceMesh, tau: float) -> Solid:
    """A field with its collision mesh, for contact manifolds."""
    normals = field_values(field, mesh.vertices, tau)[1]
    with jax.enable_x64(True):
        return Solid(jnp.asarray(mesh.vertices), jnp.zeros(()), field, mesh_edges(mesh.faces), jnp.asarray(normals))
