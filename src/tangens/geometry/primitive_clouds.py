"""Oriented point clouds of MuJoCo's primitives: a grid on a cube, mapped onto the shape.

Everything is in units of the geom's sizes: a point is u∘s and a normal is m/s, scaled to unit length, where s are the
sizes along the three axes. So a cloud follows its sizes exactly, and derivatives by size flow through it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.errors import OptionError
from tangens.geometry.oriented_points import Array, OrientedPoints

SCALES: dict[str, tuple[int, int, int]] = {"box": (0, 1, 2), "ellipsoid": (0, 1, 2), "cylinder": (0, 0, 1)}
"""Which of MuJoCo's `size` scales each axis."""


class UnitCloud(NamedTuple):
    """A cloud in units of its sizes."""

    points: Array
    normals: Array
    """Not of unit length: those of the unit shape."""
    vertices: Array
    quads: NDArray[np.int_]

    def scaled(self, scale: Array) -> OrientedPoints:
        """The cloud with these sizes [m], (3,)."""
        normals = self.normals / scale
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        return OrientedPoints(self.points * scale, normals, self.vertices * scale, self.quads)


def primitive_cloud(kind: str, size: Array, points: int) -> OrientedPoints:
    """A cloud of about so many points on a "sphere", "box", "ellipsoid" or "cylinder" with MuJoCo's `size`."""
    if kind == "sphere":
        return unit_cloud("ellipsoid", np.repeat(size[0], 3), points).scaled(np.repeat(size[0], 3))
    if kind not in SCALES:
        raise OptionError(f"no point cloud for a {kind}; there is one for {', '.join(('sphere', *SCALES))}")
    scale = np.asarray(size, float)[list(SCALES[kind])]
    return unit_cloud(kind, scale, points).scaled(scale)


def unit_cloud(kind: str, scale: Array, points: int) -> UnitCloud:
    """Quads that are about as long as wide once they are scaled; about `points` of them."""
    if points < 6:
        raise OptionError(f"a closed surface needs 6 points or more; got {points}")
    counts = _counts(scale, points)
    vertices, quads = _cube_grid(counts)
    middles = vertices[quads].mean(1)
    face = np.abs(middles).argmax(1)
    normals = np.zeros_like(middles)
    normals[np.arange(len(face)), face] = np.sign(middles[np.arange(len(face)), face])
    if kind == "box":
        return UnitCloud(middles, normals, vertices, quads)
    if kind == "ellipsoid":
        on = _on_sphere(middles)
        return UnitCloud(on, on, _on_sphere(vertices), quads)
    side = face < 2
    on = _on_cylinder(middles)
    normals[side] = np.column_stack([on[side, :2], np.zeros(side.sum())])
    return UnitCloud(on, normals, _on_cylinder(vertices), quads)


def _counts(scale: Array, points: int) -> NDArray[np.int_]:
    """Quads along each axis: sides as equal as can be, about `points` in total."""
    a, b, c = scale
    side = np.sqrt(2 * (a * b + b * c + c * a) * 4 / points)
    return np.maximum(1, np.rint(2 * scale / side)).astype(int)


def _cube_grid(counts: NDArray[np.int_]) -> tuple[Array, NDArray[np.int_]]:
    """Vertices (m, 3) and quads (n, 4) on the surface of [-1, 1]³, counter-clockwise from outside."""
    index: dict[tuple[int, ...], int] = {}
    quads = []
    for axis in range(3):
        u, v = (axis + 1) % 3, (axis + 2) % 3
        for side, i, j in np.ndindex(2, counts[u], counts[v]):
            ring = [(i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1)]
            quad = []
            for a, b in ring if side else ring[::-1]:
                corner = [0, 0, 0]
                corner[axis], corner[u], corner[v] = side * int(counts[axis]), a, b
                quad.append(index.setdefault(tuple(corner), len(index)))
            quads.append(quad)
    grid = np.array(list(index))
    return 2.0 * grid / counts - 1.0, np.array(quads)


def _on_sphere(x: Array) -> Array:
    """From the cube to the unit sphere, along angles rather than straight, so that quads stay alike in size."""
    bent = np.tan(x * np.pi / 4)
    return bent / np.linalg.norm(bent, axis=1, keepdims=True)


def _on_cylinder(x: Array) -> Array:
    """From the cube to the unit cylinder: squares become discs."""
    flat = np.tan(x[:, :2] * np.pi / 4)
    largest = np.abs(flat).max(1, keepdims=True)
    length = np.linalg.norm(flat, axis=1, keepdims=True)
    disc = flat * np.where(length > 0, largest / np.where(length > 0, length, 1.0), 1.0)
    return np.column_stack([disc, x[:, 2]])
