"""One time step with contact, compiled: rows, free velocity, Delassus matrix, solve, new velocity.

Contacts come first, three rows each; then the single rows: joint limits and dry friction.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from tangens.collision.rows import point_rows
from tangens.contact.cones import CONTACT, DRY, LIMIT
from tangens.contact.solvers import solve as solve_cones
from tangens.dynamics import tree_solve

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

# Entries of `options`.
TIMESTEP, CORRECTION, CORRECTION_SPEED, DAMPING, TOLERANCE, ITERATIONS = range(6)
# A joint limit is looked at when two steps at the present speed, or this much more, would reach it.
_NEAR_LIMIT = 1e-2


@numba.njit(cache=True)
def step(
    dofs: Records, bodies: Records, geoms: Records, column: NDArray[np.int32], options: Array,
    M: Array, cdof: Array, com: Array, q: Array, v: Array, passive: Array, actuation: Array, bias: Array, tau: Array,
    implicit_h: float, position: Array, frame: Array, gap: Array, geom: NDArray[np.int32], friction: Array,
    old_geom: NDArray[np.int32], old_impulse: Array,
) -> tuple[Array, Array, Array, Array, IntArray, IntArray, Array, Array, Array, Array, int, float]:  # fmt: skip
    """v⁺, contact forces, impulses, σ, modes, kinds, bounds, gaps of the blocks, J, G, iterations, residual."""
    nv, nc = v.shape[0], position.shape[0]
    h = options[TIMESTEP]
    row_dof, row_kind, row_sign, row_value = _single_rows(dofs, q, v, h)
    ns = row_dof.shape[0]
    n, nb = 3 * nc + ns, nc + ns

    # Free velocity: (M + h·D)(v_f − v) = h·(forces)
    extra, L, d, v_next = np.empty(nv), np.empty_like(M), np.empty(nv), np.empty(nv)
    for i in range(nv):
        damper, speed = dofs[i].damper, abs(v[i])
        extra[i] = implicit_h * (damper[0] + 2.0 * damper[1] * speed + 3.0 * damper[2] * speed * speed)
        v_next[i] = h * (passive[i] + actuation[i] - bias[i] + tau[i])
    tree_solve.factor(dofs, column, M, extra, L, d)
    tree_solve.solve(dofs, column, L, d, v_next)
    for i in range(nv):
        v_next[i] += v[i]

    J = np.zeros((n, nv))
    kind, bound, value = np.empty(nb, dtype=np.int64), np.zeros(nb), np.empty(nb)
    start, g = np.empty(nb + 1, dtype=np.int64), np.zeros(n)
    for c in range(nc):
        one, two = geoms[geom[c, 0]], geoms[geom[c, 1]]
        rows = J[3 * c : 3 * c + 3]
        point_rows(dofs, bodies, one.body, two.body, position[c], frame[c], cdof, com, rows)
        kind[c], start[c], bound[c], value[c] = CONTACT, 3 * c, friction[c, 0], gap[c]
        approach = 0.0
        for i in range(nv):
            approach += rows[0, i] * v[i]
        g[3 * c] = _normal_target(gap[c], approach, max(one.restitution, two.restitution), options)
    for r in range(ns):
        b, a = nc + r, 3 * nc + r
        J[a, row_dof[r]] = row_sign[r]
        kind[b], start[b], value[b] = row_kind[r], a, row_value[r]
        if row_kind[r] == LIMIT:
            g[a] = _normal_target(row_value[r], 0.0, 0.0, options)
        else:
            bound[b] = h * row_value[r]
    start[nb] = n

    G = _delassus(dofs, column, L, d, J)
    for r in range(n):
        for i in range(nv):
            g[r] += J[r, i] * v_next[i]
    impulse, sigma, mode = _guess(geom, old_geom, old_impulse, n), np.empty(n), np.zeros(nb, dtype=np.int64)
    iterations, error = 0, 0.0
    force = np.zeros((nc, 3))
    if n > 0:
        iterations, error = solve_cones(
            G, g, kind, start, bound, impulse, sigma, mode, int(options[ITERATIONS]), options[TOLERANCE]
        )
        push = np.zeros(nv)
        for r in range(n):
            if impulse[r] != 0.0:
                for i in range(nv):
                    push[i] += J[r, i] * impulse[r]
        tree_solve.solve(dofs, column, L, d, push)
        for i in range(nv):
            v_next[i] += push[i]
        for c in range(nc):
            for k in range(3):
                for i in range(3):
                    force[c, i] += frame[c, 3 * k + i] * impulse[3 * c + k] / h
    return v_next, force, impulse, sigma, mode, kind, bound, value, J, G, iterations, error


@numba.njit(cache=True)
def _single_rows(dofs: Records, q: Array, v: Array, h: float) -> tuple[IntArray, IntArray, Array, Array]:
    nv = v.shape[0]
    dof, kind = np.empty(3 * nv, dtype=np.int64), np.empty(3 * nv, dtype=np.int64)
    sign, value = np.empty(3 * nv), np.empty(3 * nv)
    n = 0
    for i in range(nv):
        joint = dofs[i]
        if joint.limited:
            x = q[joint.coordinate]
            reach = 2.0 * h * abs(v[i]) + _NEAR_LIMIT
            for side in range(2):
                left = x - joint.low if side == 0 else joint.high - x
                if left < reach:
                    dof[n], kind[n], sign[n], value[n] = i, LIMIT, 1.0 - 2.0 * side, left
                    n += 1
        if joint.dry > 0.0:
            dof[n], kind[n], sign[n], value[n] = i, DRY, 1.0, joint.dry
            n += 1
    return dof[:n], kind[:n], sign[:n], value[:n]


@numba.njit(cache=True)
def _normal_target(gap: float, approach: float, restitution: float, options: Array) -> float:
    """What is added to the normal velocity before it must not be negative (paper 2, Eq. 39).

    An open gap may close within the step; an overlap is undone by a share of it. A body that bounces does so
    when it has arrived: it is not slowed down before.
    """
    h = options[TIMESTEP]
    if gap > 0.0:
        return gap / h if restitution == 0.0 else 1e6
    undo = max(options[CORRECTION] * gap / h, -options[CORRECTION_SPEED])
    return undo - options[DAMPING] * approach + restitution * min(approach, 0.0)


@numba.njit(cache=True)
def _delassus(dofs: Records, column: NDArray[np.int32], L: Array, d: Array, J: Array) -> Array:
    """G = J·(M + h·D)⁻¹·Jᵀ by half solves."""
    n, nv = J.shape
    Y = J.copy()
    for r in range(n):
        tree_solve.half_solve(dofs, column, L, Y[r])
        for i in range(nv):
            Y[r, i] *= np.sqrt(d[i])
    G = np.empty((n, n))
    for r in range(n):
        for s in range(r + 1):
            total = 0.0
            for i in range(nv):
                total += Y[r, i] * Y[s, i]
            G[r, s] = total
            G[s, r] = total
    return G


@numba.njit(cache=True)
def _guess(geom: NDArray[np.int32], old_geom: NDArray[np.int32], old_impulse: Array, n: int) -> Array:
    """Impulses of the step before, for contacts between the same geoms in the same order."""
    out = np.zeros(n)
    j = 0
    for c in range(geom.shape[0]):
        k = j
        while k < old_geom.shape[0]:
            if old_geom[k, 0] == geom[c, 0] and old_geom[k, 1] == geom[c, 1]:
                for i in range(3):
                    out[3 * c + i] = old_impulse[3 * k + i]
                j = k + 1
                break
            k += 1
    return out
