"""`ncp`: rigid contact with Coulomb friction, exactly: no relaxation, no compliance (paper 2).

Signorini's law, Coulomb's cone and maximum dissipation hold at the level of impulses to the solver's tolerance. Limits,
dry friction and equalities are constraints of the same problem.

Derivatives flow to q, v, u, tau, friction, restitution, frictionloss, size, mass, com, inertia, damping, armature and
gravity, at the modes of the step: nothing is smoothed unless `collision_gradient="randomized"` asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tangens.contact.base import ContactModel, Engine
from tangens.contact.ncp_engine import NcpEngine
from tangens.contact.ncp_parameters import CONTACT_PARAMETERS
from tangens.contact.solvers import SOLVERS
from tangens.dynamics.parameter_forces import PARAMETERS
from tangens.errors import OptionError

if TYPE_CHECKING:
    from tangens.scene import Scene


@dataclass(frozen=True)
class Ncp(ContactModel):
    """Exact frictional contact.

    Args:
        correction: share of an overlap that is undone within a step (1 − K_p of paper 2's Eq. 39). With less than 1,
            corrections are gentler, but the derivative by q jumps where bodies just touch.
        correction_speed: no overlap is undone faster than this [m/s].
        damping: share of the approach velocity that is fed back (K_d there).
        margin: contacts are looked for as far as geoms come within a step, and no further than this [m], so that bodies
            stop before they overlap.
        solver: "newton" (semi-smooth Newton, with Gauss-Seidel sweeps where it stalls) or "admm".
        tolerance: residual of the contact problem that counts as solved [m/s].
        max_iterations: sweeps and Newton steps before the solver gives up and says so.
        collision_gradient: how the derivative sees contacts move with their bodies: "analytic" (exact, curvature
            included), "randomized" (smoothed over nearby poses, paper 2's choice) or "none" (each contact stays
            fixed on the first of its bodies).
        samples: poses per contact that "randomized" looks at.
        scale: deviation of those poses [m, rad].
        seed: of the random poses; a derivative depends on its arguments and this alone.

    """

    name: ClassVar[str] = "ncp"
    parameters: ClassVar[tuple[str, ...]] = (*CONTACT_PARAMETERS, *PARAMETERS)
    forces: ClassVar[bool] = True

    correction: float = 1.0
    correction_speed: float = 1.0
    damping: float = 0.0
    margin: float = 0.01
    solver: str = "newton"
    tolerance: float = 1e-10
    max_iterations: int = 20_000
    collision_gradient: str = "analytic"
    samples: int = 32
    scale: float = 1e-2
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("correction", 0, 1),
            ("correction_speed", 0, np.inf),
            ("damping", 0, 1),
            ("margin", 0, np.inf),
            ("tolerance", 0, 1),
        ):
            if not low <= getattr(self, name) <= high:
                raise OptionError(f"Ncp({name}={getattr(self, name)!r}) must lie between {low} and {high}")
        for name, known in (("solver", SOLVERS), ("collision_gradient", ("analytic", "randomized", "none"))):
            if getattr(self, name) not in known:
                raise OptionError(f"Ncp({name}={getattr(self, name)!r}) must be one of {', '.join(map(repr, known))}")
        if self.samples < 6 or not self.scale > 0:
            raise OptionError(f"Ncp(samples={self.samples!r}, scale={self.scale!r}): at least 6 samples, scale above 0")

    def bind(self, scene: Scene) -> Engine:
        """Prepare MuJoCo's collision detection and the compiled step for the scene."""
        return NcpEngine(scene, self)
