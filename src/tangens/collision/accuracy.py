"""Contacts as accurate as their derivatives.

Against ellipsoids and cylinders MuJoCo iterates until the *distance* is right. The point and the normal are where it
is stationary, so an error ε in them shows as ε² in the distance: they stay wrong by 1e-8 m to 1e-6 m and 1e-6 rad at
best. Newton's method on the conditions that also give the derivative (`motion.py`) removes that error.
"""

from __future__ import annotations

import math

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.collision.motion import eliminate, tangent_laws
from tangens.collision.shapes import (
    BOX,
    CAPSULE,
    CYLINDER,
    ELLIPSOID,
    FACING,
    FEATURE,
    MESH,
    ON_SURFACE,
    SPHERE,
    UNKNOWN,
    Hulls,
    find_feature,
)
from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
Records = NDArray[np.void]

_STEPS = 4  # from 1e-5, the second is exact
_FAR = 1e-3  # relative to the size of the contact's shapes: a correction this large is no correction
_BLUR = 1e-4  # error of a normal, and of a point relative to the size of its shape, before the last step


def set_accuracy(m: mujoco.MjModel) -> None:
    """Set the options under which MuJoCo's contacts are most accurate, and come as patches where faces meet."""
    m.opt.ccd_tolerance = 1e-14
    m.opt.ccd_iterations = 200
    m.opt.disableflags &= ~(int(mujoco.mjtDisableBit.mjDSBL_MULTICCD) | int(mujoco.mjtDisableBit.mjDSBL_NATIVECCD))


@subroutine
def refine_contact(
    geoms: Records, hulls: Hulls, geom: NDArray[np.int32], xpos: Array, xmat: Array, p: Array, frame: Array, gap: float
) -> float:  # fmt: skip
    """Correct p (3,) and frame (9,) of a contact in place and return its gap; leave alone what is exact already."""
    k0, k1 = geoms[geom[0]].kind, geoms[geom[1]].kind
    if (k0 == SPHERE and k1 == MESH) or (k0 == MESH and k1 == SPHERE):
        _before_centre(geoms, geom, xpos, p, frame, gap, 0 if k0 == SPHERE else 1)
        return gap
    curved = k0 in (ELLIPSOID, CYLINDER) or k1 in (ELLIPSOID, CYLINDER)
    if not curved or k0 < SPHERE or k1 < SPHERE:
        return gap
    x, f, F = np.empty((2, 3)), np.empty((2, FEATURE)), frame.copy()
    A, B, M, e, slide = np.empty((2, 2, 2)), np.empty((2, 2, 2)), np.empty((4, 5)), np.empty(3), np.empty(3)
    flats, before = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64)
    for i in range(3):
        x[0, i], x[1, i] = p[i] - 0.5 * gap * F[i], p[i] + 0.5 * gap * F[i]
    for step in range(_STEPS):
        for side in range(2):
            sign = 1.0 - 2.0 * side
            onto_surface(geoms, geom[side], xpos, xmat, F, sign, x[side])
            y = x[side]
            found = find_feature(geoms, hulls, geom[side], xpos, xmat, F, y[0], y[1], y[2], sign, f[side])
            if found == FACING + 1 and step == 0:
                return _over_edge(geoms, geom, xpos, xmat, p, frame, gap, side, f[side], x)
            if found in (UNKNOWN, FACING):  # corners of patches have exact normals
                return gap
            flats[side] = found % FACING
            if step and flats[side] != before[side]:
                return gap
            before[side] = flats[side]
            if geoms[geom[side]].kind == MESH:
                _onto_feature(xpos[geom[side]], xmat[geom[side]], flats[side], f[side], y)
        if not tangent_laws(F, flats[0], flats[1], f, A, B):
            return gap
        distance = 0.0
        for i in range(3):
            e[i] = x[1, i] - x[0, i]
            distance += e[i] * F[i]
        _newton(F, distance, flats, f, A, B, e, M)
        if not eliminate(M):
            return gap
        # The points slide along their flats; the rest follows from the new normal.
        for side in range(2):
            for i in range(3):
                slide[i] = 0.0
                for k in range(2):
                    s = M[k, 4]
                    if side == 1:
                        s += distance * M[2 + k, 4] - e[0] * F[3 + 3 * k] - e[1] * F[4 + 3 * k] - e[2] * F[5 + 3 * k]
                    slide[i] += s * F[3 + 3 * k + i]
            for k in range(flats[side]):
                u = f[side, 3 * k : 3 * k + 3]
                along = u[0] * slide[0] + u[1] * slide[1] + u[2] * slide[2]
                for i in range(3):
                    x[side, i] += along * u[i]
        _turn(F, M[2, 4], M[3, 4])
    distance, moved, scale = 0.0, 0.0, 0.0
    for side in range(2):
        onto_surface(geoms, geom[side], xpos, xmat, F, 1.0 - 2.0 * side, x[side])
        for i in range(3):
            scale += geoms[geom[side]].size[i]
    for i in range(3):
        distance += (x[1, i] - x[0, i]) * F[i]
        moved = max(moved, abs(0.5 * (x[0, i] + x[1, i]) - p[i]), abs(F[i] - frame[i]) * scale)
    if moved > _FAR * scale:
        return gap
    for i in range(3):
        p[i] = 0.5 * (x[0, i] + x[1, i])
    frame[:] = F
    return distance


