"""Whether a contact of two convex shapes is where they are nearest to each other.

Where faces meet, MuJoCo reports a patch: the corners of one face clipped by the other. It takes faces that hold the
nearest points, also if they do not face each other: in a sixth to a third of random poses of meshes, and of cylinders
and capsules against meshes and boxes. Such a patch has another normal than the contact, by up to 70 degrees, and gaps
of millimetres where the shapes overlap.

Duality tells. Two parallel planes that hold two convex shapes apart are no further apart than the shapes are. So if the
planes that support the shapes along a contact's normal are as far apart as its gap, no other normal is better.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.collision.shapes import BOX, CAPSULE, CYLINDER, MESH, Hulls
from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
Records = NDArray[np.void]

SLACK = 5e-4
"""Of the smaller shape's radius. The clipped caps of cylinders, polygons of 16 sides, miss so much of a cylinder that
leans by 0.03 rad; and faces that lie on each other and rock by 0.001 rad keep their patch, whichever normal it has."""

DEEP = 2e-2
"""Of the same: shapes that are deeper in each other, as the hulls of many robots' links are, have no nearest points
that a contact needs, and keep MuJoCo's patches, which hold them more steadily than single points."""


def may_have_patches(m: mujoco.MjModel) -> bool:
    """Whether some geoms of a model meet in patches of which not all are right."""
    kinds = set(m.geom_type.tolist())
    return (CYLINDER in kinds or MESH in kinds) and len(m.geom_type) > 1


@contextmanager
def without_patches(m: mujoco.MjModel) -> Iterator[None]:
    """MuJoCo reports the nearest points alone."""
    flags = m.opt.disableflags
    m.opt.disableflags = flags | int(mujoco.mjtDisableBit.mjDSBL_MULTICCD)
    try:
        yield
    finally:
        m.opt.disableflags = flags


@inline
def is_clipped(geoms: Records, one: int, two: int) -> bool:
    """Whether MuJoCo clips the faces of two geoms and may choose the wrong ones."""
    a, b = geoms[one].kind, geoms[two].kind
    return (a in (CYLINDER, MESH) or b in (CYLINDER, MESH)) and (
        a in (CAPSULE, CYLINDER, BOX, MESH) and b in (CAPSULE, CYLINDER, BOX, MESH)
    )


@subroutine
def is_nearest(
    geoms: Records, hulls: Hulls, one: int, two: int, xpos: Array, xmat: Array, n: Array, gap: float
) -> bool:  # fmt: skip
    """Whether the planes that support two geoms along n, from the first to the second, are as far apart as `gap`.

    True of geoms that are deep in each other.
    """
    radius = min(geoms[one].radius, geoms[two].radius)
    if gap < -DEEP * radius:
        return True
    apart = -_reach(geoms, hulls, one, xmat[one], n, 1.0) - _reach(geoms, hulls, two, xmat[two], n, -1.0)
    for i in range(3):
        apart += n[i] * (xpos[two, i] - xpos[one, i])
    return gap - apart <= SLACK * radius


@subroutine
def _reach(geoms: Records, hulls: Hulls, g: int, R: Array, n: Array, sign: float) -> float:
    """How far a geom reaches from its centre along sign·n."""
    kind, size = geoms[g].kind, geoms[g].size
    x = sign * (R[0] * n[0] + R[3] * n[1] + R[6] * n[2])
    y = sign * (R[1] * n[0] + R[4] * n[1] + R[7] * n[2])
    z = sign * (R[2] * n[0] + R[5] * n[1] + R[8] * n[2])
    if kind == CAPSULE:
        return size[0] + size[1] * abs(z)
    if kind == CYLINDER:
        return size[0] * math.sqrt(x * x + y * y) + size[1] * abs(z)
    if kind == BOX:
        return size[0] * abs(x) + size[1] * abs(y) + size[2] * abs(z)
    start, faces = geoms[g].first_face, geoms[g].faces
    most = -np.inf
    for corner in range(hulls.first[start], hulls.first[start + faces]):
        p = hulls.corner[corner]
        most = max(most, x * p[0] + y * p[1] + z * p[2])
    return most
