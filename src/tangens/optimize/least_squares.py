"""Descent on ½|r(x)|²: Gauss-Newton with damping, and plain gradient descent, both with a line search.

Contact makes r piecewise smooth. So a step is only ever taken when it lowers the cost, and a point at which the
simulation fails counts as infinitely bad instead of ending the search.
"""

from __future__ import annotations

import time
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.errors import Error, OptionError, SolverError
from tangens.optimize.box import Box
from tangens.optimize.monitor import Callback, bar, check_count, check_tolerance
from tangens.optimize.problems import LeastSquares
from tangens.optimize.result import Iteration, Result
from tangens.state import as_vector

Array = NDArray[np.float64]

# A cost that a linear residual would lower by less than this share is as low as it gets.
_ROUNDING = 1e-9
# A step counts when it brings at least this share of the decrease that the slope promises (Armijo's rule).
_SUFFICIENT = 1e-4


def gauss_newton(
    problem: LeastSquares,
    x0: ArrayLike,
    *,
    max_iterations: int = 50,
    tolerance: float = 1e-10,
    gradient_tolerance: float = 1e-14,
    damping: float = 1e-4,
    bounds: tuple[ArrayLike, ArrayLike] | None = None,
    callback: Callback | None = None,
    progress: bool = False,
) -> Result:
    """Gauss-Newton with Levenberg-Marquardt damping and a backtracking line search.

    The step solves (JᵀJ + λD) d = −Jᵀr, with D the diagonal of JᵀJ, so that unknowns may differ in scale. The damping λ
    falls while steps succeed at full length and rises where no step along d lowers the cost.

    Args:
        problem: what to minimise.
        x0: where to start.
        max_iterations: iterations before it gives up.
        tolerance: norm of the residual that counts as zero.
        gradient_tolerance: norm of the gradient, relative to the first one, that counts as zero.
        damping: the first λ; 0 is pure Gauss-Newton, its steps the shortest of those that solve the linear problem.
        bounds: the least and the largest x, numbers or arrays: no other point is ever tried.
        callback: called with each entry of the history and its point; it stops the search by returning True.
        progress: show a bar on the terminal.

    """
    if not np.isfinite(damping) or damping < 0:
        raise OptionError(f"damping={damping!r} must be a number, at least 0")
    rule = _LevenbergMarquardt(damping)
    return _descend(problem, x0, rule, max_iterations, tolerance, gradient_tolerance, callback, progress, bounds)


def gradient_descent(
    problem: LeastSquares,
    x0: ArrayLike,
    *,
    max_iterations: int = 200,
    tolerance: float = 1e-10,
    gradient_tolerance: float = 1e-14,
    rate: float = 1.0,
    callback: Callback | None = None,
    progress: bool = False,
) -> Result:
    """Steepest descent with backtracking: the baseline that Gauss-Newton is compared with.

    `rate` scales the first trial step −rate·∇; later trials start from twice the rate that was last accepted. The other
    arguments are those of `gauss_newton`.
    """
    if not np.isfinite(rate) or rate <= 0:
        raise OptionError(f"rate={rate!r} must be a positive number")
    rule = _Steepest(rate)
    return _descend(problem, x0, rule, max_iterations, tolerance, gradient_tolerance, callback, progress)


# ---------------------------------------------------------------------- where to go


class _Rule(Protocol):
    """How a method chooses its steps."""

    halvings: int
    """How often a step is halved before the rule is asked for another direction."""

    def direction(self, r: Array, J: Array) -> Array:
        """The step to try at full length."""
        ...

    def accepted(self, share: float) -> None:
        """Hear that this share of the step was taken."""
        ...

    def rejected(self) -> bool:
        """Hear that no share of it was any good; whether there is another direction to try."""
        ...


class _LevenbergMarquardt:
    halvings = 8

    def __init__(self, damping: float) -> None:
        self._damping = damping

    def direction(self, r: Array, J: Array) -> Array:
        scale = np.linalg.norm(J, axis=0)
        # An unknown with hardly any effect must not be taken for one of small scale: what it has may be noise.
        scale = np.maximum(scale, max(1e-3 * scale.max(), np.finfo(float).tiny))
        A, b = J / scale, -r
        if self._damping > 0:
            A = np.concatenate([A, np.sqrt(self._damping) * np.eye(len(scale))])
            b = np.concatenate([b, np.zeros(len(scale))])
        return np.linalg.lstsq(A, b, rcond=1e-12)[0] / scale

    def accepted(self, share: float) -> None:
        if share == 1.0:
            self._damping /= 10

    def rejected(self) -> bool:
        self._damping = max(10 * self._damping, 1e-6)
        return self._damping <= 1e6


class _Steepest:
    halvings = 60

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def direction(self, r: Array, J: Array) -> Array:
        return -self._rate * (J.T @ r)

    def accepted(self, share: float) -> None:
        self._rate *= 2 * share

    def rejected(self) -> bool:
        return False


# ---------------------------------------------------------------------- going there


