"""One time step with contact, compiled: free velocity, rows, Delassus matrix, solve, new velocity.

Only constraints that could push take part: those that the free velocity would violate and those that pushed in the
step before. Whoever else the answer violates joins, and the problem is solved again; so the answer is that of the
whole problem, at the cost of its active part.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from tangens.collision.accuracy import polish
from tangens.collision.rows import GEOM, point_rows
from tangens.collision.shapes import Hulls
from tangens.contact.bundle import (
    ACTUATION,
    APPLIED,
    ARENA_LAYOUT,
    BIAS,
    CDOF,
    COM,
    CONSTRAINTS,
    CORNERS,
    FACE_NORMALS,
    FACES,
    GEOM_XMAT,
    GEOM_XPOS,
    GEOMS,
    MASS,
    OPTIONS,
    PASSIVE,
    QPOS,
    QUATS,
    QVEL,
    TREE,
    XPOS,
    XQUAT,
    take,
    take_rows,
)
from tangens.contact.cones import BREAKING, CONTACT, DRY, EQUALITY, LIMIT, violations
from tangens.contact.constraints import (
    BALL_LIMIT,
    CONNECT,
    LINE_DRY,
    LINE_EQUAL,
    LINE_LIMIT,
    WELD,
    unpack_constraints,
)
from tangens.contact.solvers import solve as solve_cones
from tangens.contact.workspace import CONTACT_RECORD, carve
from tangens.dynamics import tree_solve
from tangens.dynamics.chains import spread, unpack_tree
from tangens.dynamics.rotations import quat_exp, quat_log, quat_multiply, quat_rotate

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

# Entries of `options`.
TIMESTEP, IMPLICIT, CORRECTION, CORRECTION_SPEED, DAMPING, TOLERANCE, ITERATIONS, SOLVER = range(8)
# Entries of `layout`: where a contact's fields stand in MuJoCo's memory, in doubles. The last two count in int32.
STRIDE, POSITION, FRAME, DISTANCE, FRICTION, GEOM_PAIR, STRIDE32 = range(7)
_NEVER = 1e6  # a target that no velocity violates
_IMPATIENCE = 300  # iterations after which overlaps are no longer insisted on
_POLISHED = 2e-3  # contacts that come so close within the step are worth correcting [m]
_ROUNDS = 50  # each lets at least one more constraint in
_WORTH_BLAS = 1000
_MARGIN, _AHEAD = 5e-4, 1.5  # how far contacts are looked for: so much, and so many steps ahead of each geom


@numba.njit(cache=True, error_model="numpy")
def step(
    fixed: Array, live: Array, table: IntArray, rows: int, nc: int, arena: Array, arena32: NDArray[np.int32],
    warm: Array, memory: Array, out: Array,
) -> tuple[int, float, float, float, float]:  # fmt: skip
    """Fill `out` (q⁺, v⁺, then positions, normals, gaps, forces, modes and geoms of the contacts) and `memory`.

    The first two arrays are a `Bundle`'s. Returns iterations, residual, and the violations of Signorini's law, the
    cones and maximum dissipation; the residual is infinite if v⁺ is not finite.
    """
    dofs, bodies, column = unpack_tree(take(fixed, table, TREE))
    geoms = take(fixed, table, GEOMS).view(GEOM)
    specs, entries = unpack_constraints(take(fixed, table, CONSTRAINTS))
    options, quats = take(fixed, table, OPTIONS), take_rows(fixed, table, QUATS, 3).view(np.int64)
    layout = take(fixed, table, ARENA_LAYOUT).view(np.int64)
    M, cdof, com = take(live, table, MASS), take_rows(live, table, CDOF, 6), take_rows(live, table, COM, 3)
    xpos, xquat = take_rows(live, table, XPOS, 3), take_rows(live, table, XQUAT, 4)
    q, v = take(live, table, QPOS), take(live, table, QVEL)
    nv, nq = v.shape[0], q.shape[0]
    w = carve(memory, nv, M.shape[0], nc, rows)
    contacts, blocks, v_next = w.contacts, w.blocks, w.v_next
    _free_velocity(
        dofs, column, options, M, v, take(live, table, PASSIVE), take(live, table, ACTUATION), take(live, table, BIAS),
        take(live, table, APPLIED), w.v_free, w.L, w.d,
    )  # fmt: skip
    _read_contacts(arena, arena32, layout, contacts)
    before, after, after_v = np.empty((nv, 6)), np.empty((nv, 6)), np.empty((nv, 6))
    if nc > 0:
        spread(dofs, cdof, v, before, after_v)
        for c in range(nc):
            _set_contact_target(bodies, geoms, com, after_v, options, contacts[c])
        spread(dofs, cdof, w.v_free, before, after)
    for i in range(nv):
        v_next[i] = w.v_free[i]
    guess = np.zeros(3 * nc + 6 * specs.shape[0])
    limits = np.zeros(2 * specs.shape[0], dtype=np.int64)
    _recall(warm, specs, contacts, guess, limits)
    iterations, error = 0, 0.0
    for attempt in range(2):
        patient = attempt == 1 or options[CORRECTION] == 0.0
        budget = int(options[ITERATIONS]) if patient else min(_IMPATIENCE, int(options[ITERATIONS]))
        _choose(bodies, geoms, specs, entries, com, after, q, v_next, options, contacts, limits)
        for _ in range(_ROUNDS):
            nb, n = _build(
                dofs, bodies, specs, entries, geoms, options, cdof, com, xpos, xquat, q, limits, guess, contacts,
                blocks, w.J, w.g, w.rate, w.impulse,
            )  # fmt: skip
            w.counts[0], w.counts[1] = nb, n
            if n == 0:
                break
            G = w.G[: n * n].reshape(n, n)
            _delassus(dofs, column, w.J[:n], w.L, w.d, w.v_free, w.half[:n], w.g, G)
            taken, error = solve_cones(
                G, w.g[:n], blocks[:nb], w.impulse[:n], w.sigma[:n], budget, options[TOLERANCE], int(options[SOLVER])
            )  # fmt: skip
            iterations += taken
            _apply(dofs, column, w.J[:n], w.impulse, w.L, w.d, w.v_free, v_next)
            _keep(blocks[:nb], nc, w.impulse, guess)
            if nc > 0:
                spread(dofs, cdof, v_next, before, after)
            if _choose(bodies, geoms, specs, entries, com, after, q, v_next, options, contacts, limits) == 0:
                break
        if error <= options[TOLERANCE] or patient:
            break
        # Overlaps that limits or other bodies keep from being undone have no solution: leave them as they are.
        options = options.copy()
        options[CORRECTION] = 0.0
        guess[:] = 0.0
        for c in range(nc):
            _set_contact_target(bodies, geoms, com, after_v, options, contacts[c])
    _remember(specs, contacts, guess, warm)
    nb = int(w.counts[0])
    signorini, cone, dissipation = violations(blocks[:nb], w.impulse, w.sigma)
    _integrate(quats, q, v_next, options[TIMESTEP], out)
    for i in range(nv):
        out[nq + i] = v_next[i]
        if not math.isfinite(v_next[i]):
            error = math.inf
    _report_contacts(options[TIMESTEP], contacts, blocks[:nb], w.impulse, out[nq + nv :])
    return iterations, error, signorini, cone, dissipation


@numba.njit(cache=True, error_model="numpy")
def set_margins(fixed: Array, live: Array, table: IntArray, geom_gap: Array, most: float) -> None:
    """Let MuJoCo look for contacts only as far as geoms can come within a step; a pair's margins add up."""
    dofs, bodies, _ = unpack_tree(take(fixed, table, TREE))
    geoms, h = take(fixed, table, GEOMS).view(GEOM), take(fixed, table, OPTIONS)[TIMESTEP]
    cdof, com, xpos = (
        take_rows(live, table, CDOF, 6),
        take_rows(live, table, COM, 3),
        take_rows(live, table, GEOM_XPOS, 3),
    )
    nv = dofs.shape[0]
    before, after = np.empty((nv, 6)), np.empty((nv, 6))
    spread(dofs, cdof, take(live, table, QVEL), before, after)
    for g in range(geoms.shape[0]):
        body = bodies[geoms[g].body]
        k, speed = body.last_dof, 0.0
        if k >= 0:
            x, y, z = xpos[g, 0] - com[body.root, 0], xpos[g, 1] - com[body.root, 1], xpos[g, 2] - com[body.root, 2]
            a, b, c = after[k, 0], after[k, 1], after[k, 2]
            u, v, w = after[k, 3] + b * z - c * y, after[k, 4] + c * x - a * z, after[k, 5] + a * y - b * x
            speed = math.sqrt(u * u + v * v + w * w) + geoms[g].radius * math.sqrt(a * a + b * b + c * c)
        geom_gap[g] = min(0.5 * most, _MARGIN + _AHEAD * h * speed)


