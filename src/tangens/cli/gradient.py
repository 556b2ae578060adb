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
from tangens.contact import ContactModel, Lcp, Ncp
from tangens.lab.report import environment
from tangens.simulate import Simulator
from tangens.testing import Sample, check_gradients, random_sample

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
    contact: str | ContactModel | None = contact_choice(args)
    if args.check:  # differences see the solver's error divided by their length
        tight: dict[str | None, ContactModel] = {"ncp": Ncp(tolerance=1e-13), "lcp": Lcp(tolerance=1e-13)}
        contact = tight.get(args.contact, contact)
    simulator = Simulator(scene, contact=contact)
    wrt = tuple(name.strip() for name in args.wrt.split(",") if name.strip())
    sample = Sample(simulator.initial_state(args.keyframe), np.zeros(scene.nu), np.zeros(scene.nv))
    if args.random is not None:
        sample = random_sample(scene, np.random.default_rng(args.random))
    J = simulator.jacobian(*sample, wrt=wrt)
    report = check_gradients(simulator, *sample, wrt=wrt, tolerance=TOLERANCE) if args.check else None
    rows = []
    for (output, name), block in J.items():
        shape = " x ".join(str(n) for n in block.shape)
        largest = f"{np.abs(block).max():.4g}" if block.size else "-"
        judged = [f"{report.errors[f'{output}/{name}']:.1e}"] if report else []
        rows.append([f"∂{output}⁺/∂{name}", shape, largest, *judged])
    columns = ["block", "shape", "largest entry", *(["relative error"] if report else [])]
    table(str(scene), columns, rows)
    if np.isfinite(J.switch.distance):
        say(f"the nearest switch: {J.switch}")
    passed = report is None or report.ok
    if report:
        verdict = coloured("agrees", "green") if passed else coloured("does not agree", "red")
        say(verdict, f"with central differences: largest relative error {report.worst:.1e}, allowed {TOLERANCE:g}")
        for line in (*report.details.values(), *report.notes):
            say(line)
    payload = {
        "scene": scene.source,
        "contact": args.contact,
        "blocks": {f"{output}/{name}": block for (output, name), block in J.items()},
        "errors": report.errors if report else {},
        "switch": J.switch._asdict() if np.isfinite(J.switch.distance) else None,
        "ok": passed,
        "environment": environment(),
    }
    return EXIT_OK if passed else EXIT_MISSED, payload
