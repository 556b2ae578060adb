"""Who takes part in the contact problem of a step.

Only constraints that could push do: those that the free velocity would violate and those that pushed in the guess.
Those that the answer violates are added, and the problem is solved again; so the answer is that of the whole problem,
at the cost of its active part.

A *guess* is one plain array: the number of contacts; six impulses for each constraint besides contact; then, for each
contact, its two geoms and three impulses.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.contact.constraint_specs import BALL_LIMIT, LINE_LIMIT
from tangens.contact.rigid.assembly.constraint_rows import ball_angle, line_value
from tangens.contact.rigid.assembly.contacts import normal_velocity
from tangens.contact.rigid.assembly.targets import limit_target
from tangens.contact.rigid.memory.views import Kinematics, Model, Workspace
from tangens.contact.rigid.problem.contact_problem import LIMIT
from tangens.kernels import subroutine

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]


@subroutine
def add_violated(model: Model, kin: Kinematics, w: Workspace, after: Array, limits: IntArray, slack: float) -> int:
    """Let contacts and limits take part whose velocity, target included, is below `slack`; returns how many are new."""
    specs, entries, q, v_next = model.specs, model.entries, kin.q, w.v_next
    nc = w.contacts.shape[0]
    joined = 0
    for c in range(nc):
        if not w.contacts[c].chosen and normal_velocity(model, kin, after, w.contacts[c]) < slack:
            w.contacts[c].chosen, joined = 1, joined + 1
    for s in range(specs.shape[0]):
        spec = specs[s]
        if spec.shape == LINE_LIMIT:
            x = line_value(entries, spec.start, spec.middle, q, False)
            rate = line_value(entries, spec.start, spec.middle, v_next, True)
            for side in range(2):
                left, speed = (x - spec.low, rate) if side == 0 else (spec.high - x, -rate)
                asked = limit_target(model, left)[0]
                if not limits[2 * s + side] and speed + asked < slack:
                    limits[2 * s + side], joined = 1, joined + 1
        elif spec.shape == BALL_LIMIT and not limits[2 * s]:
            axis, speed = np.empty(3), 0.0
            left = spec.high - ball_angle(q, spec.joint[0], axis)
            for i in range(3):
                speed -= axis[i] * v_next[spec.joint[1] + i]
            if speed + limit_target(model, left)[0] < slack:
                limits[2 * s], joined = 1, joined + 1
    return joined


@subroutine
def keep_impulses(w: Workspace, impulses: Array) -> None:
    """File the impulses by contact and constraint, whatever blocks the next round has."""
    nc = w.contacts.shape[0]
    for b in range(w.counts[0]):
        block = w.blocks[b]
        at = 3 * block.source
        if block.source < 0:
            at = 3 * nc + 6 * (-1 - block.source) + (1 if block.kind == LIMIT and block.sign < 0.0 else 0)
        for i in range(block.width):
            impulses[at + i] = w.impulse[block.start + i]


@subroutine
def read_guess(model: Model, w: Workspace, guess: Array, impulses: Array, limits: IntArray) -> None:
    """Impulses of a guess, for the same constraints and contacts of the same geoms in the same order; these take part.

    An empty guess is none: then nobody does.
    """
    specs, contacts = model.specs, w.contacts
    ns, nc = 6 * specs.shape[0], contacts.shape[0]
    for c in range(nc):
        contacts[c].chosen = 0
    if not guess.shape[0]:
        return
    for i in range(ns):
        impulses[3 * nc + i] = guess[1 + i]
    for s in range(specs.shape[0]):
        if specs[s].shape == LINE_LIMIT or specs[s].shape == BALL_LIMIT:
            for side in range(2):
                limits[2 * s + side] = guess[1 + 6 * s + side] > 0.0
    count, j = int(guess[0]), 0
    for c in range(nc):
        for k in range(j, count):
            at = 1 + ns + 5 * k
            if guess[at] == contacts[c].geom[0] and guess[at + 1] == contacts[c].geom[1]:
                for i in range(3):
                    impulses[3 * c + i] = guess[at + 2 + i]
                contacts[c].chosen = impulses[3 * c] > 0.0
                j = k + 1
                break


@subroutine
def write_guess(model: Model, w: Workspace, impulses: Array) -> Array:
    """For the next step's `read_guess`."""
    ns, nc = 6 * model.specs.shape[0], w.contacts.shape[0]
    guess = np.empty(1 + ns + 5 * nc)
    guess[0] = nc
    for i in range(ns):
        guess[1 + i] = impulses[3 * nc + i]
    for c in range(nc):
        at, contact = 1 + ns + 5 * c, w.contacts[c]
        guess[at], guess[at + 1] = contact.geom[0], contact.geom[1]
        for i in range(3):
            guess[at + 2 + i] = impulses[3 * c + i] if contact.chosen else 0.0
    return guess
