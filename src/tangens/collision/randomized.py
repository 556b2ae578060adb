"""The motion of a contact, averaged over random poses near its own (paper 2, randomised smoothing).

At a vertex, on an edge or a face the derivative is blind to what happens once another feature touches: a box that
rolls over its edge. The mean contact under Gaussian changes ξ of the relative pose is smooth, and its derivative is
E[c(x + σξ)·ξᵀ]/σ. Differences of opposite samples remove the even part of its variance, and fitting them by least
squares removes what is left where the contact moves linearly: then 6 samples give the exact derivative.
"""

from __future__ import annotations

from typing import Any

import coal  # type: ignore[import-untyped]
import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.collision.rows import rotation_of

Array = NDArray[np.float64]

_LEAST = 6


class RandomizedContacts:
    """Smoothed derivatives of contacts, with Coal's distances and the convex shapes of a model.

    `scale` σ is the deviation of the relative pose, in m and in rad; `samples` come in opposite pairs.
    """

    def __init__(self, model: mujoco.MjModel, samples: int = 32, scale: float = 1e-2, seed: int = 0) -> None:
        if samples < _LEAST:
            raise ValueError(f"samples must be at least {_LEAST}, got {samples}")
        if not scale > 0.0:
            raise ValueError(f"scale must be positive, got {scale}")
        self.scale = scale
        self._draws = np.random.default_rng(seed).normal(size=(samples, 6))
        self._samples = samples
        self._shapes = [_shape(model, geom) for geom in range(model.ngeom)]
        self._request = coal.DistanceRequest()
        self._request.enable_signed_distance = True
        self._request.gjk_tolerance = self._request.epa_tolerance = 1e-10
        self._request.gjk_max_iterations = self._request.epa_max_iterations = 512
        self._result = coal.DistanceResult()

    def response(
        self, geom: tuple[int, int], xpos: Array, xmat: Array, p: Array, frame: Array
    ) -> Array | None:  # fmt: skip
        """D (6, 6) as `contact_response` gives it, smoothed; None if Coal does not know one of the shapes.

        xpos (2, 3) and xmat (2, 9) are the poses of the two geoms. The gap is Coal's own.
        """
        zero, one = (self._shapes[g] for g in geom)
        if zero is None or one is None:
            return None
        xi = self._draws
        n = np.asarray(frame)[:3]
        still = coal.Transform3s(np.asarray(xmat[0]).reshape(3, 3), np.asarray(xpos[0]))
        change = np.empty((self._samples, 6))
        for k, twist in enumerate(xi):
            ahead, behind = (
                self._contact(zero, one, still, xpos[1], xmat[1], p, s * self.scale * twist) for s in (1.0, -1.0)
            )
            change[k, :3] = (ahead[0] - behind[0]) / (2.0 * self.scale)
            change[k, 3:] = np.cross(n, ahead[1] - behind[1]) / (2.0 * self.scale)
        return np.asarray(np.linalg.lstsq(xi, change, rcond=None)[0].T, dtype=np.float64)

    def _contact(
        self, zero: Any, one: Any, still: Any, xpos: Array, xmat: Array, p: Array, twist: Array
    ) -> tuple[Array, Array]:  # fmt: skip
        """Point half way between the surfaces and normal, after geom 1 moved by the twist about p."""
        R = rotation_of(twist[3:])
        moved = coal.Transform3s(R @ np.asarray(xmat).reshape(3, 3), p + R @ (xpos - p) + twist[:3])
        self._result.clear()
        coal.distance(zero, still, one, moved, self._request, self._result)
        return 0.5 * (self._result.getNearestPoint1() + self._result.getNearestPoint2()), self._result.normal.copy()


def _shape(m: mujoco.MjModel, geom: int) -> Any:
    """Coal's shape for a geom, or None."""
    kind, size = mujoco.mjtGeom(int(m.geom_type[geom])), m.geom_size[geom]
    match kind:
        case mujoco.mjtGeom.mjGEOM_PLANE:
            return coal.Halfspace(np.array([0.0, 0.0, 1.0]), 0.0)
        case mujoco.mjtGeom.mjGEOM_SPHERE:
            return coal.Sphere(size[0])
        case mujoco.mjtGeom.mjGEOM_CAPSULE:
            return coal.Capsule(size[0], 2.0 * size[1])
        case mujoco.mjtGeom.mjGEOM_ELLIPSOID:
            return coal.Ellipsoid(*size)
        case mujoco.mjtGeom.mjGEOM_CYLINDER:
            return coal.Cylinder(size[0], 2.0 * size[1])
        case mujoco.mjtGeom.mjGEOM_BOX:
            return coal.Box(*(2.0 * size))
        case mujoco.mjtGeom.mjGEOM_MESH:
            return _hull(m, int(m.geom_dataid[geom]))
        case _:
            return None


def _hull(m: mujoco.MjModel, mesh: int) -> Any:
    from scipy.spatial import ConvexHull

    start = m.mesh_vertadr[mesh]
    points = np.array(m.mesh_vert[start : start + m.mesh_vertnum[mesh]], dtype=np.float64)
    hull = ConvexHull(points)
    number = np.full(len(points), -1)
    number[hull.vertices] = np.arange(len(hull.vertices))
    corners, triangles = coal.StdVec_Vec3s(), coal.StdVec_Triangle()
    for vertex in hull.vertices:
        corners.append(points[vertex])
    for (a, b, c), plane in zip(hull.simplices, hull.equations, strict=True):
        outward = np.dot(np.cross(points[b] - points[a], points[c] - points[a]), plane[:3]) > 0.0
        b, c = (b, c) if outward else (c, b)  # noqa: PLW2901
        triangles.append(coal.Triangle(int(number[a]), int(number[b]), int(number[c])))
    return coal.Convex(corners, triangles)
