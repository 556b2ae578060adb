"""Direct multiple shooting: states at the ends of pieces are unknowns too, and the pieces must fit together.

Sequential quadratic programming (SQP) of our own over the sparse QP solver PIQP. Each iteration linearises all pieces,
solves one convex QP in the changes of controls and states, and follows its solution as far as the merit function

    cost + Σ νᵢ |defectᵢ|,    defect = difference(state at the end of the piece, where the piece ends)

decreases. Differences and their derivatives live in the tangent space, so quaternions need no constraints.

Why PIQP: it is a wheel of 2 MB without dependencies but NumPy and SciPy, sparse, and its proximal terms keep it exact
where constraints are nearly dependent or the Hessian is singular, as it is here. IPOPT would ask for second derivatives
of the step or spend a quasi-Newton method where Gauss-Newton has the Hessian; cyipopt has no wheels, CasADi brings
IPOPT at 93 MB. A QP is all that the structure of the problem leaves to be solved.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from tangens.errors import Error, OptionError
from tangens.optimize.control import ControlProblem, cost_or_infinity
from tangens.optimize.monitor import Callback, Damping, Monitor, Rules, bar, check_count
from tangens.optimize.result import ControlResult
from tangens.state import State

Array = NDArray[np.float64]

_SUFFICIENT = 1e-4
_HALVINGS = 1  # at first: more damping gives better directions than shorter steps do


def multiple_shooting(
    problem: ControlProblem,
    controls: ArrayLike,
    states: Sequence[State] | None = None,
    *,
    segment: int = 1,
    max_iterations: int = 200,
    gradient_tolerance: float = 1e-6,
    cost_tolerance: float = 1e-9,
    feasibility_tolerance: float = 1e-7,
    target_cost: float = -np.inf,
    time_budget: float = np.inf,
    damping: float = 1e-6,
    callback: Callback | None = None,
    progress: bool = False,
) -> ControlResult:
    """Minimise the cost of a motion by direct multiple shooting.

    The cost in the history is that of the pieces, which is the motion's own when the violation, the largest defect, is
    zero. The cost of the result is that of the true motion under the controls found.

    Args:
        problem: what to minimise; Hessians of its costs must be positive semi-definite.
        controls: where to start, shape (intervals, nu); moved to within the limits.
        states: first guess of the state at the end of each piece; those of the motion under `controls` unless given.
        segment: intervals in a piece.
        max_iterations: iterations before it gives up.
        gradient_tolerance: norm of the Lagrangian's gradient, relative to the first one, that counts as zero.
        cost_tolerance: change of the cost, relative to the cost, that counts as none.
        feasibility_tolerance: defect that counts as none [m, rad, m/s, rad/s].
        target_cost: cost that is good enough.
        time_budget: seconds after which no iteration is begun.
        damping: first multiple of the identity that is added to the Hessian, relative to its largest entry.
        callback: called with each entry of the history and its controls; it stops the search by returning True.
        progress: show a bar on the terminal.

    """
    if not isinstance(problem, ControlProblem):
        raise OptionError(f"expected a tangens.optimize.ControlProblem; got {type(problem).__name__}")
    check_count("segment", segment, least=1)
    damper = Damping(damping)
    rules = Rules(max_iterations, gradient_tolerance, cost_tolerance, feasibility_tolerance, target_cost, time_budget)
    pieces = _Pieces(problem, int(segment))
    first = problem.admit(controls)
    point = pieces.evaluate(first, pieces.nodes(first, states))  # what cannot be simulated is the caller's to mend
    program = pieces.program(point)
    evaluations, weights = 1, np.zeros(pieces.defects)
    with bar(progress, max_iterations) as show:
        monitor = Monitor(rules, callback, show)
        while True:
            step = program.solve(damper.value)
            slope = np.inf if step is None else step.slope
            if monitor.record(point.u, point.cost, slope, evaluations, point.violation):
                break
            if point.cost <= target_cost:  # before the last gaps are closed, the true motion may be good enough
                evaluations += 1
                if cost_or_infinity(problem, point.u) <= target_cost:
                    monitor.stop(f"the cost of the true motion is within {target_cost:g}", converged=True)
                    break
            better, trouble, halvings = None, None, _HALVINGS
            while better is None:
                if step is not None:
                    weights = np.maximum(step.prices, 0.5 * (weights + step.prices))
                    better, tried, trouble = _search(pieces, point, step, weights, halvings)
                    evaluations += tried
                if better is None:
                    if monitor.out_of_time() or not damper.failed():
                        break
                    # Damping shortens what lowers the cost, but not what closes gaps: shares must get smaller too.
                    step, halvings = program.solve(damper.value), halvings + 1
            if better is None:
                if monitor.spent():
                    break
                reason = "no step along the direction of descent is any better"
                monitor.stop(reason if trouble is None else f"{reason}; where a simulation failed: {trouble}")
                break
            point, program = better
            damper.succeeded()
    return _true_motion(problem, first, point, monitor)


def _true_motion(problem: ControlProblem, first: Array, point: _Point, monitor: Monitor) -> ControlResult:
    """The result as the simulator sees it; the first controls where those found make no better motion."""
    costs = [cost_or_infinity(problem, u) for u in (first, point.u)]
    history = tuple(monitor.history)
    if costs[1] <= costs[0]:
        found = problem.rollout(point.u)
        return ControlResult(point.u, costs[1], history, monitor.converged, monitor.message, found)
    message = f"{monitor.message}; but no better than the first controls, which are kept"
    return ControlResult(first, problem.evaluate(first), history, False, message, problem.rollout(first))


# ---------------------------------------------------------------------- pieces


class _Point(NamedTuple):
    u: Array
    nodes: list[State]
    """Where pieces start, and where the last one should end."""
    inside: list[list[State]]
    """The states of each piece, as simulated."""
    cost: float
    defects: Array
    """From nodes to ends of pieces, shape (pieces, 2·nv)."""

    @property
    def violation(self) -> float:
        return float(np.abs(self.defects).max())


class _Pieces:
    """The motion cut into pieces; unknowns are in the order u₀, x₁, u₁, x₂, ..."""

    def __init__(self, problem: ControlProblem, segment: int) -> None:
        self.problem = problem
        self._cuts = [*range(0, problem.intervals, segment), problem.intervals]
        self._u: list[slice] = []
        self._x: list[slice] = []
        start = 0
        for a, b in pairwise(self._cuts):
            self._u.append(slice(start, start + (b - a) * problem.nu))
            self._x.append(slice(self._u[-1].stop, self._u[-1].stop + problem.nx))
            start = self._x[-1].stop
        self.size = start
        self.defects = len(self._x) * problem.nx

    def nodes(self, u: Array, states: Sequence[State] | None) -> list[State]:
        """The first guess."""
        if states is not None:
            if len(states) != len(self._x):
                raise OptionError(f"states must be {len(self._x)}, one for the end of each piece; got {len(states)}")
            for state in states:
                self.problem.simulator.rollout(state, 0)  # complains of what is not a state of this scene
            return [self.problem.start, *states]
        out = [self.problem.start]
        for a, b in pairwise(self._cuts):
            out.append(self.problem.piece(out[-1], u[a:b], a)[0][-1])
        return out

    def evaluate(self, u: Array, nodes: list[State]) -> _Point:
        """Simulate all pieces."""
        cost, inside, defects = self.problem.final_cost(nodes[-1]), [], []
        for k, (a, b) in enumerate(pairwise(self._cuts)):
            states, running = self.problem.piece(nodes[k], u[a:b], a)
            inside.append(states)
            defects.append(self.problem.difference(nodes[k + 1], states[-1]))
            cost += running
        return _Point(u, nodes, inside, cost, np.array(defects))

    def moved(self, point: _Point, z: Array) -> _Point:
        """The point changed by z."""
        p = self.problem
        u = p.clip(point.u + np.concatenate([z[part] for part in self._u]).reshape(point.u.shape))
        ends = [p.moved(node, z[part]) for node, part in zip(point.nodes[1:], self._x, strict=True)]
        return self.evaluate(u, [point.nodes[0], *ends])

    def program(self, point: _Point) -> _Program:
        """The QP in changes of all unknowns."""
        p, nx = self.problem, self.problem.nx
        hessian, equations = _Blocks(), _Blocks()
        gradient = np.zeros(self.size)
        lower, upper = np.full(self.size, -np.inf), np.full(self.size, np.inf)
        for k, (a, b) in enumerate(pairwise(self._cuts)):
            piece = p.linearized(point.inside[k], point.u[a:b], a)
            by_node, by_end = p.difference_jacobians(point.nodes[k + 1], point.inside[k][-1])
            rows = slice(k * nx, (k + 1) * nx)
            own, before = self._u[k], slice(self._u[k].start - nx, self._u[k].start)
            gradient[own] += piece.gradient[nx:]
            hessian.add(own, own, piece.hessian[nx:, nx:])
            equations.add(rows, own, by_end @ piece.B)
            equations.add(rows, self._x[k], by_node)
            if k:  # the start of the first piece is given
                gradient[before] += piece.gradient[:nx]
                hessian.add(before, before, piece.hessian[:nx, :nx])
                hessian.add(before, own, piece.hessian[:nx, nx:])
                hessian.add(own, before, piece.hessian[nx:, :nx])
                equations.add(rows, before, by_end @ piece.A)
            lower[own], upper[own] = (p.lower - point.u[a:b]).ravel(), (p.upper - point.u[a:b]).ravel()
        final = p.final_expansion(point.nodes[-1])
        gradient[self._x[-1]] += final.x
        hessian.add(self._x[-1], self._x[-1], final.xx)
        P, A = hessian.matrix((self.size, self.size)), equations.matrix((self.defects, self.size))
        return _Program(P, gradient, A, point.defects.ravel(), lower, upper)


class _Blocks:
    """A sparse matrix made of dense blocks, added up."""

    def __init__(self) -> None:
        self._parts: list[tuple[Array, Array, Array]] = []

    def add(self, rows: slice, columns: slice, block: Array) -> None:
        i, j = np.mgrid[rows, columns]
        self._parts.append((i.ravel(), j.ravel(), block.ravel()))

    def matrix(self, shape: tuple[int, int]) -> sparse.csc_matrix:
        i, j, values = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        return sparse.csc_matrix((values, (i, j)), shape=shape)


# ---------------------------------------------------------------------- the quadratic program


class _Step(NamedTuple):
    z: Array
    prices: Array
    """What a defect costs: the size of its multiplier."""
    descent: float
    """Slope of the cost along z."""
    slope: float
    """Norm of the Lagrangian's gradient, without what the limits forbid."""


