"""Other modes than those of the step, for gradients that see past them (paper 5, Sec. IV-D).

Where a contact holds, pushing harder changes nothing until it parts; where it has parted, it does not push. An exact
gradient says so, and an optimiser that starts there never leaves. So reverse mode looks at a second answer as well: it
lets go of contacts that the loss would rather see part, and holds those that it would press together.

Both functions make a new tape; the step's own stays as it is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.assembly.active_set import keep_impulses
from tangens.contact.rigid.assembly.constraint_rows import build_rows
from tangens.contact.rigid.assembly.delassus import set_delassus
from tangens.contact.rigid.gradients.linearization import Linearization
from tangens.contact.rigid.memory.tape import BLOCKS, ROWS, WORKSPACE, open_tape, read_tape
from tangens.contact.rigid.memory.views import carve, offsets
from tangens.contact.rigid.problem.contact_problem import (
    BOX,
    BREAKING,
    LIMIT,
    SLIDING,
    STICKING,
    velocity,
)
from tangens.kernels import floats, ints, kernel

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

_TOUCHING = 1e-6  # a gap this small is worth holding on to [m]


@kernel(ints(2), floats(1))
def with_touching_contacts(table: IntArray, tape: Array) -> Array:
    """The tape of the same step in which all contacts that touch take part, whether or not they push."""
    model, kin, old = open_tape(table, tape)
    nc, ns, nv, entries = old.contacts.shape[0], model.specs.shape[0], kin.v.shape[0], kin.M.shape[0]
    joining = 0
    for c in range(nc):
        joining += 1 if not old.contacts[c].chosen and old.contacts[c].gap <= _TOUCHING else 0
    if not joining:
        return tape
    nb, n, start = old.blocks.shape[0] + joining, old.impulse.shape[0] + 3 * joining, int(tape[WORKSPACE])
    out = np.zeros(start + offsets(nv, entries, nc, nb, n)[5])
    out[:start] = tape[:start]
    out[BLOCKS], out[ROWS] = nb, n
    w = carve(out[start:], nv, entries, nc, nb, n)
    w.contacts[:] = old.contacts
    w.v_free[:], w.v_next[:], w.L[:], w.d[:] = old.v_free, old.v_next, old.L, old.d
    for c in range(nc):
        if w.contacts[c].gap <= _TOUCHING:
            w.contacts[c].chosen = 1
    impulses, limits = np.zeros(3 * nc + 6 * ns), np.zeros(2 * ns, dtype=np.int64)
    keep_impulses(old, impulses)
    for b in range(old.blocks.shape[0]):
        if old.blocks[b].kind == LIMIT:
            limits[2 * (-1 - old.blocks[b].source) + (1 if old.blocks[b].sign < 0.0 else 0)] = 1
    build_rows(model, kin, w, limits, impulses)
    set_delassus(model, w)
    velocity(w.G.reshape(n, n), w.g, w.impulse, w.sigma)
    b = 0
    for k in range(nb):  # the order is the same, with the new ones in between
        block = w.blocks[k]
        if b < old.blocks.shape[0] and old.blocks[b].source == block.source and old.blocks[b].sign == block.sign:
            block.mode, block.scale = old.blocks[b].mode, old.blocks[b].scale
            block.side[0], block.side[1] = old.blocks[b].side[0], old.blocks[b].side[1]
            b += 1
        else:
            block.mode, block.scale = BREAKING, 0.0
            for i in range(block.start, block.start + block.width):
                block.scale = max(block.scale, w.G[i * n + i])
    return out


def with_wanted_modes(tape: Array, nv: int, entries: int, lin: Linearization, dv: Array) -> Array | None:
    """The tape with the modes of contacts and limits that ∂L/∂v⁺ = dv asks for; None if it asks for no others."""
    solved = read_tape(tape, nv, entries)
    one_sided = np.isin(solved.blocks["kind"], (BOX, LIMIT))
    # ∂L/∂(normal velocity), but for a positive factor
    wanted = solved.J[solved.blocks["start"]] @ (lin.W @ (lin.W.T @ dv))
    part = one_sided & (wanted < 0.0) & (solved.blocks["mode"] != BREAKING)
    hold = one_sided & (wanted > 0.0) & (solved.blocks["mode"] == BREAKING)
    if not (part.any() or hold.any()):
        return None
    other = tape.copy()
    blocks = read_tape(other, nv, entries).blocks
    blocks["mode"][part] = BREAKING
    for b in np.flatnonzero(hold):
        block = blocks[b]
        block["mode"] = STICKING
        if block["kind"] == BOX:  # its friction will act against the motion that there is
            block["side"] = -np.sign(solved.sigma[block["start"] + 1 : block["start"] + 3])
            if block["side"].any():
                block["mode"] = SLIDING
    return other
