"""How a contact moves when its bodies do, for every pair of convex shapes.

MuJoCo reports p half way between the surface points x₀ and x₁ = x₀ + gap·n. Seen from body 0, while body 1 moves with
the relative twist (v at p, w), let t be the change of n, ω = w × n, and s₀, s₁ how the surface points move over their
shapes. Then

    s₁ − s₀ = gap·t + ġ·n − v − (gap/2)·ω,   and p moves by s₀ + (gap/2)·t + (ġ/2)·n.

What is left is how the points follow the normal (`shapes.py`). If it is the *touching point of two surfaces*,
s₀ = C₀·t and s₁ = C₁·(ω − t) but along flats, where instead the normal turns with the shape: t·u = 0 or
(t − ω)·u = 0. If it is *a corner of a patch* where something meets a face, the normal is the face's (t = 0 or t = ω)
and the corner is where features meet when seen along the normal: a vertex over a face, an edge across an edge.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tangens.collision.shapes import (
    CAPSULE,
    CYLINDER,
    ELLIPSOID,
    FACING,
    FEATURE,
    MESH,
    PLANE,
    SPHERE,
    UNKNOWN,
    Hulls,
    find_feature,
)
from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
Records = NDArray[np.void]

_PARALLEL = 0.98  # cosine between faces that MuJoCo may take to meet
_TANGENT = 1e-4  # cosine between the normal and a flat of a touching point


@subroutine
def contact_response(
    geoms: Records, hulls: Hulls, geom: NDArray[np.int32], xpos: Array, xmat: Array, p: Array, frame: Array,
    gap: float, D: Array,
) -> bool:  # fmt: skip
    """Fill D: (v₁ − v₀ at p, w₁ − w₀) ↦ (dp − velocity of body 0 at p, turn of the frame − w₀), in world axes.

    The frame turns without spin about n, seen from body 0. A seventh row of D, where there is one, is filled with the
    change of the gap: it is n·(v₁ − v₀) for touching points, and not for every corner of a patch. Returns False when
    the motion is not known: D is undefined.
    """
    if geoms[geom[0]].kind == PLANE:
        return _over_plane(geoms, hulls, geom[1], xpos, xmat, p, frame, gap, D)
    f = np.empty((2, FEATURE))
    h = 0.5 * gap
    nx, ny, nz = frame[0], frame[1], frame[2]
    zero = find_feature(
        geoms, hulls, geom[0], xpos, xmat, frame, p[0] - h * nx, p[1] - h * ny, p[2] - h * nz, 1.0, f[0]
    )
    one = find_feature(
        geoms, hulls, geom[1], xpos, xmat, frame, p[0] + h * nx, p[1] + h * ny, p[2] + h * nz, -1.0, f[1]
    )
    local = np.zeros((7, 6))  # D in the axes of the frame
    known = False
    if zero % FACING > 0 and _tilt(frame, f[0]) > _PARALLEL:
        # Faces may meet. MuJoCo clips that of geom 0 along its own normal m: look for the edge of geom 1 there.
        s = gap / _tilt(frame, f[0])
        x, y, z = p[0] - h * nx + s * f[0, 12], p[1] - h * ny + s * f[0, 13], p[2] - h * nz + s * f[0, 14]
        below = find_feature(geoms, hulls, geom[1], xpos, xmat, frame, x, y, z, -1.0, f[1])
        if FACING <= below < FACING + 2:
            if zero % FACING == 1 and below == FACING + 1 and geoms[geom[1]].kind == MESH:
                _choose_face(xpos[geom[1]], xmat[geom[1]], p[0] - h * nx, p[1] - h * ny, p[2] - h * nz, f)
            known = _clipped(frame, gap, zero % FACING, below % FACING, f, local)
            if known:
                _to_world(frame, local, D)
            return known
        one = find_feature(
            geoms, hulls, geom[1], xpos, xmat, frame, p[0] + h * nx, p[1] + h * ny, p[2] + h * nz, -1.0, f[1]
        )
    if UNKNOWN in (zero, one):
        return False
    if one >= FACING:
        known = _corner(frame, gap, 1, zero % FACING, one % FACING, f, local)
    elif zero >= FACING:
        known = _corner(frame, gap, 0, zero % FACING, one % FACING, f, local)
    else:
        known = _touch(frame, gap, zero, one, f, local)
    if known:
        _to_world(frame, local, D)
    return known


@subroutine
def _over_plane(
    geoms: Records, hulls: Hulls, g: int, xpos: Array, xmat: Array, p: Array, frame: Array, gap: float, D: Array
) -> bool:  # fmt: skip
    """Geom 0 is a plane: the normal is fixed in it, and p is below a point of geom 1 that may follow the normal."""
    kind = geoms[g].kind
    nx, ny, nz = frame[0], frame[1], frame[2]
    for i in range(3):
        for j in range(3):
            D[i, j] = -0.5 * frame[i] * frame[j]
            D[3 + i, j] = D[3 + i, 3 + j] = 0.0
        D[i, i] += 1.0
        D[i, 3 + i] = 0.0
    arm = 0.5 * gap
    if kind in (SPHERE, CAPSULE):
        arm += geoms[g].size[0]
    # arm·(w × n)
    D[0, 4], D[0, 5] = arm * nz, -arm * ny
    D[1, 3], D[1, 5] = -arm * nz, arm * nx
    D[2, 3], D[2, 4] = arm * ny, -arm * nx
    if kind == ELLIPSOID:
        f = np.empty(FEATURE)
        find_feature(geoms, hulls, g, xpos, xmat, frame, p[0], p[1], p[2], -1.0, f)
        for i in range(3):
            a, b = frame[3 + i], frame[6 + i]
            u, v = f[6] * a + f[7] * b, f[7] * a + f[8] * b  # C·ω with ω = (w·e₂)·e₁ − (w·e₁)·e₂
            for j in range(3):
                D[i, 3 + j] += u * frame[6 + j] - v * frame[3 + j]
    elif kind == CYLINDER:
        _roll(xpos[g], xmat[g], p, frame, gap, D)
    if D.shape[0] > 6:
        for j in range(6):
            D[6, j] = 2.0 * (nx * D[0, j] + ny * D[1, j] + nz * D[2, j])
    return True


@inline
def _roll(xpos: Array, xmat: Array, p: Array, frame: Array, gap: float, D: Array) -> None:
    """Add how a cylinder's points move over it: all keep their angle to its lowest line, which turns about the axis."""
    nx, ny, nz = frame[0], frame[1], frame[2]
    zx, zy, zz = xmat[2], xmat[5], xmat[8]
    # z × (outward normal): its length is the sine of the angle between axis and normal
    tx, ty, tz = ny * zz - nz * zy, nz * zx - nx * zz, nx * zy - ny * zx
    slope2 = tx * tx + ty * ty + tz * tz
    if slope2 < 1e-24:
        return  # MuJoCo then takes points fixed in the body
    x = p[0] + 0.5 * gap * nx - xpos[0]
    y = p[1] + 0.5 * gap * ny - xpos[1]
    z = p[2] + 0.5 * gap * nz - xpos[2]
    # The outward normal −n turns by ω = w × n in the body's frame, and the lowest line by t·ω / slope².
    wx, wy, wz = ny * tz - nz * ty, nz * tx - nx * tz, nx * ty - ny * tx
    sx, sy, sz = zy * z - zz * y, zz * x - zx * z, zx * y - zy * x
    rise = nx * sx + ny * sy + nz * sz
    sx -= 0.5 * rise * nx
    sy -= 0.5 * rise * ny
    sz -= 0.5 * rise * nz
    wx, wy, wz = wx / slope2, wy / slope2, wz / slope2
    D[0, 3] += sx * wx
    D[0, 4] += sx * wy
    D[0, 5] += sx * wz
    D[1, 3] += sy * wx
    D[1, 4] += sy * wy
    D[1, 5] += sy * wz
    D[2, 3] += sz * wx
    D[2, 4] += sz * wy
    D[2, 5] += sz * wz


