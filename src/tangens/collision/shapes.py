"""What a contact touches of one shape: a patch of surface that is flat in some directions and curved in the others.

A surface point follows its outward normal. Turn the normal by dm (tangential, in the shape's frame) and the point
moves by C·dm, where C is 1/curvature: r on a sphere, 0 at a vertex. Along a *flat* the normal cannot turn and the
point slides freely: one flat on edges and on the sides of capsules and cylinders, two on faces. So (flats, C) is all
that the motion of a contact needs to know of its shapes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

PLANE, SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX, MESH = (
    int(getattr(mujoco.mjtGeom, f"mjGEOM_{name}"))
    for name in ("PLANE", "SPHERE", "CAPSULE", "ELLIPSOID", "CYLINDER", "BOX", "MESH")
)
UNKNOWN = -1
FACING = 4  # added to the number of flats when the contact normal is that of a face which holds the point

ON_SURFACE = 1e-6  # distance to a feature, relative to the size of the shape: MuJoCo's meshes are single precision
OFF_SURFACE = 3e-3  # relative to a radius: more than the error of MuJoCo's normals
ALIGNED = 1e-6  # angle between normals that are the same
_LOWEST = 2e-3  # angle by which MuJoCo may miss the line of a cylinder that a face touches
_SIDES = 16  # MuJoCo clips the caps of cylinders as polygons with so many sides, the first corner on the x axis
# Floats that describe a feature: two flats in the world, C in the contact's tangents (11, 12, 22), a point of a hull in
# its own frame, the normals in the world of the two faces that hold the point and are turned most to the other shape
# (or 0; the second for meshes alone, whose faces may differ little).
FEATURE = 18


class Hulls(NamedTuple):
    """Faces of all convex hulls: unit normals, and the corners of face i at corner[first[i]:first[i + 1]]."""

    normal: Array
    first: IntArray
    corner: Array


def hull_tables(m: mujoco.MjModel) -> Hulls:
    """The faces of all meshes, one after the other as MuJoCo numbers them."""
    first = np.concatenate([m.mesh_polyvertadr, [m.mesh_polyvert.size]]).astype(np.int64)
    corner = np.zeros((m.mesh_polyvert.size, 3))
    for mesh in range(m.nmesh):
        faces = slice(m.mesh_polyadr[mesh], m.mesh_polyadr[mesh] + m.mesh_polynum[mesh] + 1)
        if m.mesh_polynum[mesh]:
            corners = slice(first[faces][0], first[faces][-1])
            corner[corners] = m.mesh_vert[m.mesh_vertadr[mesh] + m.mesh_polyvert[corners]]
    return Hulls(np.array(m.mesh_polynormal, dtype=np.float64).reshape(-1, 3), first, corner)


@subroutine
def find_feature(
    geoms: Records, hulls: Hulls, g: int, xpos: Array, xmat: Array, frame: Array, wx: float, wy: float, wz: float,
    sign: float, out: Array,
) -> int:  # fmt: skip
    """Describe in `out` the surface of geom g at the world point w, where its outward normal is sign·frame[:3].

    Returns the number of flats, plus FACING when the normal is that of a face; or UNKNOWN.
    """
    R = xmat[g]
    a, b, c = wx - xpos[g, 0], wy - xpos[g, 1], wz - xpos[g, 2]
    x = R[0] * a + R[3] * b + R[6] * c
    y = R[1] * a + R[4] * b + R[7] * c
    z = R[2] * a + R[5] * b + R[8] * c
    a, b, c = sign * frame[0], sign * frame[1], sign * frame[2]
    mx = R[0] * a + R[3] * b + R[6] * c
    my = R[1] * a + R[4] * b + R[7] * c
    mz = R[2] * a + R[5] * b + R[8] * c
    for i in range(FEATURE):
        out[i] = 0.0
    kind, size = geoms[g].kind, geoms[g].size
    if kind == SPHERE:
        out[6] = out[8] = size[0]
        return 0
    if kind == PLANE:
        _face(frame[0], frame[1], frame[2], out)
        return FACING + 2
    if kind == CAPSULE:
        # Beside a first contact MuJoCo may report others, of poses turned a little: they are off the surface.
        if math.hypot(x - size[0] * mx, y - size[0] * my) > OFF_SURFACE * size[0]:
            return UNKNOWN
        out[6] = out[8] = size[0]
        if abs(z - size[0] * mz) > size[1] - ON_SURFACE * (size[0] + size[1]):
            return 0
        _column(R, 2, out)
        return 1
    if kind == ELLIPSOID:
        _ellipsoid(size, R, frame, mx, my, mz, out)
        return 0
    if kind == CYLINDER:
        return _cylinder(size, R, frame, x, y, z, mx, my, mz, out)
    if kind == BOX:
        return _box(size, R, x, y, z, mx, my, mz, out)
    if kind == MESH:
        return _mesh(hulls, geoms[g].first_face, geoms[g].faces, R, x, y, z, mx, my, mz, out)
    return UNKNOWN


@inline
def _column(R: Array, k: int, out: Array) -> None:
    """A flat along axis k of the shape."""
    out[0], out[1], out[2] = R[k], R[3 + k], R[6 + k]


@inline
def _along(R: Array, x: float, y: float, z: float, out: Array) -> None:
    """A flat along (x, y, z) of the shape's frame."""
    s = 1.0 / math.sqrt(x * x + y * y + z * z)
    for i in range(3):
        out[i] = s * (R[3 * i] * x + R[3 * i + 1] * y + R[3 * i + 2] * z)


