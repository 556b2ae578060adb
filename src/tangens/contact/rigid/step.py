"""One time step with contact, compiled: free velocity, rows, Delassus matrix, solve, new velocity.

Only constraints that could push take part: those that the free velocity would violate and those that pushed in the
step before. Whoever else the answer violates joins, and the problem is solved again; so the answer is that of the
whole problem, at the cost of its active part.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from tangens.collision.rows import GEOM
from tangens.contact.rigid.bundle import (
    ACTUATION,
    APPLIED,
    BIAS,
    CDOF,
    COM,
    CONSTRAINTS,
    GEOMS,
    MASS,
    MEMORY,
    OPTIONS,
    PASSIVE,
    QPOS,
    QUATS,
    QVEL,
    TREE,
    WARM,
    XPOS,
    XQUAT,
    take,
    take_rows,
)
from tangens.contact.rigid.constraints import BALL_LIMIT, LINE_LIMIT, unpack_constraints
from tangens.contact.rigid.detection import normal_velocity, read_contacts
from tangens.contact.rigid.laws import BREAKING, LIMIT, violations
from tangens.contact.rigid.methods import NOTHING
from tangens.contact.rigid.options import CORRECTION, EXPLORES, IMPLICIT, ITERATIONS, ROWS, SOLVER, TIMESTEP, TOLERANCE
from tangens.contact.rigid.rows import ball_angle, build_rows, limit_target, line_value, set_contact_target
from tangens.contact.rigid.solvers import solve as solve_contacts
from tangens.contact.rigid.workspace import carve
from tangens.dynamics import tree_solve
from tangens.dynamics.kinematic_tree import propagate_velocities, unpack_tree
from tangens.dynamics.rotations import quat_exp, quat_multiply

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

_IMPATIENCE = 300  # iterations after which overlaps are no longer insisted on
_FASTEST = 1e8  # a velocity beyond this comes of a motion that diverged [m/s, rad/s]
_ROUNDS = 20  # each lets at least one more constraint in, the last one all of them
_TOUCHING = 1e-6  # [m]
_WORTH_BLAS = 1000  # numbers in the rows


@numba.njit(cache=True, error_model="numpy")
def step(table: IntArray, nc: int, out: Array) -> tuple[int, float, float, float, float, int]:
    """Fill `out` (q⁺, v⁺, then positions, normals, gaps, forces, modes and geoms of the contacts) and the memory.

    `table` is a `Bundle`'s. Returns iterations, residual, and the violations of Signorini's law, the
    cones and maximum dissipation, and the method; the residual is infinite if v⁺ is beyond reason.
    """
    dofs, bodies, column = unpack_tree(take(table, TREE))
    geoms = take(table, GEOMS).view(GEOM)
    specs, entries = unpack_constraints(take(table, CONSTRAINTS))
    options, quats = take(table, OPTIONS), take_rows(table, QUATS, 3).view(np.int64)
    M, cdof, com = take(table, MASS), take_rows(table, CDOF, 6), take_rows(table, COM, 3)
    xpos, xquat = take_rows(table, XPOS, 3), take_rows(table, XQUAT, 4)
    q, v = take(table, QPOS), take(table, QVEL)
    nv, nq = v.shape[0], q.shape[0]
    w, warm = carve(take(table, MEMORY), nv, M.shape[0], nc, int(options[ROWS])), take(table, WARM)
    contacts, blocks, v_next = w.contacts, w.blocks, w.v_next
    _free_velocity(
        dofs, column, options, M, v, take(table, PASSIVE), take(table, ACTUATION), take(table, BIAS),
        take(table, APPLIED), w.v_free, w.L, w.d,
    )  # fmt: skip
    read_contacts(table, contacts)
    before, after, after_v = np.empty((nv, 6)), np.empty((nv, 6)), np.empty((nv, 6))
    if nc > 0:
        propagate_velocities(dofs, cdof, v, before, after_v)
        for c in range(nc):
            set_contact_target(bodies, geoms, com, after_v, options, contacts[c])
        propagate_velocities(dofs, cdof, w.v_free, before, after)
    for i in range(nv):
        v_next[i] = w.v_free[i]
    guess = np.zeros(3 * nc + 6 * specs.shape[0])
    limits = np.zeros(2 * specs.shape[0], dtype=np.int64)
    _recall(warm, specs, contacts, guess, limits, options[EXPLORES] != 0.0)
    iterations, error, method = 0, 0.0, NOTHING
    for attempt in range(2):
        patient = attempt == 1 or options[CORRECTION] == 0.0
        budget = int(options[ITERATIONS]) if patient else min(_IMPATIENCE, int(options[ITERATIONS]))
        _choose(bodies, geoms, specs, entries, com, after, q, v_next, options, contacts, limits, False)
        for turn in range(_ROUNDS):
            nb, n = build_rows(
                dofs, bodies, specs, entries, geoms, options, cdof, com, xpos, xquat, q, limits, guess, contacts,
                blocks, w.J, w.g, w.rate, w.impulse,
            )  # fmt: skip
            w.counts[0], w.counts[1] = nb, n
            if n == 0:
                break
            G = w.G[: n * n].reshape(n, n)
            _delassus(dofs, column, w.J[:n], w.L, w.d, w.v_free, w.half[:n], w.g, G)
            taken, error, how = solve_contacts(
                G, w.g[:n], blocks[:nb], w.impulse[:n], w.sigma[:n], budget, options[TOLERANCE], int(options[SOLVER])
            )  # fmt: skip
            iterations, method = iterations + taken, max(method, how)
            _apply(dofs, column, w.J[:n], w.impulse, w.L, w.d, w.v_free, v_next)
            _keep(blocks[:nb], nc, w.impulse, guess)
            if nc > 0:
                propagate_velocities(dofs, cdof, v_next, before, after)
            everyone = turn == _ROUNDS - 2
            if _choose(bodies, geoms, specs, entries, com, after, q, v_next, options, contacts, limits, everyone) == 0:
                break
        if error <= options[TOLERANCE] or patient:
            break
        # Overlaps that limits or other bodies keep from being undone have no solution: leave them as they are.
        options = options.copy()
        options[CORRECTION] = 0.0
        guess[:] = 0.0
        for c in range(nc):
            set_contact_target(bodies, geoms, com, after_v, options, contacts[c])
    _remember(specs, contacts, guess, warm)
    nb = int(w.counts[0])
    signorini, cone, dissipation = violations(blocks[:nb], w.impulse, w.sigma)
    _integrate(quats, q, v_next, options[TIMESTEP], out)
    for i in range(nv):
        out[nq + i] = v_next[i]
        if not abs(v_next[i]) <= _FASTEST:
            error = math.inf
    _report_contacts(options[TIMESTEP], contacts, blocks[:nb], w.impulse, out[nq + nv :])
    return iterations, error, signorini, cone, dissipation, method


@numba.njit(cache=True, error_model="numpy")
def _free_velocity(
    dofs: Records, column: IntArray, options: Array, M: Array, v: Array, passive: Array, actuation: Array, bias: Array,
    tau: Array, v_free: Array, L: Array, d: Array,
) -> None:  # fmt: skip
    """(M + h·D)(v_free − v) = h·(forces)."""
    nv, h = v.shape[0], options[TIMESTEP]
    extra = np.empty(nv)
    for i in range(nv):
        damper, speed = dofs[i].damper, abs(v[i])
        extra[i] = options[IMPLICIT] * (damper[0] + 2.0 * damper[1] * speed + 3.0 * damper[2] * speed * speed)
        v_free[i] = h * (passive[i] + actuation[i] - bias[i] + tau[i])
    tree_solve.factor(dofs, column, M, extra, L, d)
    tree_solve.solve(dofs, column, L, d, v_free)
    for i in range(nv):
        v_free[i] += v[i]


@numba.njit(cache=True, error_model="numpy")
def _choose(
    bodies: Records, geoms: Records, specs: Records, entries: Records, com: Array, after: Array, q: Array,
    v_next: Array, options: Array, contacts: Records, limits: IntArray, everyone: bool,
) -> int:  # fmt: skip
    """Let contacts and limits that v⁺ violates take part, or all of them; returns how many are new."""
    joined, slack = 0, math.inf if everyone else -options[TOLERANCE]
    for c in range(contacts.shape[0]):
        if not contacts[c].chosen and normal_velocity(bodies, geoms, com, after, contacts[c]) < slack:
            contacts[c].chosen, joined = 1, joined + 1
    for s in range(specs.shape[0]):
        spec = specs[s]
        if spec.shape == LINE_LIMIT:
            x = line_value(entries, spec.start, spec.middle, q, False)
            rate = line_value(entries, spec.start, spec.middle, v_next, True)
            for side in range(2):
                left, speed = (x - spec.low, rate) if side == 0 else (spec.high - x, -rate)
                if not limits[2 * s + side] and speed + limit_target(left, options)[0] < slack:
                    limits[2 * s + side], joined = 1, joined + 1
        elif spec.shape == BALL_LIMIT and not limits[2 * s]:
            axis, speed = np.empty(3), 0.0
            left = spec.high - ball_angle(q, spec.joint[0], axis)
            for i in range(3):
                speed -= axis[i] * v_next[spec.joint[1] + i]
            if speed + limit_target(left, options)[0] < slack:
                limits[2 * s], joined = 1, joined + 1
    return joined


@numba.njit(cache=True, error_model="numpy")
def _delassus(
    dofs: Records, column: IntArray, J: Array, L: Array, d: Array, v_free: Array, half: Array, g: Array, G: Array
) -> None:  # fmt: skip
    """G = J·(M + h·D)⁻¹·Jᵀ by half solves, and g += J·v_free."""
    n, nv = J.shape
    root = np.empty(nv)
    for i in range(nv):
        root[i] = math.sqrt(d[i])
    for r in range(n):
        for i in range(nv):
            half[r, i] = J[r, i]
            g[r] += J[r, i] * v_free[i]
        tree_solve.half_solve(dofs, column, L, half[r])
        for i in range(nv):
            half[r, i] *= root[i]
    if n * nv > _WORTH_BLAS:
        np.dot(half, half.T, G)
        return
    for r in range(n):
        for s in range(r + 1):
            total = 0.0
            for i in range(nv):
                total += half[r, i] * half[s, i]
            G[r, s] = total
            G[s, r] = total


@numba.njit(cache=True, error_model="numpy")
def _apply(
    dofs: Records, column: IntArray, J: Array, impulse: Array, L: Array, d: Array, v_free: Array, v_next: Array
) -> None:  # fmt: skip
    """v⁺ = v_free + (M + h·D)⁻¹·Jᵀ·λ."""
    n, nv = J.shape
    v_next[:] = 0.0
    for r in range(n):
        x = impulse[r]
        if x != 0.0:
            for i in range(nv):
                v_next[i] += J[r, i] * x
    tree_solve.solve(dofs, column, L, d, v_next)
    for i in range(nv):
        v_next[i] += v_free[i]


@numba.njit(cache=True, error_model="numpy")
def _keep(blocks: Records, nc: int, impulse: Array, guess: Array) -> None:
    """File the impulses by contact and constraint, whatever blocks the next round has."""
    for b in range(blocks.shape[0]):
        start, source = blocks[b].start, blocks[b].source
        at = 3 * source
        if source < 0:
            at = 3 * nc + 6 * (-1 - source) + (1 if blocks[b].kind == LIMIT and blocks[b].sign < 0.0 else 0)
        for i in range(blocks[b].width):
            guess[at + i] = impulse[start + i]


@numba.njit(cache=True, error_model="numpy")
def _recall(warm: Array, specs: Records, contacts: Records, guess: Array, limits: IntArray, explores: bool) -> None:
    """Impulses of the step before, for the same constraints and contacts of the same geoms in the same order.

    If reverse mode is to explore, contacts that touch take part whether or not they push.
    """
    ns, nc = 6 * specs.shape[0], contacts.shape[0]
    for i in range(ns):
        guess[3 * nc + i] = warm[1 + i]
    for s in range(specs.shape[0]):
        if specs[s].shape == LINE_LIMIT or specs[s].shape == BALL_LIMIT:
            for side in range(2):
                limits[2 * s + side] = warm[1 + 6 * s + side] > 0.0
    count, j = int(warm[0]), 0
    for c in range(nc):
        contacts[c].chosen = explores and contacts[c].gap <= _TOUCHING
        for k in range(j, count):
            at = 1 + ns + 5 * k
            if warm[at] == contacts[c].geom[0] and warm[at + 1] == contacts[c].geom[1]:
                for i in range(3):
                    guess[3 * c + i] = warm[at + 2 + i]
                contacts[c].chosen = contacts[c].chosen or guess[3 * c] > 0.0
                j = k + 1
                break


@numba.njit(cache=True, error_model="numpy")
def _remember(specs: Records, contacts: Records, guess: Array, warm: Array) -> None:
    """For the next step's `_recall`."""
    ns, nc = 6 * specs.shape[0], contacts.shape[0]
    for i in range(ns):
        warm[1 + i] = guess[3 * nc + i]
    warm[0] = nc
    for c in range(nc):
        at = 1 + ns + 5 * c
        warm[at], warm[at + 1] = contacts[c].geom[0], contacts[c].geom[1]
        for i in range(3):
            warm[at + 2 + i] = guess[3 * c + i] if contacts[c].chosen else 0.0


