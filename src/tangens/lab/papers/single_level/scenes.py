"""Figs. 2, 6, 7 and 8: bundles and Minkowski sums, all primitives dropped, a peg in a hole, a tower of blocks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens import scenes
from tangens.contact import SingleLevel
from tangens.lab.papers.result_rows import Row, at_least, at_most
from tangens.lab.papers.single_level.outlines import lowest, outlines
from tangens.lab.report import new_figure, save_figure
from tangens.results import Step
from tangens.scene import Scene, load
from tangens.simulate import Simulator
from tangens.state import State

Array = NDArray[np.float64]

RELAXATION = 1e-6
PENETRATION = 1e-6  # most that is forgiven [m]
TOWER_SECONDS = {"quick": 0.5, "normal": 5.0, "full": 5.0}
PEG, WALL, WALL_PLACE = np.array([0.05, 0.15]), 0.1, 0.152  # half sizes, and where the walls are [m]
_SIGNS = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
PLANE = '<joint type="slide" axis="1 0 0"/> <joint type="slide" axis="0 0 1"/> <joint type="hinge" axis="0 -1 0"/>'


class Run(NamedTuple):
    """A rollout from rest."""

    scene: Scene
    q: Array
    v: Array
    last: Step
    failures: int
    """Steps that did not converge."""


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """All scenes; only the peg if it has to be quick, because each scene is compiled on its own."""
    rows, figures = list[Row](), list[Path]()
    parts: list[Callable[[str, Path], tuple[list[Row], Path]]] = [peg]
    for part in parts if effort == "quick" else [composites, primitives, *parts, tower]:
        more, figure = part(effort, out)
        rows += more
        figures.append(figure)
    return rows, figures


def roll(scene: Scene, q: Array, seconds: float) -> Run:
    """Let a scene go from rest."""
    simulator = Simulator(scene, contact=SingleLevel(relaxation=RELAXATION))
    steps, lost = list[Step](), list[int]()

    def watch(k: int, step: Step) -> None:
        steps[:] = [step]
        if not step.solver.converged:
            lost.append(k)

    path = simulator.rollout(State(q, np.zeros(scene.nv)), round(seconds / scene.timestep), callback=watch)
    return Run(scene, path.q, path.v, steps[0], len(lost))


def composites(effort: str, out: Path) -> tuple[list[Row], Path]:
    """Fig. 2: a union and a Minkowski sum fall on the floor, and on each other."""
    del effort
    found = roll(composite_scene(), np.array([-0.1, 0.75, 0.5, 0.05, 0.3, 0.2]), 2.0)
    rows = [
        at_most("bundle and sum: steps that fail", found.failures, 0, unit=f"of {len(found.q) - 1}"),
        at_most("bundle and sum: deepest penetration of the floor", _deepest(found), PENETRATION, unit="m"),
        at_most("bundle and sum: speed after 2 s", float(np.abs(found.v[-1]).max()), 0.01),
    ]
    return rows, _film("A convex bundle and a Minkowski sum", found, 6, 1.0, out / "composites.png")


def composite_scene() -> Scene:
    """A hammer of two boxes and a capsule's worth of rounding: box plus triangle, in the plane."""
    import jax

    from tangens import geometry as geo

    body = f"""
    <body name="{{0}}">{PLANE}<inertial pos="0 0 0" mass="1" diaginertia="0.02 0.02 0.02"/>
    <geom name="{{0}}" type="box" size="0.2 0.2 0.2"/></body>"""
    xml = f"""
    <mujoco><option timestep="0.01"/><default><geom friction="0.5"/></default><worldbody>
    <geom name="floor" type="plane" size="3 3 0.1"/>{body.format("bundle")}{body.format("sum")}
    </worldbody></mujoco>"""
    with jax.enable_x64(True):
        handle, head = geo.Placed(geo.box([0.05, 0.22]), [0.0, -0.08]), geo.Placed(geo.box([0.2, 0.07]), [0.0, 0.17])
        rounded = geo.MinkowskiSum(geo.Cone(0.25, 0.6, 2), geo.sphere(0.06, 2))
        return load(xml).with_shapes(
            {"floor": geo.HalfSpace([0.0, 1.0]), "bundle": geo.Bundle([handle, head]), "sum": rounded}
        )


