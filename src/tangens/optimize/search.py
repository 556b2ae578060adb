"""Stochastic search: CMA-ES on the controls, without derivatives. The baseline that other methods are compared with."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.errors import OptionError
from tangens.optimize.control import ControlProblem, cost_or_infinity
from tangens.optimize.monitor import Callback, Monitor, Rules, bar, check_count
from tangens.optimize.result import ControlResult

Array = NDArray[np.float64]

# Beyond this many unknowns the full covariance costs more than it tells.
_DIAGONAL_ABOVE = 500


def stochastic_search(
    problem: ControlProblem,
    controls: ArrayLike,
    *,
    max_iterations: int = 1000,
    target_cost: float = -np.inf,
    time_budget: float = np.inf,
    spread: float = 0.2,
    population: int | None = None,
    seed: int = 0,
    callback: Callback | None = None,
    progress: bool = False,
) -> ControlResult:
    """Minimise the cost of a motion by CMA-ES, the covariance matrix adaptation of Hansen and Ostermeier.

    Each iteration is a generation. Its entry in the history has the best cost so far and an infinite gradient. Besides
    the rules below it stops when CMA-ES itself sees no progress any more.

    Args:
        problem: what to minimise; it needs no derivatives.
        controls: where to start, shape (intervals, nu); moved to within the limits.
        max_iterations: generations before it gives up.
        target_cost: cost that is good enough.
        time_budget: seconds after which no motion is simulated.
        spread: deviation of the first generation, as a share of half a control's range, or 1 where it has none.
        population: motions per generation, at least 4; CMA-ES chooses unless given.
        seed: of the random numbers, at least 0.
        callback: called with each entry of the history and its controls; it stops the search by returning True.
        progress: show a bar on the terminal.

    """
    if not isinstance(problem, ControlProblem):
        raise OptionError(f"expected a tangens.optimize.ControlProblem; got {type(problem).__name__}")
    if not np.isfinite(spread) or spread <= 0:
        raise OptionError(f"spread={spread!r} must be a positive number")
    check_count("seed", seed)
    if population is not None:
        check_count("population", population, least=4)
    rules = Rules(max_iterations, target_cost=target_cost, time_budget=time_budget)
    best = problem.admit(controls)
    cost = problem.evaluate(best)  # a start that cannot be simulated is the caller's to mend
    generation = _Generation(problem, best, spread, population, seed)
    evaluations = 1
    with bar(progress, max_iterations) as show:
        monitor = Monitor(rules, callback, show)
        while not monitor.record(best, cost, np.inf, evaluations):
            reason = generation.exhausted()
            if reason is not None:
                monitor.stop(f"no progress any more ({reason})", converged=True)
                break
            candidates, costs = generation.draw(), []
            for u in candidates:
                if monitor.out_of_time():
                    break
                costs.append(cost_or_infinity(problem, u))
                evaluations += 1
                if costs[-1] < cost:
                    best, cost = u, costs[-1]
            if len(costs) == len(candidates):
                generation.tell(costs)
    outcome = best, cost, tuple(monitor.history), monitor.converged, monitor.message
    return ControlResult(*outcome, problem.rollout(best))


class _Generation:
    """CMA-ES in units of the controls' ranges."""

    def __init__(self, problem: ControlProblem, start: Array, spread: float, population: int | None, seed: int) -> None:
        import cma

        bounded = np.isfinite(problem.upper - problem.lower)
        self._scale = np.where(bounded, 0.5 * (problem.upper - problem.lower), 1.0)
        self._problem, self._shape = problem, start.shape
        options = {
            "bounds": [self._scaled(problem.lower), self._scaled(problem.upper)],
            "seed": seed + 1,  # CMA-ES takes 0 for the clock
            "verbose": -9,
            "CMA_diagonal": start.size > _DIAGONAL_ABOVE,
        }
        if population is not None:
            options["popsize"] = int(population)
        self._search = cma.CMAEvolutionStrategy((start / self._scale).ravel(), spread, options)
        self._drawn: list[Array] = []

    def draw(self) -> list[Array]:
        """New candidates, shape (intervals, nu)."""
        self._drawn = self._search.ask()
        return [self._problem.clip(x.reshape(self._shape) * self._scale) for x in self._drawn]

    def tell(self, costs: list[float]) -> None:
        """What they cost; the failed ones as much as the worst of the others."""
        worst = max((c for c in costs if np.isfinite(c)), default=0.0)
        self._search.tell(self._drawn, [min(c, worst) for c in costs])

    def exhausted(self) -> str | None:
        """Why CMA-ES sees no point in going on."""
        return ", ".join(self._search.stop()) or None

    def _scaled(self, limit: Array) -> Array:
        return np.tile(limit / self._scale, self._shape[0])