@inline
def tangent_laws(frame: Array, zero: int, one: int, f: Array, A: Array, B: Array) -> bool:
    """Fill A, B (2, 2, 2) of A₀·s₀ = B₀·t and A₁·s₁ = B₁·(ω − t) in the tangents of the frame; A = 0 along flats.

    False when a flat is not tangential: then the point is not where two surfaces touch.
    """
    for side in range(2):
        flats = zero if side == 0 else one
        a, b, g = A[side], B[side], f[side]
        a[0, 0] = a[0, 1] = a[1, 1] = b[0, 0] = b[0, 1] = b[1, 1] = 0.0
        for k in range(flats):
            if abs(_dot(frame, 0, g, 3 * k)) > _TANGENT:
                return False
        if flats == 2:
            b[0, 0] = b[1, 1] = 1.0
        elif flats == 1:
            u, v = _dot(frame, 1, g, 0), _dot(frame, 2, g, 0)
            s = 1.0 / math.sqrt(u * u + v * v)
            u, v = u * s, v * s
            c = v * v * g[6] - 2.0 * u * v * g[7] + u * u * g[8]  # across the flat
            a[0, 0], a[0, 1], a[1, 1] = v * v, -u * v, u * u
            b[0, 0], b[0, 1], b[1, 1] = c * v * v + u * u, u * v - c * u * v, c * u * u + v * v
        else:
            a[0, 0] = a[1, 1] = 1.0
            b[0, 0], b[0, 1], b[1, 1] = g[6], g[7], g[8]
        a[1, 0], b[1, 0] = a[0, 1], b[0, 1]
    return True


