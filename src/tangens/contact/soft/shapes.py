"""A scene's geoms as the soft model sees them: half-spaces, thick segments (spheres, capsules) and point clouds."""

from __future__ import annotations

from typing import Literal, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.contact.soft.candidates import LEAF, MANY, NO_POINT, in_leaves
from tangens.errors import SceneError
from tangens.geometry.oriented_points import Array, OrientedPoints
from tangens.geometry.primitive_clouds import SCALES, unit_cloud
from tangens.scene.support import element_name

Kind = Literal["plane", "segment", "cloud"]

ONE, ZERO = 3, 4
"""Where (size, 1, 0) has its constants."""
_NO_POINTS = np.zeros((0, 3))
_FEW_PROBES, _MANY_PROBES = 8, 64
_LEAST_SHARE = 0.1
"""Of its longest side, a geom counts as at least so thick: a sheet of paper is not as stiff as its thickness asks."""


class SoftGeom(NamedTuple):
    """One geom. Points are in units of `scale`, which are entries of (size, 1, 0)."""

    kind: Kind
    scale: tuple[int, int, int]
    radius: int
    """Entry of (size, 1, 0) by which it is thickened."""
    probes: Array
    """Where other surfaces are tested, (P, 3)."""
    points: Array
    normals: Array
    """Its own surface, if it is a cloud, (F, 3); a large one in leaves of neighbours."""
    bias: Array
    """By which repeated points do not count, (F,)."""
    spacing: float
    """Between neighbouring points of the cloud [m]."""
    size: float
    """Its smallest side [m]."""
    centre: Array
    """Of a ball around it, in units of 1 [m], (3,)."""
    reach: float
    """Radius of that ball [m]."""


def soft_geom(m: mujoco.MjModel, geom: int, size: Array, points: int, mesh: OrientedPoints | None) -> SoftGeom:
    """The geom with MuJoCo's `size`; `mesh` is the cloud of its mesh, if it has one."""
    kind = mujoco.mjtGeom(int(m.geom_type[geom])).name.removeprefix("mjGEOM_").lower()
    nothing = (_NO_POINTS, _NO_POINTS, np.zeros(0), 0.0)
    if kind == "plane":
        return SoftGeom("plane", (ZERO,) * 3, ZERO, _NO_POINTS, *nothing, np.inf, np.zeros(3), np.inf)
    if kind == "sphere":
        return SoftGeom("segment", (ZERO,) * 3, 0, np.zeros((1, 3)), *nothing, 2 * size[0], np.zeros(3), size[0])
    if kind == "capsule":
        along = np.linspace(-1, 1, int(np.clip(1 + np.ceil(size[1] / size[0]), 2, 9)))
        probes = np.column_stack([np.zeros((len(along), 2)), along])
        reach = size[0] + size[1]
        return SoftGeom("segment", (ZERO, ZERO, 1), 0, probes, *nothing, 2 * size[0], np.zeros(3), reach)
    if kind in SCALES:
        cloud = unit_cloud(kind, size[list(SCALES[kind])], points)
        whole = cloud.scaled(size[list(SCALES[kind])])
        return _cloud(whole, SCALES[kind], cloud.vertices, cloud.points, cloud.normals)
    if kind == "mesh" and mesh is not None:
        return _cloud(mesh, (ONE,) * 3, mesh.vertices, mesh.points, mesh.normals)
    raise SceneError(
        f"contact model 'soft' has no point cloud for a geom of type {kind!r}",
        element=element_name(m, mujoco.mjtObj.mjOBJ_GEOM, geom),
        remedy='use a primitive or a mesh, or contype="0" conaffinity="0" if it touches nothing',
    )


def _cloud(
    whole: OrientedPoints, scale: tuple[int, int, int], probes: Array, points: Array, normals: Array
) -> SoftGeom:
    extent = whole.extent
    thickness = max(float(extent.min()), _LEAST_SHARE * float(extent.max()))
    centre = (whole.vertices.max(0) + whole.vertices.min(0)) / 2
    reach = float(np.linalg.norm(whole.vertices - centre, axis=1).max())
    order, bias = np.arange(len(points)), np.zeros(len(points))
    if len(points) > MANY:
        order, bias = in_leaves(whole.points, point_bucket(len(points)))
    surface = points[order], normals[order], bias
    return SoftGeom("cloud", scale, ZERO, probes, *surface, whole.spacing, thickness, centre, reach)


def bucket(count: int) -> int:
    """Arrays of points come in few lengths, the powers of two: what has one length is computed in one go."""
    return 1 << max(0, count - 1).bit_length()


def point_bucket(count: int) -> int:
    """The same for points of a cloud; where they are many, whole leaves, by halves and up to two thirds."""
    if count <= MANY:
        return bucket(count)
    return min(LEAF * thirds * bucket(-(-count // (LEAF * thirds))) for thirds in (1, 3, 9))


def probe_bucket(count: int) -> int:
    """The same for probes, which come in finer lengths where they are many: each of them costs."""
    if count <= _FEW_PROBES:
        return bucket(count)
    step = _FEW_PROBES if count <= 4 * _MANY_PROBES else _MANY_PROBES
    return -(-count // step) * step


def padded(points: Array, length: int) -> tuple[Array, Array]:
    """Points filled up to a length by copies of the last one, and biases of logits by which copies do not count."""
    rest = length - len(points)
    bias: NDArray[np.float64] = np.concatenate([np.zeros(len(points)), np.full(rest, NO_POINT)])
    return np.concatenate([points, np.repeat(points[-1:], rest, 0)]), bias
