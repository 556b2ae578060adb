"""`lcp`: rigid contact with box friction, as robotics engines know it (paper 5).

Normal impulses push, friction along each of a contact's two tangents stays within ±μ times its normal impulse: a boxed
linear complementarity problem, solved by pivoting. Limits, dry friction and equalities are constraints of the same
problem. Friction is that of a pyramid, so it depends a little on where the tangents point; `ncp` has the round cone.

Derivatives flow to the same inputs as those of `ncp`, at the places (clamping, separating, bounded) of the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tangens.contact.base import Engine
from tangens.contact.rigid.impacts.meetings import ARRIVED
from tangens.contact.rigid.impacts.resolved_impacts import ResolvedImpacts
from tangens.contact.rigid.options import RigidContact
from tangens.contact.rigid.problem.contact_problem import BOX
from tangens.contact.rules import (
    ComplementarityAware,
    ContinuousBounce,
    Exact,
    FixedContacts,
    GradientRule,
    OtherSide,
    Randomized,
)

if TYPE_CHECKING:
    from tangens.scene import Scene


@dataclass(frozen=True)
class Lcp(RigidContact):
    """Contact as a boxed linear complementarity problem.

    Args:
        bounce: what happens to bodies with restitution inside a time step. "discrete": they bounce at the first step
            that finds them in contact. "resolved": steps are cut at the time of impact, and the derivative is exact.

    All other options are those of `RigidContact`.

    """

    name: ClassVar[str] = "lcp"
    law: ClassVar[int] = BOX

    rules: ClassVar[tuple[type[GradientRule], ...]] = (
        Exact,
        ComplementarityAware,
        ContinuousBounce,
        OtherSide,
        Randomized,
        FixedContacts,
    )

    max_iterations: int = 2000
    bounce: str = "discrete"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_one_of("bounce", ("discrete", "resolved"))

    def solver_name(self) -> str:
        """Who solves the contact problem."""
        return "pivoting"

    @property
    def arrival(self) -> float:
        """A gap so small counts as closed for a body that bounces [m]."""
        return ARRIVED if self.bounce == "resolved" else super().arrival

    def bind(self, scene: Scene) -> Engine:
        """Prepare MuJoCo's collision detection and the compiled step for the scene."""
        if self.bounce == "discrete" or not scene.parameters["restitution"].any():
            return super().bind(scene)
        return ResolvedImpacts(scene, self)
