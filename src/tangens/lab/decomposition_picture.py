"""A picture of a decomposition: the mesh, its primitives, and how far the mesh is from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.geometry.collision_meshes import field_values
from tangens.geometry.decomposition import Decomposition
from tangens.geometry.signed_grids import SignedGrid, sample_mesh, signed_grid
from tangens.lab.report import new_figure, save_figure

Array = NDArray[np.float64]

_CELLS = 60_000
"""Of the grid that the mesh is drawn from: scans have more triangles than a picture has room for."""


def draw(found: Decomposition, vertices: ArrayLike, faces: ArrayLike, file: Path) -> Path:
    """Three views of one thing, side by side."""
    mesh = sample_mesh(vertices, faces)
    at, shown = _coarse(signed_grid(mesh, _CELLS))
    figure, axes = new_figure(1, 3, width=14, height=5)
    for old in axes:
        old.remove()
    panels = [figure.add_subplot(1, 3, k + 1, projection="3d") for k in range(3)]
    shade(panels[0], at[shown], "0.75")
    panels[0].set_title(f"mesh, {len(mesh.faces):,} triangles")
    for k, part in enumerate(_parts(found)):
        shade(panels[1], part, f"C{k % 10}")
    panels[1].set_title(_title(found))
    apart = np.abs(field_values(found.field, at, found.smoothing)[0])[shown].mean(1) / found.diagonal
    scale = max(2 * found.fit.error, 1e-6)
    shade(panels[2], at[shown], "0.75", apart / scale)
    panels[2].set_title(f"distance from them: mean {found.fit.error:.2%}, largest {found.fit.largest:.2%}")
    for panel in panels:
        panel.set(xlim=_range(found, 0), ylim=_range(found, 1), zlim=_range(found, 2), box_aspect=(1, 1, 1))
        panel.view_init(elev=100, azim=-90) if _is_upright(found) else panel.view_init(elev=35, azim=-60)
        panel.set_axis_off()
    return save_figure(figure, file)


def _coarse(grid: SignedGrid) -> tuple[Array, NDArray[np.int_]]:
    """Vertices and triangles of a mesh, by marching cubes."""
    from skimage.measure import marching_cubes

    at, faces, _, _ = marching_cubes(grid.values, 0.0)
    return np.asarray(grid.origin + grid.cell * at), np.asarray(faces, int)


def shade(panel: Any, corners: Array, colour: str, heat: Array | None = None) -> None:
    """Triangles (n, 3, 3) lit from above, in one colour or by heat between 0 and 1."""
    from matplotlib import colormaps, colors
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-300)
    light = 0.55 + 0.45 * np.abs(normals @ np.array([0.4, 0.5, 0.77]))
    base = colormaps["viridis"](np.clip(heat, 0, 1))[:, :3] if heat is not None else np.array(colors.to_rgb(colour))
    panel.add_collection3d(Poly3DCollection(corners, facecolors=np.clip(light[:, None] * base, 0, 1), linewidths=0))


def _parts(found: Decomposition) -> list[Array]:
    """Triangles of all primitives; of the surface itself, for a cloud."""
    from scipy.spatial import ConvexHull

    if found.cloud is not None:
        surface = found.surface()
        return [surface.vertices[surface.faces]]
    points = list(found.polyhedra)
    if found.superquadrics is not None:
        points = [*found.superquadrics.corners(24), *points]
    return [p[ConvexHull(p, qhull_options="QJ").simplices] for p in points]


def _title(found: Decomposition) -> str:
    if found.cloud is not None:
        return f"a cloud of {len(found.cloud):,} points"
    count = 0 if found.superquadrics is None else len(found.superquadrics.axes)
    parts = [f"{count} superquadrics"] if count else []
    return ", ".join([*parts, *([f"{len(found.polyhedra)} polyhedra"] if found.polyhedra else [])])


def _range(found: Decomposition, axis: int) -> tuple[float, float]:
    middle, half = (found.low + found.high)[axis] / 2, 0.38 * float((found.high - found.low).max())
    return middle - half, middle + half


def _is_upright(found: Decomposition) -> bool:
    """Whether y is up, as in most scans of figures; flat things are seen from above, too."""
    side = found.high - found.low
    return bool(side.argmax() == 1 or side.argmin() == 2)
