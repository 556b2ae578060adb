"""Paper 4, Fig. 2: signed distances of superquadrics, polyhedra and point clouds, smoothed more and more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tangens.geometry.cloud_fields import cloud_field
from tangens.geometry.collision_meshes import field_values
from tangens.geometry.convex_parts import polyhedra_field
from tangens.geometry.field_unions import Difference, Moved
from tangens.geometry.primitive_clouds import primitive_cloud
from tangens.geometry.signed_distances import BoxField, SegmentField
from tangens.lab.creatures import creature
from tangens.lab.papers.result_rows import Row, at_most
from tangens.lab.report import new_figure, save_figure

Array = NDArray[np.float64]

TAUS = (1e-5, 0.005, 0.02, 0.05)
"""Smoothing [m] of solids that are some 30 cm large."""
SIDE = 0.25


def solids() -> dict[str, Any]:
    """Fields by name, around the origin."""
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
    slab, post = corners * [0.14, 0.04, 0.05] + [0, -0.05, 0], corners * [0.04, 0.1, 0.05] + [0.05, 0.05, 0]
    ball = Moved(SegmentField(jnp.zeros(()), jnp.asarray(0.08)), jnp.array([0.0, 0.1, 0.0]), jnp.eye(3))
    cloud = primitive_cloud("box", np.array([0.14, 0.1, 0.06]), 600)
    return {
        "18 superquadrics, seen from the front": creature().field(),
        "two polyhedra": polyhedra_field([slab, post]),
        "a box without a ball": Difference(BoxField(jnp.array([0.14, 0.1, 0.06])), ball),
        "a point cloud of a box": cloud_field(cloud),
    }


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Draw sections of all, and measure how far smoothing moves distances near the surface."""
    n = 81 if effort == "quick" else 161
    x = np.linspace(-SIDE, SIDE, n)
    figure, axes = new_figure(4, len(TAUS), width=13, height=13)
    rows = list[Row]()
    for row, (name, field) in enumerate(solids().items()):
        first, second = np.meshgrid(x, x)
        flat = np.zeros_like(first)
        points = np.stack([first, flat, second] if row == 0 else [first, second, flat], -1).reshape(-1, 3)
        sections = [field_values(field, points, tau)[0].reshape(n, n) for tau in TAUS]
        for panel, tau, phi in zip(axes[row], TAUS, sections, strict=True):
            panel.contourf(x, x, phi, levels=np.linspace(-0.15, 0.15, 31), cmap="RdBu_r", extend="both")
            panel.contour(x, x, phi, levels=[0.0], colors="black", linewidths=2)
            panel.set(title=f"{name}\nτ = {1e3 * tau:g} mm", aspect="equal", xticks=[], yticks=[])
            panel.title.set_fontsize(8)
        near = np.abs(sections[0]) < 0.02
        moved = [float(np.abs(phi - sections[0])[near].mean()) for phi in sections[1:]]
        rows.append(at_most(f"{name}: mean change by τ = 5 mm near the surface", 1e3 * moved[0], 5.0, unit="mm"))
        rows.append(at_most(f"{name}: least over most change, τ = 5 and 50 mm", moved[0] / moved[2], 0.5))
    return rows, [save_figure(figure, out / "primitives.png")]