@numba.njit(cache=True, error_model="numpy")
def polish_contacts(
    fixed: Array, live: Array, table: IntArray, nc: int, arena: Array, arena32: NDArray[np.int32]
) -> None:
    """Correct what MuJoCo found between curved shapes, in its own memory, for contacts that may push in this step."""
    dofs, bodies, _ = unpack_tree(take(fixed, table, TREE))
    geoms, h = take(fixed, table, GEOMS).view(GEOM), take(fixed, table, OPTIONS)[TIMESTEP]
    hulls = Hulls(
        take_rows(fixed, table, FACE_NORMALS, 3), take(fixed, table, FACES).view(np.int64),
        take_rows(fixed, table, CORNERS, 3),
    )  # fmt: skip
    layout = take(fixed, table, ARENA_LAYOUT).view(np.int64)
    gxpos, gxmat = take_rows(live, table, GEOM_XPOS, 3), take_rows(live, table, GEOM_XMAT, 9)
    cdof, com = take_rows(live, table, CDOF, 6), take_rows(live, table, COM, 3)
    nv = dofs.shape[0]
    before, after = np.empty((nv, 6)), np.empty((nv, 6))
    spread(dofs, cdof, take(live, table, QVEL), before, after)
    contact = np.zeros(1, dtype=CONTACT_RECORD)
    for c in range(nc):
        _read_contact(arena, arena32, layout, c, contact[0])
        if contact[0].gap + h * _normal_velocity(bodies, geoms, com, after, contact[0]) < _POLISHED:
            base = c * layout[STRIDE]
            p = arena[base + layout[POSITION] : base + layout[POSITION] + 3]
            frame = arena[base + layout[FRAME] : base + layout[FRAME] + 9]
            gap = polish(geoms, hulls, contact[0].geom, gxpos, gxmat, p, frame, contact[0].gap)
            arena[base + layout[DISTANCE]] = gap


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
def _read_contacts(arena: Array, arena32: NDArray[np.int32], layout: IntArray, contacts: Records) -> None:
    """Copy what MuJoCo found: the next step writes over it."""
    for c in range(contacts.shape[0]):
        _read_contact(arena, arena32, layout, c, contacts[c])