@subroutine
def _touch(frame: Array, gap: float, zero: int, one: int, f: Array, local: Array) -> bool:
    """The touching point of two surfaces."""
    A, B = np.empty((2, 2, 2)), np.empty((2, 2, 2))
    if not tangent_laws(frame, zero, one, f, A, B):
        return False
    h = 0.5 * gap
    # Unknowns s₀, t; right sides for v, ω.
    M = np.zeros((4, 8))
    for i in range(2):
        for j in range(2):
            M[i, j] = A[0, i, j]
            M[i, 2 + j] = -B[0, i, j]
            M[2 + i, j] = M[2 + i, 4 + j] = A[1, i, j]
            M[2 + i, 2 + j] = gap * A[1, i, j] + B[1, i, j]
            M[2 + i, 6 + j] = h * A[1, i, j] + B[1, i, j]
    if not eliminate(M):
        return False
    local[0, 0] = 0.5
    local[6, 0] = 1.0
    for j in range(2):
        # by v along e₁, e₂
        local[1, 1 + j], local[2, 1 + j] = M[0, 4 + j] + h * M[2, 4 + j], M[1, 4 + j] + h * M[3, 4 + j]
        local[4, 1 + j], local[5, 1 + j] = -M[3, 4 + j], M[2, 4 + j]
        # by w along e₁, e₂: ω = (w·e₂)·e₁ − (w·e₁)·e₂
        sign = -1.0 if j == 0 else 1.0
        k = 7 - j
        local[1, 4 + j], local[2, 4 + j] = sign * (M[0, k] + h * M[2, k]), sign * (M[1, k] + h * M[3, k])
        local[4, 4 + j], local[5, 4 + j] = -sign * M[3, k], sign * M[2, k]
    return True


@inline
def eliminate(M: Array) -> bool:
    """Solve the square system on the left of M for the right sides, in place; False when it is singular."""
    n, columns = M.shape
    scale = 0.0
    for i in range(n):
        for j in range(n):
            scale = max(scale, abs(M[i, j]))
    for k in range(n):
        pivot = k
        for i in range(k + 1, n):
            if abs(M[i, k]) > abs(M[pivot, k]):
                pivot = i
        if abs(M[pivot, k]) < 1e-9 * scale:
            return False
        if pivot != k:
            for j in range(k, columns):
                M[k, j], M[pivot, j] = M[pivot, j], M[k, j]
        inverse = 1.0 / M[k, k]
        for j in range(k + 1, columns):
            M[k, j] *= inverse
        for i in range(n):
            if i != k and M[i, k] != 0.0:
                ratio = M[i, k]
                for j in range(k + 1, columns):
                    M[i, j] -= ratio * M[k, j]
    return True


