"""Options of the soft contact model. No JAX here: a choice of model costs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from tangens.contact.base import ContactModel, Engine
from tangens.contact.capabilities import LIMITS
from tangens.dynamics.parameter_forces import PARAMETERS
from tangens.errors import OptionError

if TYPE_CHECKING:
    from tangens.scene import Scene

Integrator = Literal["implicit", "euler", "rk4"]
Averaging = Literal["distances", "forces"]
Factor = Literal["smooth", "paper"]
_CHOICES = {
    "integrator": ("implicit", "euler", "rk4"),
    "averaging": ("distances", "forces"),
    "factor": ("smooth", "paper"),
}


@dataclass(frozen=True)
class Soft(ContactModel):
    """Contact forces as smooth functions of the state (paper 3): nothing is solved, nothing switches.

    What is None is derived from the scene, for each pair of geoms by itself; `sim.engine.derived` shows the values.
    Derived values are constants to a derivative.
    """

    name: ClassVar[str] = "soft"
    parameters: ClassVar[tuple[str, ...]] = (*PARAMETERS, "friction", "size")
    takes: ClassVar[frozenset[str]] = frozenset({LIMITS})
    inverse_dynamics: ClassVar[bool] = True
    second_order: ClassVar[bool] = True

    smoothing: tuple[float | None, float | None, float | None] = (None, None, None)
    """ε₁ [m²], ε₂ [m], ε₃ [m]: temperatures of the nearest plane, of the deepest point, and how far forces reach."""

    stiffness: float | None = None
    """k [N/m] of each pair."""

    dissipation: float | None = None
    """v_d [m/s]: a pair that parts this fast is pushed no more; the lower, the more damping."""

    stiction: float | None = None
    """v_s [m/s]: contacts that slip this slowly still have 70 % of their friction; a contact that holds creeps."""

    integrator: Integrator = "implicit"
    """"implicit": forces are those at the end of the step, so they know the acceleration (paper 3, Sec. V), and stiff
    contacts are stable. "euler", "rk4": the paper's, explicit; contacts are softer at the same time step."""

    tolerance: float = 1e-7
    """Of the implicit step: the last change of the velocity by Newton's method, over one plus its largest entry."""

    max_iterations: int = 60
    """Of Newton's method. A step that ends here before the tolerance is met is not converged."""

    points: int = 96
    """Points on each geom that is neither plane, sphere nor capsule; those are exact."""

    mesh_points: int = 600
    """Points on each mesh, about."""

    averaging: Averaging = "distances"
    """"forces": the mean of the forces of all planes (Eq. 22). "distances": the force at the mean distance, which knows
    no forces of planes that a point is behind but not under."""

    factor: Factor = "smooth"
    """"paper": the dissipation factor of Eqs. 16 and 17, which has a kink in its slope; with it there is no Hessian."""

    def __post_init__(self) -> None:
        """Refuse options that make no sense."""
        if not isinstance(self.smoothing, tuple) or len(self.smoothing) != 3:
            raise OptionError(f"smoothing must be (ε₁, ε₂, ε₃), each a number or None; got {self.smoothing!r}")
        given = dict(zip(("smoothing[0]", "smoothing[1]", "smoothing[2]"), self.smoothing, strict=True))
        for name, value in (given | {n: getattr(self, n) for n in ("stiffness", "dissipation", "stiction")}).items():
            if value is not None and not (isinstance(value, int | float) and 0 < value < float("inf")):
                raise OptionError(f"{name} must be a positive number, or None to derive it; got {value!r}")
        if not (isinstance(self.tolerance, int | float) and 0 < self.tolerance < float("inf")):
            raise OptionError(f"tolerance must be a positive number; got {self.tolerance!r}")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise OptionError(f"{name}={getattr(self, name)!r} is not one of {', '.join(map(repr, known))}")
        for name, least in (("points", 6), ("mesh_points", 24), ("max_iterations", 1)):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < least:
                raise OptionError(f"{name} must be a whole number of {least} or more; got {getattr(self, name)!r}")
        if self.averaging == "forces" and self.integrator == "implicit":
            raise OptionError('averaging="forces" is the paper\'s own: take integrator="euler" or "rk4" with it')

    def bind(self, scene: Scene) -> Engine:
        """Prepare the scene's point clouds; compiled at the first step."""
        from tangens.contact.soft.engine import SoftEngine  # JAX is not imported before it is needed

        return SoftEngine(scene, self)
