"""Oriented point clouds: a closed surface as points with outward normals, one for each quad of a mesh (paper 3).

A cloud also keeps the vertices of its quads. Corners and edges of a shape are vertices, never centres of quads, so they
are what other surfaces are probed with.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.errors import OptionError

Array = NDArray[np.float64]
_NO_QUADS = np.zeros((0, 4), int)


@dataclass(frozen=True, eq=False)
class OrientedPoints:
    """Points on a closed surface, with unit normals that point out of the solid, in the shape's own frame."""

    points: Array
    """Centres of the quads [m], (n, 3)."""
    normals: Array
    """(n, 3)."""
    vertices: Array
    """Corners of the quads [m], (m, 3)."""
    quads: NDArray[np.int_] = field(default_factory=lambda: _NO_QUADS)
    """Which vertices each quad has, (n, 4); a triangle repeats its last one. Empty where there are none."""

    def __post_init__(self) -> None:
        for name in ("points", "normals", "vertices"):
            value = np.asarray(getattr(self, name), float)
            if value.ndim != 2 or value.shape[1] != 3 or not np.isfinite(value).all():
                raise OptionError(f"{name} of oriented points must be finite, of shape (n, 3); got {value.shape}")
            object.__setattr__(self, name, value)
        if len(self.points) != len(self.normals) or not len(self.points):
            raise OptionError(f"{len(self.points)} points need as many normals; got {len(self.normals)}")
        length = np.linalg.norm(self.normals, axis=1)
        if (abs(length - 1) > 1e-6).any():
            raise OptionError(f"normals must have length 1; one has {length[abs(length - 1).argmax()]:g}")

    def __len__(self) -> int:
        return len(self.points)

    @property
    def extent(self) -> Array:
        """Sides of the box around it [m], (3,)."""
        return np.ptp(np.concatenate([self.points, self.vertices]), axis=0)

    @property
    def spacing(self) -> float:
        """The side of a square as large as a typical quad [m]: what a softmax over the points has to resolve."""
        from scipy.spatial import cKDTree

        if len(self) < 2:
            return float(self.extent.max())
        nearest = cKDTree(self.points).query(self.points, 2)[0][:, 1]
        return float(np.median(nearest))


def quad_cloud(vertices: ArrayLike, quads: ArrayLike) -> OrientedPoints:
    """One oriented point for each quad of a mesh, in its middle; corners run counter-clockwise seen from outside."""
    at, faces = np.asarray(vertices, float), np.asarray(quads, int)
    corners = at[faces]
    normals = np.cross(corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1])
    length = np.linalg.norm(normals, axis=1)
    flat = length <= 1e-12 * max(float(np.ptp(at, axis=0).max()) ** 2, 1e-300)
    kept = faces[~flat]
    return OrientedPoints(_middles(at, kept), normals[~flat] / length[~flat, None], at, kept)


def _middles(at: Array, faces: NDArray[np.int_]) -> Array:
    """The mean of each face's distinct corners."""
    triangle = faces[:, 2] == faces[:, 3]
    weight = np.ones(faces.shape)
    weight[triangle, 3] = 0.0
    return np.einsum("fk,fkc->fc", weight / weight.sum(1, keepdims=True), at[faces])