@numba.njit(cache=True, error_model="numpy")
def _read_contact(arena: Array, arena32: NDArray[np.int32], layout: IntArray, c: int, contact: Any) -> None:
    base = c * layout[STRIDE]
    for i in range(3):
        contact.position[i] = arena[base + layout[POSITION] + i]
    for i in range(9):
        contact.frame[i] = arena[base + layout[FRAME] + i]
    contact.gap, contact.friction = arena[base + layout[DISTANCE]], arena[base + layout[FRICTION]]
    for i in range(2):
        contact.geom[i] = arena32[c * layout[STRIDE32] + layout[GEOM_PAIR] + i]


@numba.njit(cache=True, error_model="numpy")
def restitution_of(geoms: Records, geom: IntArray) -> float:
    """A pair bounces as the bouncier of its geoms does."""
    return max(geoms[geom[0]].restitution, geoms[geom[1]].restitution)


@numba.njit(cache=True, error_model="numpy")
def _set_contact_target(
    bodies: Records, geoms: Records, com: Array, after: Array, options: Array, contact: Any
) -> None:  # fmt: skip
    """What is added to the normal velocity before it must not be negative (paper 2, Eq. 39).

    An open gap may close within the step; an overlap is undone by a share of it. A body that bounces does so
    when it has arrived: it is not slowed down before.
    """
    gap, restitution = contact.gap, restitution_of(geoms, contact.geom)
    contact.target = 0.0
    if gap > 0.0:
        contact.target = gap / options[TIMESTEP] if restitution == 0.0 else _NEVER
        return
    approach = _normal_velocity(bodies, geoms, com, after, contact)
    undo = max(options[CORRECTION] * gap / options[TIMESTEP], -options[CORRECTION_SPEED])
    contact.target = undo - options[DAMPING] * approach + restitution * min(approach, 0.0)


