"""Options of the convex model. No JAX here: a choice of model costs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tangens.contact.base import ContactModel, Engine
from tangens.contact.capabilities import BALL_LIMITS, DRY_FRICTION, EQUALITIES, LIMITS, SHAPES, TENDON_LIMITS
from tangens.contact.rules import Exact, GradientRule
from tangens.dynamics.parameter_forces import PARAMETERS
from tangens.errors import OptionError

if TYPE_CHECKING:
    from tangens.scene import Scene


@dataclass(frozen=True)
class Convex(ContactModel):
    """Convex contact on smooth manifolds: derivatives by q, v, u, tau, inertial parameters, friction and sizes."""

    name: ClassVar[str] = "convex"
    parameters: ClassVar[tuple[str, ...]] = (*PARAMETERS, "friction", "size")
    takes: ClassVar[frozenset[str]] = frozenset({LIMITS, BALL_LIMITS, TENDON_LIMITS, DRY_FRICTION, EQUALITIES, SHAPES})
    rules: ClassVar[tuple[type[GradientRule], ...]] = (Exact,)
    inverse_dynamics: ClassVar[bool] = True

    compliance: float = 0.02
    """R_n times the pair's reduced mass: the share of an impact that contacts leave. Smaller is more rigid. Where a
    body's own weight would press it in by more than 0.1 % of its size, contacts are stiffer."""

    stiffness: float | None = None
    """Of each contact [N/m], in place of `compliance`."""

    dissipation_time: float | None = None
    """τ_d [s]: damping over stiffness; half a time step if not given."""

    stick: float = 1e-3
    """R_t / R_n: how much sticking contacts creep."""

    smoothing: float = 1e-3
    """Of contact manifolds, as a share of the smaller solid's size."""

    margin: float = 0.005
    """Contacts count from this distance on, as a share of the smaller solid's size; the nearest features of solids that
    move count from as far away as a step may lead."""

    edges: bool = True
    """Let edges meet edges; without, contacts are vertices on surfaces (the paper's simplification)."""

    both_sides: bool = True
    """Let vertices of both solids be contacts; without, those of one."""

    vertices_kept: int | None = None
    """Most vertices of a solid that are contacts with another one: the deepest. None: all."""

    edges_kept: int = 16
    """Most edges of a solid that are looked at, where two have many: the deepest."""

    points: int | None = None
    """If given, the contacts of each pair are so many of the deepest vertices of both solids, as `soft` chooses its
    points, in place of the manifold."""

    max_iterations: int = 100
    tolerance: float = 1e-10
    """Of the balance of momentum, relative to the momenta in it."""

    def __post_init__(self) -> None:
        """Refuse options that make no sense."""
        for name in ("compliance", "stick", "smoothing", "margin", "tolerance"):
            _positive(name, getattr(self, name))
        for name in ("stiffness", "dissipation_time"):
            if getattr(self, name) is not None:
                _positive(name, getattr(self, name))
        for name in ("max_iterations", "edges_kept", "vertices_kept", "points"):
            count = getattr(self, name)
            if not (isinstance(count, int) and count >= 1) and not (
                name in ("vertices_kept", "points") and count is None
            ):
                raise OptionError(f"{name} must be a positive whole number; got {count!r}")

    def bind(self, scene: Scene) -> Engine:
        """Prepare the scene's solids; compiled at the first step."""
        from tangens.contact.convex.engine import ConvexEngine  # JAX is not imported before it is needed

        return ConvexEngine(scene, self)


def _positive(name: str, value: object) -> None:
    if not (isinstance(value, int | float) and 0 < value < float("inf")):
        raise OptionError(f"{name} must be a positive number; got {value!r}")