@numba.njit(cache=True, error_model="numpy")
def _integrate(quats: IntArray, q: Array, v: Array, h: float, out: Array) -> None:
    """Fill out with q ⊕ h·v; `quats` lists coordinate and dof of each quaternion, then those of plain coordinates."""
    turn, product, dv = np.empty(4), np.empty(4), np.empty(3)
    for k in range(quats.shape[0]):
        iq, iv = quats[k, 0], quats[k, 1]
        if not quats[k, 2]:
            out[iq] = q[iq] + h * v[iv]
            continue
        for i in range(3):
            dv[i] = h * v[iv + i]
        quat_exp(dv, turn)
        quat_multiply(q[iq : iq + 4], turn, product)
        length = math.sqrt(product[0] ** 2 + product[1] ** 2 + product[2] ** 2 + product[3] ** 2)
        for i in range(4):
            out[iq + i] = product[i] / length


@numba.njit(cache=True, error_model="numpy")
def _report_contacts(h: float, contacts: Records, blocks: Records, impulse: Array, out: Array) -> None:
    nc = contacts.shape[0]
    force, mode = out[7 * nc : 10 * nc], out[10 * nc : 11 * nc]
    for c in range(nc):
        out[11 * nc + 2 * c], out[11 * nc + 2 * c + 1] = contacts[c].geom[0], contacts[c].geom[1]
        for i in range(3):
            out[3 * c + i] = contacts[c].position[i]
            out[3 * nc + 3 * c + i] = contacts[c].frame[i]
            force[3 * c + i] = 0.0
        out[6 * nc + c] = contacts[c].gap
        mode[c] = BREAKING
    for b in range(blocks.shape[0]):
        c, r = blocks[b].source, blocks[b].start
        if c < 0:
            break
        mode[c] = blocks[b].mode
        for k in range(3):
            for i in range(3):
                force[3 * c + i] += contacts[c].frame[3 * k + i] * impulse[r + k] / h
