"""Pushes found by gradients alone, starting with a finger that does not touch.

The finger follows via points; the loss is where the T ends. Contact is `soft`, wide at first and sharper from stage to
stage: wide contact feels the T at a distance, sharp contact is what `ncp` will agree with. Every stage is a descent
by `optimize.gauss_newton` on the via points; nothing is sampled, and no contact is scheduled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tangens.lab.pushing import NEAR_ENOUGH, REACHES, Pushing
from tangens.optimize import Iteration, LeastSquares, gauss_newton

Array = NDArray[np.float64]

UNIT = np.array([NEAR_ENOUGH[0], NEAR_ENOUGH[0], NEAR_ENOUGH[1]])
"""Of the pose's error [m, m, rad]."""
STILL = np.array([0.05, 0.05, 0.3])
"""Of the T's final velocity [m/s, m/s, rad/s]."""
TURNS = np.array([0, 1, 5])
"""x, y and angle about the vertical among the T's velocities, and among changes of its pose: it lies flat."""
_SHORT, _STRAIGHT = 5.0, 150.0
"""Weights of the squared way between via points, and of how it bends [1/m²]: wide contact would allow zigzags."""
_AT_LAST = 0.3
"""Share of way and bend in the residual of the last stage: there, the goal counts more."""
_ENOUGH = 0.3, 0.5
"""A stage ends when pose and speed are within these shares of what counts as near and at rest."""
_SLOW, _PATIENCE = 0.95, (1, 3)
"""A stage ends when a step leaves so much of the cost, the last one after three of them in a row."""
_STEPS, _LAST_STEPS = 8, 24
"""Gauss-Newton steps of each stage, and of the last one, at most."""
BESIDE = 0.06
"""Where the finger goes before the search [m]: nowhere, then along the T's stem, so far to its right or left, without
touching it. One descent ends where it begins to: on one side of the T."""
_GOOD = 0.7, 0.3
"""A push is good when its pose is within this share of what counts as near, and moves by no more than that share where
via points move by 1 mm. The others begin anew, elsewhere."""
_FIT = 1.0, 2.0
"""If none is good, the same of pushes that are preferred to the others."""
_WOBBLE = 1e-3
"""By so much [m] other contact models may as well have moved a via point: pushes that ride on a corner, or on a T that
rocks, change by far more than others then, and end elsewhere in another model."""


@dataclass(frozen=True)
class Found:
    """Via points for a goal, and how the cost fell."""

    goal: Array
    via: Array
    costs: tuple[Array, ...]
    """After each Gauss-Newton step of each stage; the first of a stage is where the one before left off."""
    first_gradient: float
    """Length of the gradient at the start, where nothing touches."""
    miss: float
    """How far from its goal the T ends, over what counts as near."""
    wobble: float
    """How far that moves with a via point that is off by 1 mm, at most."""

    def within(self, miss: float, wobble: float) -> bool:
        """Whether it misses and wobbles by less."""
        return self.miss < miss and self.wobble < wobble


def descend(
    problem: Pushing, goals: Array, advance: Callable[[int, int], None] = lambda done, total: None
) -> list[Found]:
    """Gauss-Newton on the via points of each goal, from a finger that touches nothing, stage after stage."""
    import jax

    with jax.enable_x64(True):
        search, found = _Search(problem), list[Found]()
        for goal in goals:
            found.append(search(goal))
            advance(len(found), len(goals))
    return found


