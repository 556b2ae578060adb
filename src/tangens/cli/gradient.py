"""Differentiate one step of a scene and print the size of each block."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from tangens.cli.common import (
    EXIT_MISSED,
    EXIT_OK,
    add_contact_argument,
    add_scene_arguments,
    chosen_scene,
    contact_choice,
)
from tangens.cli.terminal import coloured, say, table
from tangens.lab.report import environment
from tangens.simulate import Simulator
from tangens.testing import Sample, gradient_errors, parameter_errors, random_sample

TOLERANCE = 1e-6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tangens gradient`."""
    add_scene_arguments(parser)
    add_contact_argument(parser)
    parser.add_argument("--wrt", default="q,v,u", metavar="NAMES", help="inputs and parameters, e.g. q,v,tau,mass")
    parser.add_argument("--keyframe", metavar="NAME", help="where to differentiate: this keyframe of the scene")
    parser.add_argument("--random", type=int, metavar="SEED", help="... or a random state, with random u and tau")
    parser.add_argument("--check", action="store_true", help=f"compare with central differences, to {TOLERANCE:g}")


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Differentiate, and judge the result if asked to."""
    scene = chosen_scene(args)
    simulator = Simulator(scene, contact=contact_choice(args))
    wrt = tuple(name.strip() for name in args.wrt.split(",") if name.strip())
    sample = Sample(simulator.initial_state(args.keyframe), np.zeros(scene.nu), np.zeros(scene.nv))
    if args.random is not None:
        sample = random_sample(scene, np.random.default_rng(args.random))
    J = simulator.jacobian(*sample, wrt=wrt)
    deviations: dict[str, float] = {}
    if args.check:
        inputs = tuple(name for name in wrt if name in ("q", "v", "u", "tau"))
        rest = tuple(name for name in wrt if name not in inputs)
        deviations = gradient_errors(simulator, sample, inputs)
        deviations |= parameter_errors(simulator, sample, rest, np.random.default_rng(0))
    rows = []
    for (output, name), block in J.items():
        shape = " x ".join(str(n) for n in block.shape)
        largest = f"{np.abs(block).max():.4g}" if block.size else "-"
        judged = [f"{deviations[f'{output}/{name}']:.1e}"] if args.check else []
        rows.append([f"∂{output}⁺/∂{name}", shape, largest, *judged])
    columns = ["block", "shape", "largest entry", *(["relative error"] if args.check else [])]
    table(str(scene), columns, rows)
    worst = max(deviations.values(), default=0.0)
    passed = worst <= TOLERANCE
    if args.check:
        verdict = coloured("agrees", "green") if passed else coloured("does not agree", "red")
        say(verdict, f"with central differences: largest relative error {worst:.1e}, allowed {TOLERANCE:g}")
    payload = {
        "scene": scene.source,
        "contact": args.contact,
        "blocks": {f"{output}/{name}": block for (output, name), block in J.items()},
        "errors": deviations,
        "ok": passed,
        "environment": environment(),
    }
    return EXIT_OK if passed else EXIT_MISSED, payload
