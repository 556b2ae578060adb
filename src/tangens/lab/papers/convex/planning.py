"""Beyond the paper: two fingers push and turn a horseshoe, by gradients through `convex`; CMA-ES as the baseline.

The horseshoe, three superquadrics with a collision mesh, slides on a table (dry friction of its joints). What is looked
for are places that the fingers are told to be at, six over a second. Both methods start from the same push straight
ahead and minimise the same cost, and the baseline gets as much time as gradients took.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.contact import Convex
from tangens.geometry.superquadric_fits import Parameters
from tangens.lab.creatures import Body, body_of
from tangens.lab.papers.result_rows import Row, at_most, info
from tangens.lab.report import new_figure, save_figure
from tangens.scene import Scene, load
from tangens.simulate import Simulator

Array = NDArray[np.float64]

STEPS, KNOTS = 100, 6
GOALS = {"quick": [(0.03, 0.1, 0.5)], "normal": [(0.03, 0.1, 0.5), (-0.04, 0.08, -0.6), (0.0, 0.12, 0.0)]}
"""x, y [m] and angle [rad] of the horseshoe, which starts at 0."""
SCALE = np.array([0.01, 0.01, 0.1])
"""A cost of 1: a centimetre, a tenth of a radian."""
XML = """<mujoco><option timestep="0.01" gravity="0 0 0"/><worldbody>
<body name="shoe"><joint type="slide" axis="1 0 0" frictionloss="0.5" damping="0.5"/>
  <joint type="slide" axis="0 1 0" frictionloss="0.5" damping="0.5"/>
  <joint type="hinge" axis="0 0 1" frictionloss="0.02" damping="0.02"/>
  <inertial pos="0 0 0" mass="0.3" diaginertia="1e-3 1e-3 1e-3"/><geom name="shoe" type="sphere" size="0.05"/></body>
<body name="left" pos="-0.05 -0.09 0"><joint name="lx" type="slide" axis="1 0 0" damping="2"/>
  <joint name="ly" type="slide" axis="0 1 0" damping="2"/>
  <geom type="sphere" size="0.012" mass="0.1" contype="2" conaffinity="1"/></body>
<body name="right" pos="0.05 -0.09 0"><joint name="rx" type="slide" axis="1 0 0" damping="2"/>
  <joint name="ry" type="slide" axis="0 1 0" damping="2"/>
  <geom type="sphere" size="0.012" mass="0.1" contype="2" conaffinity="1"/></body></worldbody>
<actuator><position joint="lx" kp="60"/><position joint="ly" kp="60"/><position joint="rx" kp="60"/>
<position joint="ry" kp="60"/></actuator></mujoco>"""


class Plan(NamedTuple):
    """What a method found."""

    knots: Array
    cost: float
    history: list[tuple[float, float]]
    """Time [s] and best cost after each rollout."""


@cache
def horseshoe() -> Body:
    """A bar and two legs."""
    bar, leg = [0.07, 0.016, 0.02], [0.016, 0.045, 0.02]
    p = Parameters(
        np.array([bar, leg, leg]), np.full((3, 2), 0.4),
        np.array([[0, 0, 0], [-0.055, 0.05, 0], [0.055, 0.05, 0]], float), np.tile(np.eye(3), (3, 1, 1)),
    )  # fmt: skip
    return body_of(p.field(), np.concatenate(p.corners()), 2e-4, 150)


def scene() -> Scene:
    """The table from above."""
    shapes: dict[str, Any] = {"shoe": horseshoe().solid}
    return load(XML).with_shapes(shapes)


def controls(knots: Array) -> Array:
    """Places the fingers are told to be at, over time (STEPS, 4): between knots (KNOTS, 4), from the start."""
    return weights() @ knots.reshape(KNOTS, 4)


@cache
def weights() -> Array:
    """Of each knot in each step, (STEPS, KNOTS)."""
    at, t = np.linspace(0, 1, KNOTS + 1), np.linspace(0, 1, STEPS)
    rows = np.array([np.interp(t, at, np.eye(KNOTS + 1)[k]) for k in range(1, KNOTS + 1)])
    return rows.T


def first_guess() -> Array:
    """Both fingers straight ahead."""
    ahead = np.linspace(0, 0.16, KNOTS + 1)[1:]
    return np.column_stack([0 * ahead, ahead, 0 * ahead, ahead]).ravel()


class Task:
    """A goal, and how well knots reach it; remembers the best cost after each rollout."""

    def __init__(self, sim: Simulator, goal: tuple[float, float, float]) -> None:
        self.sim, self.goal = sim, np.array(goal)
        self.history, self._started = list[tuple[float, float]](), time.perf_counter()

    def cost(self, knots: Array) -> float:
        """Squares of centimetres and tenths of a radian from the goal, and a little for how far fingers travel."""
        return float(np.sum(self.residual(knots)[0] ** 2))

    def residual(self, knots: Array) -> tuple[Array, Any]:
        """What the cost has the squares of, and the trajectory."""
        trajectory = self.sim.rollout(self.sim.scene.initial_state(), controls(knots))
        out = np.concatenate([(trajectory.q[-1, :3] - self.goal) / SCALE, travel() @ knots])
        best = min([float(out @ out), *(cost for _, cost in self.history[-1:])])
        self.history.append((time.perf_counter() - self._started, best))
        return out, trajectory

    def jacobian(self, trajectory: Any) -> Array:
        """Of the residual, by one reverse pass for each coordinate of the goal."""
        rows = []
        for k in range(3):
            dq = np.zeros((STEPS + 1, self.sim.scene.nv))
            dq[-1, k] = 1 / SCALE[k]
            rows.append((weights().T @ self.sim.pullback(trajectory, dq=dq, wrt=()).controls).ravel())
        return np.concatenate([np.array(rows), travel()])


@cache
def travel() -> Array:
    """Differences between knots, weighed, (4 (KNOTS - 1), 4 KNOTS)."""
    return np.sqrt(10) * np.kron(np.diff(np.eye(KNOTS), axis=0), np.eye(4))


def by_gradients(sim: Simulator, goal: tuple[float, float, float], iterations: int) -> Plan:
    """Levenberg and Marquardt's method; it ends once the goal is reached within a tenth of its scales."""
    task, knots, damping = Task(sim, goal), first_guess(), 10.0
    residual, trajectory = task.residual(knots)
    for _ in range(iterations):
        if np.sum(residual[:3] ** 2) < 0.01:
            break
        J = task.jacobian(trajectory)
        for _ in range(6):
            step = -np.linalg.solve(J.T @ J + damping * np.eye(len(knots)), J.T @ residual)
            trial, there = task.residual(knots + step)
            if trial @ trial < residual @ residual:
                knots, residual, trajectory, damping = knots + step, trial, there, damping / 3
                break
            damping *= 4
    return Plan(knots, float(residual @ residual), task.history)


