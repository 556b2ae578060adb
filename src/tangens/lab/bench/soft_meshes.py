"""How well soft surfaces fit meshes: scans and tools, in 4,000 points."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from tangens.errors import Error
from tangens.geometry.mesh_clouds import mesh_cloud
from tangens.lab.bench.request import OURS, Report, at_most, not_measured

FOLDER = Path("../shared/meshes")
MESHES = {"armadillo": "armadillo.obj", "drill": "ycb_power_drill.obj", "scissors": "ycb_scissors.obj"}
LIMIT = 0.02
"""Largest error of the soft distance near the surface, over the bounding box's diagonal."""


def measure(report: Report, points: int) -> None:
    """Make the clouds, or find them where they are kept, and report how well they fit."""
    import trimesh

    for name, file in MESHES.items():
        title = f"{name}: largest error of the soft distance near the surface / diagonal"
        if not (FOLDER / file).exists():
            report.ratios.append(not_measured(title, f"<= {LIMIT:g}", f"{FOLDER / file} is not there"))
            continue
        mesh = trimesh.load_mesh(FOLDER / file, process=False)
        started = time.perf_counter()
        try:
            _, fit = mesh_cloud(np.asarray(mesh.vertices), np.asarray(mesh.faces), points)
        except Error as error:
            report.ratios.append(not_measured(title, f"<= {LIMIT:g}", str(error)))
            continue
        report.add(f"{name}, {len(mesh.faces):,} triangles to {fit.points:,} points", OURS,
                   1e6 * (time.perf_counter() - started), 1)  # fmt: skip
        report.ratios.append(at_most(title, fit.distance, LIMIT))
        report.notes[name] = {"mean": fit.distance_mean, "normals": fit.normals, "volume": fit.volume,
                              "repairs": list(fit.notes)}  # fmt: skip
