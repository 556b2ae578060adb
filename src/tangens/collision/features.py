"""What a contact touches: the feature of each shape, and how the contact moves when the bodies do.

Near a contact every shape looks like one of three: a *face* (normal fixed in the body), a *point* with a radius
(sphere, vertex, end of a capsule) or a *line* with a radius (edge, side of a capsule or cylinder). The contact point
lies half way between the two surfaces on their common normal, as MuJoCo reports it; its motion follows from the
features alone, curvature included. Contacts between other features are marked UNKNOWN: nothing is guessed.
"""

from __future__ import annotations

import math

import mujoco
import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

UNKNOWN, FACE, POINT, LINE = 0, 1, 2, 3
_PLANE, _SPHERE, _CAPSULE, _CYLINDER, _BOX, _MESH = (
    int(getattr(mujoco.mjtGeom, f"mjGEOM_{name}")) for name in ("PLANE", "SPHERE", "CAPSULE", "CYLINDER", "BOX", "MESH")
)
_ON_SURFACE = 1e-6  # relative to the size of the shape


@numba.njit(cache=True)
def find_features(
    geoms: Records, geom: NDArray[np.int32], xpos: Array, xmat: Array, p: Array, n: Array, gap: float,
    feature: IntArray, core: Array,
) -> None:  # fmt: skip
    """Fill feature (2,) and core (2, 7) of one contact: a point of each feature in the world, its direction, radius."""
    w, x = np.empty(3), np.empty(3)
    for side in range(2):
        g = geom[side]
        shift = (side - 0.5) * gap
        for i in range(3):
            w[i] = p[i] + shift * n[i]
        for i in range(3):
            x[i] = 0.0
            for k in range(3):
                x[i] += xmat[g, 3 * k + i] * (w[k] - xpos[g, k])
        feature[side] = _feature(geoms[g].kind, geoms[g].size, x, w, xpos[g], xmat[g], core[side])
    _pair_features(geoms[geom[0]].kind, geoms[geom[1]].kind, p, n, gap, feature, core)


@numba.njit(cache=True)
def _feature(kind: int, size: Array, x: Array, w: Array, xpos: Array, xmat: Array, core: Array) -> int:
    """The feature at the surface point `x` (in the shape's frame; `w` in the world)."""
    core[:] = 0.0
    core[:3] = w
    if kind == _PLANE:
        return FACE
    if kind == _SPHERE:
        core[:3] = xpos
        core[6] = size[0]
        return POINT
    if kind == _CAPSULE:
        core[6] = size[0]
        end = math.copysign(size[1], x[2])
        reach = math.sqrt(x[0] ** 2 + x[1] ** 2 + (x[2] - end) ** 2)
        if abs(reach - size[0]) <= _ON_SURFACE * (size[0] + size[1]):
            for i in range(3):
                core[i] = xpos[i] + end * xmat[3 * i + 2]
            return POINT
        return _axis(x[2], xpos, xmat, core)
    if kind == _CYLINDER:
        on_side = abs(math.sqrt(x[0] ** 2 + x[1] ** 2) - size[0]) <= _ON_SURFACE * size[0]
        on_cap = abs(abs(x[2]) - size[1]) <= _ON_SURFACE * size[1]
        if on_side and not on_cap:
            core[6] = size[0]
            return _axis(x[2], xpos, xmat, core)
        return FACE if on_cap and not on_side else UNKNOWN
    if kind == _BOX:
        fixed, along = 0, 0
        for i in range(3):
            if abs(abs(x[i]) - size[i]) <= _ON_SURFACE * size[i]:
                fixed += 1
            else:
                along = i
        if fixed == 2:
            for i in range(3):
                core[3 + i] = xmat[3 * i + along]
            return LINE
        return POINT if fixed == 3 else FACE if fixed == 1 else UNKNOWN
    return UNKNOWN


@numba.njit(cache=True)
def _axis(along: float, xpos: Array, xmat: Array, core: Array) -> int:
    for i in range(3):
        core[3 + i] = xmat[3 * i + 2]
        core[i] = xpos[i] + along * core[3 + i]
    return LINE


@numba.njit(cache=True)
def _pair_features(kind0: int, kind1: int, p: Array, n: Array, gap: float, feature: IntArray, core: Array) -> None:
    """Keep what the pair can be moved by, and mark the rest."""
    for side in range(2):
        # Against a plane, what touches of a polyhedron is a vertex: a point fixed in the body.
        own, other = (kind0, kind1) if side == 0 else (kind1, kind0)
        if other == _PLANE and own in (_MESH, _BOX):
            feature[side] = POINT
            core[side, 6] = 0.0
            for i in range(3):
                core[side, i] = p[i] + (side - 0.5) * gap * n[i]
    a, b = feature[0], feature[1]
    if FACE in (a, b):
        known = POINT in (a, b)
    elif a == LINE and b == LINE:
        known = True
    else:  # a normal that points from core to core needs a distance between them
        known = UNKNOWN not in (a, b) and core[0, 6] + core[1, 6] + gap > 1e-9
    if not known:
        feature[0] = feature[1] = UNKNOWN


