"""Options of the interior-point models. No JAX here: a choice of model costs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tangens.contact.base import ContactModel, Engine
from tangens.contact.capabilities import EVERYTHING
from tangens.contact.rules import Exact, GradientRule, Relaxed
from tangens.dynamics.parameter_forces import PARAMETERS
from tangens.errors import OptionError

if TYPE_CHECKING:
    from tangens.scene import Scene


@dataclass(frozen=True)
class InteriorContact(ContactModel):
    """Options that `SingleLevel` and `Bilevel` share."""

    relaxation: float = 1e-6
    """ρ: what is left of force times gap, over weight times size of each pair. Bodies at rest hover by a few ρ of their
    size."""

    torsional_friction: bool = False
    """Let contacts resist spinning on the spot, by MuJoCo's second friction coefficient [m]."""

    conserve_momentum: bool = False
    """Let contact forces act on bodies where they are at the beginning of a step, not at its end: no momentum is lost
    when bodies collide."""

    warm_start: bool = True
    """Start each step of a rollout, and `sim.step(out)`, from the solution of the one before, pushed into the interior;
    from scratch where that fails."""

    sharpness: float = 3.0
    """Weight of collision detection's objective, over the weight of the lighter body of a pair (all that hangs together
    with it): the larger, the less ρ blurs shapes, and the harder to solve."""

    max_iterations: int = 200
    tolerance: float = 1e-4
    """Of all equations, relative to ρ."""

    takes: ClassVar[frozenset[str]] = EVERYTHING
    parameters: ClassVar[tuple[str, ...]] = (*PARAMETERS, "friction", "restitution", "frictionloss", "size")
    rules: ClassVar[tuple[type[GradientRule], ...]] = (Exact, Relaxed)
    bilevel: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse options that make no sense."""
        for name in ("relaxation", "sharpness", "tolerance"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 < value < float("inf")):
                raise OptionError(f"{name} must be a positive number; got {value!r}")
        if not isinstance(self.max_iterations, int) or self.max_iterations < 1:
            raise OptionError(f"max_iterations must be a positive whole number; got {self.max_iterations!r}")

    def bind(self, scene: Scene) -> Engine:
        """Prepare the scene's shapes; compiled at the first step."""
        from tangens.contact.interior.engine import InteriorEngine  # JAX is not imported before it is needed

        return InteriorEngine(scene, self)
