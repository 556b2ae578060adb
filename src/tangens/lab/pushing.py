"""A T to be pushed to a goal by a finger that follows via points and does not touch the T at first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from tangens import scenes
from tangens.contact import Soft
from tangens.scene import Scene
from tangens.simulate import Simulator
from tangens.state import State

Array = NDArray[np.float64]

NEAR_ENOUGH = 0.01, np.deg2rad(3.0)
"""Of position [m] and angle [rad]: the units of the loss."""
REACHES = (0.02, 0.012, 0.007, 0.004, 0.0025, 0.0015, 0.0009, 0.0005)
"""ε₃ of each stage [m], which is also v_s [m/s]. From one stage to the next, contact is felt about 0.6 times as
far: what the stage before found still nearly fits."""


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
        contact = Soft(smoothing=(None, None, reach), stiction=reach, points=self.points)
        return Simulator(self.scene, contact)

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
