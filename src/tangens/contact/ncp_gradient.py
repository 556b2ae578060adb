"""The derivative of an `ncp` step, compiled (paper 2, Sec. 3 and Appendices A to D).

At fixed modes the laws are equations. Their derivative needs how J·v⁺ and Jᵀ·λ change with q: through the motion axes
S of the joints (∂S_j/∂q_k = S_k × S_j for a joint k before j), and through the motion of the contact point and frame.
Contacts that break take no part.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from tangens.collision.features import UNKNOWN, contact_motion, cross, find_features
from tangens.contact.cones import BREAKING, CONTACT, DRY, SLIDING
from tangens.contact.ncp_step import CORRECTION, CORRECTION_SPEED, DAMPING, TIMESTEP

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]


@numba.njit(cache=True)
def differentiate(
    dofs: Records, bodies: Records, geoms: Records, options: Array, cdof: Array, com: Array, xpos: Array, xmat: Array,
    position: Array, frame: Array, gap: Array, geom: NDArray[np.int32], v: Array, v_next: Array,
    impulse: Array, sigma: Array, mode: IntArray, kind: IntArray, bound: Array, value: Array, J: Array, G: Array,
    by_state: Array, by_u: Array,
) -> tuple[int, Array, IntArray]:  # fmt: skip
    """Turn ∂v⁺ at fixed generalised forces into ∂v⁺ of the step, in place.

    Returns −1 (or the first contact that moves in an unknown way), ∂(impulses that act)/∂(q, v, tau, u), their rows.
    """
    n, nv = J.shape
    nu, nc = by_u.shape[2], position.shape[0]
    h = options[TIMESTEP]
    v_tau = by_state[2, 1]

    active = _active_rows(kind, mode, nc)
    m = active.shape[0]
    by_force, by_velocity, approach_q = np.zeros((nv, nv)), np.zeros((n, nv)), np.zeros((n, nv))
    feature, core = np.zeros(2, dtype=np.int64), np.zeros((2, 7))
    for c in range(nc):
        if mode[c] == BREAKING:
            continue
        find_features(geoms, geom[c], xpos, xmat, position[c], frame[c], gap[c], feature, core)
        if feature[0] == UNKNOWN:
            return c, np.zeros((0, 0)), active
        one, two = geoms[geom[c, 0]], geoms[geom[c, 1]]
        rows = slice(3 * c, 3 * c + 3)
        _contact_terms(
            dofs, bodies, one.body, two.body, position[c], frame[c], gap[c], feature, core, impulse[rows], cdof, com,
            v_next, by_force, by_velocity[rows],
        )  # fmt: skip
        restitution = max(one.restitution, two.restitution)
        feedback = restitution - options[DAMPING] if gap[c] <= 0.0 else 0.0
        if feedback != 0.0:
            unused = np.zeros((nv, nv))
            _contact_terms(
                dofs, bodies, one.body, two.body, position[c], frame[c], gap[c], feature, core, impulse[rows], cdof,
                com, v, unused, approach_q[rows],
            )  # fmt: skip

    # At fixed impulses, their lever arms still move with q.
    if m:
        by_state[0, 1] += (v_tau @ by_force) / h
    right = np.empty((m, 3 * nv + nu))
    for r in range(m):
        row = active[r]
        for k in range(nv):
            t0, t1, t2 = by_velocity[row, k], 0.0, 0.0
            for i in range(nv):
                x = J[row, i]
                if x != 0.0:
                    t0 += x * by_state[0, 1, i, k]
                    t1 += x * by_state[1, 1, i, k]
                    t2 += x * v_tau[i, k]
            right[r, k], right[r, nv + k], right[r, 2 * nv + k] = t0, t1, t2
        for k in range(nu):
            total = 0.0
            for i in range(nv):
                total += J[row, i] * by_u[1, i, k]
            right[r, 3 * nv + k] = total
        _add_target(geoms, geom, options, row, nc, kind, value, v, J, approach_q, right[r])

    A = np.zeros((m, m))
    _laws(active, kind, mode, bound, impulse, sigma, G, nc, A, right)
    d_impulse = _solve(A, right)
    response = np.zeros((nv, m))  # of v⁺ to an impulse on each row
    for i in range(nv):
        for r in range(m):
            for k in range(nv):
                response[i, r] += v_tau[i, k] * J[active[r], k]
            response[i, r] /= h
    for i in range(nv):
        for r in range(m):
            x = response[i, r]
            for k in range(nv):
                by_state[0, 1, i, k] -= x * d_impulse[r, k]
                by_state[1, 1, i, k] -= x * d_impulse[r, nv + k]
                by_state[2, 1, i, k] -= x * d_impulse[r, 2 * nv + k]
            for k in range(nu):
                by_u[1, i, k] -= x * d_impulse[r, 3 * nv + k]
    return -1, -d_impulse, active


@numba.njit(cache=True)
def _active_rows(kind: IntArray, mode: IntArray, nc: int) -> IntArray:
    out = np.empty(3 * nc + kind.shape[0], dtype=np.int64)
    m = 0
    for b in range(kind.shape[0]):
        if mode[b] == BREAKING or (kind[b] == DRY and mode[b] == SLIDING):
            continue
        first, width = (3 * b, 3) if kind[b] == CONTACT else (2 * nc + b, 1)
        for i in range(width):
            out[m] = first + i
            m += 1
    return out[:m]


@numba.njit(cache=True)
def _add_target(
    geoms: Records, geom: NDArray[np.int32], options: Array, row: int, nc: int, kind: IntArray, value: Array, v: Array,
    J: Array, approach_q: Array, right: Array,
) -> None:  # fmt: skip
    """How the velocity that a row must reach changes with q and v: the gap moves as the row's own velocity."""
    nv = v.shape[0]
    block = row // 3 if row < 3 * nc else row - 2 * nc
    if kind[block] == DRY or (row < 3 * nc and row % 3 != 0):
        return
    h = options[TIMESTEP]
    rate = 1.0 if value[block] > 0.0 else options[CORRECTION]
    if -rate * value[block] > h * options[CORRECTION_SPEED]:
        rate = 0.0
    for k in range(nv):
        right[k] += rate / h * J[row, k]
    if kind[block] == CONTACT and value[block] <= 0.0:
        approach = 0.0
        for k in range(nv):
            approach += J[row, k] * v[k]
        restitution = max(geoms[geom[block, 0]].restitution, geoms[geom[block, 1]].restitution)
        feedback = (restitution if approach < 0.0 else 0.0) - options[DAMPING]
        for k in range(nv):
            right[k] += feedback * approach_q[row, k]
            right[nv + k] += feedback * J[row, k]


