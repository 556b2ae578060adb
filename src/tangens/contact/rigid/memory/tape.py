"""A tape: all that the derivative of one step needs, as one plain array.

    header | MuJoCo's arrays, in the order of `address_table.KINEMATICS` | how far geoms looked for contacts |
    the solved workspace, without its spare room

It is written once, when the step has been solved, and only read afterwards: derivatives work on views of it, so they
cannot depend on what was asked in between, and any thread can take them.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.memory.address_table import FIRST_OF_KINEMATICS, KINEMATICS, take
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

CONTACTS, BLOCKS, ROWS, DURATION, IMPLICIT, CORRECTION, WORKSPACE, RELAXED = range(8)
"""Entries of the header: numbers of contacts, blocks and rows; settings of the step; where the workspace begins;
whether targets were relaxed."""
_HEADER = 8
_ARRAYS = len(KINEMATICS) + 1


@subroutine
def record(table: IntArray, model: Model, w: Workspace, relaxed: bool) -> Array:
    """Write the tape of a solved step."""
    nc, nb, n, nv = w.contacts.shape[0], w.counts[0], w.counts[1], w.v_next.shape[0]
    entries, start = w.L.shape[0], _HEADER
    for k in range(_ARRAYS):
        start += table[FIRST_OF_KINEMATICS + k, 1]
    tape = np.empty(start + offsets(nv, entries, nc, nb, n)[5])
    tape[CONTACTS], tape[BLOCKS], tape[ROWS], tape[WORKSPACE] = nc, nb, n, start
    tape[DURATION], tape[IMPLICIT], tape[CORRECTION] = model.h, model.implicit_h, model.correction
    tape[RELAXED] = 1.0 if relaxed else 0.0
    at = _HEADER
    for k in range(_ARRAYS):
        array = take(table, FIRST_OF_KINEMATICS + k)
        for i in range(array.shape[0]):
            tape[at + i] = array[i]
        at += array.shape[0]
    _copy(w, carve(tape[start:], nv, entries, nc, nb, n), nb, n)
    return tape


@inline
def _copy(w: Workspace, to: Workspace, nb: int, n: int) -> None:
    to.counts[:] = w.counts
    to.contacts[:] = w.contacts
    to.blocks[:] = w.blocks[:nb]
    to.v_free[:], to.v_next[:], to.L[:], to.d[:] = w.v_free, w.v_next, w.L, w.d
    to.J[:], to.half[:], to.G[:] = w.J[:n], w.half[:n], w.G[: n * n]
    to.g[:], to.impulse[:], to.sigma[:], to.rate[:] = w.g[:n], w.impulse[:n], w.sigma[:n], w.rate[:n]


@subroutine
def open_tape(table: IntArray, tape: Array) -> tuple[Model, Kinematics, Workspace]:
    """The model, the kinematics and the solved problem of a step."""
    model = open_model(table, tape[DURATION], tape[IMPLICIT], tape[CORRECTION])
    ends = np.empty(_ARRAYS + 1, dtype=np.int64)
    ends[0] = _HEADER
    for k in range(_ARRAYS):
        ends[k + 1] = ends[k] + table[FIRST_OF_KINEMATICS + k, 1]
    kin = Kinematics(
        _part(tape, ends, 0), _part(tape, ends, 1), _part(tape, ends, 2), _part(tape, ends, 3), _part(tape, ends, 4),
        _part(tape, ends, 5).reshape(-1, 6), _part(tape, ends, 6).reshape(-1, 10), _part(tape, ends, 7).reshape(-1, 3),
        _part(tape, ends, 8).reshape(-1, 3), _part(tape, ends, 9).reshape(-1, 9), _part(tape, ends, 10).reshape(-1, 3),
        _part(tape, ends, 11).reshape(-1, 4), _part(tape, ends, 12), _part(tape, ends, 13), _part(tape, ends, 14),
    )  # fmt: skip
    nv, entries = kin.v.shape[0], kin.M.shape[0]
    return model, kin, carve(
        tape[int(tape[WORKSPACE]) :], nv, entries, int(tape[CONTACTS]), int(tape[BLOCKS]), int(tape[ROWS])
    )  # fmt: skip


@inline
def _part(tape: Array, ends: IntArray, k: int) -> Array:
    return tape[ends[k] : ends[k + 1]]


class Solved(NamedTuple):
    """What Python code reads of a tape: the contact problem of a step, and its solution."""

    h: float
    contacts: Records
    blocks: Records
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
        float(tape[DURATION]), memory[2:a].view(CONTACT_RECORD), memory[a:b].view(BLOCK), memory[b + nv : b + 2 * nv],
        memory[c : c + n * nv].reshape(n, nv), memory[e + n : e + 2 * n], memory[e + 2 * n : e + 3 * n],
    )  # fmt: skip


def gaps_of(tape: Array, ngeom: int) -> Array:
    """How far each geom looked for contacts [m]."""
    start = int(tape[WORKSPACE])
    return tape[start - ngeom : start]


def inputs_of(tape: Array, nq: int, nv: int, nu: int) -> tuple[Array, Array, Array, Array]:
    """q, v, u and tau of the step."""
    ends = np.cumsum([_HEADER, nq, nv, nu, nv])
    q, v, u, tau = (tape[a:b] for a, b in itertools.pairwise(ends))
    return q, v, u, tau