class _Search:
    """The search for one push after the other; compiled once."""

    def __init__(self, problem: Pushing) -> None:
        self._size = 2 * problem.via_points
        self._residual, self._jacobian = _functions(problem)
        self._settings = {r: problem.simulator(r).engine.settings for r in REACHES}  # type: ignore[attr-defined]

    def __call__(self, goal: Array) -> Found:
        """From one start after the other, until a push is good; else the best of them."""
        found = list[Found]()
        for via in starts(self._size // 2):
            found.append(self._from(via.ravel(), goal))
            if found[-1].within(*_GOOD):
                return found[-1]
        return min(found, key=lambda one: (not one.within(*_FIT), one.miss + one.wobble))

    def _from(self, via: Array, goal: Array) -> Found:
        """Stage after stage."""
        costs, slope = list[Array](), 0.0
        for reach in REACHES:
            is_last = reach == REACHES[-1]
            stage = self._stage(goal, reach)
            most, stop = _LAST_STEPS if is_last else _STEPS, _Stop(stage, _PATIENCE[is_last])
            result = gauss_newton(stage, via, max_iterations=most, damping=1e-2, callback=stop)
            slope = slope or result.history[0].gradient_norm
            via = result.x
            costs.append(np.array([entry.cost for entry in result.history]))
        x, y, turn = stage.residual(via)[:3]
        miss = float(max(np.hypot(x, y), abs(turn)))
        wobble = _WOBBLE * float(np.linalg.norm(stage.jacobian(via)[:3], 2))
        return Found(goal, via.reshape(-1, 2), tuple(costs), slope, miss, wobble)

    def _stage(self, goal: Array, reach: float) -> LeastSquares:
        rest = goal, self._settings[reach], np.float64(_AT_LAST if reach == REACHES[-1] else 1.0)
        return LeastSquares(
            lambda x: np.asarray(self._residual(x, *rest)), lambda x: np.asarray(self._jacobian(x, *rest)), self._size
        )


class _Stop:
    """Ends a stage that is good enough, or hardly gets better."""

    def __init__(self, stage: LeastSquares, patience: int) -> None:
        self._stage, self._patience, self._slow, self._cost = stage, patience, 0, np.inf

    def __call__(self, entry: Iteration, x: Array) -> bool:
        r, before, self._cost = np.abs(self._stage.residual(x)), self._cost, entry.cost
        good = r[:3].max() < _ENOUGH[0] and r[3:6].max() < _ENOUGH[1]
        self._slow = self._slow + 1 if entry.cost > _SLOW * before else 0
        return bool(good or self._slow >= self._patience)


def starts(via_points: int) -> tuple[Array, ...]:
    """Ways of the finger that touch nothing: it stays, or goes along the stem on either side, (via points, 2)."""
    ahead = np.interp(np.linspace(0, 1, via_points + 1)[1:], [0.0, 1 / 6, 2 / 3, 1.0], [0.0, 0.02, 0.11, 0.14])
    return tuple(
        np.stack([np.full(via_points, x), y], 1) for x, y in ((0.0, 0 * ahead), (BESIDE, ahead), (-BESIDE, ahead))
    )


def way_and_bend(via_points: int) -> Array:
    """By all via points: the ways between them, and how these change from one to the next, weighted."""
    way = np.eye(via_points) - np.eye(via_points, k=-1)
    weighted = np.concatenate([np.sqrt(2 * _SHORT) * way, np.sqrt(2 * _STRAIGHT) * np.diff(way, axis=0)])
    return np.kron(weighted, np.eye(2))


def _functions(problem: Pushing) -> tuple[Callable[..., Any], ...]:
    """(via points, goal, settings of contact, share of way and bend) -> residual and its derivative."""
    import jax
    import jax.numpy as jnp

    from tangens.contact.base import Point
    from tangens.contact.compiling import compiled
    from tangens.contact.jax_model import Inputs

    engine: Any = problem.simulator().engine
    model, parameters = engine.shared_model(1), engine.parameters
    basis, q0, v0 = (jnp.asarray(a) for a in (problem.basis, problem.start.q, problem.start.v))
    shape = way_and_bend(problem.via_points)

    def roll(flat: Any, settings: Any, by_via: Any = None) -> Any:
        """The last q and v, and by all via points how q, in its tangent space, and v change, if `by_via` is given."""

        def step(x: Any, share: Any) -> Any:
            q, v, *by = x
            at: Any = Point(q, v, share @ flat.reshape(-1, 2), jnp.zeros_like(v0))  # type: ignore[arg-type]
            inputs = Inputs(at, parameters, settings)
            solution = model.solve(inputs)

            def moved(dq: Any, dv: Any, du: Any) -> Any:
                return model.tangent(inputs, solution.v, solution.memory, {"q": dq, "v": dv, "u": du})

            by = [] if by_via is None else jax.vmap(moved)(by[0], by[1], jnp.kron(share, jnp.eye(2)).T)
            return (solution.q, solution.v, *by), None

        last, _ = jax.lax.scan(step, (q0, v0, *([] if by_via is None else [by_via, by_via])), basis)
        return last

    def residual(flat: Any, goal: Any, settings: Any, tie: Any) -> Any:
        q, v = roll(flat, settings)
        end = jnp.stack([q[0], q[1], 2 * jnp.arctan2(q[6], q[3])])
        return jnp.concatenate([(end - goal) / UNIT, v[TURNS] / STILL, tie * (shape @ flat)])

    def jacobian(flat: Any, goal: Any, settings: Any, tie: Any) -> Any:
        del goal
        *_, dq, dv = roll(flat, settings, jnp.zeros((flat.size, len(v0))))
        return jnp.concatenate([(dq[:, TURNS] / UNIT).T, (dv[:, TURNS] / STILL).T, tie * shape])

    return compiled(residual), compiled(jacobian)
