"""Signed distances on a grid around a mesh, and what is known of the mesh besides: its surface, mass and inertia.

Meshes that can be closed are closed first. Where that would lose a part of them, inside is where the surface goes
around a point more than half (generalised winding numbers), which bridges holes and takes parts that cross.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.errors import OptionError
from tangens.geometry.mesh_repair import (
    ClosedMesh,
    closed_mesh,
    needed,
    self_crossing,
    signed_distances,
    winding_numbers,
)

Array = NDArray[np.float64]
Ints = NDArray[np.int_]

_BORDER = 4
"""Cells around the mesh: solids that stand out of it have to be seen."""
_ONE_SIDED = 0.8
"""Of an open surface, the share that must have an inside behind it and an outside in front of it."""


_CROSSING = 1e-3
"""Of the surface inside other parts: beyond that, signs are taken from winding numbers."""


class MeshSample(NamedTuple):
    """A surface of triangles, which may be open, and random points of it."""

    vertices: Array
    faces: Ints
    notes: tuple[str, ...]
    closed: bool
    points: Array
    """On the surface, evenly [m], (n, 3)."""
    diagonal: float
    """Of the bounding box [m]."""

    def distance(self, p: Array) -> Array:
        """Signed distances of points [m], (n,)."""
        if self.closed:
            return signed_distances(self._as_closed(), p)[0]
        apart = self.unsigned(p)
        return np.where(winding_numbers(self._as_closed(), p) > 0.5, -apart, apart)

    def unsigned(self, p: Array) -> Array:
        """Distances of points from the surface [m], (n,)."""
        squared = needed("igl").point_mesh_squared_distance(np.ascontiguousarray(p), self.vertices, self.faces)[0]
        return np.sqrt(np.asarray(squared))

    def _as_closed(self) -> ClosedMesh:
        return ClosedMesh(self.vertices, self.faces, ())


class SignedGrid(NamedTuple):
    """Signed distances at the middles of cubic cells."""

    origin: Array
    """Middle of the first cell [m], (3,)."""
    cell: float
    """Side of a cell [m]."""
    values: Array
    """[m], (nx, ny, nz)."""

    @property
    def points(self) -> Array:
        """Middles of all cells [m], (nx·ny·nz, 3)."""
        at = np.stack(np.meshgrid(*(np.arange(n) for n in self.values.shape), indexing="ij"), -1)
        return self.origin + self.cell * at.reshape(-1, 3)

    def interpolated(self, p: Array) -> Array:
        """Signed distances of any points [m], (n,): linearly between cells, and from the grid's rim outside of it."""
        from scipy.ndimage import map_coordinates

        at = (p - self.origin) / self.cell
        within = np.clip(at, 0, np.array(self.values.shape) - 1)
        beyond = self.cell * np.linalg.norm(at - within, axis=1)
        return np.asarray(map_coordinates(self.values, within.T, order=1)) + beyond


def sample_mesh(vertices: ArrayLike, faces: ArrayLike, samples: int = 4000) -> MeshSample:
    """A mesh made ready for signed distances; OptionError, with the reason, where it has no inside."""
    import trimesh

    at, triangles = np.asarray(vertices, float), np.asarray(faces, int)
    try:
        mesh = closed_mesh(at, triangles)
        closed = self_crossing(mesh) < _CROSSING
    except OptionError as refused:
        mesh, closed = _open_mesh(at, triangles, refused), False
    surface = trimesh.Trimesh(mesh.vertices, mesh.faces, process=False)
    points, of = trimesh.sample.sample_surface(surface, samples, seed=0)
    diagonal = float(np.linalg.norm(np.ptp(mesh.vertices, axis=0)))
    if not closed:  # where parts cross, the surface of one inside another is no surface of the whole
        before = np.asarray(points + 1e-3 * diagonal * surface.face_normals[of])
        points = points[winding_numbers(ClosedMesh(mesh.vertices, mesh.faces, ()), before) < 0.5]
    return MeshSample(mesh.vertices, mesh.faces, mesh.notes, closed, np.asarray(points), diagonal)


def _open_mesh(vertices: Array, faces: Ints, refused: OptionError) -> ClosedMesh:
    """A mesh that cannot be closed, if most of its surface still separates an inside from an outside."""
    import trimesh

    if "not closed" not in str(refused):
        raise refused
    mesh = trimesh.Trimesh(vertices, faces, process=True)
    turned, _ = needed("igl").bfs_orient(np.ascontiguousarray(mesh.faces, np.int64))
    mesh = trimesh.Trimesh(mesh.vertices, turned, process=False)
    points, of = trimesh.sample.sample_surface(mesh, 1000, seed=0)
    step = 1e-3 * float(np.linalg.norm(mesh.extents)) * mesh.face_normals[of]
    soup = ClosedMesh(np.array(mesh.vertices), np.array(mesh.faces), ())
    inner, outer = (winding_numbers(soup, np.asarray(points + sign * step)) for sign in (-1, 1))
    if np.mean(inner) < np.mean(outer):
        inner, outer, soup = -inner, -outer, soup._replace(faces=soup.faces[:, ::-1])
    separates = float(np.mean((inner > 0.5) & (outer < 0.5)))
    if separates < _ONE_SIDED:
        raise OptionError(f"{refused} (only {separates:.0%} of its surface has an inside behind it)")
    return soup._replace(notes=("the mesh is open; inside is where it goes around a point more than half",))


def signed_grid(mesh: MeshSample, cells: int) -> SignedGrid:
    """About so many cells around a mesh: flat objects get small cells."""
    low, side = mesh.vertices.min(0), np.ptp(mesh.vertices, axis=0)
    cell = float(np.cbrt(np.prod(np.maximum(side, 0.02 * side.max())) / cells))
    counts = np.ceil(side / cell).astype(int) + 2 * _BORDER
    origin = low + side / 2 - cell * (counts - 1) / 2
    grid = SignedGrid(origin, cell, np.zeros(tuple(counts)))
    values = mesh.distance(grid.points).reshape(grid.values.shape)
    if not (values < 0).sum() > 8:
        raise OptionError("the mesh has no inside that a grid can see: it is too thin for its size. Give it thickness")
    return grid._replace(values=values)


class Inertial(NamedTuple):
    """Mass properties at density 1."""

    volume: float
    """[m³]."""
    centre: Array
    """[m], (3,)."""
    inertia: Array
    """About the centre [m⁵], (3, 3)."""


def inertial(grid: SignedGrid) -> Inertial:
    """Of everything inside, a cell on the surface counting in part."""
    share = np.clip(0.5 - grid.values.reshape(-1) / grid.cell, 0.0, 1.0)
    x, each = grid.points, grid.cell**3
    volume = float(share.sum() * each)
    centre = (share @ x) * each / volume
    off = x - centre
    second = np.einsum("n,ni,nj->ij", share, off, off) * each + volume * grid.cell**2 / 12 * np.eye(3)
    return Inertial(volume, centre, np.trace(second) * np.eye(3) - second)
