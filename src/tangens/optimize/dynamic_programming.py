"""iLQR with control limits: dynamic programming on linear motion and quadratic cost, around the best motion so far.

Backwards in time, the cost-to-go is a quadratic in δx; each control minimises it within its limits, which gives a
change of the control and a feedback on δx. Forwards, the simulator itself runs under that feedback, so every iterate is
a true motion. After Tassa, Mansard and Todorov, "Control-limited differential dynamic programming", ICRA 2014.

Of a simulator that has second derivatives, the bend of the motion can count, too: then the quadratic is that of the
cost itself, and dynamic programming takes Newton's steps. As Newton's method does, it weighs that bend with the costate
of the motion so far, so that more damping asks for no further derivatives.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.errors import Error, OptionError
from tangens.optimize.box_qp import solve_box_qp
from tangens.optimize.control import ControlProblem, Linearized
from tangens.optimize.costs import Expansion
from tangens.optimize.monitor import Callback, Damping, Monitor, Rules, bar
from tangens.optimize.result import ControlResult
from tangens.state import State

Array = NDArray[np.float64]

# A step counts when it brings at least this share of the decrease that the quadratic promises.
_SUFFICIENT = 1e-4
# Beyond, more damping gives better directions than shorter steps do.
_HALVINGS = 3


def ilqr(
    problem: ControlProblem,
    controls: ArrayLike,
    *,
    max_iterations: int = 200,
    gradient_tolerance: float = 1e-6,
    cost_tolerance: float = 1e-9,
    target_cost: float = -np.inf,
    time_budget: float = np.inf,
    damping: float = 1e-6,
    second_order: bool = False,
    callback: Callback | None = None,
    progress: bool = False,
) -> ControlResult:
    """Minimise the cost of a motion by iLQR with control limits (box-DDP).

    The damping λ is added to the Hessian by each control, in units of its largest entry. It falls while steps succeed
    and rises where none lowers the cost.

    Args:
        problem: what to minimise.
        controls: where to start, shape (intervals, nu); moved to within the limits.
        max_iterations: iterations before it gives up.
        gradient_tolerance: norm of the gradient, relative to the first one, that counts as zero.
        cost_tolerance: change of the cost, relative to the cost, that counts as none.
        target_cost: cost that is good enough.
        time_budget: seconds after which no iteration is begun.
        damping: the first λ.
        second_order: whether the bend of the motion counts. Each iteration then takes a Hessian of every step; only for
            models that have one, such as "soft".
        callback: called with each entry of the history and its controls; it stops the search by returning True.
        progress: show a bar on the terminal.

    """
    if not isinstance(problem, ControlProblem):
        raise OptionError(f"expected a tangens.optimize.ControlProblem; got {type(problem).__name__}")
    if second_order:  # a model without a Hessian says so
        problem.simulator.hessian(problem.start, dv=np.zeros(problem.nx // 2))
    damper = Damping(damping)
    rules = Rules(max_iterations, gradient_tolerance, cost_tolerance, 0.0, target_cost, time_budget)
    motion = _run(problem, problem.admit(controls))  # a start that cannot be simulated is the caller's to mend
    evaluations, policy, trouble = 1, None, None
    with bar(progress, max_iterations) as show:
        monitor = Monitor(rules, callback, show)
        while True:
            model, failure = _linearize(problem, motion, second_order)
            slope = np.inf if model is None else _slope(problem, motion, model)
            if monitor.record(motion.u, motion.cost, slope, evaluations):
                break
            if model is None:
                monitor.stop(f"there is no derivative here, so the best motion so far is kept: {failure}")
                break
            better = None
            while better is None:
                policy = _backward(problem, motion, model, damper.value)
                if policy is not None:
                    better, tried, trouble = _search(problem, motion, policy)
                    evaluations += tried
                if better is None and (monitor.out_of_time() or not damper.failed()):
                    break
            if better is None:
                if monitor.spent():
                    break
                reason = "no step along the direction of descent lowers the cost"
                monitor.stop(reason if trouble is None else f"{reason}; where a simulation failed: {trouble}")
                break
            motion = better
            damper.succeeded()
    gains = None if policy is None else policy.gains
    outcome = motion.u, motion.cost, tuple(monitor.history), monitor.converged, monitor.message
    return ControlResult(*outcome, problem.rollout(motion.u), gains)


# ---------------------------------------------------------------------- motions


class _Motion(NamedTuple):
    u: Array
    states: list[list[State]]
    """Those of each interval, both ends included."""
    cost: float


class _Policy(NamedTuple):
    change: Array
    gains: Array
    promised: tuple[float, float]
    """First- and second-order change of the cost at full length."""


def _run(problem: ControlProblem, u: Array, policy: _Policy | None = None, around: _Motion | None = None,
         share: float = 1.0) -> _Motion:  # fmt: skip
    """The motion under u, or under the policy around another motion."""
    u, state, states, cost = u.copy(), problem.start, [], 0.0
    for k in range(problem.intervals):
        if policy is not None and around is not None:
            deviation = problem.difference(around.states[k][0], state)
            u[k] = problem.clip(u[k] + share * policy.change[k] + policy.gains[k] @ deviation)
        inside, running = problem.piece(state, u[k : k + 1], k)
        states.append(inside)
        state, cost = inside[-1], cost + running
    return _Motion(u, states, cost + problem.final_cost(state))


def _search(problem: ControlProblem, motion: _Motion, policy: _Policy) -> tuple[_Motion | None, int, Error | None]:
    """The first motion that is cheap enough, from the full change to ever smaller ones; how many were tried."""
    trouble = None
    first, second = policy.promised
    for halving in range(_HALVINGS + 1):
        share = 0.5**halving
        try:
            candidate = _run(problem, motion.u, policy, motion, share)
        except OptionError:
            raise
        except Error as error:
            trouble = error
            continue
        promised = min(share * first + 0.5 * share**2 * second, 0.0)
        if candidate.cost < motion.cost + _SUFFICIENT * promised:
            return candidate, halving + 1, None
    return None, _HALVINGS + 1, trouble


# ---------------------------------------------------------------------- backwards in time


class _Model(NamedTuple):
    pieces: list[Linearized]
    final: Expansion


def _linearize(problem: ControlProblem, motion: _Motion, second_order: bool) -> tuple[_Model | None, Error | None]:
    try:
        pieces = [problem.linearized(states, motion.u[k : k + 1], k) for k, states in enumerate(motion.states)]
        model = _Model(pieces, problem.final_expansion(motion.states[-1][-1]))
        return _bent(problem, model) if second_order else model, None
    except OptionError:
        raise
    except Error as error:
        return None, error


def _bent(problem: ControlProblem, model: _Model) -> _Model:
    """The same, with the Hessians of the motion."""
    pieces, costate = list(model.pieces), model.final.x
    for k, piece in _backwards(model.pieces):
        pieces[k] = piece._replace(hessian=piece.hessian + problem.motion_hessian(piece, costate))
        costate = piece.gradient[: problem.nx] + piece.A.T @ costate
    return model._replace(pieces=pieces)


def _slope(problem: ControlProblem, motion: _Motion, model: _Model) -> float:
    """Norm of the gradient of the cost by all controls, without what the limits forbid."""
    nx, costate, gradient = problem.nx, model.final.x, np.empty_like(motion.u)
    for k, piece in _backwards(model.pieces):
        gradient[k] = piece.gradient[nx:] + piece.B.T @ costate
        costate = piece.gradient[:nx] + piece.A.T @ costate
    return float(np.linalg.norm(problem.projected(motion.u, gradient)))


def _backward(problem: ControlProblem, motion: _Motion, model: _Model, damping: float) -> _Policy | None:
    """Changes and gains of all controls; None where the damping does not make the problem convex."""
    nx, u = problem.nx, motion.u
    change, gains = np.zeros_like(u), np.zeros((*u.shape, nx))
    Vx, Vxx, first, second = model.final.x, model.final.xx, 0.0, 0.0
    for k, piece in _backwards(model.pieces):
        F = np.hstack([piece.A, piece.B])
        g, H = piece.gradient + F.T @ Vx, piece.hessian + F.T @ Vxx @ F
        Quu, Qux = H[nx:, nx:], H[nx:, :nx]
        damped = Quu + damping * max(float(np.abs(Quu).max()), np.finfo(float).tiny) * np.eye(len(Quu))
        try:
            solution = solve_box_qp(damped, g[nx:], problem.lower - u[k], problem.upper - u[k], np.zeros(len(Quu)))
        except np.linalg.LinAlgError:
            return None
        change[k], K = solution.x, solution.respond(Qux)
        gains[k] = K
        first, second = first + float(change[k] @ g[nx:]), second + float(change[k] @ Quu @ change[k])
        Vx = g[:nx] + K.T @ (Quu @ change[k] + g[nx:]) + Qux.T @ change[k]
        Vxx = H[:nx, :nx] + K.T @ Quu @ K + K.T @ Qux + Qux.T @ K
        Vxx = 0.5 * (Vxx + Vxx.T)
    return _Policy(change, gains, (first, second))


def _backwards(pieces: list[Linearized]) -> Iterable[tuple[int, Linearized]]:
    return reversed(list(enumerate(pieces)))
