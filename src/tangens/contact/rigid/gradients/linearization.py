"""The derivative of a rigid contact step, compiled (paper 2, Sec. 3 and Appendices A to D).

With a = (v⁺ − v)/h, the step obeys   (M + h·D)(v⁺ − v) = h·(τ − c) + Jᵀ·λ   and, at fixed modes, one equation for each
row of the constraints that push. Differentiated by any input θ:

    (M + h·D)·dv⁺ = R_θ + Jᵀ·dλ                A·dλ = −B·(Y ᵀR_θ + K_θ) − c_θ          Y = (M + h·D)⁻¹·Jᵀ

R_θ: how forces change with everything else held. K_θ: how the velocities that rows measure, with their targets,
change at fixed v⁺. c_θ: how the laws themselves change (friction). A = B·G + the sliding laws (Eqs. 10 and 16 of the
paper). So dv⁺ = P·R_θ − T·(B·K_θ + c_θ) with T = Y·A⁻¹ and P = (M + h·D)⁻¹ − T·B·Yᵀ: two small matrices serve every
input, and their transposes the reverse mode. Contacts that break take no part.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.assembly.constraint_row_derivatives import (
    LoadedRows,
    RowDerivatives,
    add_row_derivatives,
    pushes,
    tree_motion,
)
from tangens.contact.rigid.linalg.generalized_inverse import invert
from tangens.contact.rigid.linalg.products import lower_squared, multiply, times_lower_transposed
from tangens.contact.rigid.memory.address_table import ELEMENTS, take
from tangens.contact.rigid.memory.tape import DURATION, open_tape
from tangens.contact.rigid.memory.views import Kinematics, Model, Workspace
from tangens.contact.rigid.problem.contact_problem import BOX, CONTACT, DRY, SLIDING
from tangens.dynamics import tree_solve
from tangens.dynamics.force_elements import ACTUATOR, unpack
from tangens.dynamics.forces import evaluate_forces
from tangens.dynamics.implicit_damping import LineDamping, has_implicit_lines, set_line_damping
from tangens.dynamics.kinematic_tree import propagate_velocities
from tangens.dynamics.rnea_derivatives import add_rnea_derivatives
from tangens.dynamics.tangent import integrate_rows, pull_back_integration
from tangens.kernels import boolean, fixed_floats, floats, inline, integer, ints, kernel, named, subroutine

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]


_GIVES_WAY = 3e-4  # weight of friction's equations: squared, the share of a contradiction that others feel


class Linearization(NamedTuple):
    """A step's derivative in factors; rows are those of the constraints that push."""

    unknown: int  # the first contact whose motion is not known, or −1
    feeds_back: bool  # whether targets depend on v, so that K has a part by v
    ambiguous: bool  # whether impulses that the laws leave open would change v⁺
    v_next: Array
    R: Array  # by q and v, (2, nv, nv)
    R_u: Array  # (nv, nu)
    K: Array  # by q and v, (2, m, nv)
    W: Array  # W·Wᵀ = (M + h·D)⁻¹
    Y: Array  # transposed, (m, nv)
    A: Array
    A_inverse: Array
    slide: Array  # B's entries: xx, xy, yy and 1 for the first tangent of a sliding contact, (m, 4)
    active: IntArray  # rows of the contact problem
    turn: Array  # how contact frames turn with q, (nc, 3, nv), if asked for


_LINEARIZATION = named(
    Linearization, integer, boolean, boolean, floats(1), floats(3), floats(2), floats(3), floats(2), floats(2),
    floats(2), floats(2), floats(2), ints(1), floats(3),
)  # fmt: skip


@kernel(ints(2), floats(1), floats(2), floats(2), floats(4), floats(3), nogil=True)
def differentiate(
    table: IntArray, tape: Array, response: Array, gravcomp: Array, by_state: Array, by_u: Array
) -> tuple[int, bool]:
    """`linearize` and `forward` in one call: a contact that moves in an unknown way or −1, and `ambiguous`."""
    lin = linearize(table, tape, response, gravcomp, by_u.shape[2] > 0, False)
    if lin.unknown >= 0:
        return lin.unknown, False
    forward(table, tape, lin, by_state, by_u)
    return -1, lin.ambiguous


