"""Memory of one contact step: everything that solving it found out, for the derivative to use.

One plain array, carved into views by compiled code: handing over twenty arrays would cost more than a small robot's
whole contact problem.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.laws import BLOCK

Array = NDArray[np.float64]
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
    ]
)
_CONTACT_SIZE, _BLOCK_SIZE = CONTACT_RECORD.itemsize // 8, BLOCK.itemsize // 8


class Workspace(NamedTuple):
    """Views of the memory."""

    counts: Array  # blocks and rows that take part
    contacts: Records
    blocks: Records
    v_free: Array
    v_next: Array
    L: Array  # factors of M + h·D
    d: Array
    J: Array  # rows, (n, nv)
    half: Array  # rows of J·L⁻¹·D^(−1/2), whose products make up G
    G: Array  # flat; the first n·n entries count
    g: Array
    impulse: Array
    sigma: Array
    rate: Array  # ∂target/∂(what a row measures)


def size(nv: int, entries: int, contacts: int, rows: int) -> int:
    """Numbers needed for so many contacts and rows of other constraints; `entries` is the length of M."""
    n, blocks = 3 * contacts + rows, contacts + rows
    return 2 + _CONTACT_SIZE * contacts + _BLOCK_SIZE * blocks + 3 * nv + entries + 2 * n * nv + n * n + 4 * n


@numba.njit(cache=True)
def carve(memory: Array, nv: int, entries: int, contacts: int, rows: int) -> Workspace:
    """The views."""
    n, blocks = 3 * contacts + rows, contacts + rows
    a = 2 + contacts * _CONTACT_SIZE
    b = a + blocks * _BLOCK_SIZE
    c = b + 3 * nv + entries
    d = c + 2 * n * nv
    e = d + n * n
    return Workspace(
        memory[:2], memory[2:a].view(CONTACT_RECORD), memory[a:b].view(BLOCK),
        memory[b : b + nv], memory[b + nv : b + 2 * nv], memory[b + 2 * nv : c - nv], memory[c - nv : c],
        memory[c : c + n * nv].reshape(n, nv), memory[c + n * nv : d].reshape(n, nv), memory[d:e],
        memory[e : e + n], memory[e + n : e + 2 * n], memory[e + 2 * n : e + 3 * n], memory[e + 3 * n : e + 4 * n],
    )  # fmt: skip
