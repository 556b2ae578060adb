"""Paper 3, Fig. 4: the soft signed distance of a box in the plane, for temperatures, resolutions and mistakes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tangens.geometry.mesh_clouds import soft_distances
from tangens.geometry.oriented_points import OrientedPoints
from tangens.lab.papers.result_rows import Row, at_most, info
from tangens.lab.report import new_figure, save_figure

Array = NDArray[np.float64]


def square(per_side: int) -> OrientedPoints:
    """Points on the sides of a square of side 2, in the plane z = 0."""
    along = (np.arange(per_side) + 0.5) / per_side * 2 - 1
    points, normals = list[Array](), list[Array]()
    for axis in (0, 1):
        for sign in (-1.0, 1.0):
            p, n = np.zeros((per_side, 3)), np.zeros((per_side, 3))
            p[:, axis], p[:, 1 - axis], n[:, axis] = sign, along, sign
            points.append(p)
            normals.append(n)
    return OrientedPoints(np.concatenate(points), np.concatenate(normals), np.concatenate(points))


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Draw the fields, and measure how far the zero set is from the box."""
    del effort
    few, many = square(4), square(16)
    flipped = OrientedPoints(few.points, few.normals * np.where(np.arange(16) == 6, -1, 1)[:, None], few.vertices)
    corner, slant = np.array([[1.0, 1.0, 0.0]]), np.array([[np.sqrt(0.5), np.sqrt(0.5), 0.0]])
    wrong = OrientedPoints(
        *(np.concatenate(x) for x in ((few.points, corner), (few.normals, slant), (few.vertices, corner)))
    )
    cases = [
        (few, 0.01, "ε₁ = 0.01"), (few, 0.1, "ε₁ = 0.1"), (few, 0.5, "ε₁ = 0.5"), (few, 4.0, "ε₁ = 4"),
        (many, 0.01, "16 points a side, 0.01"), (many, 0.5, "16 points a side, 0.5"),
        (flipped, 0.1, "a normal flipped"), (wrong, 0.1, "a wrong point in the corner"),
    ]  # fmt: skip
    figure, axes = new_figure(2, 4, width=14, height=7)
    x = np.linspace(-1.8, 1.8, 121)
    grid = np.stack([*np.meshgrid(x, x), np.zeros((121, 121))], -1).reshape(-1, 3)
    for panel, (cloud, temperature, title) in zip(axes.flat, cases, strict=True):
        phi = soft_distances(cloud, grid, temperature).reshape(121, 121)
        panel.contourf(x, x, phi, levels=np.linspace(-1.2, 1.2, 25), cmap="RdBu_r", extend="both")
        panel.contour(x, x, phi, levels=[0.0], colors="black", linewidths=2)
        panel.quiver(*cloud.points[:, :2].T, *cloud.normals[:, :2].T, color="white", scale=12, width=0.008)
        panel.plot([-1, 1, 1, -1, -1], [-1, -1, 1, 1, -1], color="white", lw=0.8)
        panel.set(title=title, aspect="equal")
    rows = [
        at_most(
            "box, ε₁ = 0.01: how far the zero set is from a square", abs(_squareness(few, 0.01) - np.sqrt(2)), 0.05
        ),
        at_most("box, ε₁ = 4: how far the zero set is from a circle", abs(_squareness(few, 4.0) - 1.0), 0.05),
        info("box with a wrong point: largest error on its sides", _side_error(wrong, 0.1), unit="half sides"),
        info("box: largest error on its sides", _side_error(few, 0.1), unit="half sides"),
    ]
    return rows, [save_figure(figure, out / "distances.png")]


def _squareness(cloud: OrientedPoints, temperature: float) -> float:
    """Distance of the zero set along the diagonal over that along an axis: √2 for a square, 1 for a circle."""
    s = np.linspace(0.2, 10, 8000)
    radii = []
    for way in (np.array([1.0, 1.0, 0]) / np.sqrt(2), np.array([1.0, 0, 0])):
        phi = soft_distances(cloud, s[:, None] * way, temperature)
        radii.append(s[np.argmax(phi > 0)] if (phi > 0).any() else np.nan)
    return float(radii[0] / radii[1])


def _side_error(cloud: OrientedPoints, temperature: float) -> float:
    along = np.linspace(-0.95, 0.95, 100)
    on = np.column_stack([np.ones(100), along, np.zeros(100)])
    return float(np.abs(soft_distances(cloud, on, temperature)).max())
