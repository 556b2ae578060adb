"""What a step hands out: its tape, the solver's report, its contacts; and how those are called in messages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.contact.constraint_specs import Constraints
from tangens.contact.rigid.problem.contact_problem import MODE_NAMES
from tangens.contact.rigid.solvers.methods import METHODS
from tangens.results import Contacts, SolverReport
from tangens.scene.support import element_name

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]


class RigidTape(NamedTuple):
    """A solved step, see `memory.tape`, and its report."""

    memory: Array
    report: partial[SolverReport]
    second: Array | None = None
    """Of a step in two stages, the tape of the second one, see `overlaps`."""
    share: float = 1.0
    """The share of overlaps that the first one undid."""


def solver_report(tolerance: float, relaxed: float, found: Sequence[Any]) -> SolverReport:
    """What the compiled step reports of its solver, see `step`."""
    iterations, error, signorini, cone, dissipation, method = found
    return SolverReport(error <= tolerance, iterations, error, signorini, cone, dissipation, METHODS[method], relaxed)


def read_contacts(out: Array, start: int, n: int) -> Contacts:
    """The compiled step's report of its n contacts, made readable when somebody asks."""
    found = out[start:]
    modes = tuple([MODE_NAMES[int(i)] for i in found[10 * n : 11 * n]])
    geom = found[11 * n : 13 * n].reshape(n, 2).astype(np.int64)
    position, normal, force = (found[a * n : (a + 3) * n].reshape(n, 3) for a in (0, 3, 7))
    return Contacts(position, normal, found[6 * n : 7 * n], force, geom, modes, None)


def geom_names(m: mujoco.MjModel, geoms: IntArray) -> str:
    """The two geoms of a contact."""
    one, two = (element_name(m, mujoco.mjtObj.mjOBJ_GEOM, int(g)) for g in geoms)
    return f"{one} and {two}"


def block_name(m: mujoco.MjModel, constraints: Constraints, contacts: Records, block: np.void) -> str:
    """The two geoms of a contact, or the joint or tendon of a limit or of dry friction."""
    source = int(block["source"])
    if source >= 0:
        return geom_names(m, contacts["geom"][source])
    kind, index = constraints.owners[-1 - source]
    return element_name(m, kind, index)
