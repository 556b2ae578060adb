"""Targets: the velocity that a constraint asks for, from what is left of its gap, limit or error (paper 2, Eq. 39)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.assembly.contacts import normal_velocity
from tangens.contact.rigid.memory.settings import ARRIVAL, CORRECTION_SPEED, DAMPING, HORIZON
from tangens.contact.rigid.memory.views import Kinematics, Model, Workspace
from tangens.contact.rigid.problem.contact_problem import EQUALITY
from tangens.dynamics.kinematic_tree import propagate_velocities
from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

APPROACHES = 1e-6  # slower than this, bodies that touch do not meet [m/s]
_NEVER = 1e6  # a target that no velocity violates [m/s]


@subroutine
def set_contact_targets(model: Model, kin: Kinematics, w: Workspace) -> None:
    """The target of each contact, from its gap and its velocity of approach."""
    nv = kin.v.shape[0]
    before, after = np.empty((nv, 6)), np.empty((nv, 6))
    if w.contacts.shape[0]:
        propagate_velocities(model.dofs, kin.cdof, kin.v, before, after)
    for c in range(w.contacts.shape[0]):
        _set_contact_target(model, kin, after, w.contacts[c])


@inline
def largest_asked(w: Workspace) -> float:
    """The largest velocity that overlaps, limits and equalities ask for, as long as rows hold targets alone."""
    most = 0.0
    for b in range(w.counts[0]):
        block = w.blocks[b]
        if block.kind == EQUALITY:
            for i in range(block.start, block.start + block.width):
                most = max(most, abs(w.g[i]))
        elif block.source < 0 or not w.contacts[block.source].bounces:
            most = max(most, -w.g[block.start])
    return most


@inline
def _horizon(model: Model) -> float:
    """The time within which gaps may close and overlaps are undone: the step, of which this one may be a piece."""
    return max(model.h, model.settings[HORIZON])


@inline
def _has_closed(model: Model, value: float) -> bool:
    """Whether a gap or limit bears load at once: in an impact, those do that touch to within rounding."""
    return value <= (model.settings[ARRIVAL] if model.settings[HORIZON] < 0.0 else 0.0)


@inline
def restitution_of(geoms: Records, geom: IntArray) -> float:
    """A pair bounces as the bouncier of its geoms does."""
    return max(geoms[geom[0]].restitution, geoms[geom[1]].restitution)


@inline
def _set_contact_target(model: Model, kin: Kinematics, after: Array, contact: Any) -> None:
    """What is added to the normal velocity before it must not be negative, and its slopes.

    An open gap may close within the step; an overlap is undone by a share of it. A body that bounces does so when it
    has arrived: it is not slowed down before, and where it leaves fast enough, its overlap needs no undoing. A negative
    ARRIVAL leaves out what is about to bounce, see `impacts`; what rests is borne.
    """
    gap, restitution, h = contact.gap, restitution_of(model.geoms, contact.geom), _horizon(model)
    damping, fastest = model.settings[DAMPING], model.settings[CORRECTION_SPEED]
    contact.target, contact.rate, contact.gain, contact.bounces = 0.0, 0.0, 0.0, 0
    arrival = model.settings[ARRIVAL] if restitution > 0.0 else 0.0
    if gap > abs(arrival):
        if restitution == 0.0 and _has_closed(model, gap):
            return
        if restitution == 0.0:
            contact.target, contact.rate = gap / h, 1.0 / h
        else:
            contact.target = _NEVER
        return
    approach = normal_velocity(model, kin, after, contact)
    if arrival < 0.0 and approach < -APPROACHES:
        contact.target = _NEVER
        return
    undo, contact.rate = model.correction * gap / h, model.correction / h
    if undo < -fastest:
        undo, contact.rate = -fastest, 0.0
    contact.target, contact.gain = undo - damping * approach, -damping
    if restitution * approach < contact.target and arrival < math.inf:
        contact.target, contact.rate, contact.gain, contact.bounces = restitution * approach, 0.0, restitution, 1


@inline
def limit_target(model: Model, value: float) -> tuple[float, float]:
    """Target of a limit with so much left, and its slope."""
    h, fastest = _horizon(model), model.settings[CORRECTION_SPEED]
    if value > 0.0:
        return (0.0, 0.0) if _has_closed(model, value) else (value / h, 1.0 / h)
    undo = model.correction * value / h
    return (undo, model.correction / h) if undo > -fastest else (-fastest, 0.0)


@inline
def equality_target(model: Model, error: float) -> tuple[float, float]:
    """Velocity that undoes the error of an equality, and its slope."""
    rate, speed = model.correction / _horizon(model), model.settings[CORRECTION_SPEED]
    if abs(rate * error) <= speed:
        return rate * error, rate
    return math.copysign(speed, error), 0.0