def primitives(effort: str, out: Path) -> tuple[list[Row], Path]:
    """Fig. 6, for every shape there is, in space."""
    del effort
    rng, rows, films = np.random.default_rng(1), list[Row](), dict[str, Run]()
    for name in PRIMITIVES:
        turn = rng.normal(size=4)
        start = np.r_[0.0, 0.0, 0.5, turn / np.linalg.norm(turn)]
        films[name] = found = roll(primitive_scene(name), start, 1.0)
        energy = _energy(found)
        rows += [
            at_most(f"{name}: steps that fail", found.failures, 0, unit=f"of {len(found.q) - 1}"),
            at_most(f"{name}: deepest penetration", _deepest(found), PENETRATION, unit="m"),
            at_most(f"{name}: most energy gained in a step", float(np.diff(energy).max() / energy[0]), 1e-3),
        ]
    return rows, _rows_of_film("Drops of all primitives", films, 5, out / "primitives.png")


PRIMITIVES = {
    "box": 'type="box" size="0.12 0.08 0.06"',
    "sphere": 'type="sphere" size="0.1"',
    "capsule": 'type="capsule" size="0.06 0.1"',
    "cylinder": 'type="cylinder" size="0.08 0.1"',
    "ellipsoid": 'type="ellipsoid" size="0.14 0.09 0.06"',
    "mesh": 'type="mesh" mesh="gem"',
    "cone": 'type="box" size="0.08 0.08 0.08"',
    "padded polytope": 'type="box" size="0.08 0.08 0.08"',
}


def primitive_scene(name: str) -> Scene:
    """A body of one shape above the floor."""
    import jax

    from tangens import geometry as geo

    xml = f"""
    <mujoco><option timestep="0.01"/><default><geom friction="0.5"/></default>
    <asset><mesh name="gem" vertex="0.1 0 0  -0.1 0 0  0 0.1 0  0 -0.1 0  0.06 0.06 0.12  -0.06 -0.06 -0.12"/></asset>
    <worldbody><geom name="floor" type="plane" size="9 9 0.1"/>
    <body name="{name}"><freejoint/><inertial pos="0 0 0" mass="1" diaginertia="0.004 0.004 0.004"/>
    <geom name="{name}" {PRIMITIVES[name]}/></body></worldbody></mujoco>"""
    with jax.enable_x64(True):
        core = geo.box([0.07, 0.05, 0.05])
        shapes = {"cone": geo.Cone(0.25, 0.5), "padded polytope": geo.PaddedPolytope(core.A, core.b, 0.03)}
    return load(xml).with_shapes({name: shapes[name]} if name in shapes else {})


def peg(effort: str, out: Path) -> tuple[list[Row], Path]:
    """Fig. 7: gravity alone puts a peg into a slot that is 4 mm wider."""
    del effort
    scene = peg_scene()
    rows, films = list[Row](), list[Run]()
    goal = scene.initial_state("inserted").q
    for start in ("above", "tilted"):
        found = roll(scene, scene.initial_state(start).q, 1.0)
        films.append(found)
        rows += [
            at_most(f"peg, {start}: steps that fail", found.failures, 0, unit=f"of {len(found.q) - 1}"),
            at_most(f"peg, {start}: height above the bottom at the end", abs(found.q[-1, 1] - goal[1]), 1e-3, unit="m"),
            at_least(f"peg, {start}: contacts", len(found.last.contacts.distance), 3, paper=3),
            at_most(f"peg, {start}: deepest penetration", max(_overlap(q) for q in found.q), PENETRATION, unit="m"),
        ]
    return rows, _peg_film(films[1], out / "peg_in_hole.png")


def peg_scene() -> Scene:
    """The peg as planar shapes."""
    import jax

    from tangens.geometry import HalfSpace, box

    with jax.enable_x64(True):
        wall = box([WALL, WALL])
        shapes = {"floor": HalfSpace([0.0, 1.0]), "left_wall": wall, "right_wall": wall, "peg": box(PEG)}
    return scenes.peg_in_hole().with_shapes(shapes)


def tower(effort: str, out: Path) -> tuple[list[Row], Path]:
    """Fig. 8: four blocks, staggered, stand."""
    scene = scenes.stack().replace(timestep=0.01)
    found = roll(scene, scene.initial_state("staggered").q, TOWER_SECONDS[effort])
    drift = np.abs((found.q[-1] - found.q[0]).reshape(-1, 7)[:, :3]).max()
    rows = [
        at_most("tower: steps that fail", found.failures, 0, unit=f"of {len(found.q) - 1}"),
        at_most(f"tower: drift of a block in {TOWER_SECONDS[effort]:g} s", float(drift), 1e-4, unit="m"),
        at_most("tower: speed at the end", float(np.abs(found.v[-1]).max()), 1e-5),
    ]
    return rows, _film("A tower of four blocks", found, 3, TOWER_SECONDS[effort], out / "tower.png")


# ------------------------------------------------------------ measures


