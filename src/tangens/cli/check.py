"""Compare robots with MuJoCo, and their derivatives with central differences."""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import mujoco
import numpy as np

from tangens import robots
from tangens.cli.common import EXIT_MISSED, EXIT_OK, add_scene_arguments, chosen_scene
from tangens.cli.terminal import coloured, progress, say, table
from tangens.contact import Ncp
from tangens.dynamics.parameter_forces import PARAMETERS
from tangens.errors import NotDifferentiable, SolverError
from tangens.lab.report import environment
from tangens.scene import Scene
from tangens.simulate import Simulator
from tangens.state import State
from tangens.testing import Sample, check_gradients, check_physics, contact_agreement, random_sample

PHYSICS, DERIVATIVES, IN_CONTACT = 1e-9, 1e-6, 1e-5
ENOUGH = 0.9  # of the few directions of one robot
_FALL = 1.0  # [s]
_PLANE = int(mujoco.mjtGeom.mjGEOM_PLANE)
_INPUTS = ("q", "v", "u", "tau")

EPILOG = "SCENE may also be 'robots': all that tangens knows by name."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tangens check`."""
    add_scene_arguments(parser)
    parser.add_argument("--samples", type=int, default=2, metavar="N", help="random states per robot (default 2)")
    parser.add_argument("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Check one scene or all robots."""
    names = robots.names() if args.scene == "robots" else (args.scene,)
    results = []
    with progress() as bar:
        task = bar.add_task("checking", total=len(names))
        for name in names:
            start = time.perf_counter()
            scene = robots.get(name) if args.scene == "robots" else chosen_scene(args)
            loading = time.perf_counter() - start
            errors = check_scene(scene, args.samples, args.seed)
            known = name in robots.names() and not (scene.model.geom_type == _PLANE).any()
            contact = check_in_contact(robots.get(name, ground=True) if known else scene, args.samples, args.seed)
            ok = errors["ok"] and contact["agree"] >= ENOUGH * contact["compared"]
            results.append({"name": name, "nv": scene.nv, "load_s": loading, **errors, "contact": contact, "ok": ok})
            bar.update(task, advance=1, refresh=True)
    rows = [
        [r["name"], r["nv"], f"{r['load_s']:.2f}", f"{r['physics']:.1e}", f"{r['state']:.1e}",
         f"{r['parameters']:.1e}", f"{r['contact']['agree']} of {r['contact']['compared']}",
         coloured("ok", "green") if r["ok"] else coloured("no", "red")]
        for r in results
    ]  # fmt: skip
    columns = ("robot", "nv", "load [s]", "MuJoCo", "∂/∂(q, v, u, τ)", "∂/∂parameters", "in contact", "")
    table("Largest relative error", columns, rows)
    failed = [r["name"] for r in results if not r["ok"]]
    say(
        f"{len(results) - len(failed)} of {len(results)} agree: mass matrix, bias force, body poses and step with "
        f"MuJoCo to {PHYSICS:g}, derivatives with central differences to {DERIVATIVES:g}; on a floor, in their own "
        f"pose, along random directions to {IN_CONTACT:g} where no switch is near"
    )
    return EXIT_MISSED if failed else EXIT_OK, {"results": results, "environment": environment()}


def check_scene(scene: Scene, samples: int, seed: int) -> dict[str, Any]:
    """Largest relative errors over random states: of the physics, and of the derivatives by state and parameters."""
    rng = np.random.default_rng(seed)
    simulator = Simulator(scene)
    physics = check_physics(scene, samples, seed, PHYSICS)
    wrt, derivatives = (*_INPUTS, *PARAMETERS), dict[str, float]()
    for _ in range(samples):
        found = check_gradients(simulator, *random_sample(scene, rng), wrt=wrt, tolerance=DERIVATIVES)
        for key, value in found.errors.items():
            derivatives[key] = max(derivatives.get(key, 0.0), value)
    by_state = {key: value for key, value in derivatives.items() if key.partition("/")[2] in _INPUTS}
    return {
        "physics": physics.worst,
        "state": max(by_state.values()),
        "parameters": max(value for key, value in derivatives.items() if key not in by_state),
        "ok": physics.ok and max(derivatives.values()) <= DERIVATIVES,
        "errors": physics.errors | derivatives,
    }


def check_in_contact(scene: Scene, samples: int, seed: int) -> dict[str, Any]:
    """Directions in which the derivative of steps in contact was compared with differences, and how many agree."""
    rng, simulator = np.random.default_rng(seed), Simulator(scene, contact=Ncp(tolerance=1e-13))
    state = _touching(simulator)
    compared, agree, on_switch = 0, 0, 0
    for _ in range(samples):
        moving = state.replace(v=state.v + 0.3 * rng.normal(size=scene.nv))
        try:
            n, good = contact_agreement(simulator, Sample(moving, np.zeros(scene.nu), np.zeros(scene.nv)), rng)
        except (NotDifferentiable, SolverError):
            n, good = 0, 0
        compared, agree, on_switch = compared + n, agree + good, on_switch + (n == 0)
    return {"compared": compared, "agree": agree, "not_compared": on_switch}


def _touching(simulator: Simulator) -> State:
    """The initial state, or where nothing touches there, the first one of a fall in which something does."""
    out = simulator.step(start := simulator.initial_state())
    state, steps = start, math.ceil(_FALL / simulator.scene.timestep)
    for _ in range(steps):
        if (out.contacts.force != 0.0).any():
            return state
        state, out = out.state, simulator.step(out)
    return start
