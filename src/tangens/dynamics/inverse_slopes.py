"""How inverse dynamics change with q and v: all of ∂(M·a + c)/∂q and ∂c/∂v in one sweep over the tree.

Turning a joint k moves everything behind it as one rigid body. Seen from that body nothing has changed but its base:
the velocity and acceleration before the joint appear turned back by S_k. So the force of the bodies behind joint i
changes by I·α + B·ν, with I and B summed over those bodies, ν = −S_k × v and α = −S_k × a − ν × v, v and a taken
before the joint; and where it acts on joints in front of k, the whole force turns along. B acts on the angular part
of its argument alone: B·(x, y) = (N·x, 2·x × p) with the momentum p.

Outside wrenches (contact impulses) stay fixed in the world here.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Records = NDArray[np.void]

# Columns of the scratch array, one row for each dof.
_ALPHA, _U, _W, _WV, _DRIFT, _V, _NU = 0, 6, 12, 18, 24, 30, 33
_INERTIA, _N, _P, _F, _ACC0, _ACC1, _WIDTH = 36, 46, 55, 58, 64, 70, 76


@numba.njit(cache=True, error_model="numpy")
def add_inverse_slopes(
    dofs: Records, bodies: Records, cdof: Array, cinert: Array, gravity: Array, before: Array, after: Array,
    v: Array, a: Array, outside: Array, scale: float, by_q: Array, by_v: Array,
) -> None:  # fmt: skip
    """Add scale·∂(inverse dynamics)/∂q and /∂v, shapes (nv, nv), where `before` and `after` are `spread` of v.

    `outside` (nv, 6) is the wrench on everything behind each dof, fixed in the world: the derivative of its generalised
    force is added too, as it is.
    """
    nv = v.shape[0]
    work = np.zeros((nv, _WIDTH))
    _accelerations(dofs, cdof, gravity, before, v, a, work)
    _composites(dofs, bodies, cinert, after, work)
    for k in range(nv):
        _response(cdof[k], before[k], after[k], work[k])
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


@numba.njit(cache=True, error_model="numpy")
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


@numba.njit(cache=True, error_model="numpy")
def _composites(dofs: Records, bodies: Records, cinert: Array, after: Array, work: Array) -> None:
    """Inertia, N, momentum and force of everything behind each dof."""
    w, u, h, Iw, L = np.empty(3), np.empty(3), np.empty(3), np.empty(3), np.empty(3)
    I, IW, WI = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3))  # noqa: E741
    for b in range(1, bodies.shape[0]):
        k = bodies[b].last_dof
        m = cinert[b, 9]
        if k < 0 or m == 0.0:
            continue
        row, c = work[k], cinert[b]
        for i in range(10):
            row[_INERTIA + i] += c[i]
        for i in range(3):
            w[i], u[i], h[i] = after[k, i], after[k, 3 + i], c[6 + i]
        I[0, 0], I[1, 1], I[2, 2] = c[0], c[1], c[2]
        I[0, 1] = I[1, 0] = c[3]
        I[0, 2] = I[2, 0] = c[4]
        I[1, 2] = I[2, 1] = c[5]
        px = m * u[0] + w[1] * h[2] - w[2] * h[1]
        py = m * u[1] + w[2] * h[0] - w[0] * h[2]
        pz = m * u[2] + w[0] * h[1] - w[1] * h[0]
        row[_P] += px
        row[_P + 1] += py
        row[_P + 2] += pz
        for i in range(3):
            Iw[i] = I[i, 0] * w[0] + I[i, 1] * w[1] + I[i, 2] * w[2]
        L[0] = Iw[0] + h[1] * u[2] - h[2] * u[1]
        L[1] = Iw[1] + h[2] * u[0] - h[0] * u[2]
        L[2] = Iw[2] + h[0] * u[1] - h[1] * u[0]
        # N = [w]I − I[w] − [Iw] − 2[h][u]
        for i in range(3):
            IW[i, 0] = I[i, 1] * w[2] - I[i, 2] * w[1]
            IW[i, 1] = I[i, 2] * w[0] - I[i, 0] * w[2]
            IW[i, 2] = I[i, 0] * w[1] - I[i, 1] * w[0]
        for i in range(3):
            for j in range(3):
                WI[i, j] = -IW[j, i]  # ([w]I)ᵀ = −I[w]
        hu = h[0] * u[0] + h[1] * u[1] + h[2] * u[2]
        for i in range(3):
            for j in range(3):
                row[_N + 3 * i + j] += WI[i, j] - IW[i, j] - 2.0 * u[i] * h[j]  # [h][u] = u·hᵀ − (h·u)·1
            row[_N + 4 * i] += 2.0 * hu
        row[_N + 1] += Iw[2]
        row[_N + 2] -= Iw[1]
        row[_N + 3] -= Iw[2]
        row[_N + 5] += Iw[0]
        row[_N + 6] += Iw[1]
        row[_N + 7] -= Iw[0]
        # f = I·a + v ×* (L, p)
        x, y = row[_ACC1 : _ACC1 + 3], row[_ACC1 + 3 : _ACC1 + 6]
        f = row[_F : _F + 6]
        for i in range(3):
            f[i] += I[i, 0] * x[0] + I[i, 1] * x[1] + I[i, 2] * x[2]
        f[0] += h[1] * y[2] - h[2] * y[1] + w[1] * L[2] - w[2] * L[1] + u[1] * pz - u[2] * py
        f[1] += h[2] * y[0] - h[0] * y[2] + w[2] * L[0] - w[0] * L[2] + u[2] * px - u[0] * pz
        f[2] += h[0] * y[1] - h[1] * y[0] + w[0] * L[1] - w[1] * L[0] + u[0] * py - u[1] * px
        f[3] += m * y[0] + x[1] * h[2] - x[2] * h[1] + w[1] * pz - w[2] * py
        f[4] += m * y[1] + x[2] * h[0] - x[0] * h[2] + w[2] * px - w[0] * pz
        f[5] += m * y[2] + x[0] * h[1] - x[1] * h[0] + w[0] * py - w[1] * px
    for k in range(dofs.shape[0] - 1, -1, -1):
        parent = dofs[k].parent
        if k == dofs[k].last:
            for j in range(dofs[k].first, k):
                for i in range(_INERTIA, _F + 6):
                    work[j, i] = work[k, i]
        if parent >= 0 and k == dofs[k].first:
            for i in range(_INERTIA, _F + 6):
                work[parent, i] += work[k, i]


@numba.njit(cache=True, error_model="numpy")
def _response(S: Array, before: Array, after: Array, row: Array) -> None:
    """What the sweep needs of one dof: ν, α, I·S, Bᵀ·S, and the forces that act on joints in front of it."""
    x = np.empty(6)
    _cross_motion(S, before, x)  # −ν
    for i in range(3):
        row[_NU + i] = -x[i]
    _cross_motion(S, row[_ACC0 : _ACC0 + 6], row[_ALPHA : _ALPHA + 6])
    y = np.empty(6)
    _cross_motion(x, before, y)
    for i in range(6):
        row[_ALPHA + i] = y[i] - row[_ALPHA + i]
    for i in range(6):
        x[i] = before[i] + after[i]
    _cross_motion(x, S, row[_DRIFT : _DRIFT + 6])
    inertia, N, p = row[_INERTIA : _INERTIA + 10], row[_N : _N + 9], row[_P : _P + 3]
    _apply_inertia(inertia, S, row[_U : _U + 6])
    px, py, pz = 2.0 * p[0], 2.0 * p[1], 2.0 * p[2]
    row[_V] = N[0] * S[0] + N[3] * S[1] + N[6] * S[2] + py * S[5] - pz * S[4]
    row[_V + 1] = N[1] * S[0] + N[4] * S[1] + N[7] * S[2] + pz * S[3] - px * S[5]
    row[_V + 2] = N[2] * S[0] + N[5] * S[1] + N[8] * S[2] + px * S[4] - py * S[3]
    W, WV = row[_W : _W + 6], row[_WV : _WV + 6]
    _apply_inertia(inertia, row[_ALPHA : _ALPHA + 6], W)
    _add_B(N, p, row[_NU : _NU + 3], W)
    _turn_force(S, row[_F : _F + 6], y)
    for i in range(6):
        W[i] += y[i]
    _apply_inertia(inertia, row[_DRIFT : _DRIFT + 6], WV)
    _add_B(N, p, S, WV)


@numba.njit(cache=True, error_model="numpy")
def _add_B(N: Array, p: Array, x: Array, out: Array) -> None:  # noqa: N802
    for i in range(3):
        out[i] += N[3 * i] * x[0] + N[3 * i + 1] * x[1] + N[3 * i + 2] * x[2]
    out[3] += 2.0 * (x[1] * p[2] - x[2] * p[1])
    out[4] += 2.0 * (x[2] * p[0] - x[0] * p[2])
    out[5] += 2.0 * (x[0] * p[1] - x[1] * p[0])


@numba.njit(cache=True, error_model="numpy")
def _apply_inertia(c: Array, x: Array, out: Array) -> None:
    hx, hy, hz, m = c[6], c[7], c[8], c[9]
    out[0] = c[0] * x[0] + c[3] * x[1] + c[4] * x[2] + hy * x[5] - hz * x[4]
    out[1] = c[3] * x[0] + c[1] * x[1] + c[5] * x[2] + hz * x[3] - hx * x[5]
    out[2] = c[4] * x[0] + c[5] * x[1] + c[2] * x[2] + hx * x[4] - hy * x[3]
    out[3] = m * x[3] + x[1] * hz - x[2] * hy
    out[4] = m * x[4] + x[2] * hx - x[0] * hz
    out[5] = m * x[5] + x[0] * hy - x[1] * hx


@numba.njit(cache=True, error_model="numpy")
def _cross_motion(a: Array, b: Array, out: Array) -> None:
    """Out ← a × b for motions."""
    out[0] = a[1] * b[2] - a[2] * b[1]
    out[1] = a[2] * b[0] - a[0] * b[2]
    out[2] = a[0] * b[1] - a[1] * b[0]
    out[3] = a[1] * b[5] - a[2] * b[4] + a[4] * b[2] - a[5] * b[1]
    out[4] = a[2] * b[3] - a[0] * b[5] + a[5] * b[0] - a[3] * b[2]
    out[5] = a[0] * b[4] - a[1] * b[3] + a[3] * b[1] - a[4] * b[0]


@numba.njit(cache=True, error_model="numpy")
def _turn_force(a: Array, f: Array, out: Array) -> None:
    """Out ← a ×* f for a motion and a force."""
    out[0] = a[1] * f[2] - a[2] * f[1] + a[4] * f[5] - a[5] * f[4]
    out[1] = a[2] * f[0] - a[0] * f[2] + a[5] * f[3] - a[3] * f[5]
    out[2] = a[0] * f[1] - a[1] * f[0] + a[3] * f[4] - a[4] * f[3]
    out[3] = a[1] * f[5] - a[2] * f[4]
    out[4] = a[2] * f[3] - a[0] * f[5]
    out[5] = a[0] * f[4] - a[1] * f[3]
