"""Derivatives of constraint rows: how J, the forces Jᵀ·λ and the targets change with q and v.

They are taken along the columns of a kinematic tree, which may be the scene's own or a longer one (`placement`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tangens.collision.motion import contact_response
from tangens.contact.constraint_specs import BALL_LIMIT, CONNECT, LINE_EQUAL, WELD
from tangens.contact.rigid.assembly.constraint_rows import ball_angle, line_value, polynomial, tie_points
from tangens.contact.rigid.assembly.tangents import spin_of_tangents
from tangens.contact.rigid.memory.structs import struct
from tangens.contact.rigid.memory.views import Kinematics, Model
from tangens.contact.rigid.problem.contact_problem import BREAKING, DRY, SLIDING
from tangens.dynamics.kinematic_tree import propagate_velocities
from tangens.dynamics.rotations import right_jacobian_inverse
from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]


@inline
def pushes(block: Any) -> bool:
    """Whether a block has an equation: others have no impulse, or a constant one."""
    return not (block.mode == BREAKING or (block.kind == DRY and block.mode == SLIDING))


@struct
class TreeMotion:
    """A kinematic tree with its motion axes, before and after the step."""

    dofs: Records
    bodies: Records
    cdof: Array
    v: Array
    v_next: Array
    before: Array
    """Spatial velocities at v⁺ before the group of each dof, (nv, 6)."""
    after: Array
    """And after it."""


@struct
class LoadedRows:
    """Rows of a contact problem with the impulses that act along them."""

    contacts: Records
    blocks: Records
    impulse: Array
    J: Array
    rate: Array
    """∂target/∂(what a row measures)."""
    response: Array
    """How contacts move with their bodies, (7, 6) each, flat; NaN or nothing at all for the exact motion."""


@struct
class RowDerivatives:
    """What is filled in, by columns of the tree."""

    outside: Array
    """Spatial impulses on each dof's body and all beyond it, (nv, 6): their own change is left to RNEA."""
    R: Array
    """∂(Jᵀ·λ)/∂q by the motion of contact points and frames, (nv, nv)."""
    K: Array
    """∂(J·v⁺ + target)/∂q and /∂v of the rows that push, (2, m, nv)."""
    turn: Array
    """How contact frames turn, (nc, 3, nv); empty if nobody asks."""


@inline
def tree_motion(dofs: Records, bodies: Records, cdof: Array, v: Array, v_next: Array) -> TreeMotion:
    """Velocities of the tree at v⁺."""
    before, after = np.empty((v.shape[0], 6)), np.empty((v.shape[0], 6))
    propagate_velocities(dofs, cdof, v_next, before, after)
    return TreeMotion(dofs, bodies, cdof, v, v_next, before, after)


@subroutine
def add_row_derivatives(
    model: Model, kin: Kinematics, tree: TreeMotion, rows: LoadedRows, out: RowDerivatives
) -> tuple[int, bool]:
    """Add the derivatives of all rows that push.

    Returns the first contact that moves in an unknown way, or −1, and whether targets depend on v.
    """
    K, outside, nv = out.K, out.outside, tree.v.shape[0]
    D, f, work = np.zeros((7, 6)), np.empty(6), np.empty((nv, 12))
    chain, no_turn, feeds_back = np.empty(nv, dtype=np.int64), np.empty((3, nv)), False
    r = 0  # row of K
    for b in range(rows.blocks.shape[0]):
        block = rows.blocks[b]
        if not pushes(block):
            continue
        first, width = block.start, block.width
        if block.source >= 0:
            c = block.source
            contact = rows.contacts[c]
            if not motion_of_contact(model, kin, rows.response, contact, c, D):
                return c, False
            world_force(contact.frame, rows.impulse[first : first + 3], f)
            one, two = model.geoms[contact.geom[0]].body, model.geoms[contact.geom[1]].body
            _push(tree.bodies, one, two, kin.com, contact.position, contact.position, f, outside)
            _contact_terms(
                tree, kin.com, one, two, contact, D, f, rows.rate[first], chain, work, out.R, K[0, r : r + 3],
                out.turn[c] if out.turn.shape[0] else no_turn,
            )  # fmt: skip
            if contact.gain != 0.0:
                feeds_back = True
                _feedback(tree, kin.com, one, two, contact, D, rows.J[first], K[0, r], K[1, r])
        else:
            _constraint_terms(model, kin, tree, rows, block, f, outside, out.R, K[0, r : r + width])
            for i in range(width):
                for k in range(nv):
                    K[0, r + i, k] += rows.rate[first + i] * rows.J[first + i, k]
        r += width
    _sum_up(tree.dofs, outside)
    return -1, feeds_back


