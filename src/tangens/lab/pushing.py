"""Pushing a T to a goal by gradients alone, starting with a finger that does not touch it.

The finger follows via points; the loss is where the T ends. Contact is `soft`, wide at first and sharper from stage to
stage: wide contact feels the T at a distance, sharp contact is what `ncp` will agree with. Every stage is a descent
by `optimize.gauss_newton` on the via points; nothing is sampled, and no contact is scheduled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from tangens import scenes
from tangens.contact import Ncp, SingleLevel, Soft
from tangens.optimize import Iteration, LeastSquares, gauss_newton
from tangens.scene import Scene
from tangens.simulate import Simulator
from tangens.state import State

Array = NDArray[np.float64]

NEAR_ENOUGH = 0.01, np.deg2rad(3.0)
"""Of position [m] and angle [rad]: the units of the loss."""
_AT_REST = 0.05, 0.3
"""Of the T's final velocity [m/s, rad/s]."""
_SHORT, _STRAIGHT = 5.0, 150.0
"""Weights of the squared way between via points, and of how it bends [1/m²]: wide contact would allow zigzags."""
_AT_LAST = 0.3
"""Share of way and bend in the residual of the last stage: there, the goal counts more."""
REACHES = (0.02, 0.012, 0.007, 0.004, 0.0025, 0.0015, 0.0009, 0.0005)
"""ε₃ of each stage [m], which is also v_s [m/s]. From one stage to the next, contact is felt about 0.6 times as far:
what the stage before found still nearly fits."""
ITERATIONS, LAST = 8, 24
"""Gauss-Newton steps of each stage, and of the last, at most."""
_ENOUGH = 0.3, 0.5
"""A stage ends when pose and speed are within these shares of what counts as near and at rest."""
_SLOW = 0.95
"""A stage ends when a step leaves so much of the cost."""


@dataclass(frozen=True)
class Pushing:
    """A T on a table, a finger, and a time to push."""

    scene: Scene
    start: State
    steps: int = 150
    via_points: int = 6
    points: int = 64
    """On each box of the T."""

    @classmethod
    def of_t(cls, timestep: float = 0.01) -> Pushing:
        """The bundled scene, at the start of whose motion nothing touches."""
        scene = scenes.push_t().replace(timestep=timestep)
        return cls(scene, scene.initial_state("home"))

    @cached_property
    def basis(self) -> Array:
        """Controls of all steps by via points: cubic splines that start at rest at the origin, (steps, via points)."""
        knots, times = np.linspace(0, 1, self.via_points + 1), (np.arange(self.steps) + 1) / self.steps
        splines = [CubicSpline(knots, unit, bc_type="natural")(times) for unit in np.eye(self.via_points + 1)[1:]]
        return np.stack(splines, 1)

    def simulator(self, reach: float = REACHES[-1]) -> Simulator:
        """Soft contact that is felt so far [m]; by default as sharp as in the last stage."""
        return Simulator(self.scene, Soft(smoothing=(None, None, reach), stiction=reach, points=self.points))

    def errors(self, q: Array, goal: Array) -> tuple[float, float]:
        """How far the T is from a goal (x, y, angle): [m], [rad]."""
        x, y, angle = pose(q)
        return float(np.hypot(x - goal[0], y - goal[1])), float(abs(angle - goal[2]))

    def replay(self, via: Array, contact: Any) -> Array:
        """Configurations of the same controls under another contact model, (steps + 1, nq)."""
        return Simulator(self.scene, contact).rollout(self.start, self.basis @ via).q


def pose(q: Array) -> Array:
    """x, y and angle of the T."""
    return np.array([q[0], q[1], 2 * np.arctan2(q[6], q[3])])


def random_goals(problem: Pushing, count: int, seed: int = 0) -> Array:
    """Goals that some push reaches: where random straight pushes in MuJoCo end, (count, 3).

    Within a second, they take the T 3 to 12 cm and turn it by up to 35°. How they were pushed is forgotten.
    """
    rng, goals = np.random.default_rng(seed), list[Array]()
    pushed = replace(problem, scene=problem.scene.replace(timestep=0.005), steps=200, via_points=8)
    while len(goals) < count:
        side, angle, length = rng.uniform(-0.03, 0.03), rng.uniform(-0.5, 0.5), rng.uniform(0.08, 0.18)
        first = np.array([side, 0.03])
        last = first + length * np.array([np.sin(angle), np.cos(angle)])
        via = np.stack(
            [first * t for t in (0.5, 1.0)] + [first + (last - first) * t for t in (0.2, 0.4, 0.6, 0.8, 1, 1)]
        )
        end = pose(in_mujoco(pushed, pushed.basis @ via)[-1])
        way = float(np.hypot(end[0] - problem.start.q[0], end[1] - problem.start.q[1]))
        if 0.03 < way < 0.12 and abs(end[2]) < np.deg2rad(35):
            goals.append(end)
    return np.array(goals)


def in_mujoco(problem: Pushing, controls: Array) -> Array:
    """Controls in MuJoCo, (steps + 1, nq)."""
    model = problem.scene.model
    data = mujoco.MjData(model)
    data.qpos[:] = problem.start.q
    path = [problem.start.q]
    for u in controls:
        data.ctrl[:] = u
        mujoco.mj_step(model, data)
        path.append(data.qpos.copy())
    return np.array(path)


