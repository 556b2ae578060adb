"""The rows of contacts, limits, dry friction and equalities that take part in a step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tangens.contact.constraint_specs import (
    BALL_LIMIT,
    CONNECT,
    LINE_DRY,
    LINE_EQUAL,
    LINE_LIMIT,
    WELD,
)
from tangens.contact.rigid.assembly.contacts import contact_rows
from tangens.contact.rigid.assembly.targets import equality_target, limit_target
from tangens.contact.rigid.memory.settings import LAW
from tangens.contact.rigid.memory.views import Kinematics, Model, Workspace
from tangens.contact.rigid.problem.contact_problem import DRY, EQUALITY, LIMIT
from tangens.dynamics.rotations import quat_log, quat_multiply, quat_rotate
from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]


@subroutine
def build_rows(model: Model, kin: Kinematics, w: Workspace, limits: IntArray, guess: Array) -> None:
    """Rows, targets and first guesses of the constraints that take part, and their numbers.

    `limits` says which limits do, two sides for each constraint. `guess` has three impulses for each contact, then six
    for each constraint.
    """
    nc, law = w.contacts.shape[0], int(model.settings[LAW])
    J, g, rate, impulse = w.J, w.g, w.rate, w.impulse
    b, r = 0, 0
    for c in range(nc):
        contact = w.contacts[c]
        if not contact.chosen:
            continue
        block = w.blocks[b]
        block.kind, block.start, block.width, block.source = law, r, 3, c
        block.bound, block.value, block.sign = contact.friction, contact.gap, 1.0
        block.side[0], block.side[1] = 0.0, 0.0
        J[r : r + 3] = 0.0
        contact_rows(model, kin, contact, J[r : r + 3])
        for i in range(3):
            impulse[r + i], g[r + i], rate[r + i] = guess[3 * c + i], 0.0, 0.0
        g[r], rate[r] = contact.target, contact.rate
        b, r = b + 1, r + 3
    for s in range(model.specs.shape[0]):
        spec = model.specs[s]
        shape = spec.shape
        for side in range(2 if shape == LINE_LIMIT else 1):
            if shape in (LINE_LIMIT, BALL_LIMIT) and not limits[2 * s + side]:
                continue
            block, width = w.blocks[b], 6 if shape == WELD else 3 if shape == CONNECT else 1
            block.start, block.width, block.source = r, width, -1 - s
            block.sign, block.bound, block.value = 1.0 - 2.0 * side, 0.0, 0.0
            block.side[0], block.side[1] = 0.0, 0.0
            J[r : r + width] = 0.0
            _constraint_rows(model, kin, spec, block, r, J, g, rate)
            for i in range(width):
                impulse[r + i] = guess[3 * nc + 6 * s + side + i]
            b, r = b + 1, r + width
    w.counts[0], w.counts[1] = b, r


@subroutine
def build_every_row(model: Model, kin: Kinematics, w: Workspace) -> None:
    """The same of all contacts and constraints there are, from no guess."""
    nc, ns = w.contacts.shape[0], model.specs.shape[0]
    for c in range(nc):
        w.contacts[c].chosen = 1
    build_rows(model, kin, w, np.ones(2 * ns, dtype=np.int64), np.zeros(3 * nc + 6 * ns))


@subroutine
def _constraint_rows(
    model: Model, kin: Kinematics, spec: Any, block: Any, r: int, J: Array, g: Array, rate: Array
) -> None:
    """The rows of a constraint besides contact."""
    if block.width > 1:
        block.kind = EQUALITY
        _tie_rows(model, kin, spec, r, J, g, rate)
    elif spec.shape == LINE_DRY:
        block.kind, block.bound = DRY, model.h * spec.bound
        g[r], rate[r] = 0.0, 0.0
        for e in range(spec.start, spec.middle):
            J[r, model.entries[e].dof] += model.entries[e].coefficient
    elif spec.shape == LINE_EQUAL:
        block.kind = EQUALITY
        _equality_row(model, spec, kin.q, r, J, g, rate)
    else:
        block.kind = LIMIT
        _limit_row(model, spec, kin.q, block, r, J, g, rate)


@inline
def line_value(entries: Records, start: int, stop: int, x: Array, by_dof: bool) -> float:
    """Length of a line at a configuration, or its rate at a velocity."""
    total = 0.0
    for e in range(start, stop):
        total += entries[e].coefficient * x[entries[e].dof if by_dof else entries[e].coordinate]
    return total


@inline
def ball_angle(q: Array, at: int, axis: Array) -> float:
    """Angle of a ball joint and its axis; a joint at zero has no axis, and no limit near it."""
    quat_log(q[at : at + 4], axis)
    angle = math.sqrt(axis[0] ** 2 + axis[1] ** 2 + axis[2] ** 2)
    for i in range(3):
        axis[i] = axis[i] / angle if angle > 0.0 else 0.0
    return angle


@inline
def polynomial(p: Array, x: float) -> tuple[float, float, float]:
    """p(x), its slope and its curvature."""
    return (
        p[0] + x * (p[1] + x * (p[2] + x * (p[3] + x * p[4]))),
        p[1] + x * (2.0 * p[2] + x * (3.0 * p[3] + x * 4.0 * p[4])),
        2.0 * p[2] + x * (6.0 * p[3] + x * 12.0 * p[4]),
    )


@inline
def _limit_row(model: Model, spec: Any, q: Array, block: Any, r: int, J: Array, g: Array, rate: Array) -> None:
    entries = model.entries
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
    g[r], rate[r] = limit_target(model, block.value)


@inline
def _equality_row(model: Model, spec: Any, q: Array, r: int, J: Array, g: Array, rate: Array) -> None:
    entries = model.entries
    x = line_value(entries, spec.middle, spec.stop, q, False) - spec.rest[1]
    value, slope, _ = polynomial(spec.polynomial, x)
    error = line_value(entries, spec.start, spec.middle, q, False) - spec.rest[0] - value
    for e in range(spec.start, spec.middle):
        J[r, entries[e].dof] += entries[e].coefficient
    for e in range(spec.middle, spec.stop):
        J[r, entries[e].dof] -= slope * entries[e].coefficient
    g[r], rate[r] = equality_target(model, error)


@inline
def tie_points(spec: Any, xpos: Array, xquat: Array, points: Array) -> None:
    """Where the two anchors are, shape (2, 3)."""
    x = np.empty(3)
    for side in range(2):
        body = spec.body[side]
        quat_rotate(xquat[body], spec.anchor[3 * side : 3 * side + 3], x)
        for i in range(3):
            points[side, i] = xpos[body, i] + x[i]


@subroutine
def _tie_rows(model: Model, kin: Kinematics, spec: Any, r: int, J: Array, g: Array, rate: Array) -> None:
    """Body 0's anchor relative to body 1's in world axes; for a weld the angular velocity too."""
    dofs, bodies, cdof, com, xpos, xquat = model.dofs, model.bodies, kin.cdof, kin.com, kin.xpos, kin.xquat
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
        g[r + i], rate[r + i] = equality_target(model, error[i])
