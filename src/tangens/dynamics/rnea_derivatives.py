"""Derivatives of the recursive Newton-Euler algorithm (RNEA): ∂(M·a + c)/∂q and ∂c/∂v in one sweep over the tree.

Carpentier & Mansard, "Analytical derivatives of rigid body dynamics algorithms" (RSS 2018), differentiate the two
passes of RNEA. Here I and B are summed over the bodies behind each joint first, as in Singh, Russell & Wensing,
"Efficient analytical derivatives of rigid-body dynamics using spatial vector algebra" (RA-L 2022).
Our B is twice theirs.

Turning a joint k moves everything behind it as one rigid body. Seen from that body nothing has changed but its base:
the velocity and acceleration before the joint appear turned back by S_k. So the force of the bodies behind joint i
changes by I·α + B·ν, with I and B summed over those bodies, ν = −S_k × v and α = −S_k × a − ν × v, v and a taken
before the joint; and where it acts on joints in front of k, the whole force turns along. B acts on the angular part
of its argument alone: B·(x, y) = (N·x, 2·x × p) with the momentum p.

Outside wrenches (contact impulses) stay fixed in the world here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
Records = NDArray[np.void]

# Columns of the scratch array, one row for each dof.
_ALPHA, _U, _W, _WV, _DRIFT, _V, _NU = 0, 6, 12, 18, 24, 30, 33
_INERTIA, _N, _P, _F, _ACC0, _ACC1, _WIDTH = 36, 46, 55, 58, 64, 70, 76


@subroutine(fastmath={"contract"})
def add_rnea_derivatives(
    dofs: Records, bodies: Records, cdof: Array, cinert: Array, gravity: Array, before: Array, after: Array,
    v: Array, a: Array, outside: Array, scale: float, by_q: Array, by_v: Array,
) -> None:  # fmt: skip
    """Add scale·∂(inverse dynamics)/∂q and /∂v, shapes (nv, nv).

    `before` and `after` are what `propagate_velocities` makes of v.

    `outside` (nv, 6) is the wrench on everything behind each dof, fixed in the world: the derivative of its generalised
    force is added too, as it is.
    """
    nv = v.shape[0]
    work = np.zeros((nv, _WIDTH))
    _accelerations(dofs, cdof, gravity, before, v, a, work)
    _composites(dofs, bodies, cinert, after, work)
    for k in range(nv):
        _response(cdof, before, after, k, work)
    z = np.empty(6)
    for i in range(nv):
        _turn_force(cdof[i], outside[i], z)
        u0, u1, u2 = scale * work[i, _U], scale * work[i, _U + 1], scale * work[i, _U + 2]
        u3, u4, u5 = scale * work[i, _U + 3], scale * work[i, _U + 4], scale * work[i, _U + 5]
        b0, b1, b2 = scale * work[i, _V], scale * work[i, _V + 1], scale * work[i, _V + 2]
        z0, z1, z2, z3, z4, z5 = z[0], z[1], z[2], z[3], z[4], z[5]
        w0, w1, w2 = scale * work[i, _W], scale * work[i, _W + 1], scale * work[i, _W + 2]
        w3, w4, w5 = scale * work[i, _W + 3], scale * work[i, _W + 4], scale * work[i, _W + 5]
        x0, x1, x2 = scale * work[i, _WV], scale * work[i, _WV + 1], scale * work[i, _WV + 2]
        x3, x4, x5 = scale * work[i, _WV + 3], scale * work[i, _WV + 4], scale * work[i, _WV + 5]
        first, k = dofs[i].first, dofs[i].last
        while k >= 0:
            s0, s1, s2 = cdof[k, 0], cdof[k, 1], cdof[k, 2]
            s3, s4, s5 = cdof[k, 3], cdof[k, 4], cdof[k, 5]
            by_q[i, k] += (
                u0 * work[k, _ALPHA] + u1 * work[k, _ALPHA + 1] + u2 * work[k, _ALPHA + 2]
                + u3 * work[k, _ALPHA + 3] + u4 * work[k, _ALPHA + 4] + u5 * work[k, _ALPHA + 5]
                + b0 * work[k, _NU] + b1 * work[k, _NU + 1] + b2 * work[k, _NU + 2]
                + s0 * z0 + s1 * z1 + s2 * z2 + s3 * z3 + s4 * z4 + s5 * z5
            )  # fmt: skip
            by_v[i, k] += (
                u0 * work[k, _DRIFT] + u1 * work[k, _DRIFT + 1] + u2 * work[k, _DRIFT + 2]
                + u3 * work[k, _DRIFT + 3] + u4 * work[k, _DRIFT + 4] + u5 * work[k, _DRIFT + 5]
                + b0 * s0 + b1 * s1 + b2 * s2
            )  # fmt: skip
            if dofs[k].first != first:
                by_q[k, i] += s0 * w0 + s1 * w1 + s2 * w2 + s3 * w3 + s4 * w4 + s5 * w5
                by_v[k, i] += s0 * x0 + s1 * x1 + s2 * x2 + s3 * x3 + s4 * x4 + s5 * x5
            k = dofs[k].parent


@subroutine(fastmath={"contract"})
def body_accelerations(dofs: Records, cdof: Array, gravity: Array, before: Array, v: Array, a: Array) -> Array:
    """Spatial acceleration after the group of each dof, (nv, 6), gravity as one of the world."""
    work = np.zeros((dofs.shape[0], _WIDTH))
    _accelerations(dofs, cdof, gravity, before, v, a, work)
    return work[:, _ACC1 : _ACC1 + 6].copy()


@inline(fastmath={"contract"})
def _accelerations(
    dofs: Records, cdof: Array, gravity: Array, before: Array, v: Array, a: Array, work: Array
) -> None:  # fmt: skip
    for k in range(dofs.shape[0]):
        first, last, parent = dofs[k].first, dofs[k].last, dofs[k].parent
        if k == first:
            for i in range(6):
                base = work[parent, _ACC1 + i] if parent >= 0 else (-gravity[i - 3] if i >= 3 else 0.0)
                work[k, _ACC0 + i] = base
                work[last, _ACC1 + i] = base
        b, S = before[k], cdof[k]
        for i in range(6):
            work[k, _ACC0 + i] = work[first, _ACC0 + i]
            work[last, _ACC1 + i] += S[i] * a[k]
        rate = v[k]
        out = work[last]
        out[_ACC1] += (b[1] * S[2] - b[2] * S[1]) * rate
        out[_ACC1 + 1] += (b[2] * S[0] - b[0] * S[2]) * rate
        out[_ACC1 + 2] += (b[0] * S[1] - b[1] * S[0]) * rate
        out[_ACC1 + 3] += (b[1] * S[5] - b[2] * S[4] + b[4] * S[2] - b[5] * S[1]) * rate
        out[_ACC1 + 4] += (b[2] * S[3] - b[0] * S[5] + b[5] * S[0] - b[3] * S[2]) * rate
        out[_ACC1 + 5] += (b[0] * S[4] - b[1] * S[3] + b[3] * S[1] - b[4] * S[0]) * rate
        if k == last:
            for j in range(first, last):
                for i in range(6):
                    work[j, _ACC1 + i] = work[last, _ACC1 + i]


@inline(fastmath={"contract"})
def _composites(dofs: Records, bodies: Records, cinert: Array, after: Array, work: Array) -> None:
    """Inertia, N, momentum and force of everything behind each dof."""
    for b in range(1, bodies.shape[0]):
        k = bodies[b].last_dof
        m = cinert[b, 9]
        if k < 0 or m == 0.0:
            continue
        for i in range(10):
            work[k, _INERTIA + i] += cinert[b, i]
        xx, yy, zz = cinert[b, 0], cinert[b, 1], cinert[b, 2]
        xy, xz, yz = cinert[b, 3], cinert[b, 4], cinert[b, 5]
        hx, hy, hz = cinert[b, 6], cinert[b, 7], cinert[b, 8]
        wx, wy, wz, ux, uy, uz = after[k, 0], after[k, 1], after[k, 2], after[k, 3], after[k, 4], after[k, 5]
        # momentum (L, p) of the body, and its part I·w
        px, py, pz = m * ux + wy * hz - wz * hy, m * uy + wz * hx - wx * hz, m * uz + wx * hy - wy * hx
        ix, iy, iz = xx * wx + xy * wy + xz * wz, xy * wx + yy * wy + yz * wz, xz * wx + yz * wy + zz * wz
        lx, ly, lz = ix + hy * uz - hz * uy, iy + hz * ux - hx * uz, iz + hx * uy - hy * ux
        work[k, _P] += px
        work[k, _P + 1] += py
        work[k, _P + 2] += pz
        # N = [w]I − I[w] − [Iw] − 2[h][u]: symmetric but for −[Iw] and the last
        hu = 2.0 * (hx * ux + hy * uy + hz * uz)
        nxx, nyy, nzz = 2.0 * (wy * xz - wz * xy), 2.0 * (wz * xy - wx * yz), 2.0 * (wx * yz - wy * xz)
        nxy = wy * yz - wz * yy + wz * xx - wx * xz
        nxz = wy * zz - wz * yz + wx * xy - wy * xx
        nyz = wz * xz - wx * zz + wx * yy - wy * xy
        work[k, _N] += nxx + hu - 2.0 * ux * hx
        work[k, _N + 4] += nyy + hu - 2.0 * uy * hy
        work[k, _N + 8] += nzz + hu - 2.0 * uz * hz
        work[k, _N + 1] += nxy + iz - 2.0 * ux * hy
        work[k, _N + 3] += nxy - iz - 2.0 * uy * hx
        work[k, _N + 2] += nxz - iy - 2.0 * ux * hz
        work[k, _N + 6] += nxz + iy - 2.0 * uz * hx
        work[k, _N + 5] += nyz + ix - 2.0 * uy * hz
        work[k, _N + 7] += nyz - ix - 2.0 * uz * hy
        # f = I·a + v ×* (L, p)
        ax, ay, az = work[k, _ACC1], work[k, _ACC1 + 1], work[k, _ACC1 + 2]
        bx, by, bz = work[k, _ACC1 + 3], work[k, _ACC1 + 4], work[k, _ACC1 + 5]
        work[k, _F] += xx * ax + xy * ay + xz * az + hy * bz - hz * by + wy * lz - wz * ly + uy * pz - uz * py
        work[k, _F + 1] += xy * ax + yy * ay + yz * az + hz * bx - hx * bz + wz * lx - wx * lz + uz * px - ux * pz
        work[k, _F + 2] += xz * ax + yz * ay + zz * az + hx * by - hy * bx + wx * ly - wy * lx + ux * py - uy * px
        work[k, _F + 3] += m * bx + ay * hz - az * hy + wy * pz - wz * py
        work[k, _F + 4] += m * by + az * hx - ax * hz + wz * px - wx * pz
        work[k, _F + 5] += m * bz + ax * hy - ay * hx + wx * py - wy * px
    for k in range(dofs.shape[0] - 1, -1, -1):
        parent = dofs[k].parent
        if k == dofs[k].last:
            for j in range(dofs[k].first, k):
                for i in range(_INERTIA, _F + 6):
                    work[j, i] = work[k, i]
        if parent >= 0 and k == dofs[k].first:
            for i in range(_INERTIA, _F + 6):
                work[parent, i] += work[k, i]


@inline(fastmath={"contract"})
def _response(cdof: Array, before: Array, after: Array, k: int, work: Array) -> None:
    """What the sweep needs of one dof: ν, α, I·S, Bᵀ·S, and the forces that act on joints in front of it."""
    s0, s1, s2, s3, s4, s5 = cdof[k, 0], cdof[k, 1], cdof[k, 2], cdof[k, 3], cdof[k, 4], cdof[k, 5]
    b0, b1, b2, b3, b4, b5 = before[k, 0], before[k, 1], before[k, 2], before[k, 3], before[k, 4], before[k, 5]
    # ν = −S × v and α = −S × a − ν × v
    x0, x1, x2, x3, x4, x5 = _cross(s0, s1, s2, s3, s4, s5, b0, b1, b2, b3, b4, b5)
    y0, y1, y2, y3, y4, y5 = _cross(x0, x1, x2, x3, x4, x5, b0, b1, b2, b3, b4, b5)
    z0, z1, z2, z3, z4, z5 = _cross(
        s0, s1, s2, s3, s4, s5, work[k, _ACC0], work[k, _ACC0 + 1], work[k, _ACC0 + 2], work[k, _ACC0 + 3],
        work[k, _ACC0 + 4], work[k, _ACC0 + 5],
    )  # fmt: skip
    a0, a1, a2, a3, a4, a5 = y0 - z0, y1 - z1, y2 - z2, y3 - z3, y4 - z4, y5 - z5
    d0, d1, d2, d3, d4, d5 = _cross(
        b0 + after[k, 0], b1 + after[k, 1], b2 + after[k, 2], b3 + after[k, 3], b4 + after[k, 4], b5 + after[k, 5],
        s0, s1, s2, s3, s4, s5,
    )  # fmt: skip
    work[k, _NU], work[k, _NU + 1], work[k, _NU + 2] = -x0, -x1, -x2
    _put(work, k, _ALPHA, a0, a1, a2, a3, a4, a5)
    _put(work, k, _DRIFT, d0, d1, d2, d3, d4, d5)
    u0, u1, u2, u3, u4, u5 = _inertia_times(work, k, s0, s1, s2, s3, s4, s5)
    _put(work, k, _U, u0, u1, u2, u3, u4, u5)
    px, py, pz = 2.0 * work[k, _P], 2.0 * work[k, _P + 1], 2.0 * work[k, _P + 2]
    n0, n1, n2 = work[k, _N], work[k, _N + 1], work[k, _N + 2]
    n3, n4, n5 = work[k, _N + 3], work[k, _N + 4], work[k, _N + 5]
    n6, n7, n8 = work[k, _N + 6], work[k, _N + 7], work[k, _N + 8]
    work[k, _V] = n0 * s0 + n3 * s1 + n6 * s2 + py * s5 - pz * s4
    work[k, _V + 1] = n1 * s0 + n4 * s1 + n7 * s2 + pz * s3 - px * s5
    work[k, _V + 2] = n2 * s0 + n5 * s1 + n8 * s2 + px * s4 - py * s3
    # W = I·α + B·ν + S ×* f, and its like for the velocity
    f0, f1, f2 = work[k, _F], work[k, _F + 1], work[k, _F + 2]
    f3, f4, f5 = work[k, _F + 3], work[k, _F + 4], work[k, _F + 5]
    w0, w1, w2, w3, w4, w5 = _inertia_times(work, k, a0, a1, a2, a3, a4, a5)
    _put(
        work, k, _W,
        w0 - n0 * x0 - n1 * x1 - n2 * x2 + s1 * f2 - s2 * f1 + s4 * f5 - s5 * f4,
        w1 - n3 * x0 - n4 * x1 - n5 * x2 + s2 * f0 - s0 * f2 + s5 * f3 - s3 * f5,
        w2 - n6 * x0 - n7 * x1 - n8 * x2 + s0 * f1 - s1 * f0 + s3 * f4 - s4 * f3,
        w3 - x1 * pz + x2 * py + s1 * f5 - s2 * f4,
        w4 - x2 * px + x0 * pz + s2 * f3 - s0 * f5,
        w5 - x0 * py + x1 * px + s0 * f4 - s1 * f3,
    )  # fmt: skip
    w0, w1, w2, w3, w4, w5 = _inertia_times(work, k, d0, d1, d2, d3, d4, d5)
    _put(
        work, k, _WV,
        w0 + n0 * s0 + n1 * s1 + n2 * s2, w1 + n3 * s0 + n4 * s1 + n5 * s2, w2 + n6 * s0 + n7 * s1 + n8 * s2,
        w3 + s1 * pz - s2 * py, w4 + s2 * px - s0 * pz, w5 + s0 * py - s1 * px,
    )  # fmt: skip


@inline(fastmath={"contract"})
def _put(work: Array, k: int, at: int, a: float, b: float, c: float, d: float, e: float, f: float) -> None:
    work[k, at], work[k, at + 1], work[k, at + 2] = a, b, c
    work[k, at + 3], work[k, at + 4], work[k, at + 5] = d, e, f


@inline(fastmath={"contract"})
def _inertia_times(
    work: Array, k: int, a: float, b: float, c: float, d: float, e: float, f: float
) -> tuple[float, float, float, float, float, float]:  # fmt: skip
    xx, yy, zz = work[k, _INERTIA], work[k, _INERTIA + 1], work[k, _INERTIA + 2]
    xy, xz, yz = work[k, _INERTIA + 3], work[k, _INERTIA + 4], work[k, _INERTIA + 5]
    hx, hy, hz, m = work[k, _INERTIA + 6], work[k, _INERTIA + 7], work[k, _INERTIA + 8], work[k, _INERTIA + 9]
    return (
        xx * a + xy * b + xz * c + hy * f - hz * e,
        xy * a + yy * b + yz * c + hz * d - hx * f,
        xz * a + yz * b + zz * c + hx * e - hy * d,
        m * d + b * hz - c * hy,
        m * e + c * hx - a * hz,
        m * f + a * hy - b * hx,
    )


@inline(fastmath={"contract"})
def _cross(
    a: float, b: float, c: float, d: float, e: float, f: float,
    u: float, v: float, w: float, x: float, y: float, z: float,
) -> tuple[float, float, float, float, float, float]:  # fmt: skip
    """Cross product of two motions."""
    return (
        b * w - c * v, c * u - a * w, a * v - b * u,
        b * z - c * y + e * w - f * v, c * x - a * z + f * u - d * w, a * y - b * x + d * v - e * u,
    )  # fmt: skip


@inline(fastmath={"contract"})
def _turn_force(a: Array, f: Array, out: Array) -> None:
    """Out ← a ×* f for a motion and a force."""
    out[0] = a[1] * f[2] - a[2] * f[1] + a[4] * f[5] - a[5] * f[4]
    out[1] = a[2] * f[0] - a[0] * f[2] + a[5] * f[3] - a[3] * f[5]
    out[2] = a[0] * f[1] - a[1] * f[0] + a[3] * f[4] - a[4] * f[3]
    out[3] = a[1] * f[5] - a[2] * f[4]
    out[4] = a[2] * f[3] - a[0] * f[5]
    out[5] = a[0] * f[4] - a[1] * f[3]