@numba.njit(cache=True)
def _laws(
    active: IntArray, kind: IntArray, mode: IntArray, bound: Array, impulse: Array, sigma: Array, G: Array, nc: int,
    A: Array, right: Array,
) -> None:  # fmt: skip
    """The linearised laws of the modes: A·dλ = −(right side), which is turned into B·right on the way.

    Sticking: dσ = 0. Sliding (paper 2, Eq. 16): dσ_N = 0 and
    dλ_T + μ·u·dλ_N + (μ·λ_N/|σ_T|)·(1 − u·uᵀ)·dσ_T = 0 with u = σ_T/|σ_T|.
    """
    m, columns = right.shape
    for r in range(m):
        for s in range(m):
            A[r, s] = G[active[r], active[s]]
    for r in range(m):
        row = active[r]
        if row >= 3 * nc or row % 3 != 1 or mode[row // 3] != SLIDING:
            continue
        friction, normal = bound[row // 3], impulse[row - 1]
        speed = math.sqrt(sigma[row] ** 2 + sigma[row + 1] ** 2)
        ux, uy = sigma[row] / speed, sigma[row + 1] / speed
        turn = friction * normal / speed
        xx, xy, yy = turn * (1.0 - ux * ux), -turn * ux * uy, turn * (1.0 - uy * uy)
        for s in range(m):
            a, b = A[r, s], A[r + 1, s]
            A[r, s], A[r + 1, s] = xx * a + xy * b, xy * a + yy * b
        for k in range(columns):
            a, b = right[r, k], right[r + 1, k]
            right[r, k], right[r + 1, k] = xx * a + xy * b, xy * a + yy * b
        A[r, r] += 1.0
        A[r + 1, r + 1] += 1.0
        A[r, r - 1] += friction * ux
        A[r + 1, r - 1] += friction * uy


@numba.njit(cache=True)
def _solve(A: Array, right: Array) -> Array:
    """A⁻¹·right; the shortest least-squares answer where contacts are redundant."""
    n, columns = right.shape
    row, column = np.empty(n), np.empty(n)  # rows are velocities or impulses: balance before judging the rank
    for i in range(n):
        largest = 0.0
        for j in range(n):
            largest = max(largest, abs(A[i, j]))
        row[i] = 1.0 / largest if largest > 0.0 else 1.0  # a row may be empty: planar scenes have no third direction
    for j in range(n):
        largest = 0.0
        for i in range(n):
            largest = max(largest, row[i] * abs(A[i, j]))
        column[j] = 1.0 / largest if largest > 0.0 else 1.0
    for i in range(n):
        for j in range(n):
            A[i, j] *= row[i] * column[j]
        for k in range(columns):
            right[i, k] *= row[i]
    LU, x = A.copy(), right.copy()
    if not _eliminate(LU, x):
        x[:] = np.linalg.lstsq(A, right, 1e-10)[0]
    for j in range(n):
        for k in range(columns):
            x[j, k] *= column[j]
    return x


@numba.njit(cache=True)
def _eliminate(A: Array, b: Array) -> bool:
    """Gaussian elimination with row pivoting on balanced equations; False when a pivot nearly vanishes."""
    n, columns = b.shape
    for k in range(n):
        pivot = k
        for i in range(k + 1, n):
            if abs(A[i, k]) > abs(A[pivot, k]):
                pivot = i
        if abs(A[pivot, k]) < 1e-9:
            return False
        if pivot != k:
            for j in range(n):
                A[k, j], A[pivot, j] = A[pivot, j], A[k, j]
            for j in range(columns):
                b[k, j], b[pivot, j] = b[pivot, j], b[k, j]
        inverse = 1.0 / A[k, k]
        for i in range(k + 1, n):
            ratio = A[i, k] * inverse
            if ratio != 0.0:
                for j in range(k + 1, n):
                    A[i, j] -= ratio * A[k, j]
                for j in range(columns):
                    b[i, j] -= ratio * b[k, j]
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            ratio = A[i, j]
            if ratio != 0.0:
                for k in range(columns):
                    b[i, k] -= ratio * b[j, k]
        inverse = 1.0 / A[i, i]
        for k in range(columns):
            b[i, k] *= inverse
    return True


@numba.njit(cache=True)
def _contact_terms(
    dofs: Records, bodies: Records, body0: int, body1: int, p: Array, frame: Array, gap: float, feature: IntArray,
    core: Array, impulse: Array, cdof: Array, com: Array, velocity: Array, by_force: Array, by_velocity: Array,
) -> None:  # fmt: skip
    """Add ∂(Jᵀλ)/∂q of one contact to by_force (nv, nv) and ∂(J·velocity)/∂q to by_velocity (3, nv)."""
    nv = velocity.shape[0]
    scratch, dp, turn, f, c1, c2 = np.empty((4, 3)), np.empty(3), np.empty(3), np.zeros(3), np.empty(3), np.empty(3)
    change, pull, rest, zero = np.empty(3), np.empty(3), np.zeros(3), np.zeros(3)
    chain, length = np.empty((2, nv), dtype=np.int64), np.zeros(2, dtype=np.int64)
    w, v, spin = np.empty((2, nv, 3)), np.empty((2, nv, 3)), np.zeros((2, 3))  # motion axes at the contact point
    for i in range(3):
        for k in range(3):
            f[i] += frame[3 * k + i] * impulse[k]
    for side in range(2):
        body = bodies[body0 if side == 0 else body1]
        j, r = body.last_dof, body.root
        sign = 2.0 * side - 1.0
        for i in range(3):
            c2[i] = p[i] - com[r, i]
        while j >= 0:
            chain[side, length[side]] = j
            length[side] += 1
            for i in range(3):
                w[side, j, i] = cdof[j, i]
            cross(w[side, j], c2, c1)
            for i in range(3):
                v[side, j, i] = cdof[j, 3 + i] + c1[i]
                spin[side, i] += w[side, j, i] * velocity[j]
                rest[i] += sign * v[side, j, i] * velocity[j]
            j = dofs[j].parent
    for own in range(2):
        for a in range(length[own]):
            k = chain[own, a]
            shared = False
            for b in range(length[1 - own]):
                shared = shared or chain[1 - own, b] == k
            if shared and own == 1:
                continue  # seen from the other side already
            moves0, moves1 = own == 0 or shared, own == 1 or shared
            contact_motion(
                feature, core, frame, p, gap,
                w[0, k] if moves0 else zero, v[0, k] if moves0 else zero,
                w[1, k] if moves1 else zero, v[1, k] if moves1 else zero, scratch, dp, turn,
            )  # fmt: skip
            cross(turn, f, pull)  # the force turns with the frame
            cross(turn, rest, c1)
            for i in range(3):
                change[i] = -c1[i]  # and the relative velocity is seen from it
            for side in range(2):
                moved = moves0 if side == 0 else moves1
                sign = 2.0 * side - 1.0
                cross(spin[side], dp, c1)
                for i in range(3):
                    change[i] += sign * c1[i]
                for b in range(length[side]):
                    j = chain[side, b]
                    cross(w[side, j], dp, c1)
                    total = 0.0
                    for i in range(3):
                        total += c1[i] * f[i] + v[side, j, i] * pull[i]
                    if moved and (k < j or dofs[k].group == dofs[j].group):
                        cross(w[side, k], v[side, j], c1)
                        cross(v[side, k], w[side, j], c2)
                        for i in range(3):
                            total += (c1[i] + c2[i]) * f[i]
                            change[i] += sign * (c1[i] + c2[i]) * velocity[j]
                    by_force[j, k] += sign * total
            for r in range(3):
                for i in range(3):
                    by_velocity[r, k] += frame[3 * r + i] * change[i]
