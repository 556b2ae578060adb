"""From a mesh to an oriented point cloud: repair, field-aligned quads, checked normals, and how well it fits.

Remeshing is that of paper 3 (instant field-aligned meshes). Results are kept by content, in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.cache import writable_folder, write
from tangens.errors import OptionError
from tangens.geometry.mesh_repair import ClosedMesh, closed_mesh, needed, signed_distances
from tangens.geometry.oriented_points import OrientedPoints, quad_cloud

Array = NDArray[np.float64]

_VERSION = b"1"  # of what is kept on disk
_MOST_KEPT = 1000  # clouds
_QUADS_PER_CELL = 4  # the remesher splits each face of its field into quads
_CREASES = (30.0, -1.0)  # degrees: edges sharper than this are kept, which suits machined parts, not scans: try both
_FACING = 0.3  # cosine between normals of a quad and of the surface under it, at least
_BAND = 0.02  # of the diagonal: how far from the surface the fit is measured
_SHARE = 0.05  # ε₁ over the squared spacing, where the fit is measured: the default of contact


@dataclass(frozen=True, eq=False)
class CloudFit:
    """How well a cloud's soft surface fits the mesh it came from, and what was done to the mesh."""

    points: int
    distance: float
    """Largest error of the soft distance near the surface, over the bounding box's diagonal."""
    distance_mean: float
    normals: float
    """Largest angle between the normals of neighbouring points of cloud and mesh, of 99 in 100 [rad]."""
    volume: float
    """Of the quads, over that of the mesh."""
    notes: tuple[str, ...]


def mesh_cloud(vertices: ArrayLike, faces: ArrayLike, points: int = 1000) -> tuple[OrientedPoints, CloudFit]:
    """A cloud of about so many points for a mesh of triangles [m], and how well it fits.

    Meshes with holes, flipped triangles or parts that cross are repaired, or refused with a reason.
    """
    at, triangles = np.ascontiguousarray(vertices, float), np.ascontiguousarray(faces, np.int64)
    if points < 24:
        raise OptionError(f"a mesh needs 24 points or more; got {points}")
    file = writable_folder("clouds", _MOST_KEPT) / f"{_digest(at, triangles, points)}.npz"
    kept = _read(file)
    if kept is None:
        mesh = closed_mesh(at, triangles)
        clouds = [_oriented(mesh, _quads(mesh, points, angle)) for angle in _CREASES]
        fits = [fit(mesh, cloud) for cloud in clouds]
        best = min(range(len(fits)), key=lambda k: fits[k].distance)
        kept = clouds[best], fits[best]
        _write(file, *kept)
    return kept


def fit(mesh: ClosedMesh, cloud: OrientedPoints, samples: int = 2000) -> CloudFit:
    """Compare the soft distance of a cloud with the true one, near the surface."""
    import trimesh

    surface = trimesh.Trimesh(mesh.vertices, mesh.faces, process=False)
    diagonal = float(np.linalg.norm(surface.extents))
    on, of = trimesh.sample.sample_surface(surface, samples, seed=0)
    away = np.random.default_rng(0).uniform(-_BAND, _BAND, (samples, 1)) * diagonal
    p = np.asarray(on + away * surface.face_normals[of])
    error = np.abs(soft_distances(cloud, p, _SHARE * cloud.spacing**2) - signed_distances(mesh, p)[0]) / diagonal
    nearest = signed_distances(mesh, cloud.points)[1]
    angles = np.arccos(np.clip(np.sum(cloud.normals * surface.face_normals[nearest], axis=1), -1, 1))
    corners = cloud.vertices[cloud.quads]
    quads = np.cross(corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1]) / 2
    volume = float(np.sum(quads * corners.mean(1)) / 3 / surface.volume)
    worst = float(np.quantile(angles, 0.99))
    return CloudFit(len(cloud), float(error.max()), float(error.mean()), worst, volume, mesh.notes)


def soft_distances(cloud: OrientedPoints, p: Array, temperature: float) -> Array:
    """φ̂ of Eq. 9 at many points, in NumPy: for reports, without waiting for a compiler."""
    out = np.empty(len(p))
    for first in range(0, len(p), 256):
        x = p[first : first + 256]
        logits = (2 * x @ cloud.points.T - np.sum(cloud.points**2, 1)) / temperature
        weights = np.exp(logits - logits.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        mean = weights @ np.column_stack([cloud.normals, np.sum(cloud.normals * cloud.points, 1)])
        out[first : first + 256] = np.sum(mean[:, :3] * x, 1) - mean[:, 3]
    return out


def _quads(mesh: ClosedMesh, points: int, crease: float) -> OrientedPoints:
    remesher = needed("pynanoinstantmeshes")
    scale, middle = float(np.ptp(mesh.vertices, axis=0).max()), mesh.vertices.mean(0)
    unit = ((mesh.vertices - middle) / scale).astype(np.float32)  # it works in single precision
    with quiet():
        vertices, quads = remesher.remesh(
            unit, mesh.faces.astype(np.uint32), max(6, points // _QUADS_PER_CELL), creaseAngle=crease,
            deterministic=True, smooth_iter=2,
        )  # fmt: skip
    if not len(quads):
        raise OptionError("the mesh could not be covered with quads: it is too thin, or too small a part of it is left")
    return quad_cloud(np.asarray(vertices, float) * scale + middle, np.asarray(quads, int))


def _oriented(mesh: ClosedMesh, cloud: OrientedPoints) -> OrientedPoints:
    """The cloud moved onto the surface; a normal that is far from the surface's own there is replaced by that."""
    _, nearest, on = signed_distances(mesh, cloud.points)
    corners = mesh.vertices[mesh.faces[nearest]]
    true = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    true /= np.maximum(np.linalg.norm(true, axis=1, keepdims=True), 1e-300)
    far = np.sum(true * cloud.normals, axis=1) < _FACING
    return OrientedPoints(on, np.where(far[:, None], true, cloud.normals), cloud.vertices, cloud.quads)


# ------------------------------------------------------------------ on disk


def _digest(at: Array, triangles: NDArray[np.int64], points: int) -> str:
    digest = hashlib.sha256(_VERSION)
    for part in (np.array([points]), np.array(at.shape), at, triangles):
        digest.update(part.tobytes())
    return digest.hexdigest()[:32]


def _read(file: Path) -> tuple[OrientedPoints, CloudFit] | None:
    try:
        with np.load(file) as data:
            cloud = OrientedPoints(*(data[name] for name in ("points", "normals", "vertices", "quads")))
            numbers, notes = data["numbers"], tuple(data["notes"].tolist())
            distance, mean, normals, volume = map(float, numbers)
            return cloud, CloudFit(len(cloud), distance, mean, normals, volume, notes)
    except (OSError, KeyError, ValueError, EOFError):
        return None


def _write(file: Path, cloud: OrientedPoints, found: CloudFit) -> None:
    """Keep a cloud; where that is not allowed, it is made again next time."""
    numbers = np.array([found.distance, found.distance_mean, found.normals, found.volume])
    content = {"points": cloud.points, "normals": cloud.normals, "vertices": cloud.vertices, "quads": cloud.quads,
               "numbers": numbers, "notes": np.array(found.notes, dtype=str)}  # fmt: skip
    with suppress(OSError):
        write(file, lambda half: np.savez(half, **content))  # type: ignore[arg-type]


@contextmanager
def quiet() -> Iterator[None]:
    """The remesher talks to the terminal from compiled code: close its mouth."""
    sys.stdout.flush()
    kept = os.dup(1)
    with Path(os.devnull).open("w", encoding="ascii") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
