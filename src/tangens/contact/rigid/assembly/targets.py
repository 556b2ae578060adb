"""Targets: the velocity that a constraint asks for, from what is left of its gap, limit or error (paper 2, Eq. 39)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.assembly.contacts import normal_velocity
from tangens.contact.rigid.memory.settings import ARRIVAL, CORRECTION_SPEED, DAMPING
from tangens.contact.rigid.memory.views import Kinematics, Model, Workspace
from tangens.dynamics.kinematic_tree import propagate_velocities
from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

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
def restitution_of(geoms: Records, geom: IntArray) -> float:
    """A pair bounces as the bouncier of its geoms does."""
    return max(geoms[geom[0]].restitution, geoms[geom[1]].restitution)


@inline
def _set_contact_target(model: Model, kin: Kinematics, after: Array, contact: Any) -> None:
    """What is added to the normal velocity before it must not be negative, and its slopes.

    An open gap may close within the step; an overlap is undone by a share of it. A body that bounces does so when it
    has arrived: it is not slowed down before, and where it leaves fast enough, its overlap needs no undoing.
    """
    gap, restitution, h = contact.gap, restitution_of(model.geoms, contact.geom), model.h
    damping, fastest = model.settings[DAMPING], model.settings[CORRECTION_SPEED]
    contact.target, contact.rate, contact.gain, contact.bounces = 0.0, 0.0, 0.0, 0
    if gap > (model.settings[ARRIVAL] if restitution > 0.0 else 0.0):
        if restitution == 0.0:
            contact.target, contact.rate = gap / h, 1.0 / h
        else:
            contact.target = _NEVER
        return
    approach = normal_velocity(model, kin, after, contact)
    undo, contact.rate = model.correction * gap / h, model.correction / h
    if undo < -fastest:
        undo, contact.rate = -fastest, 0.0
    contact.target, contact.gain = undo - damping * approach, -damping
    if restitution * approach < contact.target:
        contact.target, contact.rate, contact.gain, contact.bounces = restitution * approach, 0.0, restitution, 1


@inline
def limit_target(model: Model, value: float) -> tuple[float, float]:
    """Target of a limit with so much left, and its slope."""
    h, fastest = model.h, model.settings[CORRECTION_SPEED]
    if value > 0.0:
        return value / h, 1.0 / h
    undo = model.correction * value / h
    return (undo, model.correction / h) if undo > -fastest else (-fastest, 0.0)


@inline
def equality_target(model: Model, error: float) -> tuple[float, float]:
    """Velocity that undoes the error of an equality, and its slope."""
    rate, speed = model.correction / model.h, model.settings[CORRECTION_SPEED]
    if abs(rate * error) <= speed:
        return rate * error, rate
    return math.copysign(speed, error), 0.0
