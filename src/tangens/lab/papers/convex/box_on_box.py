"""Paper 4, Fig. 5: a box on a box; which contacts activity chooses, and where normals point.

Edges are the twelve of a cube; vertices those of a cube whose sides are cut into 4 x 4 squares, 98 of them. Signed
distances are those of boxes. The paper takes superquadrics with exponents of 0.1, which are round at their edges, by
1.7 mm here: a cube's edges stick out of them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tangens.collision.pair_manifold import Manifold, Pose, Smoothing, pair_manifold
from tangens.dynamics.tangent_jax import exp_matrix
from tangens.geometry.solids import Solid, solid_of_geom
from tangens.lab.papers.result_rows import Row, at_least, at_most
from tangens.lab.report import new_figure, save_figure

Array = NDArray[np.float64]

HALF, YAW, DEEP = 0.05, 0.6, 5e-4
COUNTS = 0.3
"""Contacts with more activity are taken to be chosen."""
SMOOTHING = Smoothing(5e-5, 0.05, 0.005, 1e-5, margin=2.5e-4)
BOX = 6  # mjGEOM_BOX


@cache
def dense_cube() -> Array:
    """The surface points of a grid of 5 x 5 x 5, within half a side of 1, (98, 3)."""
    x = np.linspace(-1, 1, 5)
    grid = np.stack(np.meshgrid(x, x, x, indexing="ij"), -1).reshape(-1, 3)
    return grid[np.abs(grid).max(1) == 1]


def boxes() -> tuple[Solid, Solid]:
    """With edges, and with many vertices."""
    cube = solid_of_geom(BOX, np.full(3, HALF))
    return cube, Solid(jnp.asarray(HALF * dense_cube()), cube.radius, cube.field)


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Contacts of the upper box, which is turned by 0.6 rad."""
    del effort
    with jax.enable_x64(True):
        with_edges, dense = boxes()
        upper = Pose(jnp.array([0.01, 0.005, 2 * HALF - DEEP]), exp_matrix(jnp.array([0.0, 0.0, YAW])))
        lower = Pose(jnp.zeros(3), jnp.eye(3))
        find = jax.jit(pair_manifold, static_argnames="edges")
        edges = jax.tree.map(lambda x: np.asarray(x)[16:], find(with_edges, with_edges, lower, upper, SMOOTHING))
        vertices = find(dense, dense, lower, upper, SMOOTHING, edges=False)
        vertices = jax.tree.map(lambda x: np.asarray(x)[98:], vertices)
        bottom = np.asarray(dense.vertices @ upper.rotation.T + upper.position)
        corners = np.asarray(with_edges.vertices @ upper.rotation.T + upper.position)
    chosen = edges.activity > COUNTS
    within = np.abs(bottom[:, :2]).max(1) - HALF
    meets, misses = (within < -2e-3) & (bottom[:, 2] < HALF), (within > 2e-3) | (bottom[:, 2] > HALF)
    taken = vertices.activity > COUNTS
    rows = [
        at_least("edges: contacts chosen, where sides cross", float(chosen.sum()), 8, paper=8),
        at_most("edges: contacts chosen", float(chosen.sum()), 8, paper=8),
        at_most("edges: angle of chosen normals from the vertical", _tilt(edges, chosen), 2.0, unit="deg"),
        at_most("edges: chosen contacts from the lower face's rim", 1e3 * _from_rim(edges, chosen), 1.0, unit="mm"),
        at_least("vertices: share of those on the lower face that are chosen", float(taken[meets].mean()), 1.0),
        at_most("vertices: others that are chosen", float(taken[misses].sum()), 0.0),
        at_most("vertices: angle of chosen normals from the vertical", _tilt(vertices, taken), 2.0, unit="deg"),
    ]
    return rows, [_draw(out / "box_on_box.png", edges, vertices, corners)]


def _tilt(found: Manifold, chosen: Any) -> float:
    normals = np.asarray(found.normal)[chosen]
    return float(np.degrees(np.arccos(np.clip(normals[:, 2] / np.linalg.norm(normals, axis=1), -1, 1))).max())


def _from_rim(found: Manifold, chosen: Any) -> float:
    """How far chosen contacts are from the sides of the lower box [m]."""
    return float(np.abs(np.abs(np.asarray(found.point)[chosen][:, :2]).max(1) - HALF).max())


def _draw(file: Path, edges: Manifold, vertices: Manifold, corners: Array) -> Path:
    figure, axes = new_figure(2, 2, width=11, height=10)
    for old in axes.flat:
        old.remove()
    cube = solid_of_geom(BOX, np.full(3, HALF))
    lower = np.asarray(cube.vertices)
    for k, (name, found) in enumerate((("edges", edges), ("vertices", vertices))):
        for j, scaled in enumerate((False, True)):
            panel = figure.add_subplot(2, 2, 2 * k + j + 1, projection="3d")
            for box, colour in ((lower, "tab:gray"), (corners, "tab:blue")):
                for a, b in cube.edges:
                    panel.plot(*box[[a, b]].T, color=colour, lw=1)
            ways = np.asarray(found.normal) * (np.asarray(found.activity)[:, None] if scaled else 1.0)
            shown = np.linalg.norm(ways, axis=1) > 0.01
            panel.quiver(*np.asarray(found.point)[shown].T, *0.02 * ways[shown].T, color="tab:red", lw=0.8)
            title = "scaled by activity" if scaled else f"all {len(ways)}"
            panel.set(title=f"{name}: normals, {title}", box_aspect=(1, 1, 1.5), xticks=[], yticks=[], zticks=[])
            panel.view_init(elev=18, azim=-62)
    return save_figure(figure, file)