@numba.njit(cache=True, error_model="numpy")
def _normal_velocity(bodies: Records, geoms: Records, com: Array, after: Array, contact: Any) -> float:
    """Velocity of a contact along its normal, its target added."""
    total = contact.target
    p, n = contact.position, contact.frame
    for side in range(2):
        body = bodies[geoms[contact.geom[side]].body]
        k = body.last_dof
        if k < 0:
            continue
        x, y, z = p[0] - com[body.root, 0], p[1] - com[body.root, 1], p[2] - com[body.root, 2]
        a, b, d = after[k, 0], after[k, 1], after[k, 2]
        total += (2.0 * side - 1.0) * (
            n[0] * (after[k, 3] + b * z - d * y)
            + n[1] * (after[k, 4] + d * x - a * z)
            + n[2] * (after[k, 5] + a * y - b * x)
        )
    return total


@numba.njit(cache=True, error_model="numpy")
def limit_target(value: float, options: Array) -> tuple[float, float]:
    """Target of a limit with so much left, and its slope."""
    h = options[TIMESTEP]
    if value > 0.0:
        return value / h, 1.0 / h
    undo = options[CORRECTION] * value / h
    return (undo, options[CORRECTION] / h) if undo > -options[CORRECTION_SPEED] else (-options[CORRECTION_SPEED], 0.0)


@numba.njit(cache=True, error_model="numpy")
def equality_target(error: float, options: Array) -> tuple[float, float]:
    """Velocity that undoes the error of an equality, and its slope."""
    rate, speed = options[CORRECTION] / options[TIMESTEP], options[CORRECTION_SPEED]
    if abs(rate * error) <= speed:
        return rate * error, rate
    return math.copysign(speed, error), 0.0


@numba.njit(cache=True, error_model="numpy")
def _choose(
    bodies: Records, geoms: Records, specs: Records, entries: Records, com: Array, after: Array, q: Array,
    v_next: Array, options: Array, contacts: Records, limits: IntArray,
) -> int:  # fmt: skip
    """Let contacts and limits that v⁺ violates take part; returns how many are new."""
    joined, slack = 0, -options[TOLERANCE]
    for c in range(contacts.shape[0]):
        if not contacts[c].chosen and _normal_velocity(bodies, geoms, com, after, contacts[c]) < slack:
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
def line_value(entries: Records, start: int, stop: int, x: Array, by_dof: bool) -> float:
    """Length of a line at a configuration, or its rate at a velocity."""
    total = 0.0
    for e in range(start, stop):
        total += entries[e].coefficient * x[entries[e].dof if by_dof else entries[e].coordinate]
    return total


@numba.njit(cache=True, error_model="numpy")
def ball_angle(q: Array, at: int, axis: Array) -> float:
    """Angle of a ball joint and its axis; a joint at zero has no axis, and no limit near it."""
    quat_log(q[at : at + 4], axis)
    angle = math.sqrt(axis[0] ** 2 + axis[1] ** 2 + axis[2] ** 2)
    for i in range(3):
        axis[i] = axis[i] / angle if angle > 0.0 else 0.0
    return angle