@inline
def motion_of_contact(model: Model, kin: Kinematics, response: Array, contact: Any, c: int, D: Array) -> bool:
    """Fill D (7, 6) with how contact c moves with its bodies; False if that is not known."""
    if response.shape[0] and not math.isnan(response[c, 0]):
        D[:] = response[c].reshape(7, 6)
        return True
    found: bool = contact_response(
        model.geoms, model.hulls, contact.geom, kin.geom_xpos, kin.geom_xmat, contact.position, contact.frame,
        contact.gap, D,
    )  # fmt: skip
    return found


@subroutine
def _constraint_terms(
    model: Model, kin: Kinematics, tree: TreeMotion, rows: LoadedRows, block: Any, f: Array, outside: Array, R: Array,
    K: Array,
) -> None:  # fmt: skip
    """Of a constraint besides contact."""
    spec, first = model.specs[-1 - block.source], block.start
    if spec.shape in (CONNECT, WELD):
        points = np.empty((2, 3))
        tie_points(spec, kin.xpos, kin.xquat, points)
        f[:] = 0.0
        for i in range(block.width):
            f[i] = -rows.impulse[first + i]  # on body 1
        _push(tree.bodies, spec.body[0], spec.body[1], kin.com, points[0], points[1], f, outside)
        _tie_terms(tree, kin.com, spec, points, f, R, K)
    elif spec.shape == LINE_EQUAL:
        _equality_terms(spec, model.entries, kin.q, tree.v_next, rows.impulse[first], R, K[0])
    elif spec.shape == BALL_LIMIT:
        _ball_terms(spec, kin.q, tree.v_next, rows.impulse[first], R, K[0])


@inline
def _sum_up(dofs: Records, outside: Array) -> None:
    """Let each dof carry what acts on all bodies beyond it."""
    for k in range(dofs.shape[0] - 1, -1, -1):
        parent = dofs[k].parent
        if k == dofs[k].last:
            for j in range(dofs[k].first, k):
                for i in range(6):
                    outside[j, i] = outside[k, i]
        if parent >= 0 and k == dofs[k].first:
            for i in range(6):
                outside[parent, i] += outside[k, i]


@inline
def world_force(frame: Array, impulse: Array, f: Array) -> None:
    """Impulse on body 1 in world axes; no moment."""
    for i in range(3):
        f[i] = frame[i] * impulse[0] + frame[3 + i] * impulse[1] + frame[6 + i] * impulse[2]
        f[3 + i] = 0.0


@inline
def _push(
    bodies: Records, one: int, two: int, com: Array, p0: Array, p1: Array, f: Array, outside: Array
) -> None:  # fmt: skip
    """Add the impulse f (force, then moment) on body `two` at p1, and its reaction on `one` at p0."""
    for side in range(2):
        body = bodies[two if side else one]
        k = body.last_dof
        if k < 0:
            continue
        sign, p = 2.0 * side - 1.0, p1 if side else p0
        x, y, z = p[0] - com[body.root, 0], p[1] - com[body.root, 1], p[2] - com[body.root, 2]
        outside[k, 0] += sign * (y * f[2] - z * f[1] + f[3])
        outside[k, 1] += sign * (z * f[0] - x * f[2] + f[4])
        outside[k, 2] += sign * (x * f[1] - y * f[0] + f[5])
        for i in range(3):
            outside[k, 3 + i] += sign * f[i]


