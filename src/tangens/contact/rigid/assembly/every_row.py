"""All rows that a step could have, whether or not they take part."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.assembly.constraint_rows import build_every_row
from tangens.contact.rigid.assembly.targets import set_contact_targets
from tangens.contact.rigid.memory.tape import open_tape
from tangens.contact.rigid.memory.views import Workspace, new_workspace
from tangens.kernels import floats, ints, kernel, subroutine

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]


@kernel(ints(2), floats(1))
def every_row(table: IntArray, tape: Array) -> tuple[Array, Array, Records]:
    """J (n, nv), targets (n,) and blocks of all contacts and constraints of the step on the tape."""
    model, kin, old = open_tape(table, tape)
    w = new_workspace(model, kin, old.contacts.shape[0])
    w.contacts[:] = old.contacts
    set_contact_targets(model, kin, w)
    build_every_row(model, kin, w)
    return _copied(w)


@subroutine
def _copied(w: Workspace) -> tuple[Array, Array, Records]:
    """What a workspace holds, by itself: its arrays end with it, which its caller keeps until this returns."""
    nb, n = w.counts[0], w.counts[1]
    return w.J[:n].copy(), w.g[:n].copy(), w.blocks[:nb].copy()
