"""Step a scene and print how it moved."""

from __future__ import annotations

import argparse
import time
from typing import Any

import mujoco
import numpy as np

from tangens.cli.common import (
    EXIT_OK,
    add_contact_argument,
    add_scene_arguments,
    chosen_scene,
    contact_choice,
)
from tangens.cli.terminal import progress, say, table
from tangens.errors import OptionError
from tangens.lab.report import environment, new_figure, require_figures, save_figure
from tangens.results import Trajectory
from tangens.scene import Scene
from tangens.simulate import Simulator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tangens simulate`."""
    add_scene_arguments(parser)
    add_contact_argument(parser)
    parser.add_argument("--duration", type=float, default=1.0, metavar="S", help="simulated seconds (default 1)")
    parser.add_argument("--steps", type=int, metavar="N", help="number of steps, instead of --duration")
    parser.add_argument("--keyframe", metavar="NAME", help="start from this keyframe of the scene")
    parser.add_argument("--controls", choices=("zero", "random"), default="zero", help="what drives the actuators")
    parser.add_argument("--seed", type=int, default=0, help="for random controls")
    parser.add_argument("--plot", metavar="FILE", help="write a figure of q and v over time")


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Roll the scene out."""
    if args.plot:
        require_figures("tangens simulate --plot")
    scene = chosen_scene(args)
    simulator = Simulator(scene, contact=contact_choice(args))
    if not np.isfinite(args.duration) or args.duration < 0:
        raise OptionError(f"--duration must be a number of seconds, at least 0; got {args.duration}")
    steps = args.steps if args.steps is not None else round(args.duration / scene.timestep)
    controls = _controls(scene, args.controls, args.seed, steps)
    state = simulator.initial_state(args.keyframe)
    simulator.step(state)  # compile before the clock starts
    with progress() as bar:
        task = bar.add_task("simulating", total=steps)
        start = time.perf_counter()
        trajectory = simulator.rollout(
            state,
            controls,
            callback=lambda t, _: bar.update(task, completed=t, refresh=True) if t % 512 == 0 else None,
        )
        seconds = time.perf_counter() - start
    _print_summary(scene, trajectory)
    rate = f", {steps / seconds:,.0f} steps/s" if steps else ""
    say(f"{steps} steps of {scene.timestep:g} s, contact: {args.contact}{rate}")
    payload = {
        "scene": scene.source,
        "contact": args.contact,
        "timestep": scene.timestep,
        "q": trajectory.q,
        "v": trajectory.v,
        "u": trajectory.u,
        "contacts": [len(contacts.distance) for contacts in trajectory.contacts],
        "seconds": seconds,
        "environment": environment(),
    }
    if args.plot:
        payload["figures"] = [str(_plot(scene, trajectory, args.plot))]
        say(f"wrote {args.plot}")
    return EXIT_OK, payload


def _controls(scene: Scene, kind: str, seed: int, steps: int) -> np.ndarray:
    if steps < 0:
        raise OptionError(f"--steps must be at least 0; got {steps}")
    if kind == "zero":
        return np.zeros((steps, scene.nu))
    m = scene.shared_model
    limited = m.actuator_ctrllimited.astype(bool)[:, None]
    low, high = np.where(limited, m.actuator_ctrlrange, [-1.0, 1.0]).T
    return np.random.default_rng(seed).uniform(low, high, size=(steps, scene.nu))


def _print_summary(scene: Scene, trajectory: Trajectory) -> None:
    rows = []
    m = scene.shared_model
    for j, name in enumerate(scene.joint_names[:20]):
        a, width = int(m.jnt_qposadr[j]), {0: 7, 1: 4}.get(int(m.jnt_type[j]), 1)
        start, end = trajectory.q[0, a : a + width], trajectory.q[-1, a : a + width]
        d = int(m.jnt_dofadr[j])
        speed = np.abs(trajectory.v[:, d : d + max(1, width - 1)]).max()
        rows.append([name or f"joint {j}", _numbers(start), _numbers(end), f"{speed:.3g}"])
    if len(scene.joint_names) > 20:
        rows.append([f"... {len(scene.joint_names) - 20} more", "", "", ""])
    table(str(scene), ("joint", "q at start", "q at end", "largest |v|"), rows)


def _numbers(x: np.ndarray) -> str:
    return " ".join(f"{value:.4g}" for value in x)


def _plot(scene: Scene, trajectory: Trajectory, file: str) -> object:
    """Positions and velocities over time: a row each for what is measured in metres, in radians, and as quaternions."""
    kinds = coordinate_kinds(scene)
    figure, panels = new_figure(len(kinds), 2, width=12, height=1.0 + 2.6 * len(kinds))
    times = scene.timestep * np.arange(len(trajectory) + 1)
    for row, (kind, (in_q, in_v)) in zip(np.reshape(panels, (-1, 2)), kinds.items(), strict=True):
        shown = ((row[0], trajectory.q, in_q, kind), (row[1], trajectory.v, in_v, _RATES[kind]))
        for axes, values, chosen, unit in shown:
            for name, column in list(chosen.items())[:_MOST_LINES]:
                axes.plot(times, values[:, column], label=name)
            left_out = len(chosen) - _MOST_LINES
            axes.set(xlabel="time [s]", ylabel=unit, title=f"{left_out} more are not shown" if left_out > 0 else None)
            axes.grid(alpha=0.3)
            axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    figure.suptitle(scene.source.rsplit("/", 1)[-1])
    return save_figure(figure, file)


_RATES = {"position [m]": "velocity [m/s]", "angle [rad]": "rate [rad/s]", "quaternion": "rate in the body [rad/s]"}
_MOST_LINES = 16


def coordinate_kinds(scene: Scene) -> dict[str, tuple[dict[str, int], dict[str, int]]]:
    """Names and places of coordinates in q and in v, by what they measure."""
    m = scene.shared_model
    free, ball, slide = (int(getattr(mujoco.mjtJoint, f"mjJNT_{name}")) for name in ("FREE", "BALL", "SLIDE"))
    out: dict[str, tuple[dict[str, int], dict[str, int]]] = {kind: ({}, {}) for kind in _RATES}
    metres, angles, quaternions = out.values()
    for j, name in enumerate(scene.joint_names):
        label, q, v, kind = name or f"joint {j}", int(m.jnt_qposadr[j]), int(m.jnt_dofadr[j]), int(m.jnt_type[j])
        if kind == free:
            for i, axis in enumerate("xyz"):
                metres[0][f"{label} {axis}"], metres[1][f"{label} {axis}"] = q + i, v + i
            q, v = q + 3, v + 3
        if kind in (free, ball):
            quaternions[0].update({f"{label} {part}": q + i for i, part in enumerate("wxyz")})
            quaternions[1].update({f"{label} {axis}": v + i for i, axis in enumerate("xyz")})
        elif kind == slide:
            metres[0][label], metres[1][label] = q, v
        else:
            angles[0][label], angles[1][label] = q, v
    return {kind: places for kind, places in out.items() if places[0]} or {"position [m]": ({}, {})}
