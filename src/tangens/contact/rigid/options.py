"""What `ncp` and `lcp` have in common: hard contact, one engine, the same choices about targets and collision."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tangens.contact.base import ContactModel, Engine
from tangens.contact.capabilities import EVERYTHING, SHAPES
from tangens.contact.rigid.engine import RigidEngine
from tangens.contact.rigid.gradients.contact_parameters import CONTACT_PARAMETERS
from tangens.contact.rules import Exact, FixedContacts, GradientRule, OtherSide, Randomized
from tangens.dynamics.parameter_forces import PARAMETERS
from tangens.errors import OptionError

if TYPE_CHECKING:
    from tangens.scene import Scene


_TOUCHING = 1e-12  # [m]: positions of metres are rounded to 1e-16, and sums of many of them to 1e-13


@dataclass(frozen=True)
class RigidContact(ContactModel):
    """Hard contact at the level of impulses.

    Args:
        correction: share of an overlap that is undone within a step (1 − K_p of paper 2's Eq. 39). With less than 1,
            corrections are gentler, but the derivative by q jumps where bodies just touch.
        correction_speed: no overlap is undone faster than this [m/s].
        damping: share of the approach velocity that is fed back (K_d there).
        margin: contacts are looked for as far as geoms come within a step, and no further than this [m], so that bodies
            stop before they overlap.
        tolerance: residual of the contact problem that counts as solved [m/s].
        max_iterations: iterations before the solver gives up and says so.

    """

    parameters: ClassVar[tuple[str, ...]] = (*CONTACT_PARAMETERS, "placement", *PARAMETERS)
    takes: ClassVar[frozenset[str]] = EVERYTHING - {SHAPES}  # contacts are found by MuJoCo, which does not see them
    rules: ClassVar[tuple[type[GradientRule], ...]] = (Exact, OtherSide, Randomized, FixedContacts)
    forces: ClassVar[bool] = True
    law: ClassVar[int]
    """The kind of block that a contact is, see `problem.contact_problem`."""

    correction: float = 1.0
    correction_speed: float = 1.0
    damping: float = 0.0
    margin: float = 0.01
    tolerance: float = 1e-10
    max_iterations: int = 20_000

    def __post_init__(self) -> None:
        for name, low, high in (
            ("correction", 0, 1),
            ("correction_speed", 0, np.inf),
            ("damping", 0, 1),
            ("margin", 0, np.inf),
            ("tolerance", 0, 1),
        ):
            if not low <= getattr(self, name) <= high:
                raise OptionError(self._complaint(name, f"must lie between {low} and {high}"))

    def _require_one_of(self, name: str, known: tuple[str, ...]) -> None:
        if getattr(self, name) not in known:
            raise OptionError(self._complaint(name, f"must be one of {', '.join(map(repr, known))}"))

    def _complaint(self, name: str, remedy: str) -> str:
        return f"{type(self).__name__}({name}={getattr(self, name)!r}) {remedy}"

    @property
    def arrival(self) -> float:
        """A gap so small counts as closed for a body that bounces [m].

        Bodies that touch are apart by rounding: counted as open, they would fly into each other for a step, and what
        undoes that overlap creates energy.
        """
        return _TOUCHING

    @abstractmethod
    def solver_name(self) -> str:
        """Who solves the contact problem, see `solvers`."""

    def bind(self, scene: Scene) -> Engine:
        """Prepare MuJoCo's collision detection and the compiled step for the scene."""
        return RigidEngine(scene, self)