def _deepest(found: Run) -> float:
    """Deepest penetration of the floor."""
    return max(0.0, -min(lowest(found.scene, q) for q in found.q[:: max(1, len(found.q) // 200)]))


def _overlap(q: Array) -> float:
    """How deep the peg is in a wall or in the bottom [m]: boxes overlap by the least of all faces' directions."""
    c, s = np.cos(q[2]), np.sin(q[2])
    axes = np.array([[c, s], [-s, c]])
    peg = q[:2] + (_SIGNS * PEG) @ axes
    deepest = max(0.0, -float(peg[:, 1].min()))
    for x in (-WALL_PLACE, WALL_PLACE):
        wall = np.array([x, WALL]) + WALL * _SIGNS
        spans = [(peg @ n, wall @ n) for n in (*axes, *np.eye(2))]
        deepest = max(deepest, min(float(min(a.max() - b.min(), b.max() - a.min())) for a, b in spans))
    return deepest


def _energy(found: Run) -> Array:
    """Kinetic and potential energy along a run."""
    import mujoco

    m = found.scene.model
    m.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
    d, energy = mujoco.MjData(m), list[float]()
    for q, v in zip(found.q, found.v, strict=True):
        d.qpos[:], d.qvel[:] = q, v
        mujoco.mj_forward(m, d)
        energy.append(float(d.energy.sum()))
    return np.array(energy)


# ------------------------------------------------------------ pictures


def _shots(found: Run, count: int, seconds: float) -> NDArray[np.int_]:
    return (np.linspace(0, seconds, count) / found.scene.timestep).round().astype(int)


def _film(title: str, found: Run, count: int, seconds: float, file: Path) -> Path:
    """Pictures over time, side by side."""
    shots = _shots(found, count, seconds)
    every = np.concatenate([points for t in shots for _, points in outlines(found.scene, found.q[t])])
    middle, top = (every[:, 0].min() + every[:, 0].max()) / 2, every[:, 1].max()
    half = 0.6 * float(np.ptp(every[:, 0]))
    figure, axes = new_figure(1, count, width=2 * count, height=0.9 + top / half)
    for axis, t in zip(axes, shots, strict=True):
        _draw(axis, found, t)
        axis.set(xlim=(middle - half, middle + half), ylim=(-0.05 * top, 1.05 * top), aspect="equal", xticks=[])
        axis.set_title(f"{t * found.scene.timestep:.2f} s", fontsize=10)
        if axis is not axes[0]:
            axis.set_yticks([])
    axes[0].set_ylabel("height [m]")
    figure.suptitle(title)
    return save_figure(figure, file)


def _rows_of_film(title: str, films: dict[str, Run], count: int, file: Path) -> Path:
    """Pictures over time, one below the other, of scenes side by side."""
    figure, axes = new_figure(count, 1, width=9, height=1.35 * count + 0.4)
    for row, axis in enumerate(axes):
        for k, found in enumerate(films.values()):
            t = _shots(found, count, 0.8)[row]
            _draw(axis, found, t, f"C{k}", np.array([0.6 * k - found.q[t, 0], 0.0]))
        axis.set(xlim=(-0.4, 0.6 * len(films) - 0.2), ylim=(-0.03, 0.72), aspect="equal", xticks=[], yticks=[])
        axis.set_title(f"{t * found.scene.timestep:.2f} s", fontsize=9, loc="left")
    for k, name in enumerate(films):
        axes[-1].text(0.6 * k, -0.08, name, ha="center", va="top", fontsize=8)
    figure.suptitle(title)
    return save_figure(figure, file)


def _peg_film(found: Run, file: Path) -> Path:
    count = 6
    figure, axes = new_figure(1, count, width=2 * count, height=3.4)
    for axis, t in zip(axes, np.linspace(0, 0.35, count), strict=True):
        k = round(t / found.scene.timestep)
        for x in (-WALL_PLACE, WALL_PLACE):
            axis.fill(*(np.array([x, WALL]) + WALL * _SIGNS).T, color="0.75")
        _draw(axis, found, k)
        axis.set(xlim=(-0.2, 0.2), ylim=(-0.02, 0.55), aspect="equal", xticks=[], yticks=[])
        axis.set_title(f"{t:.2f} s", fontsize=10)
    figure.suptitle("A tilted peg falls into its hole")
    return save_figure(figure, file)


def _draw(axis: Any, found: Run, t: int, colour: str = "", shift: Array | float = 0.0) -> None:
    axis.axhline(0.0, color="0.4", linewidth=1)
    for g, points in outlines(found.scene, found.q[t]):
        fill = colour or f"C{(g - 1) % 10}"
        axis.fill(*(points + shift).T, facecolor=fill, edgecolor=fill, alpha=0.6, linewidth=0.8)
