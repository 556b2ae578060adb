"""`ncp`: rigid contact with Coulomb friction, exactly: no relaxation, no compliance (paper 2).

Signorini's law, Coulomb's cone and maximum dissipation hold at the level of impulses to the solver's tolerance. Limits,
dry friction and equalities are constraints of the same problem.

Derivatives flow to q, v, u, tau, friction, restitution, frictionloss, size, mass, com, inertia, damping, armature and
gravity, at the modes of the step: nothing is smoothed unless the gradient rule `Randomized` asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tangens.contact.rigid.options import RigidContact
from tangens.contact.rigid.problem.contact_problem import CONTACT


@dataclass(frozen=True)
class Ncp(RigidContact):
    """Exact frictional contact.

    Args:
        solver: "newton" (semi-smooth Newton, with Gauss-Seidel sweeps where it stalls) or "admm".

    All other options are those of `RigidContact`.

    """

    name: ClassVar[str] = "ncp"
    law: ClassVar[int] = CONTACT

    solver: str = "newton"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_one_of("solver", ("newton", "admm"))

    def solver_name(self) -> str:
        """Who solves the contact problem."""
        return self.solver