@numba.njit(cache=True, error_model="numpy")
def polynomial(p: Array, x: float) -> tuple[float, float, float]:
    """p(x), its slope and its curvature."""
    return (
        p[0] + x * (p[1] + x * (p[2] + x * (p[3] + x * p[4]))),
        p[1] + x * (2.0 * p[2] + x * (3.0 * p[3] + x * 4.0 * p[4])),
        2.0 * p[2] + x * (6.0 * p[3] + x * 12.0 * p[4]),
    )


@numba.njit(cache=True, error_model="numpy")
def _build(
    dofs: Records, bodies: Records, specs: Records, entries: Records, geoms: Records, options: Array, cdof: Array,
    com: Array, xpos: Array, xquat: Array, q: Array, limits: IntArray, guess: Array, contacts: Records,
    blocks: Records, J: Array, g: Array, rates: Array, impulse: Array,
) -> tuple[int, int]:  # fmt: skip
    """Rows, targets and first guesses of the constraints that take part; returns the numbers of blocks and rows."""
    h, nc = options[TIMESTEP], contacts.shape[0]
    b, r = 0, 0
    for c in range(nc):
        if not contacts[c].chosen:
            continue
        block, contact = blocks[b], contacts[c]
        block.kind, block.start, block.width, block.source = CONTACT, r, 3, c
        block.bound, block.value = contact.friction, contact.gap
        J[r : r + 3] = 0.0
        one, two = geoms[contacts[c].geom[0]].body, geoms[contacts[c].geom[1]].body
        point_rows(dofs, bodies, one, two, contacts[c].position, contacts[c].frame, cdof, com, J[r : r + 3])
        rate = 1.0 if contacts[c].gap > 0.0 else options[CORRECTION]
        capped = -rate * contacts[c].gap > h * options[CORRECTION_SPEED]
        for i in range(3):
            impulse[r + i], g[r + i], rates[r + i] = guess[3 * c + i], 0.0, 0.0
        g[r], rates[r] = contacts[c].target, 0.0 if capped else rate / h
        b, r = b + 1, r + 3
    for s in range(specs.shape[0]):
        spec = specs[s]
        shape = spec.shape
        for side in range(2 if shape == LINE_LIMIT else 1):
            if shape in (LINE_LIMIT, BALL_LIMIT) and not limits[2 * s + side]:
                continue
            block, width = blocks[b], 6 if shape == WELD else 3 if shape == CONNECT else 1
            block.start, block.width, block.source = r, width, -1 - s
            block.sign, block.bound = 1.0 - 2.0 * side, 0.0
            J[r : r + width] = 0.0
            if width > 1:
                block.kind = EQUALITY
                _tie_rows(dofs, bodies, spec, options, cdof, com, xpos, xquat, r, J, g, rates)
            elif shape == LINE_DRY:
                block.kind, block.bound = DRY, h * spec.bound
                g[r], rates[r] = 0.0, 0.0
                for e in range(spec.start, spec.middle):
                    J[r, entries[e].dof] += entries[e].coefficient
            elif shape == LINE_EQUAL:
                block.kind = EQUALITY
                _equality_row(spec, entries, options, q, r, J, g, rates)
            else:
                block.kind = LIMIT
                _limit_row(spec, entries, options, q, block, r, J, g, rates)
            for i in range(width):
                impulse[r + i] = guess[3 * nc + 6 * s + side + i]
            b, r = b + 1, r + width
    return b, r


@numba.njit(cache=True, error_model="numpy")
def _limit_row(
    spec: Any, entries: Records, options: Array, q: Array, block: Any, r: int, J: Array, g: Array, rates: Array
) -> None:  # fmt: skip
    if spec.shape == BALL_LIMIT:
        axis = np.empty(3)
        block.value = spec.high - ball_angle(q, spec.joint[0], axis)
        for i in range(3):
            J[r, spec.joint[1] + i] = -axis[i]
    else:
        x = line_value(entries, spec.start, spec.middle, q, False)
        block.value = x - spec.low if block.sign > 0.0 else spec.high - x
        for e in range(spec.start, spec.middle):
            J[r, entries[e].dof] += block.sign * entries[e].coefficient
    g[r], rates[r] = limit_target(block.value, options)


