"""Inverse problems: which initial velocity, impulse or torque makes the simulation end where it should.

A problem is a residual r(x) and its derivative; `gauss_newton` and `gradient_descent` make ½|r|² small.

>>> import tangens as tg
>>> sim = tg.Simulator(tg.scenes.cube(), contact="ncp")
>>> start = sim.initial_state("resting")
>>> goal = sim.scene.integrate(start.q, [0.1, 0.05, 0, 0, 0, 0])
>>> problem = tg.optimize.initial_condition(sim, start, goal, steps=100)
>>> found = tg.optimize.gauss_newton(problem, [1, 0.5, 0, 0, 0, 0])
>>> found.converged
True
"""

from tangens.optimize.least_squares import gauss_newton, gradient_descent
from tangens.optimize.problems import LeastSquares, by_differences, initial_condition, inverse_dynamics
from tangens.optimize.result import Iteration, Result

__all__ = [
    "Iteration",
    "LeastSquares",
    "Result",
    "by_differences",
    "gauss_newton",
    "gradient_descent",
    "initial_condition",
    "inverse_dynamics",
]
