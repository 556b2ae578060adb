"""Shapes that are not convex, without decomposition: a horseshoe on a box, and a box on a box (paper 3, Sec. III-C)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tangens.contact import Soft
from tangens.lab.papers.result_rows import Row, at_most, info
from tangens.lab.report import new_figure, save_figure
from tangens.scene import Scene, load
from tangens.simulate import Simulator

Array = NDArray[np.float64]

SECONDS = 1.5


def horseshoe(radius: float = 0.06, width: float = 0.02, height: float = 0.03, parts: int = 24) -> tuple[Array, Any]:
    """Vertices and triangles of an arch that stands on its two ends."""
    angles = np.linspace(0, np.pi, parts + 1)
    ring = []
    for a in angles:
        way = np.array([np.cos(a), 0.0, np.sin(a)])
        inner, outer = (radius - width / 2) * way, (radius + width / 2) * way
        across = np.array([0.0, height / 2, 0.0])
        ring.append([inner - across, outer - across, outer + across, inner + across])
    vertices = np.array(ring).reshape(-1, 3)
    quads = [(3, 2, 1, 0), (4 * parts, 4 * parts + 1, 4 * parts + 2, 4 * parts + 3)]
    for i, k in np.ndindex(parts, 4):
        here, after = 4 * i + k, 4 * i + (k + 1) % 4
        quads.append((here, after, after + 4, here + 4))
    return vertices, np.array([t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))])


def arch_on_box() -> Scene:
    """A horseshoe of 0.3 kg that stands on a box of 1 kg."""
    import trimesh

    vertices, faces = horseshoe()
    mesh = trimesh.Trimesh(vertices, faces)
    if mesh.volume < 0:
        mesh.invert()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "horseshoe.stl"
        mesh.export(file)
        return load(
            f"""<mujoco><option timestep="0.002"/><asset><mesh name="arch" file="{file}"/></asset><worldbody>
            <geom type="plane" size="1 1 0.1"/>
            <body name="box" pos="0 0 0.04"><freejoint/><geom type="box" size="0.1 0.06 0.04" mass="1"/></body>
            <body name="arch" pos="0 0 0.081"><freejoint/><geom type="mesh" mesh="arch" mass="0.3"/></body>
            </worldbody></mujoco>"""
        )


def box_on_box() -> Scene:
    """A box of 0.3 kg on one of 1 kg."""
    return load(
        """<mujoco><option timestep="0.002"/><worldbody><geom type="plane" size="1 1 0.1"/>
        <body pos="0 0 0.04"><freejoint/><geom type="box" size="0.1 0.06 0.04" mass="1"/></body>
        <body pos="0.02 0.01 0.111"><freejoint/><geom type="box" size="0.05 0.04 0.03" mass="0.3"/></body>
        </worldbody></mujoco>"""
    )


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Let both come to rest."""
    del effort
    rows, heights = list[Row](), dict[str, Array]()
    for name, scene in (("horseshoe on a box", arch_on_box()), ("box on a box", box_on_box())):
        trajectory = Simulator(scene, Soft()).rollout(scene.initial_state(), round(SECONDS / scene.timestep))
        heights[name] = trajectory.q[:, [2, 9]]
        fallen = float(np.abs(trajectory.q[-1, [9]] - trajectory.q[0, [9]]).max())
        rows += [
            at_most(f"{name}: speed at the end", float(np.abs(trajectory.v[-1]).max()), 5e-3, unit="m/s, rad/s"),
            at_most(f"{name}: the upper one has moved down by", 100 * fallen, 0.3, unit="cm"),
            info(f"{name}: load on the lower one", _load(trajectory.contacts[-1]), unit="N"),
        ]
    figure, axes = new_figure(1, 2, width=10, height=3.5)
    for panel, (name, z) in zip(axes, heights.items(), strict=True):
        panel.plot(np.arange(len(z)) * 2e-3, 1e3 * (z - z[0]), label=["lower", "upper"])
        panel.set(title=name, xlabel="time [s]", ylabel="height over the start [mm]")
        panel.legend()
        panel.grid(alpha=0.3)
    return rows, [save_figure(figure, out / "resting.png")]


def _load(contacts: Any) -> float:
    between = (contacts.geom > 0).all(axis=1)
    return float(np.abs(contacts.force[between, 2]).sum())
