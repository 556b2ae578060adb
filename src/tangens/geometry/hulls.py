"""The convex hull of points, as a polytope with one row for each face."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.errors import OptionError
from tangens.geometry.polytopes import Polytope

_SAME_FACE = 1e-4  # angle [rad] between triangles of one face: meshes are stored in single precision


def convex_hull(points: ArrayLike) -> Polytope:
    """The hull of points [m], shape (n, dim), which must have the origin inside. No derivative flows."""
    from scipy.spatial import ConvexHull, QhullError

    points = np.asarray(points)
    dtype = points.dtype if points.dtype.kind == "f" else np.dtype(float)
    try:
        hull = ConvexHull(points.astype(np.float64))
    except (QhullError, ValueError) as error:
        raise OptionError(
            f"the {len(points)} points have no convex hull with an inside: they are too few, or lie in a plane"
        ) from error
    corners = hull.points[hull.vertices]
    normals = _distinct(hull.equations[np.argsort(-_areas(hull.points[hull.simplices])), :-1])
    distances = (corners @ normals.T).max(axis=0)  # no corner is cut off, whichever triangle a face is taken from
    if distances.min() <= 1e-9 * np.abs(corners).max():
        raise OptionError(
            "the convex hull must have the origin inside. Move the points, and place the shape with Placed"
        )
    return Polytope(normals.astype(dtype), distances.astype(dtype))


def _distinct(normals: NDArray[np.float64]) -> NDArray[np.float64]:
    """The first of each group of unit vectors that are the same; a convex shape has one face for each."""
    kept: list[int] = []
    for i, normal in enumerate(normals):
        if not kept or (np.linalg.norm(normals[kept] - normal, axis=1) > _SAME_FACE).all():
            kept.append(i)
    return normals[kept]


def _areas(simplices: NDArray[np.float64]) -> NDArray[np.float64]:
    """The square of each segment's length or each triangle's area, up to a factor."""
    edges = simplices[:, 1:] - simplices[:, :1]
    return np.linalg.det(edges @ edges.transpose(0, 2, 1))