@inline
def _before_centre(
    geoms: Records, geom: NDArray[np.int32], xpos: Array, p: Array, frame: Array, gap: float, side: int
) -> None:  # fmt: skip
    """Put the point of a ball on a mesh where it is: before the ball's centre, along the normal."""
    reach = (1.0 - 2.0 * side) * (geoms[geom[side]].size[0] + 0.5 * gap)
    for i in range(3):
        p[i] = xpos[geom[side], i] + reach * frame[i]


@subroutine
def _over_edge(
    geoms: Records, geom: NDArray[np.int32], xpos: Array, xmat: Array, p: Array, frame: Array, gap: float, face: int,
    f: Array, x: Array,
) -> float:  # fmt: skip
    """Correct the point where the line of a cylinder that lies on a face crosses an edge of it."""
    g = geom[1 - face]
    size, R, y = geoms[g].size, xmat[g], x[1 - face]
    along = (y[0] - xpos[g, 0]) * R[2] + (y[1] - xpos[g, 1]) * R[5] + (y[2] - xpos[g, 2]) * R[8]
    if geoms[g].kind != CYLINDER or abs(along) > size[1] - _BLUR * (size[0] + size[1]):
        return gap
    sign = 2.0 * face - 1.0
    onto_surface(geoms, g, xpos, xmat, frame, sign, y)
    # Slide the points along axis and edge until they are over each other.
    q, e = np.zeros(2), np.zeros((2, 2))
    for k in range(2):
        for i in range(3):
            t = frame[3 + 3 * k + i]
            q[k] += t * (x[face, i] - y[i])
            e[k, 0] += t * R[3 * i + 2]
            e[k, 1] -= t * f[i]
    det = e[0, 0] * e[1, 1] - e[0, 1] * e[1, 0]
    if abs(det) < 1e-6:
        return gap
    a, b = (q[0] * e[1, 1] - e[0, 1] * q[1]) / det, (e[0, 0] * q[1] - e[1, 0] * q[0]) / det
    distance = 0.0
    for i in range(3):
        y[i] += a * R[3 * i + 2]
        x[face, i] += b * f[i]
        distance += (x[1, i] - x[0, i]) * frame[i]
    if abs(a) + abs(b) > _FAR * (size[0] + size[1]):
        return gap
    for i in range(3):
        p[i] = 0.5 * (x[0, i] + x[1, i])
    return distance


@inline
def _newton(
    F: Array, gap: float, flats: NDArray[np.int64], f: Array, A: Array, B: Array, e: Array, M: Array
) -> None:  # fmt: skip
    """Equations for (s₀, t) after which x₁ − x₀ is along n, and n perpendicular to all flats."""
    for i in range(2):
        M[i, 4] = M[2 + i, 4] = 0.0
        for j in range(2):
            M[i, j], M[i, 2 + j] = A[0, i, j], -B[0, i, j]
            M[2 + i, j], M[2 + i, 2 + j] = A[1, i, j], gap * A[1, i, j] + B[1, i, j]
            M[2 + i, 4] += A[1, i, j] * (e[0] * F[3 + 3 * j] + e[1] * F[4 + 3 * j] + e[2] * F[5 + 3 * j])
    for side in range(2):
        for k in range(flats[side]):
            u = f[side, 3 * k : 3 * k + 3]
            tilt = u[0] * F[0] + u[1] * F[1] + u[2] * F[2]
            for i in range(2):
                part = tilt * (u[0] * F[3 + 3 * i] + u[1] * F[4 + 3 * i] + u[2] * F[5 + 3 * i])
                M[2 * side + i, 4] += part if side == 0 else -part


