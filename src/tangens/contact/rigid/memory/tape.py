"""A tape: all that the derivative of one step needs, as one plain array.

    header | MuJoCo's arrays, in the order of `address_table.KINEMATICS` | how far geoms looked for contacts |
    the solved workspace, without its spare room

It is written once, when the step has been solved, and only read afterwards: derivatives work on views of it, so they
cannot depend on what was asked in between, and any thread can take them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.memory.address_table import FIRST_OF_KINEMATICS, KINEMATICS, numbers_at, rows_at, take
from tangens.contact.rigid.memory.views import (
    CONTACT_RECORD,
    Kinematics,
    Model,
    Workspace,
    carve,
    offsets,
    open_model,
)
from tangens.contact.rigid.problem.contact_problem import BLOCK
from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

CONTACTS, BLOCKS, ROWS, DURATION, IMPLICIT, CORRECTION, WORKSPACE = range(7)
"""Entries of the header: numbers of contacts, blocks and rows; settings of the step; where the workspace begins."""
_HEADER = 8  # an even number, so that all arrays are aligned
_ARRAYS = len(KINEMATICS) + 1
_BLOCK_SIZE = BLOCK.itemsize // 8


@subroutine
def record(table: IntArray, model: Model, w: Workspace) -> Array:
    """Write the tape of a solved step."""
    nc, nb, n, nv = w.contacts.shape[0], w.counts[0], w.counts[1], w.v_next.shape[0]
    entries, start = w.L.shape[0], _HEADER
    for k in range(_ARRAYS):
        start += table[FIRST_OF_KINEMATICS + k, 1]
    tape = np.empty(start + offsets(nv, entries, nc, nb, n)[5])
    tape[CONTACTS], tape[BLOCKS], tape[ROWS], tape[WORKSPACE] = nc, nb, n, start
    tape[DURATION], tape[IMPLICIT], tape[CORRECTION] = model.h, model.implicit_h, model.correction
    at = _HEADER
    for k in range(_ARRAYS):
        array = take(table, FIRST_OF_KINEMATICS + k)
        for i in range(array.shape[0]):
            tape[at + i] = array[i]
        at += array.shape[0]
    room = w.g.shape[0]
    a, b, c, d, e, _ = offsets(nv, entries, nc, w.blocks.shape[0], room)
    at = _write(tape, at, w.memory, 0, a + nb * _BLOCK_SIZE)
    at = _write(tape, at, w.memory, b, c - b)
    at = _write(tape, at, w.memory, c, n * nv)
    at = _write(tape, at, w.memory, c + room * nv, n * nv)
    at = _write(tape, at, w.memory, d, n * n)
    for k in range(4):
        at = _write(tape, at, w.memory, e + k * room, n)
    return tape


@inline
def _write(tape: Array, at: int, memory: Array, start: int, count: int) -> int:
    for i in range(count):
        tape[at + i] = memory[start + i]
    return at + count


@subroutine
def open_tape(table: IntArray, tape: Array) -> tuple[Model, Kinematics, Workspace]:
    """The model, the kinematics and the solved problem of a step: views of the tape, which outlives them."""
    model = open_model(table, tape[DURATION], tape[IMPLICIT], tape[CORRECTION])
    ends, at = np.empty(_ARRAYS + 1, dtype=np.int64), tape.ctypes.data
    ends[0] = _HEADER
    for k in range(_ARRAYS):
        ends[k + 1] = ends[k] + table[FIRST_OF_KINEMATICS + k, 1]
    kin = Kinematics(
        _part(at, ends, 0), _part(at, ends, 1), _part(at, ends, 2), _part(at, ends, 3), _part(at, ends, 4),
        _rows(at, ends, 5, 6), _rows(at, ends, 6, 10), _rows(at, ends, 7, 3), _rows(at, ends, 8, 3),
        _rows(at, ends, 9, 9), _rows(at, ends, 10, 3), _rows(at, ends, 11, 4), _part(at, ends, 12),
        _part(at, ends, 13), _part(at, ends, 14),
    )  # fmt: skip
    nv, entries = kin.v.shape[0], kin.M.shape[0]
    return model, kin, carve(
        tape[int(tape[WORKSPACE]) :], nv, entries, int(tape[CONTACTS]), int(tape[BLOCKS]), int(tape[ROWS])
    )  # fmt: skip


@inline
def _part(address: int, ends: IntArray, k: int) -> Array:
    return numbers_at(address, ends[k], ends[k + 1] - ends[k])


@inline
def _rows(address: int, ends: IntArray, k: int, width: int) -> Array:
    return rows_at(address, ends[k], (ends[k + 1] - ends[k]) // width, width)


class Solved(NamedTuple):
    """What Python code reads of a tape: the contact problem of a step, and its solution."""

    h: float
    contacts: Records
    blocks: Records
    v_free: Array
    v_next: Array
    J: Array
    impulse: Array
    sigma: Array


def read_tape(tape: Array, nv: int, entries: int) -> Solved:
    """Views of a tape; `entries` is the length of M."""
    nc, nb, n, start = (int(tape[i]) for i in (CONTACTS, BLOCKS, ROWS, WORKSPACE))
    memory = tape[start:]
    a, b, c, _, e, _ = offsets.py_func(nv, entries, nc, nb, n)
    return Solved(
        float(tape[DURATION]), memory[2:a].view(CONTACT_RECORD), memory[a:b].view(BLOCK), memory[b : b + nv],
        memory[b + nv : b + 2 * nv],
        memory[c : c + n * nv].reshape(n, nv), memory[e + n : e + 2 * n], memory[e + 2 * n : e + 3 * n],
    )  # fmt: skip


def gaps_of(tape: Array, ngeom: int) -> Array:
    """How far each geom looked for contacts [m]."""
    start = int(tape[WORKSPACE])
    return tape[start - ngeom : start]


def rotations_of(table: IntArray, tape: Array) -> Array:
    """Rotation matrices of all geoms, (ngeom, 9)."""
    k = KINEMATICS.index("geom_xmat")
    sizes = table[FIRST_OF_KINEMATICS : FIRST_OF_KINEMATICS + k + 1, 1]
    start = _HEADER + int(sizes[:k].sum())
    return tape[start : start + int(sizes[k])].reshape(-1, 9)


def inputs_of(tape: Array, nq: int, nv: int, nu: int) -> tuple[Array, Array, Array, Array]:
    """q, v, u and tau of the step."""
    a, b = _HEADER + nq, _HEADER + nq + nv
    return tape[_HEADER:a], tape[a:b], tape[b : b + nu], tape[b + nu : b + nu + nv]
