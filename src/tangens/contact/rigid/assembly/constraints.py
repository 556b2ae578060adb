"""Constraints besides contact, unpacked from plain numbers in compiled code."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.contact.constraint_specs import ENTRY, SPEC
from tangens.kernels import inline

Array = NDArray[np.float64]
Records = NDArray[np.void]

_SPEC_SIZE, _ENTRY_SIZE = SPEC.itemsize // 8, ENTRY.itemsize // 8


@inline
def unpack_constraints(packed: Array) -> tuple[Records, Records]:
    """Specs and entries."""
    a = 2 + int(packed[0]) * _SPEC_SIZE
    return packed[2:a].view(SPEC), packed[a : a + int(packed[1]) * _ENTRY_SIZE].view(ENTRY)