@inline
def _normal(R: Array, x: float, y: float, z: float, out: Array) -> None:
    for i in range(3):
        out[12 + i] = R[3 * i] * x + R[3 * i + 1] * y + R[3 * i + 2] * z


@inline
def _face(x: float, y: float, z: float, out: Array) -> None:
    """Two flats perpendicular to the unit vector (x, y, z) of the world and to each other."""
    if abs(x) < 0.6:
        s = 1.0 / math.sqrt(y * y + z * z)
        a, b, c = 0.0, z * s, -y * s
    else:
        s = 1.0 / math.sqrt(x * x + y * y)
        a, b, c = y * s, -x * s, 0.0
    out[0], out[1], out[2] = a, b, c
    out[3], out[4], out[5] = y * c - z * b, z * a - x * c, x * b - y * a


@inline
def _local_face(R: Array, x: float, y: float, z: float, out: Array) -> None:
    _face(
        R[0] * x + R[1] * y + R[2] * z, R[3] * x + R[4] * y + R[5] * z, R[6] * x + R[7] * y + R[8] * z, out
    )  # fmt: skip


@inline
def _ellipsoid(size: Array, R: Array, frame: Array, mx: float, my: float, mz: float, out: Array) -> None:
    """C = S²/|Sm| − (S²m)(S²m)ᵀ/|Sm|³: the derivative of the support point S²m/|Sm| by the normal m."""
    a, b, c = size[0] * size[0], size[1] * size[1], size[2] * size[2]
    s = 1.0 / math.sqrt(a * mx * mx + b * my * my + c * mz * mz)
    qx, qy, qz = a * mx * s, b * my * s, c * mz * s
    ux = R[0] * frame[3] + R[3] * frame[4] + R[6] * frame[5]
    uy = R[1] * frame[3] + R[4] * frame[4] + R[7] * frame[5]
    uz = R[2] * frame[3] + R[5] * frame[4] + R[8] * frame[5]
    vx = R[0] * frame[6] + R[3] * frame[7] + R[6] * frame[8]
    vy = R[1] * frame[6] + R[4] * frame[7] + R[7] * frame[8]
    vz = R[2] * frame[6] + R[5] * frame[7] + R[8] * frame[8]
    qu, qv = qx * ux + qy * uy + qz * uz, qx * vx + qy * vy + qz * vz
    out[6] = s * (a * ux * ux + b * uy * uy + c * uz * uz - qu * qu)
    out[7] = s * (a * ux * vx + b * uy * vy + c * uz * vz - qu * qv)
    out[8] = s * (a * vx * vx + b * vy * vy + c * vz * vz - qv * qv)


