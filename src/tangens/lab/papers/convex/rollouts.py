"""Paper 4, Supp. I-B: non-convex bodies fall on a floor and on each other, with contacts of edges and without.

Creatures of superquadrics always; the armadillo and the drill, decomposed, where $TANGENS_MESHES or shared/meshes
beside the checkout has them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tangens.contact import Convex
from tangens.geometry.decomposition import decompose
from tangens.geometry.mesh_files import read_mesh
from tangens.lab.creatures import Body, body_of, creature_body
from tangens.lab.decomposition_picture import shade
from tangens.lab.papers.convex.falling import Fall, fall, falling_scene
from tangens.lab.papers.result_rows import Row, at_most, info
from tangens.lab.report import new_figure, save_figure

Array = NDArray[np.float64]

TIMESTEP = 0.004
LYING = np.array([np.sqrt(0.5), np.sqrt(0.5), 0.0, 0.0])
"""On its back: a quarter turn around x."""
ROUNDING = 1e-12
"""Of the energy lost, what sums of it are exact to."""
GAP = 0.05
"""Between bodies, and above the floor [m]."""
MESHES = {"armadillo": ("armadillo.obj", 0.3), "drill": ("ycb_power_drill.obj", None)}
"""File, and the height that it is scaled to [m]."""


def meshes_folder() -> Path:
    """Meshes that are not part of the project: $TANGENS_MESHES, or shared/meshes beside the checkout."""
    return Path(os.environ.get("TANGENS_MESHES", Path(__file__).parents[6] / "shared" / "meshes"))


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Each pair falls twice."""
    rows, figures = list[Row](), list[Path]()
    for name, bodies, seconds in _pairs(effort):
        scene = falling_scene(bodies, above_each_other(bodies), TIMESTEP)
        falls = {
            "edges": fall(scene, bodies, Convex(), seconds),
            "no edges": fall(scene, bodies, Convex(edges=False), seconds),
        }
        for variant, found in falls.items():
            rows += _rows(f"{name}, {variant}", found, judged=variant == "edges")
        figures.append(draw(out / f"{name.replace(' ', '_')}.png", bodies, falls))
    return rows, figures


def above_each_other(bodies: dict[str, Body]) -> dict[str, Array]:
    """Poses of bodies that lie on their backs, one above the other and a little aside."""
    places, height = dict[str, Array](), 0.0
    for k, (name, body) in enumerate(bodies.items()):
        up = body.surface.vertices[:, 1]  # the quarter turn takes y to z
        z = height + GAP - up.min()
        places[name] = np.array([0.03 * k, 0.02 * k, z, *LYING])
        height = z + up.max()
    return places


def _pairs(effort: str) -> list[tuple[str, dict[str, Body], float]]:
    if effort == "quick":
        return [("small creatures", {"a": creature_body(5, 0, 120), "b": creature_body(5, 1, 120)}, 2.8)]
    found = [("creatures", {"a": creature_body(18, 0), "b": creature_body(18, 1)}, 2.0)]
    folder = meshes_folder()
    scans = {
        name: mesh_body(folder / file, height) for name, (file, height) in MESHES.items() if (folder / file).is_file()
    }
    if len(scans) == len(MESHES):
        found.append(("armadillo and drill", scans, 2.0))
    return found


def mesh_body(file: Path, height: float | None) -> Body:
    """A scan as superquadrics."""
    vertices, faces = read_mesh(file)
    vertices = np.asarray(vertices, float)
    if height is not None:
        vertices = vertices * (height / np.ptp(vertices, axis=0).max())
    found = decompose(vertices, faces, accuracy=0.01, kind="superquadrics")
    return body_of(found.field, np.stack([found.low, found.high]), found.smoothing, 300)


def _rows(name: str, found: Fall, judged: bool) -> list[Row]:
    speed, depth = f"{name}: largest velocity at the end", f"{name}: overlap at the end, of a body's size"
    gain = f"{name}: most energy gained in a step, springs included, of all that was lost"
    lifted = f"{name}: the same without springs"
    failed = sum(not report.converged for report in found.trajectory.solver)
    if not judged:
        return [info(speed, found.speed, unit="m/s, rad/s"), info(depth, 100 * found.depth, unit="%"),
                info(gain, 100 * found.gain, unit="%"), info(lifted, 100 * found.lifted, unit="%")]  # fmt: skip
    return [
        at_most(speed, found.speed, 0.05, unit="m/s, rad/s"),
        at_most(depth, 100 * found.depth, 1.0, unit="%"),
        at_most(f"{name}: deepest overlap on the way", 100 * found.deepest, 1.0, unit="%"),
        at_most(gain, 100 * found.gain, 100 * ROUNDING, unit="%"),
        info(lifted, 100 * found.lifted, unit="%"),
        at_most(f"{name}: steps that did not converge", failed, 0),
    ]


def draw(file: Path, bodies: dict[str, Body], falls: dict[str, Fall]) -> Path:
    """The way down, with edges (above) and without, and energies."""
    shown = (0.0, 0.15, 0.4, 1.0)
    figure, axes = new_figure(2, 5, width=17, height=7)
    for row, (variant, found) in enumerate(falls.items()):
        steps = len(found.energy) - 1
        for column, share in enumerate(shown):
            axes[row, column].remove()
            panel = figure.add_subplot(2, 5, 5 * row + column + 1, projection="3d")
            k = round(share * steps)
            scene_picture(panel, bodies, found.trajectory.q[k])
            panel.set_title(f"{variant}, {k * found.scene.timestep:.2f} s")
        times = found.scene.timestep * np.arange(steps + 1)
        axes[row, 4].plot(times, found.energy - found.energy[-1])
        axes[row, 4].set(title=f"{variant}: energy over the end [J]", xlabel="time [s]", yscale="symlog")
        axes[row, 4].set_yscale("symlog", linthresh=1e-3)
        axes[row, 4].grid(alpha=0.3)
    return save_figure(figure, file)


def scene_picture(panel: Any, bodies: dict[str, Body], q: Array) -> None:
    """All bodies where they are, coarsely."""
    from scipy.spatial.transform import Rotation

    for k, body in enumerate(bodies.values()):
        x, quat = q[7 * k : 7 * k + 3], q[7 * k + 3 : 7 * k + 7]
        turn = Rotation.from_quat(quat[[1, 2, 3, 0]]).as_matrix()
        faces = body.surface.faces[:: max(1, len(body.surface.faces) // 12_000)]
        shade(panel, body.surface.vertices[faces] @ turn.T + x, f"C{k}")
    panel.set(xlim=(-0.25, 0.25), ylim=(-0.25, 0.25), zlim=(0.0, 0.5), box_aspect=(1, 1, 1))
    panel.view_init(elev=12, azim=-60)
    panel.set(xticks=[], yticks=[], zticks=[])
