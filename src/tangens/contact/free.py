"""No contact at all: bodies pass through each other, joints through their limits.

Derivatives by q, v, u, tau and the inertial and joint parameters are exact. Friction, restitution and sizes do not
appear in the motion, so asking for them is an error rather than a zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from tangens.contact.base import ContactModel, Cotangent, Engine, Point
from tangens.contact.host_engine import HostEngine
from tangens.contact.rules import GradientRule
from tangens.dynamics.exact import ExactDynamics
from tangens.dynamics.parameter_forces import PARAMETERS
from tangens.results import DIVERGED, EXPLICIT, NO_CONTACTS, Jacobian, Step
from tangens.state import State, all_finite

if TYPE_CHECKING:
    from tangens.scene import Scene

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ContactFree(ContactModel):
    """Smooth dynamics only; what `Simulator(scene, contact=None)` uses."""

    name: ClassVar[str] = "none"
    parameters: ClassVar[tuple[str, ...]] = PARAMETERS

    def bind(self, scene: Scene) -> Engine:
        """Prepare MuJoCo and Pinocchio for the scene."""
        return FreeEngine(scene, self)


class FreeEngine(HostEngine):
    """Smooth motion. Its tape is where the step started."""

    def new_scratch(self) -> ExactDynamics:
        """MuJoCo's and Pinocchio's data."""
        return ExactDynamics(self.scene.shared_model)

    def solve(self, scratch: ExactDynamics, x: Point, guess: None) -> Step:
        """Advance by one time step."""
        del guess
        q_next, v_next = scratch.step(*x)
        q_next.setflags(write=False)  # quicker than the attribute
        v_next.setflags(write=False)
        # Inputs may be rows of an array that somebody fills later; q⁺ = q ⊕ h·v⁺ is finite with v⁺.
        tape = Point(x.q.copy(), x.v.copy(), x.u.copy(), x.tau.copy())
        failed = not all_finite(v_next)
        report = DIVERGED if failed else EXPLICIT
        return Step(State.trusted(q_next, v_next), NO_CONTACTS, report, tape, None, self.owner, failed)

    def differentiate(
        self, scratch: ExactDynamics, tape: Point, wrt: Sequence[str], with_force: bool, rule: GradientRule
    ) -> Jacobian:
        """Derivative of a step."""
        del with_force, rule
        return Jacobian(scratch.jacobian(*tape, wrt))

    def carry_back(
        self, scratch: ExactDynamics, tape: Point, cotangent: Cotangent, wrt: Sequence[str], rule: GradientRule
    ) -> tuple[dict[str, Array], bool]:
        """Carry a cotangent back through a step."""
        del rule
        return scratch.pullback(*tape, cotangent.q, cotangent.v, wrt), True

    def inverse_dynamics(self, x: Point, acceleration: Array) -> Array:
        """The tau of a step that ends with this acceleration."""
        with self.scratch() as scratch:
            found: Array = scratch.inverse(x.q, x.v, x.u, acceleration)
            return found
