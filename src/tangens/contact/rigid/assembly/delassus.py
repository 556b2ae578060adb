"""Velocities and impulses: the free velocity, the Delassus matrix, and what impulses make of the velocity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.memory.views import Kinematics, Model, Workspace
from tangens.contact.rigid.problem.contact_problem import DRY, EQUALITY
from tangens.dynamics import tree_solve
from tangens.dynamics.implicit_damping import LineDamping, evaluate_lines, has_implicit_lines, set_line_damping
from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]

_HELD = 1e-16  # response of a row that only rounding moves, relative to the largest: the square of a velocity
_WORTH_BLAS = 1000  # numbers in the rows


@subroutine
def set_free_velocity(model: Model, kin: Kinematics, v_free: Array, L: Array, d: Array) -> None:
    """(M + h·D)(v_free − v) = h·(forces), and the factors L and d of M + h·D."""
    dofs, v, h = model.dofs, kin.v, model.h
    passive, actuation, bias, tau = kin.passive, kin.actuation, kin.bias, kin.tau
    nv = v.shape[0]
    extra = np.empty(nv)
    for i in range(nv):
        damper, speed = dofs[i].damper, abs(v[i])
        extra[i] = model.implicit_h * (damper[0] + 2.0 * damper[1] * speed + 3.0 * damper[2] * speed * speed)
        v_free[i] = h * (passive[i] + actuation[i] - bias[i] + tau[i])
    M = _with_implicit_lines(model, kin) if has_implicit_lines(model.elements) else kin.M
    tree_solve.factor(dofs, model.column, M, extra, L, d)
    tree_solve.solve(dofs, model.column, L, d, v_free)
    for i in range(nv):
        v_free[i] += v[i]


@subroutine
def _with_implicit_lines(model: Model, kin: Kinematics) -> Array:
    """M with h·D of tendons and actuators, where the scene asks for `implicitfast`."""
    dofs, column, nv, M = model.dofs, model.column, kin.v.shape[0], kin.M.copy()
    evaluate_lines(model.elements, kin.q, kin.v, kin.u, kin.tau, kin.actuation)
    lines = LineDamping(np.empty((nv, nv)), np.empty((nv, nv)), np.empty((nv, 0)))
    set_line_damping(dofs, column, model.elements, kin.v, lines)
    for k in range(nv):
        for e in range(dofs[k].address, dofs[k].address + dofs[k].count):
            M[e] += model.implicit_h * lines.D[k, column[e]]
    return M


@subroutine
def set_delassus(model: Model, w: Workspace) -> None:
    """G = J·(M + h·D)⁻¹·Jᵀ by half solves, and g += J·v_free."""
    n, nv = w.counts[1], w.v_free.shape[0]
    J, half, g, v_free, G = w.J, w.half, w.g, w.v_free, w.G[: n * n].reshape(n, n)
    columns = np.empty((nv, n))  # half, transposed: loops over all rows at once are vectorised
    for r in range(n):
        total = 0.0
        for i in range(nv):
            columns[i, r] = J[r, i]
            total += J[r, i] * v_free[i]
        g[r] += total
    tree_solve.half_solve_columns(model.dofs, model.column, w.L, w.d, columns)
    for r in range(n):
        for i in range(nv):
            half[r, i] = columns[i, r]
    if n * nv > _WORTH_BLAS:
        np.dot(half[:n], columns, G)
        return
    for r in range(n):
        for s in range(r + 1):
            G[r, s] = 0.0
        for i in range(nv):
            x = half[r, i]
            if x != 0.0:
                for s in range(r + 1):
                    G[r, s] += x * columns[i, s]
        for s in range(r):
            G[s, r] = G[r, s]


@inline
def least_response(w: Workspace) -> float:
    """What rows respond with that only rounding moves."""
    n, largest = w.counts[1], 0.0
    for i in range(n):
        largest = max(largest, w.G[i * n + i])
    return _HELD * largest


@inline
def is_held(w: Workspace, b: int, least: float) -> bool:
    """Whether nothing but rounding moves a contact along its normal, or what a limit measures."""
    block = w.blocks[b]
    return block.kind not in (EQUALITY, DRY) and w.G[block.start * (w.counts[1] + 1)] <= least


@subroutine
def release_held(w: Workspace) -> float:
    """What nothing can move bears no load, and so has no friction: any load would do, and the least is none.

    It opens, as fast as anything moves here. Returns the largest velocity that it asked for.
    """
    most, fastest, least = 0.0, 0.0, least_response(w)
    for i in range(w.counts[1]):
        fastest = max(fastest, abs(w.g[i]))
    for b in range(w.counts[0]):
        if is_held(w, b, least):
            block = w.blocks[b]
            most, w.g[block.start] = max(most, -w.g[block.start]), fastest
            w.impulse[block.start : block.start + block.width] = 0.0
    return most


@subroutine
def apply_impulses(model: Model, w: Workspace) -> None:
    """v⁺ = v_free + (M + h·D)⁻¹·Jᵀ·λ."""
    n, nv, J, v_next = w.counts[1], w.v_free.shape[0], w.J, w.v_next
    v_next[:] = 0.0
    for r in range(n):
        x = w.impulse[r]
        if x != 0.0:
            for i in range(nv):
                v_next[i] += J[r, i] * x
    tree_solve.solve(model.dofs, model.column, w.L, w.d, v_next)
    for i in range(nv):
        v_next[i] += w.v_free[i]