@subroutine
def _corner(frame: Array, gap: float, face: int, zero: int, one: int, f: Array, local: Array) -> bool:
    """A corner of the patch on the face of geom `face`, whose normal is n: where features meet, seen along n."""
    other = 1 - face
    flats_face, flats_other = (zero, one) if face == 0 else (one, zero)
    M = np.zeros((3, 9))  # unknowns: two slides and ġ; right sides for v, ω in the axes of the frame
    if flats_other == 0 or (flats_other == 1 and flats_face == 0):
        # A point of the other shape over the face. (Vertex on vertex or edge is a kink: the vertex keeps its body.)
        M[1, 0] = M[2, 1] = 1.0
        first, second = face, face
    elif flats_other == 1 and flats_face == 1:
        for i in range(3):
            for j in range(2):
                M[i, j] = _dot(frame, i, f[j], 0)
        first, second = 0, 1
    elif flats_other == 2 and flats_face == 0:
        for i in range(3):
            for j in range(2):
                M[i, j] = _dot(frame, i, f[other], 3 * j)
        first, second = other, other
    else:
        return False
    slide = M[:, :2].copy()
    sign0 = -1.0 if first == 0 else 1.0
    sign1 = -1.0 if second == 0 else 1.0
    # ±slides − ġ·n = gap·t − v − (gap/2)·ω + C·(t or t − ω) with t = 0 or ω
    h = 0.5 * gap
    side = -1.0 if face == 0 else 1.0
    c = f[other]
    for i in range(3):
        M[i, 0] *= sign0
        M[i, 1] *= sign1
        M[i, 3 + i] = -1.0
    M[0, 2] = -1.0
    M[1, 7], M[1, 8], M[2, 7], M[2, 8] = side * (h + c[6]), side * c[7], side * c[7], side * (h + c[8])
    if not eliminate(M):
        return False
    # p moves by s₀ + h·t + ½ġ·n, where s₀ = its slides + C₀·t
    P = np.zeros((3, 6))
    for k in range(6):
        for i in range(3):
            if first == 0:
                P[i, k] += slide[i, 0] * M[0, 3 + k]
            if second == 0:
                P[i, k] += slide[i, 1] * M[1, 3 + k]
        P[0, k] += 0.5 * M[2, 3 + k]
        local[6, k] = M[2, 3 + k]
    if face == 1:
        P[1, 4] += h + c[6]
        P[1, 5] += c[7]
        P[2, 4] += c[7]
        P[2, 5] += h + c[8]
    for i in range(3):
        for k in range(3):
            local[i, k] = P[i, k]
        local[i, 4], local[i, 5] = -P[i, 5], P[i, 4]
    local[6, 4], local[6, 5] = -M[2, 8], M[2, 7]
    local[6, 3] = 0.0
    if face == 1:  # the frame turns with body 1: n × (w × n)
        local[4, 4] = local[5, 5] = 1.0
    return True


@inline
def _tilt(frame: Array, f: Array) -> float:
    """Cosine between the contact normal and that of the face of geom 0 (0 if it has none)."""
    return frame[0] * f[12] + frame[1] * f[13] + frame[2] * f[14]


@inline
def _choose_face(xpos: Array, R: Array, x: float, y: float, z: float, f: Array) -> None:
    """Let the first face at an edge of geom 0 be the one that MuJoCo clipped: its corner (x, y, z) fits no other.

    Along the normal of that face, the corner is over the edge of geom 1.
    """
    best = np.inf
    for start in (12, 15):
        e, m = f[1, :3], f[0, start : start + 3]
        k0, k1, k2 = e[1] * m[2] - e[2] * m[1], e[2] * m[0] - e[0] * m[2], e[0] * m[1] - e[1] * m[0]
        length = math.sqrt(k0 * k0 + k1 * k1 + k2 * k2)
        if length < 1e-9:
            continue
        q0, q1, q2 = x - xpos[0], y - xpos[1], z - xpos[2]
        for i in range(3):  # seen from a point of the edge
            c = f[1, 9 + i]
            q0, q1, q2 = q0 - R[i] * c, q1 - R[3 + i] * c, q2 - R[6 + i] * c
        off = abs(k0 * q0 + k1 * q1 + k2 * q2) / length
        if start == 12:
            best = off
        elif off < best:
            f[0, 12:15] = m


