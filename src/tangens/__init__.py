"""tangens: robots and objects that touch, and the derivative of what happened.

>>> import tangens as tg
>>> sim = tg.Simulator(tg.scenes.arm())
>>> state = sim.initial_state("home")
>>> out = sim.step(state)
>>> J = sim.jacobian(state, wrt=("q", "v", "tau"))
>>> J["v", "tau"].shape
(6, 6)
"""

from tangens import optimize, scenes
from tangens.contact import CONTACT_MODELS, ContactModel, Lcp, Ncp, Smoothed
from tangens.errors import Error, NotDifferentiable, OptionError, SceneError, SolverError, StateError
from tangens.results import Contacts, Gradients, Jacobian, SolverReport, Step, Trajectory
from tangens.scene import Scene, load
from tangens.simulate import Simulator
from tangens.state import State

__version__ = "0.1.0"

__all__ = [
    "CONTACT_MODELS",
    "ContactModel",
    "Contacts",
    "Error",
    "Gradients",
    "Jacobian",
    "Lcp",
    "Ncp",
    "NotDifferentiable",
    "OptionError",
    "Scene",
    "SceneError",
    "Simulator",
    "Smoothed",
    "SolverError",
    "SolverReport",
    "State",
    "StateError",
    "Step",
    "Trajectory",
    "load",
    "optimize",
    "scenes",
]