@numba.njit(cache=True, error_model="numpy")
def _equality_row(
    spec: Any, entries: Records, options: Array, q: Array, r: int, J: Array, g: Array, rates: Array
) -> None:  # fmt: skip
    x = line_value(entries, spec.middle, spec.stop, q, False) - spec.rest[1]
    value, slope, _ = polynomial(spec.polynomial, x)
    error = line_value(entries, spec.start, spec.middle, q, False) - spec.rest[0] - value
    for e in range(spec.start, spec.middle):
        J[r, entries[e].dof] += entries[e].coefficient
    for e in range(spec.middle, spec.stop):
        J[r, entries[e].dof] -= slope * entries[e].coefficient
    g[r], rates[r] = equality_target(error, options)


@numba.njit(cache=True, error_model="numpy")
def tie_points(spec: Any, xpos: Array, xquat: Array, points: Array) -> None:
    """Where the two anchors are, shape (2, 3)."""
    x = np.empty(3)
    for side in range(2):
        body = spec.body[side]
        quat_rotate(xquat[body], spec.anchor[3 * side : 3 * side + 3], x)
        for i in range(3):
            points[side, i] = xpos[body, i] + x[i]


@numba.njit(cache=True, error_model="numpy")
def _tie_rows(
    dofs: Records, bodies: Records, spec: Any, options: Array, cdof: Array, com: Array, xpos: Array, xquat: Array,
    r: int, J: Array, g: Array, rates: Array,
) -> None:  # fmt: skip
    """Body 0's anchor relative to body 1's in world axes; for a weld the angular velocity too."""
    points, error = np.empty((2, 3)), np.zeros(6)
    tie_points(spec, xpos, xquat, points)
    weld = spec.shape == WELD
    if weld:
        one, turned, back = np.empty(4), np.empty(4), np.empty(4)
        quat_multiply(xquat[spec.body[0]], spec.turn, turned)
        back[0] = xquat[spec.body[1], 0]
        for i in range(3):
            back[1 + i] = -xquat[spec.body[1], 1 + i]
        quat_multiply(turned, back, one)
        quat_log(one, error[3:6])
    for i in range(3):
        error[i] = points[0, i] - points[1, i]
    for side in range(2):
        sign = 1.0 - 2.0 * side
        body = bodies[spec.body[side]]
        k, root = body.last_dof, body.root
        x, y, z = points[side, 0] - com[root, 0], points[side, 1] - com[root, 1], points[side, 2] - com[root, 2]
        while k >= 0:
            a, b, c = cdof[k, 0], cdof[k, 1], cdof[k, 2]
            J[r, k] += sign * (cdof[k, 3] + b * z - c * y)
            J[r + 1, k] += sign * (cdof[k, 4] + c * x - a * z)
            J[r + 2, k] += sign * (cdof[k, 5] + a * y - b * x)
            if weld:
                for i in range(3):
                    J[r + 3 + i, k] += sign * cdof[k, i]
            k = dofs[k].parent
    for i in range(6 if weld else 3):
        g[r + i], rates[r + i] = equality_target(error[i], options)


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
def _recall(warm: Array, specs: Records, contacts: Records, guess: Array, limits: IntArray) -> None:
    """Impulses of the step before, for the same constraints and contacts of the same geoms in the same order."""
    ns, nc = 6 * specs.shape[0], contacts.shape[0]
    for i in range(ns):
        guess[3 * nc + i] = warm[1 + i]
    for s in range(specs.shape[0]):
        if specs[s].shape == LINE_LIMIT or specs[s].shape == BALL_LIMIT:
            for side in range(2):
                limits[2 * s + side] = warm[1 + 6 * s + side] > 0.0
    count, j = int(warm[0]), 0
    for c in range(nc):
        contacts[c].chosen = 0
        for k in range(j, count):
            at = 1 + ns + 5 * k
            if warm[at] == contacts[c].geom[0] and warm[at + 1] == contacts[c].geom[1]:
                for i in range(3):
                    guess[3 * c + i] = warm[at + 2 + i]
                contacts[c].chosen = guess[3 * c] > 0.0
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
