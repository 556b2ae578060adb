"""tangens: robots and objects that touch, and the derivative of what happened.

>>> import tangens as tg
>>> sim = tg.Simulator(tg.scenes.arm())
>>> state = sim.initial_state("home")
>>> out = sim.step(state)
>>> J = sim.jacobian(state, wrt=("q", "v", "tau"))
>>> J["v", "tau"].shape
(6, 6)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tangens import optimize, scenes
from tangens.contact import (
    CONTACT_MODELS,
    Bilevel,
    ComplementarityAware,
    ContactModel,
    ContinuousBounce,
    Convex,
    Exact,
    FixedContacts,
    GradientRule,
    Lcp,
    Ncp,
    OtherSide,
    Randomized,
    Relaxed,
    SingleLevel,
    Smoothed,
    Soft,
)
from tangens.errors import (
    Error,
    MissingExtra,
    NotDifferentiable,
    OptionError,
    SceneError,
    SceneWarning,
    SolverError,
    StateError,
)
from tangens.results import Contacts, Gradients, Jacobian, SolverReport, Step, Switch, Trajectory
from tangens.scene import Scene, load
from tangens.sensitivities import Sensitivities
from tangens.simulate import Simulator
from tangens.state import State

if TYPE_CHECKING:
    from tangens import collision, geometry, interop, testing
else:

    def __getattr__(name: str) -> Any:
        """Rooms that are imported on their first use: JAX is slow to import, and few runs need `tangens.testing`."""
        if name in ("collision", "geometry", "interop", "testing"):
            return import_module(f"tangens.{name}")
        raise AttributeError(f"module 'tangens' has no attribute {name!r}")


__version__ = "0.1.0"

__all__ = [
    "CONTACT_MODELS",
    "Bilevel",
    "ComplementarityAware",
    "ContactModel",
    "Contacts",
    "ContinuousBounce",
    "Convex",
    "Error",
    "Exact",
    "FixedContacts",
    "GradientRule",
    "Gradients",
    "Jacobian",
    "Lcp",
    "MissingExtra",
    "Ncp",
    "NotDifferentiable",
    "OptionError",
    "OtherSide",
    "Randomized",
    "Relaxed",
    "Scene",
    "SceneError",
    "SceneWarning",
    "Sensitivities",
    "Simulator",
    "SingleLevel",
    "Smoothed",
    "Soft",
    "SolverError",
    "SolverReport",
    "State",
    "StateError",
    "Step",
    "Switch",
    "Trajectory",
    "collision",
    "geometry",
    "interop",
    "load",
    "optimize",
    "scenes",
    "testing",
]
