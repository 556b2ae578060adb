"""Meshes as they are found: welded, turned outwards and closed, with a list of what had to be done; or refused."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.errors import MissingExtra, OptionError

Array = NDArray[np.float64]
Ints = NDArray[np.int_]

_SHRUNK = 0.1
"""A repair that takes more than this share off a side of the bounding box has lost a part of the object."""
_EXTRA = "meshes"


class ClosedMesh(NamedTuple):
    """A closed surface of triangles, facing outwards."""

    vertices: Array
    faces: Ints
    notes: tuple[str, ...]
    """What was wrong with the mesh, and what was done about it."""


def needed(module: str, what: str = "a point cloud of a mesh", package: str | None = None) -> Any:
    """A module of the extra `meshes`; `package` is what brings it, where that has another name."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        raise MissingExtra(what, package or module, _EXTRA) from None


def closed_mesh(vertices: ArrayLike, faces: ArrayLike) -> ClosedMesh:
    """The surface of a mesh, repaired where that can be done; OptionError, with the reason, where it cannot."""
    import trimesh

    at, triangles = np.asarray(vertices, float), np.asarray(faces, int)
    if at.ndim != 2 or at.shape[1] != 3 or triangles.ndim != 2 or triangles.shape[1] != 3 or len(triangles) < 4:
        raise OptionError(f"a mesh needs vertices (n, 3) and 4 triangles or more; got {at.shape} and {triangles.shape}")
    if not np.isfinite(at).all():
        raise OptionError("a vertex of the mesh is not finite")
    notes = list[str]()
    mesh = trimesh.Trimesh(at, triangles, process=True)
    mesh.update_faces(mesh.nondegenerate_faces() & mesh.unique_faces())
    if len(mesh.faces) < len(triangles):
        notes.append(f"{len(triangles) - len(mesh.faces)} triangles without area, or there twice, were left out")
    if not mesh.is_winding_consistent:
        notes.append("some triangles faced inwards and were turned")
        turned, _ = needed("igl").bfs_orient(np.ascontiguousarray(mesh.faces, np.int64))
        mesh = trimesh.Trimesh(mesh.vertices, turned, process=False)
    if not mesh.is_watertight:
        mesh = _filled(mesh, notes)
    if mesh.volume < 0:
        notes.append("all triangles faced inwards and were turned")
        mesh.invert()
    if not mesh.volume > 1e-9 * float(np.prod(np.maximum(mesh.extents, 1e-12))):
        raise OptionError("the mesh has no inside: its volume is zero. Give it some thickness")
    out = ClosedMesh(np.array(mesh.vertices), np.array(mesh.faces), tuple(notes))
    crossed = self_crossing(out)
    return (
        out if crossed < 0.01 else out._replace(notes=(*notes, f"{crossed:.0%} of the surface is inside another part"))
    )


def _filled(mesh: Any, notes: list[str]) -> Any:
    """The mesh without holes."""
    import trimesh

    open_edges = len(mesh.edges) - 2 * len(mesh.face_adjacency)
    vertices, faces = needed("pymeshfix").clean_from_arrays(np.array(mesh.vertices), np.array(mesh.faces))
    filled = trimesh.Trimesh(vertices, faces) if len(faces) else None
    if filled is None or not filled.is_watertight:
        raise OptionError(f"the mesh is not closed ({open_edges} open edges) and could not be: fill its holes by hand")
    if (filled.extents < (1 - _SHRUNK) * mesh.extents).any():
        raise OptionError(
            f"the mesh is not closed ({open_edges} open edges), and closing it would lose a part of it: its sides go "
            f"from {np.round(mesh.extents, 4)} to {np.round(filled.extents, 4)}. Fill its holes by hand"
        )
    notes.append(f"holes were filled ({open_edges} open edges); the volume is {filled.volume:.3g}")
    return filled


def self_crossing(mesh: ClosedMesh) -> float:
    """The share of triangles whose inner side is inside the surface twice."""
    corners = mesh.vertices[mesh.faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    step = 1e-4 * float(np.linalg.norm(np.ptp(mesh.vertices, axis=0)))
    inner = corners.mean(1) - step * normals / np.maximum(length, 1e-300)
    return float((winding_numbers(mesh, inner) > 1.5).mean())


def winding_numbers(mesh: ClosedMesh, p: Array) -> Array:
    """How often the surface goes around each point: 1 inside, 0 outside."""
    return np.asarray(needed("igl").fast_winding_number(mesh.vertices, mesh.faces, np.ascontiguousarray(p)))


def signed_distances(mesh: ClosedMesh, p: Array) -> tuple[Array, Ints, Array]:
    """True distances of points from the surface [m], negative inside; the nearest triangles, and the points on them."""
    found = needed("igl").signed_distance(np.ascontiguousarray(p), mesh.vertices, mesh.faces)
    return np.asarray(found[0]), np.asarray(found[1]), np.asarray(found[2])
