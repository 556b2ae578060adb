"""Inverse problems and optimal control: which velocities, forces or controls make a simulation end as it should.

Inverse problems are a residual r(x) and its derivative; `gauss_newton` and `gradient_descent` make ½|r|² small.

>>> import tangens as tg
>>> sim = tg.Simulator(tg.scenes.cube(), contact="ncp")
>>> start = sim.initial_state("resting")
>>> goal = sim.scene.integrate(start.q, [0.1, 0.05, 0, 0, 0, 0])
>>> problem = tg.optimize.initial_condition(sim, start, goal, steps=100)
>>> found = tg.optimize.gauss_newton(problem, [1, 0.5, 0, 0, 0, 0])
>>> found.converged
True

A `ControlProblem` is a motion and what it costs; `ilqr`, `multiple_shooting` and `stochastic_search` look for the
controls of the cheapest one.

A `Manipulation` is an object, its goal, and fingers to move it; `contact_rrt` plans how, and where to touch it.
"""

from tangens.optimize.control import ControlProblem
from tangens.optimize.costs import Cost, Effort, Expansion, Position, TargetState
from tangens.optimize.dynamic_programming import ilqr
from tangens.optimize.least_squares import gauss_newton, gradient_descent
from tangens.optimize.manipulation import Manipulation
from tangens.optimize.problems import LeastSquares, by_differences, initial_condition, inverse_dynamics
from tangens.optimize.random_tree import Edge, Plan, contact_rrt, replay
from tangens.optimize.result import ControlResult, Iteration, Outcome, Result
from tangens.optimize.search import stochastic_search
from tangens.optimize.shooting import multiple_shooting
from tangens.optimize.transfer import FingertipGrasps
from tangens.optimize.via_points import ViaPoints, via_point_search

__all__ = [
    "ControlProblem",
    "ControlResult",
    "Cost",
    "Edge",
    "Effort",
    "Expansion",
    "FingertipGrasps",
    "Iteration",
    "LeastSquares",
    "Manipulation",
    "Outcome",
    "Plan",
    "Position",
    "Result",
    "TargetState",
    "ViaPoints",
    "by_differences",
    "contact_rrt",
    "gauss_newton",
    "gradient_descent",
    "ilqr",
    "initial_condition",
    "inverse_dynamics",
    "multiple_shooting",
    "replay",
    "stochastic_search",
    "via_point_search",
]