@subroutine
def _contact_terms(
    tree: TreeMotion, com: Array, one: int, two: int, contact: Any, D: Array, f: Array, rate: float, chain: IntArray,
    work: Array, R: Array, K: Array, turn: Array,
) -> None:  # fmt: skip
    """Add ∂(Jᵀλ)/∂q by the contact's own motion to R (the rest is `outside`), and ∂(J·v⁺ + target)/∂q to K (3, nv)."""
    dofs, bodies, cdof, before, after = tree.dofs, tree.bodies, tree.cdof, tree.before, tree.after
    p, frame = contact.position, contact.frame
    b0, b1 = bodies[one], bodies[two]
    k0, k1 = b0.last_dof, b1.last_dof
    root = b1.root if k1 >= 0 else b0.root
    # relative velocity of the bodies at p, and of each body with the velocity before a joint taken out
    vx, vy, vz, wx, wy, wz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for side in range(2):
        body, k = (b1, k1) if side else (b0, k0)
        if k < 0:
            continue
        sign = 2.0 * side - 1.0
        x, y, z = p[0] - com[body.root, 0], p[1] - com[body.root, 1], p[2] - com[body.root, 2]
        wx += sign * after[k, 0]
        wy += sign * after[k, 1]
        wz += sign * after[k, 2]
        vx += sign * (after[k, 3] + after[k, 1] * z - after[k, 2] * y)
        vy += sign * (after[k, 4] + after[k, 2] * x - after[k, 0] * z)
        vz += sign * (after[k, 5] + after[k, 0] * y - after[k, 1] * x)
    last0, last1 = k0, k1
    y0, y1, y2 = spin_of_tangents(frame)
    length = 0
    while k0 >= 0 or k1 >= 0:
        k = max(k0, k1)  # the two chains are walked towards their roots together
        in0, in1 = k == k0, k == k1
        body = b1 if in1 else b0
        root = body.root
        x, y, z = p[0] - com[root, 0], p[1] - com[root, 1], p[2] - com[root, 2]
        sw0, sw1, sw2 = cdof[k, 0], cdof[k, 1], cdof[k, 2]
        sv0 = cdof[k, 3] + sw1 * z - sw2 * y
        sv1 = cdof[k, 4] + sw2 * x - sw0 * z
        sv2 = cdof[k, 5] + sw0 * y - sw1 * x
        rel = (1.0 if in1 else 0.0) - (1.0 if in0 else 0.0)
        own = 1.0 if in0 else 0.0
        c = work[length]
        c[0], c[1], c[2] = rel * sw0, rel * sw1, rel * sw2
        c[3], c[4], c[5] = rel * sv0, rel * sv1, rel * sv2
        dp0, dp1, dp2 = own * sv0, own * sv1, own * sv2
        t0, t1, t2 = own * sw0, own * sw1, own * sw2
        if rel != 0.0:
            dp0 += D[0, 0] * c[3] + D[0, 1] * c[4] + D[0, 2] * c[5] + D[0, 3] * c[0] + D[0, 4] * c[1] + D[0, 5] * c[2]
            dp1 += D[1, 0] * c[3] + D[1, 1] * c[4] + D[1, 2] * c[5] + D[1, 3] * c[0] + D[1, 4] * c[1] + D[1, 5] * c[2]
            dp2 += D[2, 0] * c[3] + D[2, 1] * c[4] + D[2, 2] * c[5] + D[2, 3] * c[0] + D[2, 4] * c[1] + D[2, 5] * c[2]
            t0 += D[3, 0] * c[3] + D[3, 1] * c[4] + D[3, 2] * c[5] + D[3, 3] * c[0] + D[3, 4] * c[1] + D[3, 5] * c[2]
            t1 += D[4, 0] * c[3] + D[4, 1] * c[4] + D[4, 2] * c[5] + D[4, 3] * c[0] + D[4, 4] * c[1] + D[4, 5] * c[2]
            t2 += D[5, 0] * c[3] + D[5, 1] * c[4] + D[5, 2] * c[5] + D[5, 3] * c[0] + D[5, 4] * c[1] + D[5, 5] * c[2]
        spin = y0 * t0 + y1 * t1 + y2 * t2
        t0, t1, t2 = t0 + spin * frame[0], t1 + spin * frame[1], t2 + spin * frame[2]
        turn[0, k], turn[1, k], turn[2, k] = t0, t1, t2
        c[6], c[7], c[8] = dp1 * f[2] - dp2 * f[1], dp2 * f[0] - dp0 * f[2], dp0 * f[1] - dp1 * f[0]
        c[9], c[10], c[11] = t1 * f[2] - t2 * f[1], t2 * f[0] - t0 * f[2], t0 * f[1] - t1 * f[0]
        # the relative velocity at the moving point, seen from the turning frame
        g0 = wy * dp2 - wz * dp1 - (t1 * vz - t2 * vy)
        g1 = wz * dp0 - wx * dp2 - (t2 * vx - t0 * vz)
        g2 = wx * dp1 - wy * dp0 - (t0 * vy - t1 * vx)
        for side in range(2):
            if not (in1 if side else in0):
                continue
            sign, last = 2.0 * side - 1.0, last1 if side else last0
            # S_k × (v_body − v before k), at p
            a0, a1, a2 = after[last, 0] - before[k, 0], after[last, 1] - before[k, 1], after[last, 2] - before[k, 2]
            u0 = after[last, 3] - before[k, 3] + a1 * z - a2 * y
            u1 = after[last, 4] - before[k, 4] + a2 * x - a0 * z
            u2 = after[last, 5] - before[k, 5] + a0 * y - a1 * x
            g0 += sign * (sw1 * u2 - sw2 * u1 + sv1 * a2 - sv2 * a1)
            g1 += sign * (sw2 * u0 - sw0 * u2 + sv2 * a0 - sv0 * a2)
            g2 += sign * (sw0 * u1 - sw1 * u0 + sv0 * a1 - sv1 * a0)
        for i in range(3):
            K[i, k] += frame[3 * i] * g0 + frame[3 * i + 1] * g1 + frame[3 * i + 2] * g2
        if rate != 0.0:  # the gap is part of the target
            K[0, k] += rate * (
                D[6, 0] * c[3] + D[6, 1] * c[4] + D[6, 2] * c[5] + D[6, 3] * c[0] + D[6, 4] * c[1] + D[6, 5] * c[2]
            )
        chain[length] = k
        length += 1
        if in0:
            k0 = dofs[k].parent
        if in1:
            k1 = dofs[k].parent
    for i in range(length):
        x = work[i]
        x0, x1, x2, x3, x4, x5 = x[0], x[1], x[2], x[3], x[4], x[5]
        if x0 == 0.0 and x1 == 0.0 and x2 == 0.0 and x3 == 0.0 and x4 == 0.0 and x5 == 0.0:
            continue
        row = chain[i]
        for j in range(length):
            R[row, chain[j]] += (
                x0 * work[j, 6] + x1 * work[j, 7] + x2 * work[j, 8]
                + x3 * work[j, 9] + x4 * work[j, 10] + x5 * work[j, 11]
            )  # fmt: skip


