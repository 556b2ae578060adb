"""Paper 3, Figs. 6 and 7: pushes found in MuJoCo, rolled out open loop under soft contact.

Five goals, each asking for the T to be pushed and turned. Controls come from via points and CMA-ES on MuJoCo's steps.
Then the same controls move the same finger under `soft`, at three time steps, with both explicit integrators of the
paper and ours, and with few and many points.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from mujoco.rollout import rollout
from numpy.typing import NDArray

from tangens import scenes
from tangens.contact import Soft
from tangens.contact.compiling import compiled
from tangens.lab.papers.result_rows import Row, at_most, info
from tangens.lab.papers.soft.drawing import draw_pushes
from tangens.lab.pushing import pose
from tangens.optimize import via_point_search
from tangens.simulate import Simulator

Array = NDArray[np.float64]

GOALS = np.array([[0.05, 0.30, 0.6], [-0.06, 0.28, -0.5], [0.02, 0.33, -0.4], [0.08, 0.26, 0.2], [-0.03, 0.30, 0.9]])
"""x, y [m] and angle [rad] of the T; it starts at (0, 0.2, 0)."""
SECONDS = 3.0
HASTE = 1000.0
"""Weight of the squared way between two controls [1/m²]: 0.3 for a way of 0.67 m at even speed, as much as for an angle
that is off by 0.055 rad. Without it, motions are found that strike the T in passing, and end anywhere under another
contact model."""
ENOUGH = 0.5
"""Cost at which a search ends."""
SEARCH_TIMESTEP = 0.002
FEW, MANY = 13, 2000
"""Points asked for on each of the T's two boxes."""
CASES = (
    ("rk4", 0.002, MANY), ("rk4", 0.008, MANY), ("rk4", 0.016, MANY),
    ("rk4", 0.002, FEW), ("rk4", 0.008, FEW), ("rk4", 0.016, FEW),
    ("euler", 0.002, MANY), ("euler", 0.002, FEW),
    ("implicit", 0.002, FEW), ("implicit", 0.008, FEW), ("implicit", 0.016, FEW),
)  # fmt: skip
"""Integrator, time step and points. Those with "implicit" are not in the paper."""
QUICK = ("rk4", 0.002, FEW), ("rk4", 0.008, FEW), ("implicit", 0.008, FEW)
PAPER = {
    ("rk4", 0.002, MANY): (1.2, 10.8), ("rk4", 0.008, MANY): (1.3, 12.5), ("rk4", 0.016, MANY): (4.6, 29.4),
    ("rk4", 0.002, FEW): (2.1, 6.8), ("rk4", 0.008, FEW): (2.4, 11.4), ("rk4", 0.016, FEW): (6.3, 26.6),
    ("euler", 0.002, MANY): (6.7, 42.3), ("euler", 0.002, FEW): (11.2, 46.2),
}  # fmt: skip
"""Mean Δd [cm] and Δθ [deg] of Fig. 7."""
LIMITS = 2.5, 13.0


