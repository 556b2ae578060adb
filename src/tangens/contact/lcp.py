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
from tangens.contact.rigid.bounces import ContinuousBounces
from tangens.contact.rigid.impacts import ARRIVED, ResolvedImpacts
from tangens.contact.rigid.laws import BOX
from tangens.contact.rigid.model import RigidContact

if TYPE_CHECKING:
    from tangens.scene import Scene


@dataclass(frozen=True)
class Lcp(RigidContact):
    """Contact as a boxed linear complementarity problem.

    Args:
        gradient: of `Simulator.pullback`: "exact", or "complementarity-aware" (paper 5, Sec. IV-D), which lets contacts
            part where the loss asks for it and so leads out of saddle points; `jacobian` is always exact.

        bounce: what happens to bodies with restitution inside a time step. "discrete": they bounce at the first step
            that finds them in contact. "continuous": so they do, but the derivative of q⁺ is that of a bounce in
            continuous time, exact for a single one (Sec. VI). "resolved": steps are cut at the time of impact, and the
            derivative is exact.

    All other options are those of `RigidContact`.

    """

    name: ClassVar[str] = "lcp"
    law: ClassVar[int] = BOX

    max_iterations: int = 2000
    gradient: str = "exact"
    bounce: str = "discrete"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_one_of("gradient", ("exact", "complementarity-aware"))
        self._require_one_of("bounce", ("discrete", "continuous", "resolved"))

    def solver_name(self) -> str:
        """Who solves the contact problem."""
        return "pivoting"

    @property
    def explores(self) -> bool:
        """Whether reverse mode may let contacts part or hold that do not."""
        return self.gradient == "complementarity-aware"

    @property
    def arrival(self) -> float:
        """A gap so small counts as closed for a body that bounces [m]."""
        return ARRIVED if self.bounce == "resolved" else 0.0

    def bind(self, scene: Scene) -> Engine:
        """Prepare MuJoCo's collision detection and the compiled step for the scene."""
        if self.bounce == "discrete" or not scene.parameters["restitution"].any():
            return super().bind(scene)
        return ResolvedImpacts(scene, self) if self.bounce == "resolved" else ContinuousBounces(scene, self)