def by_sampling(sim: Simulator, goal: tuple[float, float, float], seconds: float) -> Plan:
    """CMA-ES, for as long."""
    import cma

    task = Task(sim, goal)
    options = {"timeout": seconds, "seed": 1, "verbose": -9, "popsize": 12}
    best, search = cma.fmin2(task.cost, first_guess(), 0.02, options)
    return Plan(np.asarray(best), float(search.result.fbest), task.history)


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Plan for each goal, both ways."""
    sim = Simulator(scene(), Convex())
    warm = Task(sim, (0.0, 0.0, 0.0))
    warm.jacobian(warm.residual(first_guess())[1])  # compiled before the clock starts
    rows, drawn = list[Row](), list[tuple[Any, Plan, Plan]]()
    for k, goal in enumerate(GOALS["quick" if effort == "quick" else "normal"]):
        ours = by_gradients(sim, goal, 25)
        theirs = by_sampling(sim, goal, ours.history[-1][0])
        drawn.append((goal, ours, theirs))
        off = sim.rollout(sim.scene.initial_state(), controls(ours.knots)).q[-1, :3] - goal
        rows += [
            at_most(f"push {k}: distance from the goal, by gradients", 100 * float(np.hypot(*off[:2])), 1, unit="cm"),
            at_most(f"push {k}: angle from the goal, by gradients", float(np.degrees(abs(off[2]))), 6, unit="deg"),
            at_most(f"push {k}: cost by gradients over that by CMA-ES in the same time", ours.cost / theirs.cost, 1),
            info(f"push {k}: cost by gradients", ours.cost),
            info(f"push {k}: cost by CMA-ES", theirs.cost),
            info(f"push {k}: rollouts by gradients", len(ours.history)),
            info(f"push {k}: rollouts by CMA-ES", len(theirs.history)),
            info(f"push {k}: time of each", ours.history[-1][0], unit="s"),
        ]
    return rows, [draw(out / "planning.png", sim, drawn)]


def draw(file: Path, sim: Simulator, drawn: list[tuple[Any, Plan, Plan]]) -> Path:
    """The horseshoe from above, at its start, on its way and at its end, and costs over rollouts."""
    figure, axes = new_figure(len(drawn), 3, width=13, height=4.2 * len(drawn))
    axes = np.atleast_2d(axes)
    for row, (goal, ours, theirs) in zip(axes, drawn, strict=True):
        for panel, plan, name in zip(row, (ours, theirs), ("gradients", "CMA-ES"), strict=False):
            q = sim.rollout(sim.scene.initial_state(), controls(plan.knots)).q
            for share in (0.0, 0.5, 1.0):
                _outline(panel, q[round(share * STEPS), :3], "tab:blue", 0.3 + 0.7 * share)
            _outline(panel, np.array(goal), "tab:green", 1.0, "--")
            for k, x in ((3, -0.05), (5, 0.05)):
                panel.plot(q[:, k] + x, q[:, k + 1] - 0.09, color="tab:orange")
                panel.plot(q[-1, k] + x, q[-1, k + 1] - 0.09, "o", color="tab:orange", markersize=8)
            panel.set(title=f"{name}: cost {plan.cost:.3g}", aspect="equal", xlabel="x [m]", ylabel="y [m]")
            panel.grid(alpha=0.3)
        for plan, name in ((ours, "gradients"), (theirs, "CMA-ES")):
            row[2].semilogy(*np.array(plan.history).T, label=name)
        row[2].set(title="best cost", xlabel="time [s]")
        row[2].legend()
        row[2].grid(alpha=0.3)
    return save_figure(figure, file)


def _outline(panel: Any, pose: Array, colour: str, strength: float, style: str = "-") -> None:
    """The zero level set of the horseshoe in the plane of the table."""
    from tangens.geometry.collision_meshes import field_values

    x = np.linspace(-0.12, 0.12, 80)
    first, second = np.meshgrid(x, x)
    points = np.stack([first, second, np.zeros_like(first)], -1).reshape(-1, 3)
    phi = field_values(horseshoe().solid.field, points, 2e-4)[0].reshape(first.shape)
    c, s = np.cos(pose[2]), np.sin(pose[2])
    turned = pose[0] + c * first - s * second, pose[1] + s * first + c * second
    panel.contour(*turned, phi, levels=[0.0], colors=colour, alpha=strength, linestyles=style)
