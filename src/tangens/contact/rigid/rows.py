"""Rows and targets of contacts, limits, dry friction and equalities (paper 2, Eq. 39)."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from tangens.collision.rows import point_rows
from tangens.contact.rigid.constraints import (
    BALL_LIMIT,
    CONNECT,
    LINE_DRY,
    LINE_EQUAL,
    LINE_LIMIT,
    WELD,
)
from tangens.contact.rigid.detection import normal_velocity
from tangens.contact.rigid.laws import DRY, EQUALITY, LIMIT
from tangens.contact.rigid.options import ARRIVAL, CORRECTION, CORRECTION_SPEED, DAMPING, LAW, TIMESTEP
from tangens.dynamics.rotations import quat_log, quat_multiply, quat_rotate

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

_NEVER = 1e6  # a target that no velocity violates


@numba.njit(cache=True, error_model="numpy")
def restitution_of(geoms: Records, geom: IntArray) -> float:
    """A pair bounces as the bouncier of its geoms does."""
    return max(geoms[geom[0]].restitution, geoms[geom[1]].restitution)


@numba.njit(cache=True, error_model="numpy")
def set_contact_target(
    bodies: Records, geoms: Records, com: Array, after: Array, options: Array, contact: Any
) -> None:  # fmt: skip
    """What is added to the normal velocity before it must not be negative (paper 2, Eq. 39), and its slopes.

    An open gap may close within the step; an overlap is undone by a share of it. A body that bounces does so when it
    has arrived: it is not slowed down before, and where it leaves fast enough, its overlap needs no undoing.
    """
    gap, restitution, h = contact.gap, restitution_of(geoms, contact.geom), options[TIMESTEP]
    contact.target, contact.rate, contact.gain, contact.bounces = 0.0, 0.0, 0.0, 0
    if gap > options[ARRIVAL]:
        if restitution == 0.0:
            contact.target, contact.rate = gap / h, 1.0 / h
        else:
            contact.target = _NEVER
        return
    approach = normal_velocity(bodies, geoms, com, after, contact)
    undo, contact.rate = options[CORRECTION] * gap / h, options[CORRECTION] / h
    if undo < -options[CORRECTION_SPEED]:
        undo, contact.rate = -options[CORRECTION_SPEED], 0.0
    contact.target, contact.gain = undo - options[DAMPING] * approach, -options[DAMPING]
    if restitution * approach < contact.target:
        contact.target, contact.rate, contact.gain, contact.bounces = restitution * approach, 0.0, restitution, 1


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
def build_rows(
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
        block.kind, block.start, block.width, block.source = int(options[LAW]), r, 3, c
        block.bound, block.value = contact.friction, contact.gap
        J[r : r + 3] = 0.0
        one, two = geoms[contacts[c].geom[0]].body, geoms[contacts[c].geom[1]].body
        point_rows(dofs, bodies, one, two, contacts[c].position, contacts[c].frame, cdof, com, J[r : r + 3])
        for i in range(3):
            impulse[r + i], g[r + i], rates[r + i] = guess[3 * c + i], 0.0, 0.0
        g[r], rates[r] = contacts[c].target, contacts[c].rate
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
