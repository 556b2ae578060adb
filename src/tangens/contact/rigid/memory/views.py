"""What compiled code sees of a step: the model, the kinematics, and the contact problem with its solution.

Each is opened once, where compiled code is entered. While a step is taken, kinematics are MuJoCo's own arrays; its
derivative reads the copies on a tape.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.collision.contact_rows import GEOM
from tangens.collision.shapes import Hulls
from tangens.contact.rigid.assembly.constraints import unpack_constraints
from tangens.contact.rigid.memory.address_table import (
    CONSTRAINTS,
    CORNERS,
    ELEMENTS,
    FACE_NORMALS,
    FACES,
    FIRST_OF_KINEMATICS,
    GEOMS,
    GRAVITY,
    JOINTS,
    SETTINGS,
    TREE,
    numbers_at,
    rows_at,
    take,
    take_rows,
)
from tangens.contact.rigid.memory.settings import ROWS
from tangens.contact.rigid.memory.structs import struct
from tangens.contact.rigid.problem.contact_problem import BLOCK
from tangens.dynamics.kinematic_tree import unpack_tree
from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

CONTACT_RECORD = np.dtype(
    [
        ("position", np.float64, 3),
        ("frame", np.float64, 9),
        ("gap", np.float64),
        ("friction", np.float64),
        ("geom", np.int64, 2),
        ("target", np.float64),  # what is added to its normal velocity
        ("rate", np.float64),  # ∂target/∂gap
        ("gain", np.float64),  # ∂target/∂(velocity of approach)
        ("bounces", np.int64),
        ("chosen", np.int64),  # whether it takes part
        ("frictionless", np.int64),  # condim="1": whatever the friction of its geoms
    ]
)
_CONTACT_SIZE, _BLOCK_SIZE = CONTACT_RECORD.itemsize // 8, BLOCK.itemsize // 8


@struct
class Model:
    """What is fixed in a step."""

    h: float
    """Duration of the step [s]."""
    implicit_h: float
    """The same where joint dampers are implicit, else 0."""
    correction: float
    """Share of an overlap that is undone within the step."""
    settings: Array
    """The contact model's numbers, see `settings`."""
    dofs: Records
    bodies: Records
    column: IntArray
    """Of each entry of M."""
    geoms: Records
    hulls: Hulls
    specs: Records
    """Constraints besides contact, and their entries."""
    entries: Records
    joints: IntArray
    """Address in q, address in v, and whether it is a quaternion, of each coordinate or rotation."""
    gravity: Array
    elements: Array
    """Springs, dampers, tendons and actuators."""


@struct
class Kinematics:
    """The inputs of a step, and what MuJoCo derives of them, by MuJoCo's names where they are short."""

    q: Array
    v: Array
    u: Array
    tau: Array
    M: Array
    """Mass matrix, sparse."""
    cdof: Array
    """Motion axes about the tree's centre of mass, (nv, 6)."""
    cinert: Array
    com: Array
    """Centre of mass of each body's tree, (nbody, 3)."""
    geom_xpos: Array
    geom_xmat: Array
    xpos: Array
    xquat: Array
    passive: Array
    actuation: Array
    bias: Array


@struct
class Workspace:
    """The contact problem, its unknowns and its solution; n rows, nb blocks.

    Its arrays are addresses and own nothing. They end with the workspace, which compiled code lets go of after its last
    mention: not in the same expression as the last array.
    """

    memory: Array
    """Where all of it stands, see `offsets`."""
    counts: IntArray
    """Blocks and rows that take part."""
    contacts: Records
    blocks: Records
    v_free: Array
    v_next: Array
    L: Array
    """Factors of M + h·D."""
    d: Array
    J: Array
    """Rows, (n, nv)."""
    half: Array
    """Rows of J·L⁻¹·D^(−1/2), whose products make up G."""
    G: Array
    """Delassus matrix, flat; the first n·n entries count."""
    g: Array
    impulse: Array
    sigma: Array
    """Velocities that the rows measure, targets added."""
    rate: Array
    """∂target/∂(what a row measures)."""


@subroutine
def open_model(table: IntArray, h: float, implicit_h: float, correction: float) -> Model:
    """The model of an address table, for a step of the given duration."""
    dofs, bodies, column = unpack_tree(take(table, TREE))
    specs, entries = unpack_constraints(take(table, CONSTRAINTS))
    hulls = Hulls(take_rows(table, FACE_NORMALS, 3), take(table, FACES).view(np.int64), take_rows(table, CORNERS, 3))
    return Model(
        h, implicit_h, correction, take(table, SETTINGS), dofs, bodies, column, take(table, GEOMS).view(GEOM), hulls,
        specs, entries, take_rows(table, JOINTS, 3).view(np.int64), take(table, GRAVITY), take(table, ELEMENTS),
    )  # fmt: skip


@subroutine
def open_kinematics(table: IntArray) -> Kinematics:
    """MuJoCo's own arrays."""
    k = FIRST_OF_KINEMATICS
    return Kinematics(
        take(table, k), take(table, k + 1), take(table, k + 2), take(table, k + 3), take(table, k + 4),
        take_rows(table, k + 5, 6), take_rows(table, k + 6, 10), take_rows(table, k + 7, 3),
        take_rows(table, k + 8, 3), take_rows(table, k + 9, 9), take_rows(table, k + 10, 3),
        take_rows(table, k + 11, 4), take(table, k + 12), take(table, k + 13), take(table, k + 14),
    )  # fmt: skip


@inline
def offsets(nv: int, entries: int, contacts: int, blocks: int, rows: int) -> tuple[int, int, int, int, int, int]:
    """Where in a workspace contacts, blocks, velocities, rows, G and the unknowns end; `entries` is the length of M."""
    a = 2 + contacts * _CONTACT_SIZE
    b = a + blocks * _BLOCK_SIZE
    c = b + 3 * nv + entries
    d = c + 2 * rows * nv
    e = d + rows * rows
    return a, b, c, d, e, e + 4 * rows


@subroutine
def carve(memory: Array, nv: int, entries: int, contacts: int, blocks: int, rows: int) -> Workspace:
    """A workspace in plain memory."""
    n, at = rows, memory.ctypes.data
    a, b, c, d, e, _ = offsets(nv, entries, contacts, blocks, rows)
    return Workspace(
        memory,
        numbers_at(at, 0, 2).view(np.int64), numbers_at(at, 2, a - 2).view(CONTACT_RECORD),
        numbers_at(at, a, b - a).view(BLOCK), numbers_at(at, b, nv), numbers_at(at, b + nv, nv),
        numbers_at(at, b + 2 * nv, entries), numbers_at(at, c - nv, nv), rows_at(at, c, n, nv),
        rows_at(at, c + n * nv, n, nv), numbers_at(at, d, n * n), numbers_at(at, e, n), numbers_at(at, e + n, n),
        numbers_at(at, e + 2 * n, n), numbers_at(at, e + 3 * n, n),
    )  # fmt: skip


@subroutine
def new_workspace(model: Model, kin: Kinematics, contacts: int) -> Workspace:
    """Room for so many contacts, and for all other constraints of the model."""
    nv, entries, extra = kin.v.shape[0], kin.M.shape[0], int(model.settings[ROWS])
    blocks, rows = contacts + extra, 3 * contacts + extra
    memory = np.empty(offsets(nv, entries, contacts, blocks, rows)[5])
    return carve(memory, nv, entries, contacts, blocks, rows)