@dataclass(frozen=True)
class Push:
    """A goal, the controls found for it, and where they lead in MuJoCo."""

    goal: Array
    controls: Array
    """At SEARCH_TIMESTEP, (steps, 2)."""
    path: Array
    """Configurations, (steps + 1, nq)."""


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Find pushes and roll them out again."""
    goals = GOALS[:2] if effort == "quick" else GOALS
    generations = {"quick": 25, "normal": 60, "full": 120}[effort]
    pushes = [find_push(goal, generations, seed) for seed, goal in enumerate(goals)]
    cases = [c for c in CASES if effort != "quick" or c in QUICK]
    rows = [info(f"push {i}: distance from its goal in MuJoCo", _miss(p)[0], unit="cm") for i, p in enumerate(pushes)]
    ends = dict[Any, list[Array]]()
    for case in cases:
        ends[case] = roll_out(pushes, *case)
        rows += _rows(case, pushes, ends[case])
    shown = ("rk4", 0.002, FEW)
    drawn = [(p.goal, p.path, path) for p, path in zip(pushes, ends[shown], strict=True)]
    return rows, [draw_pushes(out / "push_t.png", drawn)]


def find_push(goal: Array, generations: int, seed: int) -> Push:
    """Controls that take the T to a goal in MuJoCo."""
    scene = scenes.push_t().replace(timestep=SEARCH_TIMESTEP)
    steps = round(SECONDS / SEARCH_TIMESTEP)
    model, data = scene.model, mujoco.MjData(scene.model)
    cost = partial(_cost, model, data, scene.initial_state("home").q, goal)
    found = via_point_search(
        cost, [0.0, 0.0], [-0.25, -0.1], [0.25, 0.45], steps=steps, via_points=6, max_iterations=generations,
        population=16, target_cost=ENOUGH, seed=seed,
    )  # fmt: skip
    return Push(goal, found.controls, _mujoco_path(model, data, scene.initial_state("home").q, found.controls))


def _cost(model: Any, data: Any, q: Array, goal: Array, controls: Array) -> float:
    path = _mujoco_path(model, data, q, controls)
    x, y, angle = pose(path[-1])
    miss = (x - goal[0]) ** 2 + (y - goal[1]) ** 2
    haste = HASTE * np.sum(np.diff(controls, axis=0) ** 2)
    return float(miss / 0.01**2 + ((angle - goal[2]) / 0.1) ** 2 + haste)


def _mujoco_path(model: Any, data: Any, q: Array, controls: Array) -> Array:
    start = np.concatenate([[0.0], q, np.zeros(model.nv)])  # time, configuration, velocity
    states, _ = rollout(model, data, start[None], controls[None], nstep=len(controls))
    return np.concatenate([q[None], states[0][:, 1 : 1 + model.nq]])


def roll_out(pushes: list[Push], integrator: str, timestep: float, points: int) -> list[Array]:
    """The same controls under soft contact, held over longer time steps; configurations (steps + 1, nq) of each."""
    import jax
    import jax.numpy as jnp

    from tangens.interop.jax import step

    scene = scenes.push_t().replace(timestep=timestep)
    sim = Simulator(scene, Soft(integrator=integrator, points=points))  # type: ignore[arg-type]
    every = round(timestep / SEARCH_TIMESTEP)
    start = scene.initial_state("home")
    with jax.enable_x64(True):
        f: Any = step(sim)

        def body(x: Any, u: Any) -> Any:
            x = f(None, *x, u, None)
            return x, x[0]

        begin = jnp.asarray(start.q), jnp.asarray(start.v)
        rolled = compiled(jax.vmap(lambda u: jax.lax.scan(body, begin, u)[1]))
        paths = rolled(jnp.asarray([push.controls[every - 1 :: every] for push in pushes]))
        return [np.concatenate([start.q[None], path]) for path in np.asarray(paths)]


def _rows(case: tuple[str, float, int], pushes: list[Push], ends: list[Array]) -> list[Row]:
    integrator, timestep, points = case
    away = np.array([_apart(p.path[-1], path[-1]) for p, path in zip(pushes, ends, strict=True)])
    name = f"{integrator}, {1e3 * timestep:g} ms, {'4,000' if points == MANY else '32'} points"
    paper = PAPER.get(case, (None, None))
    judged = timestep <= 0.008 and integrator != "euler"
    out = []
    for k, (what, unit) in enumerate((("Δd", "cm"), ("Δθ", "deg"))):
        mean = float(away[:, k].mean())
        row = at_most(f"{name}: mean {what}", mean, LIMITS[k], paper=paper[k], unit=unit) if judged else None
        out.append(row or info(f"{name}: mean {what}", mean, paper=paper[k], unit=unit))
    return out


def _apart(one: Array, two: Array) -> tuple[float, float]:
    """Distance [cm] and angle [deg] between two poses of the T."""
    d = pose(two) - pose(one)
    turn = (d[2] + np.pi) % (2 * np.pi) - np.pi
    return 100 * float(np.hypot(d[0], d[1])), float(abs(np.rad2deg(turn)))


def _miss(push: Push) -> tuple[float, float]:
    d = pose(push.path[-1]) - push.goal
    return 100 * float(np.hypot(d[0], d[1])), float(abs(np.rad2deg(d[2])))