@subroutine
def _clipped(frame: Array, gap: float, zero: int, one: int, f: Array, local: Array) -> bool:
    """A corner of the face of geom 0 after it was clipped by planes through edges of geom 1, along its own normal m.

    The corner x₀ is on an edge of geom 0 and over an edge of geom 1, or it is over a vertex of geom 1. The contact
    normal is that of the face of geom 1.
    """
    h, s = 0.5 * gap, gap / _tilt(frame, f[0])
    m0, m1, m2 = _dot(frame, 0, f[0], 12), _dot(frame, 1, f[0], 12), _dot(frame, 2, f[0], 12)
    # Velocity, per twist, of the point of body 1 below x₀ (along m); in the axes of the frame
    r0, r1, r2 = s * m0 - h, s * m1, s * m2
    V = np.zeros((3, 6))
    V[0, 0] = V[1, 1] = V[2, 2] = 1.0
    V[0, 4], V[0, 5], V[1, 3], V[1, 5], V[2, 3], V[2, 4] = r2, -r1, -r2, r0, r1, -r0
    if zero == 1 and one == 1:
        e0, e1, e2 = _dot(frame, 0, f[1], 0), _dot(frame, 1, f[1], 0), _dot(frame, 2, f[1], 0)
        u0, u1, u2 = _dot(frame, 0, f[0], 0), _dot(frame, 1, f[0], 0), _dot(frame, 2, f[0], 0)
        k0, k1, k2 = e1 * m2 - e2 * m1, e2 * m0 - e0 * m2, e0 * m1 - e1 * m0
        across = k0 * u0 + k1 * u1 + k2 * u2
        if abs(across) < 1e-9:
            return False
        for j in range(6):
            a = (k0 * V[0, j] + k1 * V[1, j] + k2 * V[2, j]) / across
            local[0, j], local[1, j], local[2, j] = a * u0, a * u1, a * u2
    elif zero == 2 and one == 0:
        for j in range(6):
            a = m0 * V[0, j] + m1 * V[1, j] + m2 * V[2, j]
            local[0, j], local[1, j], local[2, j] = V[0, j] - a * m0, V[1, j] - a * m1, V[2, j] - a * m2
    elif zero != 1 or one != 0:  # an edge over a vertex is a kink: x₀ keeps its body
        return False
    for j in range(6):
        local[6, j] = (1.0 if j == 0 else 0.0) - local[0, j]
        local[0, j] += 0.5 * local[6, j]
    local[1, 5] += h
    local[2, 4] -= h
    local[4, 4] = local[5, 5] = 1.0
    return True


@inline
def _dot(frame: Array, i: int, u: Array, start: int) -> float:
    return frame[3 * i] * u[start] + frame[3 * i + 1] * u[start + 1] + frame[3 * i + 2] * u[start + 2]


@inline
def _to_world(frame: Array, local: Array, D: Array) -> None:
    half = np.empty((7, 6))
    for i in range(7):
        for j in range(3):
            half[i, j] = local[i, 0] * frame[j] + local[i, 1] * frame[3 + j] + local[i, 2] * frame[6 + j]
            half[i, 3 + j] = local[i, 3] * frame[j] + local[i, 4] * frame[3 + j] + local[i, 5] * frame[6 + j]
    for k in range(6):
        for i in range(3):
            D[i, k] = frame[i] * half[0, k] + frame[3 + i] * half[1, k] + frame[6 + i] * half[2, k]
            D[3 + i, k] = frame[i] * half[3, k] + frame[3 + i] * half[4, k] + frame[6 + i] * half[5, k]
        if D.shape[0] > 6:
            D[6, k] = half[6, k]
