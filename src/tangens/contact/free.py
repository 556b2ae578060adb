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

from tangens.contact.base import ContactModel, Engine
from tangens.dynamics.exact import ExactDynamics
from tangens.dynamics.parameter_forces import PARAMETERS
from tangens.errors import SolverError, diverged
from tangens.results import EXPLICIT, NO_CONTACTS, Jacobian, Step
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
        return _FreeEngine(ExactDynamics(scene.shared_model))


class _FreeEngine:
    def __init__(self, dynamics: ExactDynamics) -> None:
        self._dynamics = dynamics

    def step(self, q: Array, v: Array, u: Array, tau: Array) -> Step:
        q_next, v_next = self._dynamics.step(q, v, u, tau)
        if not all_finite(v_next):  # q⁺ = q ⊕ h·v⁺ is finite with it
            raise SolverError(diverged(self._dynamics.timestep))
        q_next.setflags(write=False)  # quicker than the attribute
        v_next.setflags(write=False)
        return Step(State.trusted(q_next, v_next), NO_CONTACTS, EXPLICIT)

    def jacobian(self, q: Array, v: Array, u: Array, tau: Array, wrt: Sequence[str], with_force: bool) -> Jacobian:
        del with_force
        return Jacobian(self._dynamics.jacobian(q, v, u, tau, wrt))

    def pullback(
        self, q: Array, v: Array, u: Array, tau: Array, dq: Array, dv: Array, dforce: Array | None, wrt: Sequence[str]
    ) -> dict[str, Array]:
        del dforce
        return self._dynamics.pullback(q, v, u, tau, dq, dv, wrt)
