"""Pushing a T to a goal by gradients alone, starting with a finger that does not touch it.

The finger follows via points; the loss is where the T ends. Contact is `soft`, wide at first and sharper from stage to
stage: wide contact feels the T at a distance, sharp contact is what `ncp` and MuJoCo will agree with. Every stage is
plain gradient descent (Adam) on the via points; nothing is sampled, and no contact is scheduled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from tangens import scenes
from tangens.contact import Ncp, SingleLevel, Soft
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
_SPIKE = 3.0
"""A gradient longer than so many times the usual one is shortened to that: one spike would stall Adam for long."""


class Stage(NamedTuple):
    """One stage of the descent."""

    reach: float | None
    """ε₃ [m]: how far contact is felt; None is the default of the scene."""
    stiction: float | None
    """v_s [m/s]."""
    iterations: int
    rate: float
    """Step of the descent [m]."""


STAGES = (
    Stage(0.03, 0.05, 50, 4e-3),
    *(Stage(reach, reach, 25, 2.5e-3) for reach in (0.02, 0.013, 0.008, 0.005, 0.003)),
    Stage(None, None, 50, 1.5e-3),
)
"""From one stage to the next, contact is felt two thirds as far: what the stage before found still nearly fits."""


@dataclass(frozen=True)
class Pushing:
    """A T on a table, a finger, and a time to push."""

    scene: Scene
    start: State
    steps: int = 200
    via_points: int = 8
    points: int = 64
    """On each box of the T."""

    @classmethod
    def of_t(cls, timestep: float = 0.005) -> Pushing:
        """The bundled scene, at the start of whose motion nothing touches."""
        scene = scenes.push_t().replace(timestep=timestep)
        return cls(scene, scene.initial_state("home"))

    @cached_property
    def basis(self) -> Array:
        """Controls of all steps by via points: cubic splines that start at rest at the origin, (steps, via points)."""
        knots, times = np.linspace(0, 1, self.via_points + 1), (np.arange(self.steps) + 1) / self.steps
        splines = [CubicSpline(knots, unit, bc_type="natural")(times) for unit in np.eye(self.via_points + 1)[1:]]
        return np.stack(splines, 1)

    def simulator(self, reach: float | None = None, stiction: float | None = None) -> Simulator:
        """Soft contact, as wide as asked for."""
        return Simulator(self.scene, Soft(smoothing=(None, None, reach), stiction=stiction, points=self.points))

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

    They take the T 3 to 12 cm and turn it by up to 35°. How they were pushed is forgotten.
    """
    rng, goals = np.random.default_rng(seed), list[Array]()
    while len(goals) < count:
        side, angle, length = rng.uniform(-0.03, 0.03), rng.uniform(-0.5, 0.5), rng.uniform(0.08, 0.18)
        first = np.array([side, 0.03])
        last = first + length * np.array([np.sin(angle), np.cos(angle)])
        via = np.stack(
            [first * t for t in (0.5, 1.0)] + [first + (last - first) * t for t in (0.2, 0.4, 0.6, 0.8, 1, 1)]
        )
        end = pose(in_mujoco(problem, problem.basis @ via)[-1])
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


@dataclass
class Found:
    """Via points for each goal, and how the loss fell."""

    goals: Array
    via: Array
    losses: Array
    """(iterations, goals)."""
    first_gradient: Array
    """Length of the gradient at the start, where nothing touches, (goals,)."""


def descend(
    problem: Pushing,
    goals: Array,
    stages: Sequence[Stage] = STAGES,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> Found:
    """Adam on the via points of all goals at once, from a finger that stays where it is."""
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        gradient = _gradient(problem)
        via = np.zeros((len(goals), problem.via_points, 2))
        losses, first = list[Array](), None
        total = sum(stage.iterations for stage in stages)
        for stage in stages:
            settings = jax.tree.map(jnp.array, problem.simulator(stage.reach, stage.stiction).engine.settings)  # type: ignore[attr-defined]
            mean, square = np.zeros_like(via), np.zeros_like(via)
            best, lowest = via.copy(), np.full(len(goals), np.inf)
            for k in range(stage.iterations + 1):
                loss, slope = map(np.asarray, gradient(jnp.asarray(via), jnp.asarray(goals), settings))
                better = loss < lowest
                best[better], lowest[better] = via[better], loss[better]
                if k == stage.iterations:
                    break
                first = np.linalg.norm(slope, axis=(1, 2)) if first is None else first
                losses.append(loss)
                slope = _shortened(slope, square / (1 - 0.97**k) if k else None)
                mean, square = 0.9 * mean + 0.1 * slope, 0.97 * square + 0.03 * slope**2
                scaled = mean / (1 - 0.9 ** (k + 1)) / (np.sqrt(square / (1 - 0.97 ** (k + 1))) + 1e-9)
                via = np.clip(via - stage.rate * (1 - 0.8 * k / stage.iterations) * scaled, -0.5, 0.5)
                advance(len(losses), total)
            via = best
    return Found(goals, via, np.array(losses), np.zeros(len(goals)) if first is None else first)


def _shortened(slope: Array, usual: Array | None) -> Array:
    """Gradients (goals, via points, 2) no longer than some multiple of their usual length."""
    if usual is None:
        return slope
    length = np.linalg.norm(slope, axis=(1, 2), keepdims=True)
    most = _SPIKE * np.sqrt(usual.sum(axis=(1, 2), keepdims=True))
    return slope * np.minimum(1.0, most / np.maximum(length, 1e-300))


def _gradient(problem: Pushing) -> Callable[..., Any]:
    """(via points, goals, settings of contact) -> losses and gradients, compiled once for all stages."""
    import jax
    import jax.numpy as jnp

    from tangens.contact.base import Point
    from tangens.contact.jax_model import Inputs

    engine: Any = problem.simulator().engine
    model, parameters = engine.shared_model(1), engine.parameters
    basis, q0, v0 = (jnp.asarray(a) for a in (problem.basis, problem.start.q, problem.start.v))
    unit, still = jnp.array([NEAR_ENOUGH[0]] * 2 + [NEAR_ENOUGH[1]]), jnp.array([_AT_REST[0]] * 2 + [_AT_REST[1]])

    def loss(via: Any, goal: Any, settings: Any) -> Any:
        def step(x: Any, u: Any) -> Any:
            at: Any = Point(x[0], x[1], u, jnp.zeros_like(v0))  # type: ignore[arg-type]
            solution = model.solve(Inputs(at, parameters, settings))
            return (solution.q, solution.v), None

        (q, v), _ = jax.lax.scan(jax.checkpoint(step), (q0, v0), basis @ via)
        end = jnp.stack([q[0], q[1], 2 * jnp.arctan2(q[6], q[3])])
        speed = jnp.stack([v[0], v[1], v[5]])
        way = jnp.diff(jnp.concatenate([jnp.zeros((1, 2)), via]), axis=0)
        missed = jnp.sum(((end - goal) / unit) ** 2) + jnp.sum((speed / still) ** 2)
        return missed / 2 + _SHORT * jnp.sum(way**2) + _STRAIGHT * jnp.sum(jnp.diff(way, axis=0) ** 2)

    return jax.jit(jax.vmap(jax.value_and_grad(loss), (0, 0, None)))


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
