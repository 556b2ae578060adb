"""Projected Gauss-Seidel sweeps over the blocks of a contact problem."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.problem.contact_problem import BOX, CONTACT, project
from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
Records = NDArray[np.void]


@subroutine
def gauss_seidel(G: Array, blocks: Records, impulse: Array, sigma: Array, sweeps: int, tolerance: float) -> int:
    """Sweep over the blocks, each solved for its own impulse with the others fixed; returns the sweeps taken.

    `sigma` must be G·impulse + g on entry, and is on exit.
    """
    x = np.empty(3)
    for sweep in range(sweeps):
        change = 0.0
        for b in range(blocks.shape[0]):
            kind, a, bound, scale = blocks[b].kind, blocks[b].start, blocks[b].bound, blocks[b].scale
            if kind in (CONTACT, BOX):
                # normal first, then the tangents with what the normal one has become
                x[0] = max(0.0, impulse[a] - sigma[a] / max(G[a, a], 1e-12 * scale))
                change = max(change, _add(G, impulse, sigma, a, x[0] - impulse[a]) * G[a, a])
                for i in range(1, 3):
                    x[i] = impulse[a + i] - sigma[a + i] / scale
                project(kind, bound, x)
                for i in range(1, 3):
                    change = max(change, _add(G, impulse, sigma, a + i, x[i] - impulse[a + i]) * scale)
            else:
                for i in range(a, a + blocks[b].width):
                    x[0] = impulse[i] - sigma[i] / max(G[i, i], 1e-12 * scale)
                    project(kind, bound, x)
                    change = max(change, _add(G, impulse, sigma, i, x[0] - impulse[i]) * G[i, i])
        if change <= tolerance:
            return sweep + 1
    return sweeps


@inline
def _add(G: Array, impulse: Array, sigma: Array, row: int, amount: float) -> float:
    if amount != 0.0:
        impulse[row] += amount
        for i in range(sigma.shape[0]):
            sigma[i] += G[row, i] * amount
    return abs(amount)
