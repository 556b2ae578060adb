"""Contact forces in the world, from impulses in contact frames; and how they change."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.memory.tape import Solved

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]


class ContactForces(NamedTuple):
    """The contacts of one step."""

    contacts: Records
    blocks: Records
    impulse: Array
    h: float

    @classmethod
    def of(cls, solved: Solved) -> Self:
        """Those on a tape."""
        return cls(solved.contacts, solved.blocks, solved.impulse, solved.h)

    def values(self) -> Array:
        """Forces on geom 1, shape (nc, 3)."""
        touching = self.blocks[self.blocks["source"] >= 0]
        out = np.zeros((len(self.contacts), 3))
        rows = touching["start"][:, None] + np.arange(3)
        out[touching["source"]] = np.einsum("cki,ck->ci", self._frames(touching), self.impulse[rows]) / self.h
        return out

    def derivative(self, active: IntArray, d_impulse: Array, turn: Array | None) -> Array:
        """∂(forces)/∂x, shape (nc, 3, n), from that of the active impulses; frames may turn."""
        out = np.zeros((len(self.contacts), 3, d_impulse.shape[1]))
        pushing, rows = self._pushing(active)
        out[pushing["source"]] = np.einsum("cki,ckn->cin", self._frames(pushing), d_impulse[rows]) / self.h
        if turn is not None:
            out += np.cross(turn, self.values()[:, :, None], axis=1)
        return out

    def cotangent(self, active: IntArray, dforce: Array) -> Array:
        """∂L/∂(active impulses) from ∂L/∂(forces)."""
        out = np.zeros(len(active))
        pushing, rows = self._pushing(active)
        out[rows] = np.einsum("cki,ci->ck", self._frames(pushing), dforce[pushing["source"]]) / self.h
        return out

    def _pushing(self, active: IntArray) -> tuple[Records, IntArray]:
        """Blocks of contacts that push, and their three rows among the active ones."""
        pushing = self.blocks[(self.blocks["source"] >= 0) & np.isin(self.blocks["start"], active)]
        return pushing, np.searchsorted(active, pushing["start"])[:, None] + np.arange(3)

    def _frames(self, blocks: Records) -> Array:
        return np.asarray(self.contacts["frame"][blocks["source"]]).reshape(-1, 3, 3)