@inline
def _feedback(
    tree: TreeMotion, com: Array, one: int, two: int, contact: Any, D: Array, J: Array, by_q: Array, by_v: Array
) -> None:
    """Restitution and damping make the target depend on the velocity of approach."""
    nv = tree.v.shape[0]
    rows, unused = np.zeros((3, nv)), np.zeros((nv, nv))
    approaching = tree_motion(tree.dofs, tree.bodies, tree.cdof, tree.v, tree.v)
    _contact_terms(
        approaching, com, one, two, contact, D, np.zeros(6), 0.0, np.empty(nv, dtype=np.int64), np.empty((nv, 12)),
        unused, rows, np.zeros((3, nv)),
    )  # fmt: skip
    for k in range(nv):
        by_q[k] += contact.gain * rows[0, k]
        by_v[k] += contact.gain * J[k]


@inline
def approach_of(v: Array, normal_row: Array) -> float:
    """Normal velocity of a contact before the step."""
    total = 0.0
    for k in range(v.shape[0]):
        total += normal_row[k] * v[k]
    return total


@subroutine
def _tie_terms(tree: TreeMotion, com: Array, spec: Any, points: Array, f: Array, R: Array, K: Array) -> None:
    """As for a contact, but each side has a point of its own, fixed in its body, and the axes are the world's."""
    dofs, bodies, cdof, before, after = tree.dofs, tree.bodies, tree.cdof, tree.before, tree.after
    weld = spec.shape == WELD
    for side in range(2):
        body = bodies[spec.body[side]]
        last, root, p = body.last_dof, body.root, points[side]
        sign = 1.0 - 2.0 * side  # rows measure body 0 against body 1; f acts on body 1
        x, y, z = p[0] - com[root, 0], p[1] - com[root, 1], p[2] - com[root, 2]
        k = last
        while k >= 0:
            sw0, sw1, sw2 = cdof[k, 0], cdof[k, 1], cdof[k, 2]
            sv0 = cdof[k, 3] + sw1 * z - sw2 * y
            sv1 = cdof[k, 4] + sw2 * x - sw0 * z
            sv2 = cdof[k, 5] + sw0 * y - sw1 * x
            a0, a1, a2 = after[last, 0] - before[k, 0], after[last, 1] - before[k, 1], after[last, 2] - before[k, 2]
            u0 = after[last, 3] - before[k, 3] + a1 * z - a2 * y
            u1 = after[last, 4] - before[k, 4] + a2 * x - a0 * z
            u2 = after[last, 5] - before[k, 5] + a0 * y - a1 * x
            o0, o1, o2 = after[last, 0], after[last, 1], after[last, 2]
            K[0, k] += sign * (sw1 * u2 - sw2 * u1 + sv1 * a2 - sv2 * a1 + o1 * sv2 - o2 * sv1)
            K[1, k] += sign * (sw2 * u0 - sw0 * u2 + sv2 * a0 - sv0 * a2 + o2 * sv0 - o0 * sv2)
            K[2, k] += sign * (sw0 * u1 - sw1 * u0 + sv0 * a1 - sv1 * a0 + o0 * sv1 - o1 * sv0)
            if weld:
                K[3, k] += sign * (sw1 * a2 - sw2 * a1)
                K[4, k] += sign * (sw2 * a0 - sw0 * a2)
                K[5, k] += sign * (sw0 * a1 - sw1 * a0)
            m0, m1, m2 = sv1 * f[2] - sv2 * f[1], sv2 * f[0] - sv0 * f[2], sv0 * f[1] - sv1 * f[0]
            i = last
            while i >= 0:
                R[i, k] -= sign * (cdof[i, 0] * m0 + cdof[i, 1] * m1 + cdof[i, 2] * m2)
                i = dofs[i].parent
            k = dofs[k].parent