@inline
def _turn(F: Array, a: float, b: float) -> None:
    """Tilt the normal of a frame by a, b along its tangents."""
    for i in range(3):
        F[i] += a * F[3 + i] + b * F[6 + i]
    s = 1.0 / math.sqrt(F[0] ** 2 + F[1] ** 2 + F[2] ** 2)
    for i in range(3):
        F[i] *= s
    d = F[0] * F[3] + F[1] * F[4] + F[2] * F[5]
    for i in range(3):
        F[3 + i] -= d * F[i]
    s = 1.0 / math.sqrt(F[3] ** 2 + F[4] ** 2 + F[5] ** 2)
    for i in range(3):
        F[3 + i] *= s
    F[6] = F[1] * F[5] - F[2] * F[4]
    F[7] = F[2] * F[3] - F[0] * F[5]
    F[8] = F[0] * F[4] - F[1] * F[3]


@inline
def _onto_feature(xpos: Array, xmat: Array, flats: int, f: Array, w: Array) -> None:
    """Move w to the vertex, edge or face of a hull that it is nearest to."""
    x = np.empty(3)
    for i in range(3):
        x[i] = xpos[i] + xmat[3 * i] * f[9] + xmat[3 * i + 1] * f[10] + xmat[3 * i + 2] * f[11]
    a, b, c = w[0] - x[0], w[1] - x[1], w[2] - x[2]
    for k in range(flats):
        u = f[3 * k : 3 * k + 3]
        along = a * u[0] + b * u[1] + c * u[2]
        for i in range(3):
            x[i] += along * u[i]
    w[:] = x


@subroutine
def onto_surface(geoms: Records, g: int, xpos: Array, xmat: Array, frame: Array, sign: float, w: Array) -> None:
    """Move w, near the surface of geom g, to where its outward normal is sign·frame[:3]; free along flats."""
    kind, size, R = geoms[g].kind, geoms[g].size, xmat[g]
    if kind not in (SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX):
        return
    x, m = np.zeros(3), np.zeros(3)
    for i in range(3):
        for k in range(3):
            x[i] += R[3 * k + i] * (w[k] - xpos[g, k])
            m[i] += sign * R[3 * k + i] * frame[k]
    if kind == ELLIPSOID:
        s = 1.0 / math.sqrt((size[0] * m[0]) ** 2 + (size[1] * m[1]) ** 2 + (size[2] * m[2]) ** 2)
        for i in range(3):
            x[i] = size[i] ** 2 * m[i] * s
    elif kind == BOX:
        for i in range(3):
            if abs(abs(x[i]) - size[i]) < ON_SURFACE * (size[0] + size[1] + size[2]):
                x[i] = math.copysign(size[i], x[i])
    elif kind == CYLINDER:
        slope, near = math.sqrt(m[0] ** 2 + m[1] ** 2), _BLUR * (size[0] + size[1])
        if abs(abs(x[2]) - size[1]) < ON_SURFACE * (size[0] + size[1]):
            x[2] = math.copysign(size[1], x[2])
        if slope > near and abs(math.sqrt(x[0] ** 2 + x[1] ** 2) - size[0]) < near:
            x[0], x[1] = size[0] * m[0] / slope, size[0] * m[1] / slope
    else:
        half = size[1] if kind == CAPSULE else 0.0
        z = x[2] - size[0] * m[2]
        # A normal that leans towards an end belongs to its sphere, though z is off by as much as the normal is.
        near = _BLUR if z * m[2] > 0.0 and abs(m[2]) > _BLUR else ON_SURFACE
        if abs(z) > half - near * (size[0] + half):
            z = math.copysign(half, z)
        for i in range(3):
            x[i] = size[0] * m[i]
        x[2] += z
    for i in range(3):
        w[i] = xpos[g, i]
        for k in range(3):
            w[i] += R[3 * i + k] * x[k]
