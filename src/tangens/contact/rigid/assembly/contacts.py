"""How contacts come from MuJoCo's memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tangens.collision.accuracy import refine_contact
from tangens.collision.contact_rows import point_rows
from tangens.collision.nearest import is_clipped, is_nearest
from tangens.collision.shapes import FACING, FEATURE, UNKNOWN, find_feature
from tangens.contact.rigid.assembly.tangents import set_tangents
from tangens.contact.rigid.memory.address_table import ARENA, ARENA_LAYOUT, take
from tangens.contact.rigid.memory.views import CONTACT_RECORD, Kinematics, Model, open_kinematics, open_model
from tangens.dynamics.kinematic_tree import propagate_velocities
from tangens.kernels import booleans, fixed_floats, inline, integer, ints, kernel, number, subroutine

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

# Entries of `layout`: where a contact's fields stand in MuJoCo's memory, in doubles. The last three count in int32.
STRIDE, POSITION, FRAME, DISTANCE, FRICTION, GEOM_PAIR, DIMENSION, STRIDE32 = range(8)
_NO_FRICTION = 1e-5  # MuJoCo's mjMINMU
_REFINED = 2e-3  # contacts that come so close within the step are worth correcting [m]


@kernel(ints(2), integer, number)
def refine_contacts(table: IntArray, nc: int, h: float) -> None:
    """Correct what MuJoCo found between curved shapes, in its own memory, for contacts that may push in this step."""
    model, kin = open_model(table, h, 0.0, 0.0), open_kinematics(table)
    layout, arena = take(table, ARENA_LAYOUT).view(np.int64), take(table, ARENA)
    arena32, nv = arena.view(np.int32), model.dofs.shape[0]
    before, after = np.empty((nv, 6)), np.empty((nv, 6))
    propagate_velocities(model.dofs, kin.cdof, kin.v, before, after)
    contact = np.zeros(1, dtype=CONTACT_RECORD)
    for c in range(nc):
        _read_contact(arena, arena32, layout, c, contact[0])
        if contact[0].gap + h * normal_velocity(model, kin, after, contact[0]) < _REFINED:
            base = c * layout[STRIDE]
            p = arena[base + layout[POSITION] : base + layout[POSITION] + 3]
            frame = arena[base + layout[FRAME] : base + layout[FRAME] + 9]
            pair = contact[0].geom
            gap = refine_contact(model.geoms, model.hulls, pair, kin.geom_xpos, kin.geom_xmat, p, frame, contact[0].gap)
            arena[base + layout[DISTANCE]] = gap


@kernel(ints(2), integer)
def false_patches(table: IntArray, nc: int) -> IntArray:
    """First and last contact of each pair whose deepest one is not where its geoms are nearest, shape (n, 2)."""
    model, kin = open_model(table, 0.0, 0.0, 0.0), open_kinematics(table)
    layout, arena = take(table, ARENA_LAYOUT).view(np.int64), take(table, ARENA)
    arena32 = arena.view(np.int32)
    deepest, other = np.zeros(1, dtype=CONTACT_RECORD), np.zeros(1, dtype=CONTACT_RECORD)
    out, count, c = np.empty((nc, 2), dtype=np.int64), 0, 0
    while c < nc:
        start = c
        _read_contact(arena, arena32, layout, c, deepest[0])
        one, two = deepest[0].geom[0], deepest[0].geom[1]
        c += 1
        if not is_clipped(model.geoms, one, two):
            continue
        while c < nc:
            _read_contact(arena, arena32, layout, c, other[0])
            if other[0].geom[0] != one or other[0].geom[1] != two:
                break
            if other[0].gap < deepest[0].gap:
                deepest[0] = other[0]
            c += 1
        n, gap = deepest[0].frame[:3], deepest[0].gap
        if not is_nearest(model.geoms, model.hulls, one, two, kin.geom_xpos, kin.geom_xmat, n, gap):
            out[count, 0], out[count, 1] = start, c - 1
            count += 1
    return out[:count]


@kernel(ints(2), ints(1), fixed_floats(1), fixed_floats(1), number)
def is_point(table: IntArray, pair: IntArray, p: Array, frame: Array, gap: float) -> bool:
    """Whether two geoms touch at one point: corner and face, or two edges; an edge along a face may do so anywhere."""
    model, kin = open_model(table, 0.0, 0.0, 0.0), open_kinematics(table)
    feature, x, flats = np.empty(FEATURE), np.empty(3), 0
    for side in range(2):
        sign = 1.0 - 2.0 * side
        for i in range(3):
            x[i] = p[i] - 0.5 * sign * gap * frame[i]
        found = find_feature(
            model.geoms, model.hulls, pair[side], kin.geom_xpos, kin.geom_xmat, frame, x[0], x[1], x[2], sign, feature
        )
        flats += 2 if found == UNKNOWN else found % FACING
    return flats <= 2


@kernel(ints(2), booleans(1))
def keep_contacts(table: IntArray, kept: NDArray[np.bool_]) -> int:
    """Move the contacts that are kept together in MuJoCo's own memory; returns their number."""
    stride, arena = take(table, ARENA_LAYOUT).view(np.int64)[STRIDE], take(table, ARENA)
    count = 0
    for c in range(kept.shape[0]):
        if kept[c]:
            for i in range(stride):
                arena[count * stride + i] = arena[c * stride + i]
            count += 1
    return count


