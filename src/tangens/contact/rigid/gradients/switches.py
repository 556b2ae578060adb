"""How far a step is from the nearest switch of its contact laws: there, its derivative is another one.

Distances are velocities [m/s, rad/s], so that all laws share one scale: of a gap that stays open or a contact that
slides, its own velocity; of one that pushes or sticks, what its spare impulse would make of its velocity. A cylinder
that stands flat on a plane touches it at points that jump along its rim when it tilts, and of a mesh that lies flat
MuJoCo finds but three, around the lowest: the distance is the angular velocity that would tilt them so within the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.assembly.every_row import every_row
from tangens.contact.rigid.gradients.linearization import Linearization, apply_B
from tangens.contact.rigid.memory.tape import CORRECTION, Solved
from tangens.contact.rigid.problem.contact_problem import BOX, BREAKING, CONTACT, DRY, EQUALITY, LIMIT, SLIDING
from tangens.results import NO_SWITCH, Switch

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

_NAMES = {CONTACT: "contact", BOX: "contact", LIMIT: "limit"}
_PLANE, _CYLINDER, _MESH = (int(getattr(mujoco.mjtGeom, f"mjGEOM_{name}")) for name in ("PLANE", "CYLINDER", "MESH"))
_AGREES = 1e-6  # equations that differ by no more, relative to the largest, say the same
_FIXED = 1e-9  # relative to the largest entry of all rows
Namer = Callable[[np.void], str]
"""What a block is called."""
Tilts = Array
"""Of each contact of a plane with a cylinder or mesh, the sine of its angle to lying flat; else infinite."""


def nearest_switch(
    table: IntArray, tape: Array, solved: Solved, fastest: float, tilts: Tilts, name_of: Namer
) -> tuple[Switch, int | None]:
    """The nearest switch of the step on a tape, and the block of its problem that has it, if it took part.

    `fastest` is the speed beyond which overlaps are not undone.
    """
    near, owner, who = NO_SWITCH, None, None
    J, target, blocks = every_row(table, tape)
    for b, block in enumerate(solved.blocks):
        if not _moves(solved.J[block["start"]], J):
            continue
        for distance, kind in _of_block(block, solved, float(tape[CORRECTION]), fastest):
            if distance < near.distance:
                near, owner, who = Switch(distance, kind, ""), b, block
        source, is_open = int(block["source"]), block["mode"] == BREAKING
        jump = max(float(solved.sigma[block["start"]]) if is_open else 0.0, _until_flat(tilts, source, solved.h))
        if jump < near.distance:
            near, owner, who = Switch(jump, "contact", ""), b, block
    part = {(int(block["source"]), float(block["sign"])) for block in solved.blocks}
    for block in blocks:
        if block["kind"] in _NAMES and (int(block["source"]), float(block["sign"])) not in part:
            row = int(block["start"])
            if not _moves(J[row], J):
                continue
            distance = float(J[row] @ solved.v_next + target[row])
            if distance < near.distance:
                near, owner, who = Switch(max(distance, 0.0), _NAMES[int(block["kind"])], ""), None, block
    return (near if who is None else near._replace(where=name_of(who))), owner


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


def tilts_of(m: mujoco.MjModel, contacts: Records, rotations: Array) -> Tilts:
    """Of the contacts of a step, given the rotations of all geoms, (ngeom, 9)."""
    out = np.full(len(contacts), np.inf)
    for c, contact in enumerate(contacts):
        one, two = contact["geom"]
        if m.geom_type[one] != _PLANE:
            continue
        normal, turn = rotations[one].reshape(3, 3)[:, 2], rotations[two].reshape(3, 3)
        if m.geom_type[two] == _CYLINDER:
            out[c] = np.linalg.norm(np.cross(normal, turn[:, 2]))
        elif m.geom_type[two] == _MESH:
            out[c] = _tilt_of_mesh(m, int(m.geom_dataid[two]), turn.T @ normal)
    return out


def _tilt_of_mesh(m: mujoco.MjModel, mesh: int, normal: Array) -> float:
    """The angle until another vertex is the lowest."""
    start = m.mesh_vertadr[mesh]
    vertices = m.mesh_vert[start : start + m.mesh_vertnum[mesh]].astype(np.float64)
    heights = vertices @ normal
    lowest = int(heights.argmin())
    away = np.linalg.norm(np.cross(vertices - vertices[lowest], normal), axis=1)
    others = away > _FIXED * away.max(initial=0.0)
    return float(((heights - heights[lowest])[others] / away[others]).min(initial=np.inf))


def _until_flat(tilts: Tilts, source: int, h: float) -> float:
    return float(tilts[source]) / h if source >= 0 else math.inf


def _moves(row: Array, J: Array) -> bool:
    """Whether anything moves what a row measures: overlapping geoms of one rigid part neither close nor open."""
    return bool(np.abs(row).max(initial=0.0) > _FIXED * np.abs(J).max(initial=0.0))


def _of_block(block: np.void, solved: Solved, correction: float, fastest: float) -> Iterator[tuple[float, str]]:
    """Distances of one block, with their kinds."""
    kind, a, s, bound = int(block["kind"]), int(block["start"]), float(block["scale"]), float(block["bound"])
    impulse, sigma = solved.impulse, solved.sigma
    if kind == EQUALITY:
        return
    if kind == DRY:
        slides = block["mode"] == SLIDING
        yield (abs(float(sigma[a])) if slides else max(s * (bound - abs(float(impulse[a]))), 0.0)), "dry friction"
        return
    if block["mode"] == BREAKING:
        yield max(float(sigma[a]), 0.0), _NAMES[kind]
        return
    yield s * float(impulse[a]), _NAMES[kind]
    if block["value"] < 0.0 and correction > 0.0:
        yield abs(correction * float(block["value"]) / solved.h + fastest), _NAMES[kind]
    if kind == CONTACT and bound > 0.0:
        slip, pull = math.hypot(*sigma[a + 1 : a + 3]), math.hypot(*impulse[a + 1 : a + 3])
        yield (slip if block["mode"] == SLIDING else max(s * (bound * float(impulse[a]) - pull), 0.0)), "friction"
    elif kind == BOX and bound > 0.0:
        for i in range(2):
            spare = max(s * (bound * float(impulse[a]) - abs(float(impulse[a + 1 + i]))), 0.0)
            yield (abs(float(sigma[a + 1 + i])) if block["side"][i] != 0.0 else spare), "friction"
