"""How well the surface of a signed distance fits a mesh: quickly during a search, and truly at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tangens.geometry.collision_meshes import field_values, surface_mesh
from tangens.geometry.mesh_repair import needed
from tangens.geometry.signed_grids import MeshSample, SignedGrid, inertial

Array = NDArray[np.float64]


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


def estimate(mesh: MeshSample, grid: SignedGrid, field: Any) -> float:
    """How far the surfaces are from each other, both ways, to first order, over the diagonal."""
    tau, rng = 1e-3 * mesh.diagonal, np.random.default_rng(0)
    cells = rng.permutation(grid.values.size)[:8000]
    here = np.abs(field_values(field, mesh.points, tau)[0])
    values = field_values(field, grid.points[cells], tau)[0]
    near = np.abs(values) < grid.cell
    there = np.abs(grid.values.reshape(-1)[cells][near] - values[near])
    return float(max(here.mean(), there.mean() if near.any() else np.inf)) / mesh.diagonal


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
