"""Via points and CMA-ES: a motion as a smooth curve through a few points, which a stochastic search moves about.

In the style of VP-STO, which paper 3 finds its pushes with. The curve through the via points is the smoothest one
there is (least acceleration), starts at rest where the controls are now, and stops at its end; so a search has a few
numbers to find, and every candidate is a motion that a robot can follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import CubicSpline

from tangens.errors import OptionError
from tangens.optimize.monitor import check_count

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ViaPoints:
    """What a search found."""

    points: Array
    """(n, nu)."""
    controls: Array
    """(steps, nu)."""
    cost: float
    history: Array
    """The lowest cost so far, after each generation."""
    evaluations: int


def through(start: ArrayLike, points: ArrayLike, steps: int) -> Array:
    """The smoothest curve from `start`, at rest, through all points to the last one, at rest: (steps, nu)."""
    knots = np.concatenate([np.atleast_2d(np.asarray(start, float)), np.asarray(points, float)])
    times = np.linspace(0, 1, len(knots))
    return np.asarray(CubicSpline(times, knots, bc_type="clamped")((np.arange(steps) + 1) / steps))


def via_point_search(
    cost: Callable[[Array], float],
    start: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    steps: int,
    via_points: int = 5,
    max_iterations: int = 100,
    population: int | None = None,
    target_cost: float = -np.inf,
    spread: float = 0.3,
    guess: ArrayLike | None = None,
    seed: int = 0,
) -> ViaPoints:
    """Minimise cost(controls) over motions through a few via points.

    Args:
        cost: of a sequence of controls (steps, nu); infinite where it cannot be simulated.
        start: the controls before the motion, (nu,).
        lower: lowest controls, (nu,).
        upper: highest controls, (nu,).
        steps: of the motion.
        via_points: how many.
        max_iterations: generations before it gives up.
        population: motions per generation; CMA-ES chooses unless given.
        target_cost: cost that is good enough.
        spread: deviation of the first generation, as a share of half the range.
        guess: via points to start from, (via_points, nu); `start` unless given.
        seed: of the random numbers, at least 0.

    """
    import cma

    check_count("seed", seed)
    for name, value in (("steps", steps), ("via_points", via_points), ("max_iterations", max_iterations)):
        check_count(name, value, least=1)
    begin, low, high = (np.asarray(x, float) for x in (start, lower, upper))
    if not (begin.shape == low.shape == high.shape and begin.ndim == 1 and (low < high).all()):
        raise OptionError("start, lower and upper must be vectors of one length, with lower < upper")
    middle, half = (low + high) / 2, (high - low) / 2

    def controls(x: Array) -> Array:
        return np.clip(through(begin, middle + half * x.reshape(via_points, -1), steps), low, high)

    first = np.tile(begin, (via_points, 1)) if guess is None else np.asarray(guess, float)
    options = {"bounds": [-1, 1], "seed": seed + 1, "verbose": -9}
    if population is not None:
        options["popsize"] = int(population)
    search = cma.CMAEvolutionStrategy(np.clip((first - middle) / half, -1, 1).ravel(), spread, options)
    best, lowest, history, evaluations = np.array(search.x0), np.inf, list[float](), 0
    while len(history) < max_iterations and lowest > target_cost and not search.stop():
        candidates = search.ask()
        costs = [float(cost(controls(np.asarray(x)))) for x in candidates]
        evaluations += len(costs)
        finite = [c for c in costs if np.isfinite(c)]
        search.tell(candidates, [c if np.isfinite(c) else max(finite, default=0.0) for c in costs])
        if min(costs) < lowest:
            best, lowest = np.asarray(candidates[int(np.argmin(costs))]), min(costs)
        history.append(lowest)
    return ViaPoints(
        middle + half * best.reshape(via_points, -1), controls(best), lowest, np.array(history), evaluations
    )