class _Program(NamedTuple):
    P: sparse.csc_matrix
    c: Array
    A: sparse.csc_matrix
    defects: Array
    lower: Array
    upper: Array

    def solve(self, damping: float) -> _Step | None:
        """Minimise ½ z·Pz + c·z with Az = −defects within the limits; None where that fails."""
        import piqp

        size = len(self.c)
        scale = max(float(np.abs(self.P.diagonal()).max()), np.finfo(float).tiny)
        P = self.P + damping * scale * sparse.identity(size, format="csc")
        solver = piqp.SparseSolver()
        solver.settings.eps_abs, solver.settings.eps_rel = 1e-9, 1e-10
        solver.setup(sparse.csc_matrix(P), self.c, self.A, -self.defects, None, None, None, self.lower, self.upper)
        if solver.solve() != piqp.PIQP_SOLVED:
            return None
        z, y = np.array(solver.result.x), np.array(solver.result.y)
        return _Step(z, np.abs(y), float(self.c @ z), float(np.linalg.norm(P @ z)))


def _search(
    pieces: _Pieces, point: _Point, step: _Step, weights: Array, halvings: int
) -> tuple[tuple[_Point, _Program] | None, int, Error | None]:
    """The first point along the step with enough merit and a derivative; how many were tried, and what failed."""
    gaps = float(weights @ np.abs(point.defects.ravel()))
    promised = min(step.descent - gaps, 0.0)
    trouble = None
    for halving in range(halvings + 1):
        share = 0.5**halving
        try:
            candidate = pieces.moved(point, share * step.z)
            there = candidate.cost + float(weights @ np.abs(candidate.defects.ravel()))
            if there < point.cost + gaps + _SUFFICIENT * share * promised:
                return (candidate, pieces.program(candidate)), halving + 1, None
        except OptionError:
            raise
        except Error as error:
            trouble = error
    return None, halvings + 1, trouble
