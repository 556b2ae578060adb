"""Laws that contact has to obey, the solver's residual on the way, and whether long runs stay healthy."""

from __future__ import annotations

import resource
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens import scenes
from tangens.errors import Error
from tangens.lab.papers.motions import random_motion, robot
from tangens.lab.papers.result_rows import Row, at_least, at_most, info
from tangens.lab.report import new_figure, save_figure
from tangens.scene import Scene, load
from tangens.simulate import Simulator
from tangens.state import State

Array = NDArray[np.float64]
GRAVITY = 9.81

STACK = {"quick": (5, 1.0), "normal": (10, 4.0), "full": (20, 10.0)}  # boxes, seconds
ROLLOUTS = {"quick": (1, 200), "normal": (5, 400), "full": (20, 1000)}  # how many, steps each
SOAK = {"quick": 4_000, "normal": 100_000, "full": 1_000_000}
RESIDUAL = 1e-8


def laws(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Friction, rolling, rest, stacks and momentum."""
    boxes, seconds = STACK[effort]
    fallen, residuals = stack(boxes, seconds)
    shift, weight = box_at_rest(10.0)
    linear, angular = collisions()
    rows = [
        *(at_most(f"block on a 20° slope, friction {mu:g}: error of its acceleration", slope(mu), 1e-6, unit="m/s²")
          for mu in (0.1, 0.3, 0.36, 0.37, 0.6)),
        at_most("sphere on a slope: error of its acceleration 5/7 g sin θ", rolling(), 1e-6, unit="m/s²"),
        at_most("box at rest for 10 s: how far it moves", shift, 1e-9, unit="m"),
        at_most("box at rest: error of the force that carries it, relative", weight, 1e-6),
        at_most(f"{boxes} stacked boxes for {seconds:g} s: how far the worst moves", fallen, 1e-3, unit="m"),
        info(f"{boxes} stacked boxes: largest residual of the solver", float(residuals.max()), unit="m/s"),
        at_most("colliding free bodies: change of linear momentum, relative", linear, 1e-9),
        at_most("colliding free bodies: change of angular momentum, relative", angular, 1e-9),
    ]  # fmt: skip
    return rows, []


def slope(friction: float, steps: int = 200) -> float:
    """Error of the acceleration of a block on a slope: g (sin θ − μ cos θ), or none where it sticks."""
    scene = scenes.slope().replace(friction=friction)
    simulator = Simulator(scene, contact="ncp")
    last = simulator.rollout(simulator.initial_state(), steps).v[-1]
    angle = np.deg2rad(20)
    expected = max(0.0, GRAVITY * (np.sin(angle) - friction * np.cos(angle)))
    return abs(float(np.linalg.norm(last[:3])) / (steps * scene.timestep) - expected)


def rolling(steps: int = 300) -> float:
    """Error of the acceleration of a sphere that rolls down a slope."""
    angle = 0.3
    x, z = GRAVITY * np.sin(angle), -GRAVITY * np.cos(angle)
    xml = f"""<mujoco><option timestep="0.001" gravity="{x} 0 {z}"/><worldbody>
      <geom type="plane" size="5 5 1" friction="1"/>
      <body pos="0 0 0.1"><freejoint/><geom size="0.1" mass="1"/></body></worldbody></mujoco>"""
    simulator = Simulator(load(xml), contact="ncp")
    last = simulator.rollout(simulator.initial_state(), steps).v[-1]
    return abs(float(last[0]) / (steps * 0.001) - 5 / 7 * x)


def box_at_rest(seconds: float) -> tuple[float, float]:
    """How far a box moves that should not, and the relative error of the force that carries it."""
    scene = scenes.cube()
    simulator = Simulator(scene, contact="ncp")
    state = first = simulator.initial_state("resting")
    for _ in range(round(seconds / scene.timestep)):
        out = simulator.step(state)
        state = out.state
    weight = scene.parameters["mass"][1] * GRAVITY
    error = np.abs(out.contacts.force.sum(axis=0) - [0, 0, weight]).max() / weight
    return float(np.abs(scene.difference(first.q, state.q)).max()), float(error)


def stack(boxes: int, seconds: float) -> tuple[float, Array]:
    """How far the boxes of a tower move, and the solver's residual at each step."""
    bodies = "".join(
        f'<body pos="0 0 {0.05 + 0.1 * k}"><freejoint/><geom type="box" size=".05 .05 .05" mass="0.5"/></body>'
        for k in range(boxes)
    )
    xml = f'<mujoco><worldbody><geom type="plane" size="2 2 1"/>{bodies}</worldbody></mujoco>'
    scene = load(xml)
    simulator = Simulator(scene, contact="ncp")
    state = first = simulator.initial_state()
    residuals = []
    for _ in range(round(seconds / scene.timestep)):
        out = simulator.step(state)
        state = out.state
        residuals.append(out.solver.residual)
    moved = np.linalg.norm((state.q - first.q).reshape(boxes, 7)[:, :3], axis=1)
    return float(moved.max()), np.array(residuals)


def collisions(trials: int = 50) -> tuple[float, float]:
    """Largest relative change of linear and angular momentum where free bodies meet without gravity."""
    shapes = {
        "sphere": 'type="sphere" size="0.1"',
        "capsule": 'type="capsule" size="0.08 0.1"',
        "box": 'type="box" size="0.1 0.08 0.06"',
    }
    rng = np.random.default_rng(0)
    worst, met = np.zeros(2), 0
    for one, two in (("sphere", "sphere"), ("sphere", "box"), ("capsule", "capsule"), ("box", "box")):
        xml = f"""<mujoco><option gravity="0 0 0"/><worldbody>
          <body><freejoint/><geom {shapes[one]} mass="1" friction="0.5"/></body>
          <body><freejoint/><geom {shapes[two]} mass="3" friction="0.5"/></body></worldbody></mujoco>"""
        scene = load(xml)
        simulator, free = Simulator(scene, contact="ncp"), Simulator(scene)
        for _ in range(trials):
            turn = rng.normal(size=(2, 3))
            place = np.concatenate([[0, 0, 0], turn[0], [0, 0, 0.16], turn[1]])
            velocity = rng.normal(size=12) + np.concatenate([np.zeros(8), [-5.0], np.zeros(3)])
            state = State(scene.integrate(scene.initial_state().q, place), velocity)
            out = simulator.step(state)
            if any(mode != "breaking" for mode in out.contacts.mode):
                met += 1
                # At the pose in which the impulses act, against the same step without contact: what the gyroscopic
                # torque does to the body-frame velocities is not the contact's doing.
                before, after = (_momentum(scene, state.q, s.v) for s in (free.step(state).state, out.state))
                change = np.abs(after - before).reshape(2, 3).max(axis=1)
                worst = np.maximum(worst, change / np.abs(before).reshape(2, 3).max(axis=1))
    return (float(worst[0]), float(worst[1])) if met else (np.nan, np.nan)


def _momentum(scene: Scene, q: Array, v: Array) -> Array:
    """Linear and angular momentum of free bodies, about the world's origin."""
    total = np.zeros(6)
    for k in range(len(v) // 6):
        mass, inertia = scene.parameters["mass"][k + 1], scene.parameters["inertia"][k + 1]
        flat = np.zeros(9)
        mujoco.mju_quat2Mat(flat, q[7 * k + 3 : 7 * k + 7])
        R = flat.reshape(3, 3)
        xx, yy, zz, xy, xz, yz = inertia
        spin = R @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ v[6 * k + 3 : 6 * k + 6]
        push = mass * v[6 * k : 6 * k + 3]
        total[:3] += push
        total[3:] += spin + np.cross(q[7 * k : 7 * k + 3], push)
    return total


# ---------------------------------------------------------------------- the solver, and long runs


def solver(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """The solver's residual along motions under random controls."""
    rollouts, steps = ROLLOUTS[effort]
    rows, found = list[Row](), dict[str, Array]()
    for name in ("go1", "g1", "humanoid"):
        residuals = found[name] = np.concatenate([residuals_of(robot(name), steps, seed) for seed in range(rollouts)])
        share = 100 * float((residuals <= RESIDUAL).mean())
        why = f"{int((residuals > RESIDUAL).sum())} of {len(residuals)} steps, which say so (`converged` is false)"
        rows += [
            at_least(f"solver, {name}: steps with a residual within {RESIDUAL:g}", share, 99.9, unit="%", why=why),
            info(f"solver, {name}: largest residual", float(residuals.max()), unit="m/s"),
        ]
    return rows, [_plot(found, out / "solver_residual.png")]


def residuals_of(scene: Scene, steps: int, seed: int) -> Array:
    """Residual of each step of one motion; infinite from where it could not go on."""
    simulator, rng = Simulator(scene, contact="ncp"), np.random.default_rng(seed)
    residuals = np.full(steps, np.inf)
    try:
        for t, report in enumerate(random_motion(simulator, steps, rng)):
            residuals[t] = report.residual
    except Error:
        pass
    return residuals


def soak(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Many steps of several scenes: nothing turns NaN, memory does not grow."""
    total, failures, done = SOAK[effort], 0, 0
    systems = [scenes.cube(), robot("half_cheetah"), robot("ant"), robot("go1")]
    simulators = [Simulator(scene, contact="ncp") for scene in systems]
    rng, before = np.random.default_rng(0), 0
    chunk = min(1000, max(1, total // 20))
    while done < total:
        for simulator in simulators:
            try:
                for _ in random_motion(simulator, chunk, rng):
                    pass
            except Error:
                failures += 1
            done += chunk
        if not before and done >= total / 4:  # caches are warm by now
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return [
        at_most(f"soak, {done:,} steps: motions that failed", failures, 0),
        at_most(f"soak, {done:,} steps: growth of memory after the first quarter", growth, 16, unit="MB"),
    ], []


def _plot(found: dict[str, Array], file: Path) -> Path:
    figure, axes = new_figure(1, 1, width=8)
    for name, residuals in found.items():
        ordered = np.sort(np.clip(residuals, 1e-18, 1e3))
        axes.semilogx(ordered, 100 * np.arange(1, len(ordered) + 1) / len(ordered), label=name)
    axes.axvline(RESIDUAL, color="0.5", linestyle="--")
    axes.set(
        title="Residual of the contact problem under random controls",
        xlabel="residual [m/s]", ylabel="share of steps at or below [%]",
    )  # fmt: skip
    axes.legend()
    axes.grid(alpha=0.3)
    return save_figure(figure, file)
