"""`lcp`: rigid contact with box friction, as robotics engines know it (paper 5).

Normal impulses push, friction along each of a contact's two tangents stays within ±μ times its normal impulse: a boxed
linear complementarity problem, solved by pivoting. Limits, dry friction and equalities are constraints of the same
problem. Friction is that of a pyramid, so it depends a little on where the tangents point; `ncp` has the round cone.

Derivatives flow to the same inputs as those of `ncp`, at the places (clamping, separating, bounded) of the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tangens.contact.rigid.laws import BOX
from tangens.contact.rigid.model import RigidContact


@dataclass(frozen=True)
class Lcp(RigidContact):
    """Contact as a boxed linear complementarity problem.

    Args:
        gradient: of `Simulator.pullback`: "exact", or "complementarity-aware" (paper 5, Sec. IV-D), which lets contacts
            part where the loss asks for it and so leads out of saddle points; `jacobian` is always exact.

    All other options are those of `RigidContact`.

    """

    name: ClassVar[str] = "lcp"
    law: ClassVar[int] = BOX

    gradient: str = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_one_of("gradient", ("exact", "complementarity-aware"))

    def solver_name(self) -> str:
        """Who solves the contact problem."""
        return "pivoting"

    @property
    def explores(self) -> bool:
        """Whether reverse mode may let contacts part or hold that do not."""
        return self.gradient == "complementarity-aware"