@kernel(ints(2), floats(1), floats(2), floats(2), boolean, boolean, nogil=True)
def linearize(
    table: IntArray, tape: Array, response: Array, gravcomp: Array, with_u: bool, with_turn: bool
) -> Linearization:
    """The factors at the step on the tape.

    `response` says how contacts move: (7, 6) each, flat; empty or NaN for the exact motion. `gravcomp` has the force of
    gravity compensation and, below it, its slope by q, (1 + nv, nv); empty without it.
    """
    model, kin, w = open_tape(table, tape)
    nv, nc = kin.v.shape[0], w.contacts.shape[0]
    blocks = w.blocks
    active = _active_rows(blocks)
    m = active.shape[0]
    # Few allocations: each costs as much as a small product.
    zeros = np.zeros(2 * nv * nv + 2 * m * nv + 6 * nv + 4 * m)
    R, at = zeros[: 2 * nv * nv].reshape(2, nv, nv), 2 * nv * nv
    K, at = zeros[at : at + 2 * m * nv].reshape(2, m, nv), at + 2 * m * nv
    outside, slide = zeros[at : at + 6 * nv].reshape(nv, 6), zeros[at + 6 * nv :].reshape(m, 4)
    turn, R_u = np.zeros((nc if with_turn else 0, 3, nv)), np.zeros((nv, kin.u.shape[0] if with_u else 0))
    unknown, feeds_back = -1, False
    if m:
        tree = tree_motion(model.dofs, model.bodies, kin.cdof, kin.v, w.v_next)
        rows = LoadedRows(w.contacts, blocks, w.impulse, w.J, w.rate, response)
        unknown, feeds_back = add_row_derivatives(model, kin, tree, rows, RowDerivatives(outside, R[0], K, turn))
    _add_smooth_forces(model, kin, w, gravcomp, outside, R, R_u)
    W, Y = np.empty((nv, nv)), np.empty((m, nv))
    tree_solve.square_root(model.dofs, model.column, w.L, w.d, W)
    half = np.empty((m, nv))
    for r in range(m):
        for i in range(nv):
            half[r, i] = w.half[active[r], i]
    times_lower_transposed(half, W, Y)
    A = _laws(active, blocks, w.impulse, w.sigma, w.G, w.counts[1], slide)
    A_inverse, rank = invert(A.copy(), _weights(blocks, m))
    ambiguous = rank < m and _is_ambiguous(A, A_inverse, Y)
    return Linearization(
        unknown, feeds_back, ambiguous, w.v_next.copy(), R, R_u, K, W, Y, A, A_inverse, slide, active, turn
    )  # fmt: skip


@subroutine
def _add_smooth_forces(
    model: Model, kin: Kinematics, w: Workspace, gravcomp: Array, outside: Array, R: Array, R_u: Array
) -> None:
    """What everything but the motion of contacts adds to R: inertia, joint forces, gravity compensation."""
    nv, h = kin.v.shape[0], model.h
    room = np.zeros(15 * nv)
    a, force, compensation = room[:nv], room[nv : 2 * nv], room[2 * nv : 3 * nv]
    before, after = room[3 * nv : 9 * nv].reshape(nv, 6), room[9 * nv : 15 * nv].reshape(nv, 6)
    for i in range(nv):
        a[i] = (w.v_next[i] - kin.v[i]) / h
        if gravcomp.shape[0]:
            compensation[i] = gravcomp[0, i]
            for j in range(nv):
                R[0, i, j] += h * gravcomp[1 + i, j]
    evaluate_forces(model.elements, force, kin.q, kin.v, kin.u, kin.tau, compensation)
    _add_joint_forces(model, kin, a, R, R_u)
    propagate_velocities(model.dofs, kin.cdof, kin.v, before, after)
    add_rnea_derivatives(
        model.dofs, model.bodies, kin.cdof, kin.cinert, model.gravity, before, after, kin.v, a, outside, -h, R[0], R[1]
    )


@kernel(ints(2), floats(1), _LINEARIZATION, floats(4), floats(3))
def forward(table: IntArray, tape: Array, lin: Linearization, by_state: Array, by_u: Array) -> tuple[Array, Array]:
    """Fill ∂(q⁺, v⁺)/∂(q, v, tau), shape (3, 2, nv, nv), and /∂u; returns P and T."""
    nv, m, h = lin.W.shape[0], lin.Y.shape[0], tape[DURATION]
    room = np.empty(2 * nv * nv + 2 * nv * m)
    P, product = room[: nv * nv].reshape(nv, nv), room[nv * nv : 2 * nv * nv].reshape(nv, nv)
    at = 2 * nv * nv + nv * m
    T, TB = room[2 * nv * nv : at].reshape(nv, m), room[at:].reshape(nv, m)
    lower_squared(lin.W, P)
    if m:
        multiply(lin.Y.T, lin.A_inverse, T)
        TB[:] = T
        apply_B(lin.slide, TB.T)
        multiply(TB, lin.Y, product)
        P -= product
    for x in range(2):
        multiply(P, lin.R[x], by_state[x, 1])
        if m and (x == 0 or lin.feeds_back):
            multiply(TB, lin.K[x], product)
            by_state[x, 1] -= product
    for i in range(nv):
        for j in range(nv):
            by_state[2, 1, i, j] = h * P[i, j]
    if by_u.shape[2]:
        multiply(P, lin.R_u, by_u[1])
    integrate_rows(unpack(take(table, ELEMENTS))[1], lin.v_next, h, by_state, by_u)
    return P, T