@subroutine
def read_contacts(table: IntArray, contacts: Records) -> None:
    """Copy what MuJoCo found: the next step writes over it."""
    layout, arena = take(table, ARENA_LAYOUT).view(np.int64), take(table, ARENA)
    arena32 = arena.view(np.int32)
    for c in range(contacts.shape[0]):
        _read_contact(arena, arena32, layout, c, contacts[c])


@kernel(ints(2), integer)
def bouncing_normals(table: IntArray, nc: int) -> Array:
    """Index, gap, the two geoms and the normal's row of each contact with restitution, shape (n, 4 + nv)."""
    model, kin = open_model(table, 0.0, 0.0, 0.0), open_kinematics(table)
    geoms, layout, arena = model.geoms, take(table, ARENA_LAYOUT).view(np.int64), take(table, ARENA)
    arena32, nv, count = arena.view(np.int32), model.dofs.shape[0], 0
    contact, out = np.zeros(1, dtype=CONTACT_RECORD), np.zeros((nc, 4 + nv))
    rows = np.empty((3, nv))
    for c in range(nc):
        _read_contact(arena, arena32, layout, c, contact[0])
        one, two = contact[0].geom[0], contact[0].geom[1]
        if geoms[one].restitution > 0.0 or geoms[two].restitution > 0.0:
            rows[:] = 0.0
            contact_rows(model, kin, contact[0], rows)
            out[count, 0], out[count, 1], out[count, 2], out[count, 3] = c, contact[0].gap, one, two
            out[count, 4:] = rows[0]
            count += 1
    return out[:count]


@inline
def contact_rows(model: Model, kin: Kinematics, contact: Any, J: Array) -> None:
    """Add the three rows of a contact to J."""
    one, two = model.geoms[contact.geom[0]].body, model.geoms[contact.geom[1]].body
    point_rows(model.dofs, model.bodies, one, two, contact.position, contact.frame, kin.cdof, kin.com, J)


@inline
def _read_contact(arena: Array, arena32: NDArray[np.int32], layout: IntArray, c: int, contact: Any) -> None:
    base = c * layout[STRIDE]
    for i in range(3):
        contact.position[i] = arena[base + layout[POSITION] + i]
    for i in range(3):
        contact.frame[i] = arena[base + layout[FRAME] + i]
    set_tangents(contact.frame)
    contact.gap, contact.friction = arena[base + layout[DISTANCE]], arena[base + layout[FRICTION]]
    contact.frictionless = arena32[c * layout[STRIDE32] + layout[DIMENSION]] == 1
    if contact.frictionless or contact.friction <= _NO_FRICTION:  # MuJoCo raises a friction of 0 to that
        contact.friction = 0.0
    for i in range(2):
        contact.geom[i] = arena32[c * layout[STRIDE32] + layout[GEOM_PAIR] + i]


@inline
def normal_velocity(model: Model, kin: Kinematics, after: Array, contact: Any) -> float:
    """Velocity of a contact along its normal, its target added; `after` are the bodies' velocities."""
    bodies, geoms, com, total = model.bodies, model.geoms, kin.com, contact.target
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
