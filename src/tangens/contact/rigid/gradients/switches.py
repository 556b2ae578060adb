"""How far a step is from the nearest switch of its contact laws: there, its derivative is another one.

Distances are velocities [m/s, rad/s], so that all laws share one scale: of a gap that stays open or a contact that
slides, its own velocity; of one that pushes or sticks, what its spare impulse would make of its velocity. A cylinder
that stands flat on a plane touches it at points that jump along its rim when it tilts, and of a mesh that lies flat
MuJoCo finds but three, around the lowest: the distance is the angular velocity that would tilt them so within the step.
Contacts with a height field jump from prism to prism, and count as on a switch.
Bodies that bounce do so in the step that finds them in contact: the distance is the velocity that would open or close
their gap within it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.assembly.every_row import every_row
from tangens.contact.rigid.gradients.linearization import Linearization, apply_B
from tangens.contact.rigid.memory.tape import CORRECTION, Solved
from tangens.contact.rigid.problem.contact_problem import (
    BOX,
    BREAKING,
    CONTACT,
    DRY,
    EQUALITY,
    LIMIT,
    SLIDING,
    STICKING,
)
from tangens.results import NO_SWITCH, Switch
from tangens.scene.support import element_name

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

_NAMES = {CONTACT: "contact", BOX: "contact", LIMIT: "limit"}
_PLANE, _HEIGHT_FIELD, _CYLINDER, _MESH = (
    int(getattr(mujoco.mjtGeom, f"mjGEOM_{name}")) for name in ("PLANE", "HFIELD", "CYLINDER", "MESH")
)
_AGREES = 1e-6  # equations that differ by no more, relative to the largest, say the same
_FIXED = 1e-9  # relative to the largest entry of all rows
Namer = Callable[[np.void], str]
"""What a block is called."""


class Crossing(NamedTuple):
    """Where a switch is, and what leads across."""

    block: np.void
    """Whose switch it is."""
    row: Array | None
    """The change of v⁺, as a row of a constraint, that has to grow; None if none leads there."""


def nearest_switch(
    table: IntArray, tape: Array, solved: Solved, fastest: float, bodies: IntArray, jumps: Array, name_of: Namer
) -> tuple[Switch, Crossing | None]:
    """The nearest switch of the step on a tape, and how to get across.

    `fastest` is the speed beyond which overlaps are not undone, `bodies` are those of the geoms, `jumps` are the
    distances at which contacts come, go or move at once.
    """
    J, target, blocks = every_row(table, tape)
    found = list[tuple[float, str, np.void, Array | None]]()
    for block in solved.blocks:
        if not _moves(solved.J[block["start"]], J):
            continue
        for distance, kind, row in _of_block(block, solved, float(tape[CORRECTION]), fastest):
            found.append((distance, kind, block, row))
    found += [(float(jumps[c]), "contact", block, None) for block in blocks if (c := int(block["source"])) >= 0]
    part = {(int(block["source"]), float(block["sign"])) for block in solved.blocks}
    for block in blocks:
        if block["kind"] in _NAMES and (int(block["source"]), float(block["sign"])) not in part:
            row = J[int(block["start"])]
            if _moves(row, J):
                distance = max(float(row @ solved.v_next + target[int(block["start"])]), 0.0)
                found.append((distance, _NAMES[int(block["kind"])], block, -row))
    distance, kind, block, row = min(found, key=lambda one: one[0], default=(math.inf, "", None, None))
    if block is None or distance == math.inf:
        return NO_SWITCH, None
    if row is not None and kind == "friction" and block["mode"] == STICKING:
        row = _against_all_friction(block, solved, bodies)
    return Switch(distance, kind, name_of(block)), Crossing(block, row)


def _against_all_friction(block: np.void, solved: Solved, bodies: IntArray) -> Array:
    """Motion against the friction between two bodies: they share it, and give way together."""
    pairs = bodies[solved.contacts["geom"]]
    out = np.zeros(solved.J.shape[1])
    for other in solved.blocks:
        if other["source"] >= 0 and (pairs[other["source"]] == pairs[block["source"]]).all():
            tangents = slice(int(other["start"]) + 1, int(other["start"]) + 3)
            out -= solved.impulse[tangents] @ solved.J[tangents]
    return out if out.any() else solved.J[block["start"]]


def first_to_part(lin: Linearization, solved: Solved) -> int | None:
    """A block that gives way with the first change of q: its rows and those of others contradict each other then.

    Redundant contacts of one rigid body agree, however it moves. Those of two straight legs that a joint limit holds do
    not: bend one, and the other one bears it all.
    """
    if not len(lin.active):
        return None
    asked = lin.K[0].copy()
    apply_B(lin.slide, asked)
    left_over = np.abs(asked - lin.A @ (lin.A_inverse @ asked)).max(axis=1)
    worst = int(left_over.argmax())
    if left_over[worst] <= _AGREES * np.abs(asked).max():
        return None
    row = int(lin.active[worst])
    return int(np.flatnonzero(solved.blocks["start"] <= row)[-1])


def nearest_closing(solved: Solved, name_of: Namer) -> Switch:
    """Of a stage that undoes overlaps, what is nearest to just touching: it bears load, and begins to yield there."""
    near = NO_SWITCH
    for block in solved.blocks:
        if block["kind"] in _NAMES and block["mode"] != BREAKING and abs(block["value"]) / solved.h < near.distance:
            near = Switch(abs(float(block["value"])) / solved.h, _NAMES[int(block["kind"])], name_of(block))
    return near


def largest_asked_in_pose(blocks: Records, target: Array, contacts: Records) -> float:
    """The largest velocity that overlaps and violated limits ask for, whoever takes part; of all rows there are."""
    asks = np.isin(blocks["kind"], tuple(_NAMES))
    bounces = blocks["source"] >= 0
    bounces[bounces] = contacts["bounces"][blocks["source"][bounces]] != 0
    return float((-target[blocks["start"][asks & ~bounces]]).max(initial=0.0))


def ball_at_rest(m: mujoco.MjModel, q: Array, solved: Solved) -> Switch:
    """Of ball joints at their rest, which have no axis and so no limit, the nearest to one: moved, they have both."""
    near = NO_SWITCH
    if m.opt.disableflags & int(mujoco.mjtDisableBit.mjDSBL_LIMIT):
        return near
    for joint in np.flatnonzero((m.jnt_type == int(mujoco.mjtJoint.mjJNT_BALL)) & (m.jnt_limited != 0)):
        at, dof = m.jnt_qposadr[joint], m.jnt_dofadr[joint]
        if not q[at + 1 : at + 4].any():
            speed = float(np.linalg.norm(solved.v_next[dof : dof + 3]))
            distance = max(float(m.jnt_range[joint, 1]) / solved.h - speed, 0.0)
            if distance < near.distance:
                near = Switch(distance, "limit", element_name(m, mujoco.mjtObj.mjOBJ_JOINT, int(joint)))
    return near


def tilting_jumps(m: mujoco.MjModel, solved: Solved, rotations: Array) -> Array:
    """How far contacts of a plane with a cylinder or mesh are from lying flat, given the rotations of all geoms.

    Those with a height field may always jump, from one of its prisms to the next.
    """
    out = np.full(len(solved.contacts), np.inf)
    for block in solved.blocks:
        c = int(block["source"])
        if c < 0 or (kind := m.geom_type[solved.contacts[c]["geom"][0]]) not in (_PLANE, _HEIGHT_FIELD):
            continue
        normal, turn = (rotations[g].reshape(3, 3) for g in solved.contacts[c]["geom"])
        two, until_closed = int(solved.contacts[c]["geom"][1]), 0.0
        if block["mode"] == BREAKING:
            until_closed = float(solved.sigma[block["start"]])
        if kind == _HEIGHT_FIELD:
            out[c] = until_closed
            continue
        if m.geom_type[two] == _CYLINDER:
            out[c] = max(until_closed, float(np.linalg.norm(np.cross(normal[:, 2], turn[:, 2]))) / solved.h)
        elif m.geom_type[two] == _MESH:
            out[c] = max(until_closed, _tilt_of_mesh(m, int(m.geom_dataid[two]), turn.T @ normal[:, 2]) / solved.h)
    return out


def bouncing_jumps(restitution: Array, solved: Solved) -> Array:
    """How far contacts of bodies that bounce are from opening or closing: they act at once, or not at all."""
    bounces = restitution[solved.contacts["geom"]].max(axis=1, initial=0.0) > 0.0
    return np.where(bounces, np.abs(solved.contacts["gap"]) / solved.h, np.inf)


def _tilt_of_mesh(m: mujoco.MjModel, mesh: int, normal: Array) -> float:
    """The angle until another vertex is the lowest."""
    start = m.mesh_vertadr[mesh]
    vertices = m.mesh_vert[start : start + m.mesh_vertnum[mesh]].astype(np.float64)
    heights = vertices @ normal
    lowest = int(heights.argmin())
    away = np.linalg.norm(np.cross(vertices - vertices[lowest], normal), axis=1)
    others = away > _FIXED * away.max(initial=0.0)
    return float(((heights - heights[lowest])[others] / away[others]).min(initial=np.inf))


def _moves(row: Array, J: Array) -> bool:
    """Whether anything moves what a row measures: overlapping geoms of one rigid part neither close nor open."""
    return bool(np.abs(row).max(initial=0.0) > _FIXED * np.abs(J).max(initial=0.0))


def _of_block(
    block: np.void, solved: Solved, correction: float, fastest: float
) -> Iterator[tuple[float, str, Array | None]]:
    """Distances of one block, with their kinds and what leads across."""
    kind, a, s, bound = int(block["kind"]), int(block["start"]), float(block["scale"]), float(block["bound"])
    impulse, sigma, J = solved.impulse, solved.sigma, solved.J
    if kind == EQUALITY:
        return
    if kind == DRY:
        slides = block["mode"] == SLIDING
        distance = abs(float(sigma[a])) if slides else max(s * (bound - abs(float(impulse[a]))), 0.0)
        yield distance, "dry friction", -np.sign(sigma[a] if slides else impulse[a]) * J[a]
        return
    if block["mode"] == BREAKING:
        yield max(float(sigma[a]), 0.0), _NAMES[kind], -J[a]
        return
    yield s * float(impulse[a]), _NAMES[kind], J[a]
    if block["value"] < 0.0 and correction > 0.0:
        yield abs(correction * float(block["value"]) / solved.h + fastest), _NAMES[kind], None
    tangents = slice(a + 1, a + 3)
    if kind == CONTACT and bound > 0.0:
        slip, pull = float(np.linalg.norm(sigma[tangents])), float(np.linalg.norm(impulse[tangents]))
        slides = block["mode"] == SLIDING
        distance = slip if slides else max(s * (bound * float(impulse[a]) - pull), 0.0)
        opposed = sigma[tangents] if slides else impulse[tangents]
        length = float(np.linalg.norm(opposed))
        yield distance, "friction", -(opposed / length) @ J[tangents] if length > 0.0 else J[a]
    elif kind == BOX and bound > 0.0:
        for i in (1, 2):
            slides = block["side"][i - 1] != 0.0
            spare = max(s * (bound * float(impulse[a]) - abs(float(impulse[a + i]))), 0.0)
            distance = abs(float(sigma[a + i])) if slides else spare
            side = np.sign(sigma[a + i] if slides else impulse[a + i])
            yield distance, "friction", -side * J[a + i] if side else J[a]
