"""How well the surface of a signed distance fits a mesh: quickly during a search, and truly at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.geometry.collision_meshes import surface_mesh
from tangens.geometry.mesh_repair import needed
from tangens.geometry.signed_grids import MeshSample, SignedGrid, inertial

Array = NDArray[np.float64]

_CELLS = 8000
"""Of the grid, that surfaces are compared at while they are searched for."""


@dataclass(frozen=True, eq=False)
class PrimitiveFit:
    """How well primitives fit the mesh they came from; lengths are shares of the bounding box's diagonal."""

    error: float
    """The larger one of the mean distances of the two surfaces from each other."""
    largest: float
    """The largest distance of a point of either surface from the other."""
    volume: float
    """Theirs over that of the mesh."""
    seconds: float
    """How long the search took."""
    notes: tuple[str, ...]
    """What was wrong with the mesh, and what was not tried."""


class Estimate(NamedTuple):
    """How far two surfaces are from each other, to first order, over the diagonal."""

    error: float
    """The larger one of both means."""
    largest: float


class Estimator:
    """Judges unions by the distances of their parts at fixed points: those are evaluated once, a union is a minimum."""

    def __init__(self, mesh: MeshSample, grid: SignedGrid) -> None:
        cells = np.random.default_rng(0).permutation(grid.values.size)[:_CELLS]
        self.points = np.concatenate([mesh.points, grid.points[cells]])
        """Of the mesh, then of the grid [m], (n, 3)."""
        self._on, self._diagonal, self._cell = len(mesh.points), mesh.diagonal, grid.cell
        self._true = grid.values.reshape(-1)[cells]

    def __call__(self, values: Array) -> Estimate:
        """Of a surface with these signed distances at `points`."""
        here, there = np.abs(values[: self._on]), values[self._on :]
        near = np.abs(there) < self._cell
        apart = np.abs(self._true[near] - there[near]) if near.any() else np.array([np.inf])
        mean, largest = max(here.mean(), apart.mean()), max(here.max(), apart.max())
        return Estimate(float(mean) / self._diagonal, float(largest) / self._diagonal)


def measure(mesh: MeshSample, grid: SignedGrid, field: Any, low: Array, high: Array) -> PrimitiveFit:
    """By true distances between the mesh and a fine mesh of the field's surface, which is inside low and high."""
    import trimesh

    surface = surface_mesh(field, low, high, 1e-3 * mesh.diagonal)
    ours = trimesh.Trimesh(surface.vertices, surface.faces, process=False)
    on, _ = trimesh.sample.sample_surface(ours, len(mesh.points), seed=0)
    squared = needed("igl").point_mesh_squared_distance(mesh.points, surface.vertices, surface.faces)[0]
    here, there = np.sqrt(np.asarray(squared)), mesh.unsigned(np.asarray(on))
    error, largest = max(here.mean(), there.mean()), max(here.max(), there.max())
    volume = float(ours.volume) / inertial(grid).volume
    return PrimitiveFit(float(error) / mesh.diagonal, float(largest) / mesh.diagonal, volume, 0.0, ())
