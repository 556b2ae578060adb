"""Blocks of a step's Jacobian by differences of steps: central ones, and by Ridders' method.

A block is (output, input): ("v", "q") is ∂v⁺/∂q, in the tangent space of q. Blocks by the same input share their steps.
Perturbed inputs are made in advance, outside anyone's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tangens.dynamics.layout import JointLayout
from tangens.lab.bench.ridders import IntArray, ridders, step_sizes
from tangens.simulate import Simulator
from tangens.state import State

Array = NDArray[np.float64]
Block = tuple[str, str]
Evaluation = Callable[[], dict[Block, Array]]

# Steps [m/s, N·m]. Those of q are multiplied with the time step h: a gap of δ closes within h and so counts as a speed
# of δ/h, and it is speeds that decide what sticks, slips and parts.
_CENTRAL_STEP = 1e-4
_FIRST_STEP = 1e-3  # of Ridders' method
_SIDE_STEP = 1e-5


def central(simulator: Simulator, state: State, u: Array, blocks: Sequence[Block]) -> Evaluation:
    """Blocks by central differences."""
    everywhere = np.arange(simulator.scene.nv)
    return _prepared(
        simulator, state, u, blocks, [_CENTRAL_STEP], lambda moved: moved.quotients(_CENTRAL_STEP, everywhere)
    )


def extrapolated(simulator: Simulator, state: State, u: Array, blocks: Sequence[Block]) -> Evaluation:
    """Blocks by Ridders' method."""
    nv = simulator.scene.nv
    return _prepared(
        simulator, state, u, blocks, step_sizes(_FIRST_STEP), lambda moved: ridders(moved.quotients, nv, _FIRST_STEP)[0]
    )


def nearer_side(simulator: Simulator, state: State, u: Array, J: Mapping[Block, Array]) -> dict[Block, Array]:
    """Blocks by one-sided differences: of the two sides, for each direction, the one closer to J.

    Where a contact is about to part or to slip, a step has one derivative to each side, and central differences are
    their mean: a value that is neither.
    """
    here = simulator.step(state, u).state

    def evaluate(moved: _Moved) -> Array:
        ours = np.vstack([J[block] for block in moved.blocks]).T
        above, below = moved.one_sided(_SIDE_STEP, here)
        is_above = np.linalg.norm(above - ours, axis=1) < np.linalg.norm(below - ours, axis=1)
        return np.where(is_above[:, None], above, below)

    return _prepared(simulator, state, u, tuple(J), [_SIDE_STEP], evaluate)()


def _prepared(
    simulator: Simulator,
    state: State,
    u: Array,
    blocks: Sequence[Block],
    sizes: Sequence[float],
    evaluate: Callable[[_Moved], Array],
) -> Evaluation:
    inputs = dict.fromkeys(name for _, name in blocks)
    all_moved = [_Moved(simulator, state, u, [b for b in blocks if b[1] == name], sizes) for name in inputs]

    def run() -> dict[Block, Array]:
        found: dict[Block, Array] = {}
        for moved in all_moved:
            found |= zip(moved.blocks, np.split(evaluate(moved).T, len(moved.blocks)), strict=True)
        return found

    return run


class _Moved:
    """One input of a step, moved to both sides along each of its directions by steps of several sizes."""

    def __init__(
        self, simulator: Simulator, state: State, u: Array, blocks: Sequence[Block], sizes: Sequence[float]
    ) -> None:
        self.blocks = blocks
        """What is wanted, all by the same input."""
        scene, (_, name) = simulator.scene, blocks[0]
        self._step, self._u, self._layout = simulator.step, u, scene.joint_layout
        self._guess = simulator.step(state, u)  # solvers start from the step in the middle
        self._unit = scene.timestep if name == "q" else 1.0
        move = partial(_move, simulator, state, name)
        self._ends = {
            size: [(move(i, size * self._unit), move(i, -size * self._unit)) for i in range(scene.nv)] for size in sizes
        }

    def quotients(self, size: float, directions: IntArray) -> Array:
        """Central difference quotients of all blocks, one row for each direction."""
        up, down = self._steps(size, directions)
        return self._apart(down, up) / (2 * size * self._unit)

    def one_sided(self, size: float, here: State) -> tuple[Array, Array]:
        """Difference quotients to both sides of the step's own result."""
        up, down = self._steps(size, np.arange(len(self._ends[size])))
        middle = [here] * len(up)
        return self._apart(middle, up) / (size * self._unit), self._apart(down, middle) / (size * self._unit)

    def _steps(self, size: float, directions: IntArray) -> tuple[list[State], list[State]]:
        step, u = self._step, self._u
        up, down = [], []
        for i in directions:
            (above, more), (below, less) = self._ends[size][i]
            up.append(step(above, u, more, self._guess).state)
            down.append(step(below, u, less, self._guess).state)
        return up, down

    def _apart(self, start: list[State], end: list[State]) -> Array:
        parts = []
        for output, _ in self.blocks:
            a, b = (np.array([getattr(state, output) for state in states]) for states in (start, end))
            parts.append(apart(self._layout, a, b) if output == "q" else b - a)
        return np.hstack(parts)


def _move(simulator: Simulator, state: State, name: str, direction: int, size: float) -> tuple[State, Array]:
    """A state and forces, with one entry of one of them moved."""
    scene = simulator.scene
    delta, none = np.zeros(scene.nv), np.zeros(scene.nv)
    delta[direction] = size
    if name == "q":
        return State(scene.integrate(state.q, delta), state.v), none
    if name == "v":
        return State(state.q, state.v + delta), none
    return state, delta


def apart(joints: JointLayout, q1: Array, q2: Array) -> Array:
    """What takes each row of q1 to that of q2 in the tangent space: `Scene.difference` for many at once."""
    out = np.empty((len(q1), joints.nv))
    out[:, joints.euclid_v] = (q2 - q1)[:, joints.euclid_q]
    for a, b in zip(joints.quat_q, joints.quat_v, strict=True):
        w1, w2, r1, r2 = q1[:, a, None], q2[:, a, None], q1[:, a + 1 : a + 4], q2[:, a + 1 : a + 4]
        w = w1 * w2 + np.sum(r1 * r2, axis=1, keepdims=True)
        r = w1 * r2 - w2 * r1 - np.cross(r1, r2)
        sine = np.linalg.norm(r, axis=1, keepdims=True)
        angle = 2 * np.arctan2(sine, np.abs(w))
        factor = np.divide(angle, sine, out=np.full_like(sine, 2.0), where=sine > 0)
        out[:, b : b + 3] = np.copysign(factor, w) * r
    return out