class _Search:
    """The residual as the methods see it: counted, checked, and remembering what went wrong last."""

    def __init__(self, problem: LeastSquares) -> None:
        self._problem = problem
        self.evaluations = 0
        self.trouble: Exception | None = None

    def residual(self, x: Array) -> Array:
        """r(x); raises where it is not finite."""
        self.evaluations += 1
        r = np.asarray(self._problem.residual(x), dtype=np.float64)
        if r.ndim != 1:
            raise OptionError(f"residual(x) must be one-dimensional; it has shape {r.shape}")
        if not np.isfinite(r).all():
            raise SolverError(f"residual(x)[{np.flatnonzero(~np.isfinite(r))[0]}] is not finite")
        return r

    def attempt(self, x: Array) -> Array | None:
        """r(x), or None where x is out of bounds."""
        try:
            return self.residual(x)
        except Error as error:
            self.trouble = error
            return None

    def jacobian(self, x: Array, r: Array) -> Array:
        """∂r/∂x; raises where it is not finite."""
        self.evaluations += self._problem.evaluations_per_jacobian
        J = np.asarray(self._problem.jacobian(x), dtype=np.float64)
        if J.shape != (len(r), len(x)):
            raise OptionError(f"jacobian(x) must have shape {(len(r), len(x))}; it has {J.shape}")
        if not np.isfinite(J).all():
            raise SolverError(f"jacobian(x)[{', '.join(map(str, np.argwhere(~np.isfinite(J))[0]))}] is not finite")
        return J


def _descend(
    problem: LeastSquares, x0: ArrayLike, rule: _Rule, max_iterations: int, tolerance: float,
    gradient_tolerance: float, callback: Callback | None, progress: bool,
    bounds: tuple[ArrayLike, ArrayLike] | None = None,
) -> Result:  # fmt: skip
    _check(problem, max_iterations, tolerance, gradient_tolerance)
    box = Box.of(bounds, problem.size)
    x = box.nearest(np.array(as_vector("x0", x0, problem.size)))
    search = _Search(problem)
    clock = time.perf_counter()
    r = search.residual(x)  # a start that cannot be simulated is the caller's to mend
    cost, history, length, first_slope = 0.5 * float(r @ r), list[Iteration](), 0.0, 0.0
    message, converged = "", False
    with bar(progress, max_iterations, "error") as show:
        for iteration in range(max_iterations + 1):
            gradient, failure = np.full(len(x), np.inf), None  # until there is a derivative
            try:
                J = search.jacobian(x, r)
                gradient = J.T @ r
            except OptionError:
                raise
            except Error as error:
                failure = error
            free = box.free(x, gradient)
            slope = float(np.linalg.norm(gradient[free]))
            now = time.perf_counter()
            history.append(Iteration(cost, slope, length, search.evaluations, now - clock))
            clock, first_slope = now, first_slope or slope
            show(iteration, np.sqrt(2 * cost))
            if callback is not None and callback(history[-1], x.copy()) is True:
                message = "the callback asked to stop"
                break
            if np.sqrt(2 * cost) <= tolerance:
                converged, message = True, f"the residual is within {tolerance:g}"
                break
            if failure is not None:
                message = f"there is no derivative here, so the best point so far is kept: {failure}"
                break
            if slope <= gradient_tolerance * first_slope:
                converged, message = True, "the gradient vanishes: a stationary point"
                break
            if iteration == max_iterations:
                message = f"not there after {max_iterations} iterations"
                break
            taken = _step(search, rule, x, r, J, cost, box)
            if taken is None:
                if search.trouble is None and _promise(r, J[:, free]) <= _ROUNDING * cost:
                    converged, message = True, "a minimum: no step lowers the cost by more than rounding"
                    break
                message = "no step along the direction of descent lowers the cost"
                if search.trouble is not None:
                    message += f"; where a simulation failed on the way: {search.trouble}"
                break
            length = float(np.linalg.norm(taken[0] - x))
            x, r = taken
            cost, search.trouble = 0.5 * float(r @ r), None
    return Result(x, cost, tuple(history), converged, message)


def _promise(r: Array, J: Array) -> float:
    """How much the cost would fall if the residual were linear."""
    step = np.linalg.lstsq(J, -r, rcond=1e-12)[0]
    there = r + J @ step
    return 0.5 * float(r @ r - there @ there)


def _step(
    search: _Search, rule: _Rule, x: Array, r: Array, J: Array, cost: float, box: Box
) -> tuple[Array, Array] | None:
    """The next point and its residual; None where none is better than x."""
    gradient = J.T @ r
    free = box.free(x, gradient)
    while True:
        direction = np.zeros_like(x)
        direction[free] = rule.direction(r, J[:, free])
        share = 1.0
        for _ in range(rule.halvings + 1):
            candidate = box.nearest(x + share * direction)
            promised = float(gradient @ (candidate - x)) / share
            if not np.isfinite(candidate).all() or np.array_equal(candidate, x):
                break
            there = search.attempt(candidate)
            if there is not None and 0.5 * float(there @ there) < cost + _SUFFICIENT * share * min(promised, 0.0):
                rule.accepted(share)
                return candidate, there
            share /= 2
        if not rule.rejected():
            return None


def _check(problem: LeastSquares, max_iterations: int, tolerance: float, gradient_tolerance: float) -> None:
    if not isinstance(problem, LeastSquares):
        raise OptionError(f"expected a tangens.optimize.LeastSquares; got {type(problem).__name__}")
    check_count("max_iterations", max_iterations)
    check_tolerance("tolerance", tolerance)
    check_tolerance("gradient_tolerance", gradient_tolerance)