@numba.njit(cache=True)
def _velocity(w: Array, v: Array, p: Array, x0: float, x1: float, x2: float, out: Array) -> None:
    """Velocity at x of a body that turns with w and moves with v at p."""
    a, b, c = x0 - p[0], x1 - p[1], x2 - p[2]
    out[0] = v[0] + w[1] * c - w[2] * b
    out[1] = v[1] + w[2] * a - w[0] * c
    out[2] = v[2] + w[0] * b - w[1] * a


@numba.njit(cache=True)
def _dot(a: Array, b: Array) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@numba.njit(cache=True)
def cross(a: Array, b: Array, out: Array) -> None:
    """Out ← a × b."""
    out[0] = a[1] * b[2] - a[2] * b[1]
    out[1] = a[2] * b[0] - a[0] * b[2]
    out[2] = a[0] * b[1] - a[1] * b[0]


@numba.njit(cache=True)
def contact_motion(
    feature: IntArray, core: Array, n: Array, p: Array, gap: float, w0: Array, v0: Array, w1: Array, v1: Array,
    scratch: Array, dp: Array, turn: Array,
) -> None:  # fmt: skip
    """How the contact point moves (dp) and its frame turns while the bodies move with (w, v at p).

    The frame turns without spin about the normal: friction is isotropic, so that spin has no effect.
    """
    q, dn, x, m = scratch[0], scratch[1], scratch[2], scratch[3]
    r0, r1 = core[0, 6], core[1, 6]
    closing = n[0] * (v1[0] - v0[0]) + n[1] * (v1[1] - v0[1]) + n[2] * (v1[2] - v0[2])
    if feature[0] == FACE:
        cross(w0, n, dn)
        _velocity(w1, v1, p, core[1, 0], core[1, 1], core[1, 2], x)
        for i in range(3):
            dp[i] = x[i] - (r1 + 0.5 * gap) * dn[i] - 0.5 * closing * n[i]
    elif feature[1] == FACE:
        cross(w1, n, dn)
        _velocity(w0, v0, p, core[0, 0], core[0, 1], core[0, 2], x)
        for i in range(3):
            dp[i] = x[i] + (r0 + 0.5 * gap) * dn[i] + 0.5 * closing * n[i]
    else:
        distance = r0 + r1 + gap
        a, b = r0 + 0.5 * gap, r1 + 0.5 * gap
        _velocity(w0, v0, p, p[0] - a * n[0], p[1] - a * n[1], p[2] - a * n[2], x)
        _velocity(w1, v1, p, p[0] + b * n[0], p[1] + b * n[1], p[2] + b * n[2], q)
        for i in range(3):
            q[i] -= x[i]
        slip = 0.0  # of the nearest point along line 0
        if feature[0] == LINE and feature[1] == LINE:
            _turn_of_common_normal(core, n, w0, w1, m, dn)
            for i in range(3):
                q[i] -= distance * dn[i]
            cross(core[1, 3:6], n, m)
            slip = _dot(q, m) / _dot(core[0, 3:6], m)
        else:
            if feature[0] == LINE:
                u = core[0, 3:6]
                cross(w0, u, m)
                slip = _dot(u, q) + distance * _dot(n, m)
                for i in range(3):
                    q[i] -= slip * u[i]
            elif feature[1] == LINE:
                u = core[1, 3:6]
                cross(w1, u, m)
                back = _dot(u, q) + distance * _dot(n, m)
                for i in range(3):
                    q[i] -= back * u[i]
            along = _dot(n, q)
            for i in range(3):
                dn[i] = (q[i] - along * n[i]) / distance
        for i in range(3):
            dp[i] = x[i] + slip * core[0, 3 + i] + a * dn[i] + 0.5 * closing * n[i]
    cross(n, dn, turn)


@numba.njit(cache=True)
def _turn_of_common_normal(core: Array, n: Array, w0: Array, w1: Array, m: Array, dn: Array) -> None:
    """Turn of the normal to two lines, which stays perpendicular to both: dn·u = −n·(w × u)."""
    u, t = core[0, 3:6], core[1, 3:6]
    cross(w0, u, m)
    a = -_dot(n, m)
    cross(w1, t, m)
    b = -_dot(n, m)
    c = _dot(u, t)
    det = 1.0 - c * c
    x, y = (a - c * b) / det, (b - c * a) / det
    for i in range(3):
        dn[i] = x * u[i] + y * t[i]