@dataclass(frozen=True)
class Found:
    """Via points for a goal, and how the cost fell."""

    goal: Array
    via: Array
    costs: tuple[Array, ...]
    """After each Gauss-Newton step of each stage; the first of a stage is where the one before left off."""
    first_gradient: float
    """Length of the gradient at the start, where nothing touches."""


def descend(
    problem: Pushing,
    goals: Array,
    reaches: Sequence[float] = REACHES,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> list[Found]:
    """Gauss-Newton on the via points of each goal, from a finger that stays where it is, stage after stage."""
    import jax

    with jax.enable_x64(True):
        residual, jacobian = _functions(problem)
        loose, tight = np.float64(1.0), np.float64(_AT_LAST)
        stages = [problem.simulator(reach).engine.settings for reach in reaches]  # type: ignore[attr-defined]
        found = list[Found]()
        for goal in goals:
            via, costs = np.zeros(2 * problem.via_points), list[Array]()
            r, J = (np.asarray(f(via, goal, stages[0], loose)) for f in (residual, jacobian))
            for settings in stages:
                most, tie = (LAST, tight) if settings is stages[-1] else (ITERATIONS, loose)
                stage = LeastSquares(
                    lambda x, goal=goal, s=settings, t=tie: np.asarray(residual(x, goal, s, t)),  # type: ignore[misc]
                    lambda x, goal=goal, s=settings, t=tie: np.asarray(jacobian(x, goal, s, t)),  # type: ignore[misc]
                    len(via),
                )
                stop = _Stop(stage)
                result = gauss_newton(stage, via, max_iterations=most, damping=1e-2, callback=stop)
                via = result.x
                costs.append(np.array([entry.cost for entry in result.history]))
                advance(len(found) * len(stages) + len(costs), len(goals) * len(stages))
            found.append(Found(goal, via.reshape(-1, 2), tuple(costs), float(np.linalg.norm(J.T @ r))))
    return found


class _Stop:
    """Ends a stage that is good enough, or hardly gets better."""

    def __init__(self, stage: LeastSquares) -> None:
        self._stage, self._cost = stage, np.inf

    def __call__(self, entry: Iteration, x: Array) -> bool:
        r, before, self._cost = np.abs(self._stage.residual(x)), self._cost, entry.cost
        return bool(entry.cost > _SLOW * before or (r[:3].max() < _ENOUGH[0] and r[3:6].max() < _ENOUGH[1]))


def _functions(problem: Pushing) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(via points, goal, settings of contact, share of way and bend) -> residual and its derivative, for all stages."""
    import jax
    import jax.numpy as jnp

    from tangens.contact.base import Point
    from tangens.contact.compiling import compiled
    from tangens.contact.jax_model import Inputs

    engine: Any = problem.simulator().engine
    model, parameters = engine.shared_model(1), engine.parameters
    basis, q0, v0 = (jnp.asarray(a) for a in (problem.basis, problem.start.q, problem.start.v))
    unit, still = jnp.array([NEAR_ENOUGH[0]] * 2 + [NEAR_ENOUGH[1]]), jnp.array([_AT_REST[0]] * 2 + [_AT_REST[1]])

    def residual(flat: Any, goal: Any, settings: Any, tie: Any) -> Any:
        via = flat.reshape(-1, 2)

        def step(x: Any, u: Any) -> Any:
            at: Any = Point(x[0], x[1], u, jnp.zeros_like(v0))  # type: ignore[arg-type]
            solution = model.solve(Inputs(at, parameters, settings))
            return (solution.q, solution.v), None

        (q, v), _ = jax.lax.scan(step, (q0, v0), basis @ via)
        end, speed = jnp.stack([q[0], q[1], 2 * jnp.arctan2(q[6], q[3])]), jnp.stack([v[0], v[1], v[5]])
        way = jnp.diff(jnp.concatenate([jnp.zeros((1, 2)), via]), axis=0)
        short, straight = np.sqrt(2 * _SHORT) * way, np.sqrt(2 * _STRAIGHT) * jnp.diff(way, axis=0)
        return jnp.concatenate([(end - goal) / unit, speed / still, tie * short.ravel(), tie * straight.ravel()])

    return compiled(residual), compiled(jax.jacfwd(residual))


def gradient_at_a_distance(problem: Pushing, goal: Array, contact: Any) -> float:
    """How long the gradient of the final pose's error is by the via points, under a model, before anything touches."""
    sim = Simulator(problem.scene, contact)
    trajectory = sim.rollout(problem.start, problem.basis @ np.zeros((problem.via_points, 2)))
    x, y, angle = (pose(trajectory.q[-1]) - goal) / np.array([NEAR_ENOUGH[0], NEAR_ENOUGH[0], NEAR_ENOUGH[1]]) ** 2
    dq = np.zeros(problem.scene.nv)
    dq[[0, 1, 5]] = x, y, angle
    controls = sim.pullback(trajectory, dq=dq, wrt=()).controls
    return float(np.linalg.norm(problem.basis.T @ controls))


def exact_models() -> dict[str, Any]:
    """Models to compare the gradient at a distance with."""
    return {"ncp": Ncp(), "single-level": SingleLevel(), "single-level, relaxed": SingleLevel(relaxation=1e-3)}
