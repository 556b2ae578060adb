"""Pushes found by gradients alone, starting with a finger that does not touch.

The finger follows via points; the loss is where the T ends. Contact is `soft`, wide at first and sharper from stage to
stage: wide contact feels the T at a distance, sharp contact is what `ncp` will agree with. Every stage is a descent
by `optimize.gauss_newton` on the via points; nothing is sampled, and no contact is scheduled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tangens.lab.pushing import NEAR_ENOUGH, REACHES, Pushing
from tangens.optimize import Iteration, LeastSquares, Result, gauss_newton

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
OTHERS = ((1.0, 1.0), (0.8, 1.1), (1.2, 0.9))
"""By which all friction and the finger's radius are scaled. A push should end near its goal in each of these worlds:
one that does in the first alone hangs by a thread, as where a finger just slips past a corner, and no other contact
model need agree with it."""
_CARE = 0.4
"""Share of the errors in the other worlds in the residual; the last stage, which stays near by, leaves them out."""
_ENOUGH = 0.3, 0.5
"""A stage ends when pose and speed are within these shares of what counts as near and at rest."""
_SLOW = 0.95
"""A stage ends when a step leaves so much of the cost; see `Schedule.patience`."""
_GOOD = 0.7
"""A push is good when its pose is within this share of what counts as near."""
_SHARPER = 2
"""From which stage on a push that misses is mended."""


@dataclass(frozen=True)
class Schedule:
    """How much is done for a push."""

    reaches: tuple[float, ...] = REACHES
    """ε₃ of each stage [m]."""
    worlds: tuple[tuple[float, float], ...] = OTHERS
    steps: int = 6
    """Gauss-Newton steps of each stage, at most."""
    last_steps: int = 12
    """Of the last one."""
    patience: int = 2
    """So many slow steps in a row end the last stage."""
    again: int = 3
    """How often a push that misses is mended."""


CAREFUL = Schedule()
BRISK = Schedule((0.02, 0.012, 0.007, 0.004, 0.0025, 0.0015, 0.0009, 0.0005), OTHERS[:1], 8, 24, 1, 0)
"""One world, more stages, nothing mended: a third of the time, for a goal that is known to be reached that way."""


@dataclass(frozen=True)
class Found:
    """Via points for a goal, and how the cost fell."""

    goal: Array
    via: Array
    costs: tuple[Array, ...]
    """After each Gauss-Newton step of each stage; the first of a stage is where the one before left off."""
    reaches: tuple[float, ...]
    """ε₃ of each stage [m]."""
    first_gradient: float
    """Length of the gradient at the start, where nothing touches."""


def descend(
    problem: Pushing,
    goals: Array,
    schedule: Schedule = CAREFUL,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> list[Found]:
    """Gauss-Newton on the via points of each goal, from a finger that stays where it is, stage after stage."""
    import jax

    with jax.enable_x64(True):
        search = _Search(problem, schedule)
        found = list[Found]()
        for goal in goals:
            found.append(search(goal))
            advance(len(found), len(goals))
    return found


class _Search:
    """The search for one push after the other; compiled once."""

    def __init__(self, problem: Pushing, schedule: Schedule) -> None:
        self._schedule, self._size = schedule, 2 * problem.via_points
        one = _functions(problem, schedule.worlds[:1])
        self._functions = {True: one, False: one if len(schedule.worlds) == 1 else _functions(problem, schedule.worlds)}
        self._settings = {r: problem.simulator(r).engine.settings for r in schedule.reaches}  # type: ignore[attr-defined]

    def __call__(self, goal: Array) -> Found:
        """All stages; and the sharper ones again where the push then misses, aimed off by as much as it missed.

        What sharp contact does to a push that wider contact found is much the same a little aside, and wider contact
        is easier to descend on.
        """
        start, stages = np.zeros(self._size), self._schedule.reaches
        widest = self._stage(goal, stages[0])
        slope = float(np.linalg.norm(widest.jacobian(start).T @ widest.residual(start)))
        via, costs, reaches = start, list[Array](), list[float]()
        best, least, aim = start, np.inf, goal
        for attempt in range(1 + self._schedule.again):
            for reach in stages[_SHARPER:] if attempt else stages:
                result = self._descend(via, goal if reach == stages[-1] else aim, reach)
                via = result.x
                costs.append(np.array([entry.cost for entry in result.history]))
                reaches.append(reach)
            miss = self._stage(goal, stages[-1]).residual(via)[:3]
            if np.abs(miss).max() < least:
                best, least = via, float(np.abs(miss).max())
            if least < _GOOD:
                break
            aim = aim - UNIT * miss
        return Found(goal, best.reshape(-1, 2), tuple(costs), tuple(reaches), slope)

    def _stage(self, goal: Array, reach: float) -> LeastSquares:
        is_last = reach == self._schedule.reaches[-1]
        residual, jacobian = self._functions[is_last]
        rest = goal, self._settings[reach], np.float64(_AT_LAST if is_last else 1.0)
        return LeastSquares(
            lambda x: np.asarray(residual(x, *rest)), lambda x: np.asarray(jacobian(x, *rest)), self._size
        )

    def _descend(self, via: Array, goal: Array, reach: float) -> Result:
        stage, plan = self._stage(goal, reach), self._schedule
        most, patience = (plan.last_steps, plan.patience) if reach == plan.reaches[-1] else (plan.steps, 1)
        return gauss_newton(stage, via, max_iterations=most, damping=1e-2, callback=_Stop(stage, patience))


class _Stop:
    """Ends a stage that is good enough, or hardly gets better."""

    def __init__(self, stage: LeastSquares, patience: int) -> None:
        self._stage, self._patience, self._slow, self._cost = stage, patience, 0, np.inf

    def __call__(self, entry: Iteration, x: Array) -> bool:
        r, before, self._cost = np.abs(self._stage.residual(x)), self._cost, entry.cost
        self._slow = self._slow + 1 if entry.cost > _SLOW * before else 0
        return bool(self._slow >= self._patience or (r[:3].max() < _ENOUGH[0] and r[3:6].max() < _ENOUGH[1]))


def way_and_bend(via_points: int) -> Array:
    """By all via points: the ways between them, and how these change from one to the next, weighted."""
    way = np.eye(via_points) - np.eye(via_points, k=-1)
    weighted = np.concatenate([np.sqrt(2 * _SHORT) * way, np.sqrt(2 * _STRAIGHT) * np.diff(way, axis=0)])
    return np.kron(weighted, np.eye(2))


def _functions(problem: Pushing, worlds: Sequence[tuple[float, float]]) -> tuple[Callable[..., Any], ...]:
    """(via points, goal, settings of contact, share of way and bend) -> residual and its derivative."""
    import jax
    import jax.numpy as jnp

    from tangens.contact.base import Point
    from tangens.contact.compiling import compiled
    from tangens.contact.jax_model import Inputs

    engine: Any = problem.simulator().engine
    model, parameters = engine.shared_model(1), engine.parameters
    basis, q0, v0 = (jnp.asarray(a) for a in (problem.basis, problem.start.q, problem.start.v))
    shape, finger = way_and_bend(problem.via_points), problem.scene.geom_names.index("finger")

    def ends(flat: Any, settings: Any, world: Any, by_via: Any) -> Any:
        """Pose and speed of the T at the end, with friction and radius scaled; and how they change, if asked for."""
        size = parameters["size"].at[finger, 0].multiply(world[1])
        p = parameters | {"friction": parameters["friction"] * world[0], "size": size}

        def step(x: Any, share: Any) -> Any:
            q, v, dq, dv = x
            at: Any = Point(q, v, share @ flat.reshape(-1, 2), jnp.zeros_like(v0))  # type: ignore[arg-type]
            inputs = Inputs(at, p, settings)
            solution = model.solve(inputs)
            if by_via is not None:
                du = jnp.kron(share, jnp.eye(2)).T
                dq, dv = jax.vmap(lambda *d: model.tangent(inputs, solution.v, (), dict(zip("qvu", d, strict=True))))(
                    dq, dv, du
                )
            return (solution.q, solution.v, dq, dv), None

        (q, v, dq, dv), _ = jax.lax.scan(step, (q0, v0, by_via, by_via), basis)
        if by_via is None:
            return jnp.stack([q[0], q[1], 2 * jnp.arctan2(q[6], q[3])]), v[TURNS]
        return dq[:, TURNS].T, dv[:, TURNS].T

    def in_all_worlds(flat: Any, settings: Any, by_via: Any = None) -> Any:
        return jax.vmap(lambda world: ends(flat, settings, world, by_via))(jnp.asarray(worlds))

    def residual(flat: Any, goal: Any, settings: Any, tie: Any) -> Any:
        end, speed = in_all_worlds(flat, settings)
        missed = (end - goal) / UNIT
        return jnp.concatenate([missed[0], speed[0] / STILL, _CARE * missed[1:].ravel(), tie * (shape @ flat)])

    def jacobian(flat: Any, goal: Any, settings: Any, tie: Any) -> Any:
        del goal
        end, speed = in_all_worlds(flat, settings, jnp.zeros((flat.size, len(v0))))
        end = end / UNIT[:, None]
        others = _CARE * end[1:].reshape(-1, flat.size)
        return jnp.concatenate([end[0], speed[0] / STILL[:, None], others, tie * shape])

    return compiled(residual), compiled(jacobian)