@subroutine
def _cylinder(
    size: Array, R: Array, frame: Array, x: float, y: float, z: float, mx: float, my: float, mz: float, out: Array
) -> int:  # fmt: skip
    radius, half = size[0], size[1]
    near = ON_SURFACE * (radius + half)
    slope, reach = math.sqrt(mx * mx + my * my), math.sqrt(x * x + y * y)
    on_cap, on_side = abs(abs(z) - half) < near, abs(reach - radius) < near
    facing = FACING if slope < ALIGNED and on_cap else 0
    # The rim and the side turn with the normal, unless the point is a corner of the polygon that stands for the cap.
    turning = on_side and slope >= ALIGNED and abs(x * my - y * mx) < _LOWEST * radius * slope
    if turning:
        tx, ty = -my / slope, mx / slope
        a, b, c = R[0] * tx + R[1] * ty, R[3] * tx + R[4] * ty, R[6] * tx + R[7] * ty
        u, v = a * frame[3] + b * frame[4] + c * frame[5], a * frame[6] + b * frame[7] + c * frame[8]
        bend = radius / slope
        out[6], out[7], out[8] = bend * u * u, bend * u * v, bend * v * v
        if on_cap:
            return 0
        _column(R, 2, out)
        return 1
    if not on_cap:
        return UNKNOWN
    _normal(R, 0.0, 0.0, math.copysign(1.0, z), out)
    angle = math.atan2(y, x) * _SIDES / (2.0 * math.pi)
    if on_side and abs(angle - round(angle)) * radius < 10.0 * near:
        return facing
    middle = (math.floor(angle) + 0.5) * 2.0 * math.pi / _SIDES
    s, c = math.sin(middle), math.cos(middle)
    if abs(x * c + y * s - radius * math.cos(math.pi / _SIDES)) < near:
        _along(R, -s, c, 0.0, out)
        return facing + 1
    _local_face(R, 0.0, 0.0, 1.0, out)
    return facing + 2


@subroutine
def _box(
    size: Array, R: Array, x: float, y: float, z: float, mx: float, my: float, mz: float, out: Array
) -> int:  # fmt: skip
    near = ON_SURFACE * (size[0] + size[1] + size[2])
    i, j, k = abs(abs(x) - size[0]) < near, abs(abs(y) - size[1]) < near, abs(abs(z) - size[2]) < near
    facing = 0
    if (i and abs(mx) > 0.5 and math.sqrt(my * my + mz * mz) < ALIGNED) or (
        (j and abs(my) > 0.5 and math.sqrt(mx * mx + mz * mz) < ALIGNED)
        or (k and abs(mz) > 0.5 and math.sqrt(mx * mx + my * my) < ALIGNED)
    ):
        facing = FACING
    a, b, c = abs(mx) if i else 0.0, abs(my) if j else 0.0, abs(mz) if k else 0.0
    if a >= b and a >= c:
        _normal(R, math.copysign(1.0, x), 0.0, 0.0, out)
    elif b >= c:
        _normal(R, 0.0, math.copysign(1.0, y), 0.0, out)
    else:
        _normal(R, 0.0, 0.0, math.copysign(1.0, z), out)
    fixed = int(i) + int(j) + int(k)
    if fixed == 3:
        return facing
    if fixed == 2:
        _column(R, 0 if not i else 1 if not j else 2, out)
        return facing + 1
    if fixed == 1:
        _local_face(R, 1.0 if i else 0.0, 1.0 if j else 0.0, 1.0 if k else 0.0, out)
        return facing + 2
    return UNKNOWN


@subroutine
def _mesh(
    hulls: Hulls, start: int, count: int, R: Array, x: float, y: float, z: float, mx: float, my: float, mz: float,
    out: Array,
) -> int:  # fmt: skip
    """The nearest of corner, edge and face, within tolerance."""
    reach, most, next_most = 0.0, -2.0, -2.0
    flats, facing = UNKNOWN, 0
    for face in range(start, start + count):
        begin, end = hulls.first[face], hulls.first[face + 1]
        p = hulls.corner[begin]
        reach = max(reach, abs(p[0]) + abs(p[1]) + abs(p[2]))
        near = ON_SURFACE * reach
        n = hulls.normal[face]
        if abs(n[0] * (x - p[0]) + n[1] * (y - p[1]) + n[2] * (z - p[2])) > near:
            continue
        found = _polygon(hulls, begin, end, n, R, x, y, z, near, flats, out)
        if found == UNKNOWN:
            continue
        flats = found
        toward = n[0] * mx + n[1] * my + n[2] * mz
        if toward > most:
            most, next_most = toward, most
            out[15:18] = out[12:15]
            _normal(R, n[0], n[1], n[2], out)
        elif toward > next_most:
            next_most = toward
            _normal(R, n[0], n[1], n[2], out[3:])
        if toward > 0.5:
            a, b, c = n[1] * mz - n[2] * my, n[2] * mx - n[0] * mz, n[0] * my - n[1] * mx
            if math.sqrt(a * a + b * b + c * c) < ALIGNED:
                facing = FACING
    return UNKNOWN if flats == UNKNOWN else flats + facing


