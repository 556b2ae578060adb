"""Other modes than those of the step, for gradients that see past them (paper 5, Sec. IV-D).

Where a contact holds, pushing harder changes nothing until it parts; where it has parted, it does not push. An exact
gradient says so, and an optimiser that starts there never leaves. So reverse mode looks at a second answer as well: it
lets go of contacts that the loss would rather see part, and holds those that it would press together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.gradient import Linearization
from tangens.contact.rigid.laws import BOX, BREAKING, LIMIT, SLIDING, STICKING

Array = NDArray[np.float64]
Records = NDArray[np.void]


@contextmanager
def explored_modes(blocks: Records, J: Array, sigma: Array, lin: Linearization, dv: Array) -> Iterator[bool]:
    """Give contacts and limits the modes that ∂L/∂v⁺ = dv asks for, while this lasts; yields whether any changed."""
    kept = blocks.copy()
    one_sided = np.isin(blocks["kind"], (BOX, LIMIT))
    wanted = J[blocks["start"]] @ (lin.W @ (lin.W.T @ dv))  # ∂L/∂(normal velocity), but for a positive factor
    part = one_sided & (wanted < 0.0) & (blocks["mode"] != BREAKING)
    hold = one_sided & (wanted > 0.0) & (blocks["mode"] == BREAKING)
    blocks["mode"][part] = BREAKING
    for b in np.flatnonzero(hold):
        block = blocks[b]
        block["mode"] = STICKING
        if block["kind"] == BOX:  # its friction will act against the motion that there is
            block["side"] = -np.sign(sigma[block["start"] + 1 : block["start"] + 3])
            if block["side"].any():
                block["mode"] = SLIDING
    try:
        yield bool(part.any() or hold.any())
    finally:
        blocks[:] = kept
