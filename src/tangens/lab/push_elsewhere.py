"""The same pushes looked for through other contact models: what their gradients know of a finger that does not touch.

Exact models see nothing at a distance. Relaxed ones see something; here they get what `soft` gets, several stages, each
less relaxed than the one before, and the same Gauss-Newton steps on the same residual, but for other worlds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tangens.contact import Ncp, SingleLevel
from tangens.lab.push_search import STILL, TURNS, UNIT, way_and_bend
from tangens.lab.pushing import Pushing, pose
from tangens.optimize import LeastSquares, gauss_newton
from tangens.simulate import Simulator

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Attempt:
    """A search through one model, or several, one after the other."""

    via: Array
    first_gradient: float
    """Length of the gradient at the start, where nothing touches."""
    error: tuple[float, float]
    """Where the T ends in the last of the models: [m], [rad]."""
    iterations: int
    message: str
    """How the last search ended."""


def exact_models() -> dict[str, tuple[Any, ...]]:
    """Models to compare with, and the stages of their search."""
    return {"ncp": (Ncp(),), "single-level, relaxed": tuple(SingleLevel(relaxation=r) for r in (1e-2, 1e-3, 1e-4))}


def attempt(problem: Pushing, goal: Array, stages: Sequence[Any], max_iterations: int = 15) -> Attempt:
    """Gauss-Newton through these models, from a finger that stays where it is."""
    via, iterations, first, message, sim = np.zeros(2 * problem.via_points), 0, None, "", None
    for contact in stages:
        sim = Simulator(problem.scene, contact)
        found = gauss_newton(_residual(problem, goal, sim), via, max_iterations=max_iterations, damping=1e-2)
        first = found.history[0].gradient_norm if first is None else first
        via, iterations, message = found.x, iterations + len(found.history) - 1, found.message
    assert sim is not None
    assert first is not None
    end = sim.rollout(problem.start, problem.basis @ via.reshape(-1, 2)).q[-1]
    return Attempt(via.reshape(-1, 2), first, problem.errors(end, goal), iterations, message)


def _residual(problem: Pushing, goal: Array, sim: Simulator) -> LeastSquares:
    """That of `push_search`, through any simulator."""
    shape = way_and_bend(problem.via_points)

    def roll(flat: Array) -> Any:
        return sim.rollout(problem.start, problem.basis @ flat.reshape(-1, 2))

    def residual(flat: Array) -> Array:
        path = roll(flat)
        return np.concatenate([(pose(path.q[-1]) - goal) / UNIT, path.v[-1, TURNS] / STILL, shape @ flat])

    def jacobian(flat: Array) -> Array:
        by = sim.sensitivities(roll(flat), wrt=("u",))
        parts = [by[name, "u"][-1, TURNS] / unit[:, None, None] for name, unit in (("q", UNIT), ("v", STILL))]
        ends = np.einsum("rtk,tv->rvk", np.concatenate(parts), problem.basis)
        return np.concatenate([ends.reshape(6, -1), shape])

    return LeastSquares(residual, jacobian, 2 * problem.via_points)