@subroutine
def _polygon(
    hulls: Hulls, begin: int, end: int, n: Array, R: Array, x: float, y: float, z: float, near: float, flats: int,
    out: Array,
) -> int:  # fmt: skip
    """Flats at a point of the plane of one face (no more than `flats`, known from others); UNKNOWN outside of it."""
    inside = True
    best = 2
    for i in range(begin, end):
        p, q = hulls.corner[i], hulls.corner[i + 1 if i + 1 < end else begin]
        ax, ay, az = x - p[0], y - p[1], z - p[2]
        ux, uy, uz = q[0] - p[0], q[1] - p[1], q[2] - p[2]
        length = math.sqrt(ux * ux + uy * uy + uz * uz)
        if ax * ax + ay * ay + az * az < near * near:
            out[:6] = 0.0
            out[9], out[10], out[11] = p[0], p[1], p[2]
            return 0
        if length < near:
            continue
        across = n[0] * (uy * az - uz * ay) + n[1] * (uz * ax - ux * az) + n[2] * (ux * ay - uy * ax)
        along = (ux * ax + uy * ay + uz * az) / length
        if abs(across) < near * length:
            if -near < along < length + near:
                best = 1
                if flats != 0:
                    out[:6] = 0.0
                    _along(R, ux, uy, uz, out)
                    out[9], out[10], out[11] = p[0], p[1], p[2]
        elif across < 0.0:
            inside = False
    if best == 1:
        return 1 if flats != 0 else 0
    if not inside:
        return UNKNOWN
    if flats in (UNKNOWN, 2):
        _local_face(R, n[0], n[1], n[2], out)
        p = hulls.corner[begin]
        out[9], out[10], out[11] = p[0], p[1], p[2]
        return 2
    return flats


@subroutine
def shape_motion(
    geoms: Records, g: int, xpos: Array, xmat: Array, w: Array, n: Array, out: Array
) -> None:  # fmt: skip
    """Velocity (out[:, k], world) of the surface point w of geom g per unit of its size k, at a fixed outward normal n.

    The shape moves there as if by this translation, its body held: geom 1 moves a contact by D[:, :3]·out; geom 0
    by out − D[:3, :3]·out (point) and −D[3:, :3]·out (turn, gap).
    """
    R, size, kind = xmat[g], geoms[g].size, geoms[g].kind
    out[:] = 0.0
    x, m = np.zeros(3), np.zeros(3)
    for i in range(3):
        for k in range(3):
            x[i] += R[3 * k + i] * (w[k] - xpos[g, k])
            m[i] += R[3 * k + i] * n[k]
    local = np.zeros((3, 3))
    if kind in (SPHERE, CAPSULE):
        local[:, 0] = m
        if kind == CAPSULE and abs(x[2] - size[0] * m[2]) > size[1] - ON_SURFACE * (size[0] + size[1]):
            local[2, 1] = math.copysign(1.0, x[2])
    elif kind == CYLINDER:
        local[0, 0], local[1, 0] = x[0] / size[0], x[1] / size[0]
        if abs(abs(x[2]) - size[1]) < ON_SURFACE * (size[0] + size[1]):
            local[2, 1] = math.copysign(1.0, x[2])
    elif kind == BOX:
        for i in range(3):
            if abs(abs(x[i]) - size[i]) < ON_SURFACE * (size[0] + size[1] + size[2]):
                local[i, i] = math.copysign(1.0, x[i])
    elif kind == ELLIPSOID:
        s = 1.0 / math.sqrt((size[0] * m[0]) ** 2 + (size[1] * m[1]) ** 2 + (size[2] * m[2]) ** 2)
        for k in range(3):
            for i in range(3):
                local[i, k] = -(size[i] ** 2) * m[i] * size[k] * m[k] ** 2 * s**3
            local[k, k] += 2.0 * size[k] * m[k] * s
    for i in range(3):
        for k in range(3):
            for j in range(3):
                out[i, k] += R[3 * i + j] * local[j, k]
