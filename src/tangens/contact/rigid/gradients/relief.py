"""How the relief of a step without a solution changes with its state (see `problem.relaxation`).

At fixed rows A that ask and rows B that hold, its conditions are equations,

    J_A·v + target + s = 0        J_B·v + target = 0        J_Aᵀ·s + J_Bᵀ·m = 0

and their derivative is one more linear system with the same matrix. Derivatives flow to q and v. Sizes and placements
move the rows too, which is left out: `NotDifferentiable`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.assembly.every_row import every_row, every_row_moved
from tangens.contact.rigid.gradients.linearization import Linearization
from tangens.contact.rigid.problem.contact_problem import BOX, CONTACT, DRY, EQUALITY
from tangens.contact.rigid.problem.relaxation import Relief, relieve, solve_rows

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]


def relief_of(table: IntArray, tape: Array) -> tuple[Relief, IntArray, Records]:
    """The relief of the step on a tape, the rows that it is about, and all blocks."""
    J, target, blocks = every_row(table, tape)
    rows = np.array([row for block in blocks for row in _asking_rows(block)], dtype=np.int64)
    equality = np.array([block["kind"] == EQUALITY for block in blocks for _ in _asking_rows(block)], dtype=bool)
    return relieve(J[rows], target[rows], equality), rows, blocks


def _asking_rows(block: np.void) -> range:
    """Rows whose target the gap, limit or error sets: no tangents, no dry friction."""
    first = int(block["start"])
    if block["kind"] == DRY:
        return range(0)
    return range(first, first + (1 if block["kind"] in (CONTACT, BOX) else int(block["width"])))


def by_constraint(relief: Relief, rows: IntArray, blocks: Records, nc: int, ns: int) -> Array:
    """The relief as the compiled step takes it: three numbers for each contact, six for each other constraint."""
    out, every = np.zeros(3 * nc + 6 * ns), np.zeros(1 + int(blocks["start"].max() + 6))
    every[rows] = relief.s
    for block in blocks:
        first, source = int(block["start"]), int(block["source"])
        if source >= 0:
            out[3 * source] = every[first]
        elif block["kind"] != DRY:
            at = 3 * nc + 6 * (-1 - source) + int(block["sign"] < 0)
            out[at : at + block["width"]] = every[first : first + block["width"]]
    return out


def add_relief_slopes(table: IntArray, tape: Array, response: Array, lin: Linearization) -> Linearization:
    """The linearisation of a relieved step with what its relief adds to K."""
    relief, rows, _ = relief_of(table, tape)
    J, _, _ = every_row(table, tape)
    multiplier = np.zeros(len(J))
    multiplier[rows] = relief.multiplier
    K, R, _ = every_row_moved(table, tape, response, relief.v, multiplier)
    by_q, _, _ = solve_rows(J[rows], relief.asks, relief.holds, -K[0, rows], -R)
    by_v, _, _ = solve_rows(J[rows], relief.asks, relief.holds, -K[1, rows], np.zeros_like(R))
    slopes = np.zeros((2, *J.shape))
    slopes[0, rows], slopes[1, rows] = by_q, by_v
    lin.K[:] += slopes[:, lin.active]
    return lin._replace(feeds_back=lin.feeds_back or bool(by_v.any()))
