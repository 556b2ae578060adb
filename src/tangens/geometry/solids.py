"""Solids as contact manifolds see them: a signed distance, and vertices and edges that probe those of others.

Vertices and edges may be thick: those of a ball and a capsule are their centre and axis, with their radius, so that
they roll. Other round solids have points that slide (`support_points`). Derivatives flow through vertices, radius and
the numbers of the field; those of normals, where given, are the field's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.errors import OptionError
from tangens.geometry.field_unions import ConvexPolyhedra
from tangens.geometry.signed_distances import BoxField, CylinderField, PlaneField, SegmentField
from tangens.geometry.superquadrics import Superquadrics
from tangens.geometry.support_points import EllipsoidSupport, RimSupport

Array = jax.Array
Pairs = tuple[tuple[int, int], ...]

_RIM = 24
"""Vertices on each rim of a cylinder: between them, it is flatter by 0.9 % of its radius."""
_FINE = 2  # times that the triangles of an icosahedron are split for an ellipsoid: 162 vertices
_SAME_FACE = 1e-4  # between the normals of one face's triangles: meshes are stored in single precision


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Solid:
    """A solid in its own frame."""

    vertices: Array
    """[m], (V, 3)."""
    radius: Array
    """Of vertices and edges [m]."""
    field: Any
    """Its signed distance, see `signed_distances`."""
    edges: Pairs = field(default=(), metadata={"static": True})
    """Pairs of vertices."""
    normals: Array | None = None
    """Outward normals at the vertices, (V, 3), of solids with many: evaluating the field there again takes as long as
    all else together. If not given, that is done."""
    support: Any = None
    """Points of a round solid that slide along it towards the other one, see `support_points`."""

    @property
    def is_polyhedron(self) -> bool:
        """Whether it is the convex hull of its vertices, with flat faces."""
        one = isinstance(self.field, ConvexPolyhedra) and self.field.normals.shape[-3] == 1
        return one or isinstance(self.field, BoxField)


def solid_of_geom(kind: int, size: Any, vertices: NDArray[np.float64] | None = None) -> Solid:
    """The solid of a MuJoCo geom, in the geom's frame; a mesh is its convex hull, and needs its vertices."""
    s, geoms = jnp.asarray(size), mujoco.mjtGeom
    none, zero = jnp.zeros((0, 3), s.dtype), jnp.zeros((), s.dtype)
    if kind == geoms.mjGEOM_PLANE:
        return Solid(none, zero, PlaneField())
    if kind == geoms.mjGEOM_SPHERE:
        return Solid(jnp.zeros((1, 3), s.dtype), s[0], SegmentField(zero, s[0]))
    if kind == geoms.mjGEOM_CAPSULE:
        ends = jnp.array([[0.0, 0.0, -1.0], [0.0, 0.0, 1.0]], s.dtype) * s[1]
        return Solid(ends, s[0], SegmentField(s[1], s[0]), ((0, 1),))
    if kind == geoms.mjGEOM_BOX:
        corners, edges = _cube()
        return Solid(jnp.asarray(corners, s.dtype) * s[:3], zero, BoxField(s[:3]), edges)
    if kind == geoms.mjGEOM_CYLINDER:
        rims, edges = _drum()
        at = jnp.asarray(rims, s.dtype) * s[jnp.array([0, 0, 1])]
        return Solid(at, zero, CylinderField(s[0], s[1]), edges, support=RimSupport(s[0], s[1]))
    if kind == geoms.mjGEOM_ELLIPSOID:
        round_, at, turn = jnp.ones((1, 2), s.dtype), jnp.zeros((1, 3), s.dtype), jnp.eye(3, dtype=s.dtype)[None]
        field, support = Superquadrics(s[None, :3], round_, at, turn), EllipsoidSupport(s[:3])
        return Solid(jnp.asarray(_globe(), s.dtype) * s[:3], zero, field, support=support)
    if kind == geoms.mjGEOM_MESH and vertices is not None:
        return hull_solid(vertices)
    raise OptionError(f"a geom of type {mujoco.mjtGeom(kind).name} has no signed distance; use a primitive or a mesh")


def hull_solid(points: ArrayLike) -> Solid:
    """The convex hull of points [m], (n, 3), with its vertices and true edges."""
    hull = _hull(points)
    normals, offsets = _distinct_planes(hull.equations)
    number = {int(v): i for i, v in enumerate(hull.vertices)}
    faces = jnp.asarray(normals)[None], jnp.asarray(offsets)[None], jnp.zeros((1, len(offsets)), bool)
    edges = tuple(sorted((number[a], number[b]) for a, b in _ridges(hull)))
    return Solid(jnp.asarray(hull.points[hull.vertices]), jnp.zeros(()), ConvexPolyhedra(*faces), edges)


def hull_planes(points: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Outward normals (f, 3) and offsets (f,) [m] of the faces of a convex hull."""
    return _distinct_planes(_hull(points).equations)


def _hull(points: ArrayLike) -> Any:
    from scipy.spatial import ConvexHull, QhullError

    try:
        return ConvexHull(np.asarray(points, float))
    except (QhullError, ValueError) as error:
        raise OptionError("the points have no convex hull with an inside: too few, or in a plane") from error


def mesh_edges(faces: ArrayLike) -> Pairs:
    """All edges of a mesh's triangles, once each."""
    f = np.asarray(faces, int)
    pairs = np.sort(np.concatenate([f[:, [0, 1]], f[:, [1, 2]], f[:, [2, 0]]]), axis=1)
    return tuple((int(a), int(b)) for a, b in np.unique(pairs, axis=0))


def _distinct_planes(equations: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One plane for each face, for triangles of one face share theirs."""
    kept = list[int]()
    for i, normal in enumerate(equations[:, :3]):
        if not kept or (np.linalg.norm(equations[kept, :3] - normal, axis=1) > _SAME_FACE).all():
            kept.append(i)
    return equations[kept, :3], -equations[kept, 3]


def _ridges(hull: Any) -> set[tuple[int, int]]:
    """Edges between faces that are not in one plane."""
    found = set[tuple[int, int]]()
    for f, (simplex, neighbours) in enumerate(zip(hull.simplices, hull.neighbors, strict=True)):
        for corner, other in enumerate(neighbours):
            if np.linalg.norm(hull.equations[f, :3] - hull.equations[other, :3]) > _SAME_FACE:
                a, b = sorted(int(v) for i, v in enumerate(simplex) if i != corner)
                found.add((a, b))
    return found


@cache
def _cube() -> tuple[NDArray[np.float64], Pairs]:
    corners = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
    edges = [(i, j) for i in range(8) for j in range(i + 1, 8) if np.abs(corners[i] - corners[j]).sum() == 2]
    return corners, tuple(edges)


@cache
def _drum() -> tuple[NDArray[np.float64], Pairs]:
    """Both rims, and the edges along them."""
    angle = 2 * np.pi * np.arange(_RIM) / _RIM
    ring = np.column_stack([np.cos(angle), np.sin(angle)])
    rims = np.concatenate([np.column_stack([ring, np.full(_RIM, z)]) for z in (-1.0, 1.0)])
    around = [(k + i, k + (i + 1) % _RIM) for k in (0, _RIM) for i in range(_RIM)]
    return rims, tuple(around + [(i, i + _RIM) for i in range(_RIM)])


@cache
def _globe() -> NDArray[np.float64]:
    import trimesh

    return np.asarray(trimesh.creation.icosphere(subdivisions=_FINE).vertices)