@kernel(ints(2), floats(1), _LINEARIZATION, fixed_floats(1), fixed_floats(1), floats(1))
def reverse(
    table: IntArray, tape: Array, lin: Linearization, dq: Array, dv: Array, d_impulse: Array
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """From ∂L/∂(q⁺, v⁺, λ) to ∂L/∂(q, v, tau, u), and the two vectors that parameters need: z = ∂L/∂R, s = −∂L/∂c."""
    m, h = lin.Y.shape[0], tape[DURATION]
    y, by_q = dv.copy(), dq.copy()
    pull_back_integration(unpack(take(table, ELEMENTS))[1], lin.v_next, h, dq, y, by_q)
    z = lin.W @ (lin.W.T @ y)
    by_v = np.zeros(y.shape[0])
    s = np.zeros(m)
    if m:
        s[:] = lin.A_inverse.T @ (lin.Y @ y + d_impulse)
        Bs = s.copy()
        apply_B(lin.slide, Bs.reshape(m, 1))
        z -= Bs @ lin.Y
        by_q -= Bs @ lin.K[0]
        by_v -= Bs @ lin.K[1]
    by_q += z @ lin.R[0]
    by_v += z @ lin.R[1]
    return by_q, by_v, h * z, z @ lin.R_u, z, s


@subroutine
def _weights(blocks: Records, m: int) -> Array:
    """Of the equations: where they contradict each other to first order, friction gives way, and nothing else.

    A contact may stick on a body that has no other way to move than against it: then it slides with the first change.
    """
    weight, r = np.ones(m), 0
    for b in range(blocks.shape[0]):
        if not pushes(blocks[b]):
            continue
        kind = blocks[b].kind
        for i in range(r, r + blocks[b].width):
            if kind == DRY or (kind in (CONTACT, BOX) and i > r and blocks[b].mode != SLIDING):
                weight[i] = _GIVES_WAY
        r += blocks[b].width
    return weight


@subroutine
def _is_ambiguous(A: Array, A_inverse: Array, Y: Array) -> bool:
    """Whether some impulse in the null space of A moves anything: then v⁺ is one of many."""
    m = A.shape[0]
    null = np.eye(m) - A_inverse @ A
    return np.abs(null.T @ Y).max() > 1e-6 * np.abs(Y).max()


@inline(floats(2), floats(2))
def apply_B(slide: Array, X: Array) -> None:  # noqa: N802
    """X ← B·X, for X with a row for each equation; B is symmetric, so Xᵀ ← Xᵀ·B as well."""
    for r in range(slide.shape[0]):
        xx, xy, yy, slides = slide[r]
        if slides != 0.0:
            for i in range(X.shape[1]):
                a, b = X[r, i], X[r + 1, i]
                X[r, i], X[r + 1, i] = xx * a + xy * b, xy * a + yy * b


@inline
def _active_rows(blocks: Records) -> IntArray:
    total = 0
    for b in range(blocks.shape[0]):
        total += blocks[b].width
    out, m = np.empty(total, dtype=np.int64), 0
    for b in range(blocks.shape[0]):
        if not pushes(blocks[b]):
            continue
        for r in range(blocks[b].start, blocks[b].start + blocks[b].width):
            out[m] = r
            m += 1
    return out[:m]


@subroutine
def _laws(
    active: IntArray, blocks: Records, impulse: Array, sigma: Array, G: Array, n: int, slide: Array
) -> Array:  # fmt: skip
    """A, and B's entries.

    Sticking: dσ = 0. Sliding (paper 2, Eq. 16): dσ_N = 0 and
    dλ_T + μ·u·dλ_N + (μ·λ_N/|σ_T|)·(1 − u·uᵀ)·dσ_T = 0 with u = σ_T/|σ_T|.
    In a box (paper 5, Appendix A) a tangent at its bound obeys dλ_t = ±μ·dλ_N, the other one dσ_t = 0.
    """
    m = active.shape[0]
    A = np.empty((m, m))
    for r in range(m):
        for s in range(m):
            A[r, s] = G[active[r] * n + active[s]]
    r = 0
    for b in range(blocks.shape[0]):
        if not pushes(blocks[b]):
            continue
        if blocks[b].kind == BOX and blocks[b].mode == SLIDING:
            for i in range(2):
                side, t = blocks[b].side[i], r + 1 + i
                slide[r + 1, 2 * i] = 1.0 if side == 0.0 else 0.0
                if side != 0.0:
                    A[t] = 0.0
                    A[t, t], A[t, r] = 1.0, -side * blocks[b].bound
            slide[r + 1, 3] = 1.0
        elif blocks[b].kind == CONTACT and blocks[b].mode == SLIDING:
            row, t = blocks[b].start + 1, r + 1
            friction, normal = blocks[b].bound, impulse[row - 1]
            speed = math.sqrt(sigma[row] ** 2 + sigma[row + 1] ** 2)
            speed = max(speed, 1e-300)  # a contact without friction slides at any speed, none included
            ux, uy = sigma[row] / speed, sigma[row + 1] / speed
            pull = friction * normal / speed
            xx, xy, yy = pull * (1.0 - ux * ux), -pull * ux * uy, pull * (1.0 - uy * uy)
            slide[t, 0], slide[t, 1], slide[t, 2], slide[t, 3] = xx, xy, yy, 1.0
            for s in range(m):
                x, y = A[t, s], A[t + 1, s]
                A[t, s], A[t + 1, s] = xx * x + xy * y, xy * x + yy * y
            A[t, t] += 1.0
            A[t + 1, t + 1] += 1.0
            A[t, r] += friction * ux
            A[t + 1, r] += friction * uy
        else:
            for i in range(r, r + blocks[b].width):
                if A[i, i] <= 1e-12 * blocks[b].scale:  # nothing moves that way, as across the plane of a planar scene
                    A[i, i] = blocks[b].scale
        r += blocks[b].width
    return A


@subroutine
def _add_joint_forces(model: Model, kin: Kinematics, a: Array, R: Array, R_u: Array) -> None:
    """What springs, dampers, tendons and actuators add to R; and M + h·D, by which v itself enters."""
    dof, quat, line, row = unpack(model.elements)
    dofs, column, M, v, h, implicit_h = model.dofs, model.column, kin.M, kin.v, model.h, model.implicit_h
    for k in range(dofs.shape[0]):
        damper, speed = dofs[k].damper, abs(v[k])
        extra = implicit_h * (damper[0] + 2.0 * damper[1] * speed + 3.0 * damper[2] * speed * speed)
        for e in range(dofs[k].address, dofs[k].address + dofs[k].count):
            R[1, k, column[e]] = M[e]
            R[1, column[e], k] = M[e]
        R[1, k, k] += extra + h * (dof[k].dv + implicit_h * dof[k].dvv * a[k])
        R[0, k, k] += h * dof[k].dq
    for k in range(quat.shape[0]):
        if quat[k].spring[0] != 0.0 or quat[k].spring[1] != 0.0 or quat[k].spring[2] != 0.0:
            at = quat[k].v
            for i in range(3):
                for j in range(3):
                    R[0, at + i, at + j] += h * quat[k].dq[i, j]
    for e in range(line.shape[0]):
        pull = line[e]
        for i in range(pull.start, pull.stop):
            own = row[i].dof
            arm = h * row[i].moment * (dof[own].unclamped if pull.kind == ACTUATOR else 1.0)
            for j in range(pull.start, pull.stop):
                R[0, own, row[j].dof] += arm * pull.d_length * row[j].lever
                R[1, own, row[j].dof] += arm * pull.d_velocity * row[j].moment
            if pull.kind == ACTUATOR and R_u.shape[1]:
                R_u[own, pull.control] += arm * pull.d_control
    if has_implicit_lines(model.elements):
        nv = v.shape[0]
        lines = LineDamping(np.empty((nv, nv)), np.empty((nv, nv)), np.empty((nv, R_u.shape[1])))
        set_line_damping(dofs, column, model.elements, a, lines)
        R[1] += implicit_h * (lines.D - h * lines.by_v)
        R_u -= implicit_h * h * lines.by_u


def through_B(lin: Linearization, X: Array) -> Array:  # noqa: N802
    """B·X."""
    out = X.copy()
    apply_B(lin.slide, out)
    return out