@inline
def _equality_terms(spec: Any, entries: Records, q: Array, v: Array, impulse: float, R: Array, K: Array) -> None:
    """A polynomial's slope changes along it."""
    x = line_value(entries, spec.middle, spec.stop, q, False) - spec.rest[1]
    curvature = polynomial(spec.polynomial, x)[2]
    rate = line_value(entries, spec.middle, spec.stop, v, True)
    for e in range(spec.middle, spec.stop):
        one = entries[e]
        K[one.dof] -= curvature * one.coefficient * rate
        for other in range(spec.middle, spec.stop):
            two = entries[other]
            R[two.dof, one.dof] -= impulse * curvature * one.coefficient * two.coefficient


@subroutine
def _ball_terms(spec: Any, q: Array, v: Array, impulse: float, R: Array, K: Array) -> None:
    """The axis of a ball joint's angle turns as the joint does."""
    axis, log_d = np.empty(3), np.empty((3, 3))
    angle, at = ball_angle(q, spec.joint[0], axis), spec.joint[1]
    right_jacobian_inverse(angle * axis, log_d)
    for k in range(3):
        along = axis[0] * log_d[0, k] + axis[1] * log_d[1, k] + axis[2] * log_d[2, k]
        for i in range(3):
            slope = (log_d[i, k] - axis[i] * along) / angle
            K[at + k] -= slope * v[at + i]
            R[at + i, at + k] -= impulse * slope
