"""Fig. 10: two boxes stacked in ten ways, at rest. Momentum that appears is error.

The relaxed equations let bodies hover, by ρ over the force and by what keeps relaxed shapes from overlapping. Boxes
that start in touch are lifted that far by the first step, and that is the momentum measured: ours is ρ over a force,
at any frequency. The paper's ρ is an impulse times a scale, so that its hovering grows with the frequency.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.contact import Bilevel, SingleLevel
from tangens.contact.interior.options import InteriorContact
from tangens.lab.papers.result_rows import Row, at_least, info
from tangens.lab.papers.single_level.cells import CELLS, Cell, batch, plot, reference, wins
from tangens.scene import Scene, load

Array = NDArray[np.float64]

HALF, MASS, FRICTION = 0.25, 1.0, 0.5
EARTH = 9.81  # [m/s²]
INERTIA = MASS * ((2 * HALF) ** 2 + (2 * HALF) ** 2) / 12
SHIFTS = 0.02 * np.arange(1, 11)  # of the lower box [m]
DURATION, MOST = 1.0, 30

_BODY = """
    <body name="{name}">
      <joint type="slide" axis="1 0 0"/> <joint type="slide" axis="0 0 1"/> <joint type="hinge" axis="0 -1 0"/>
      <inertial pos="0 0 0" mass="{mass}" diaginertia="{inertia} {inertia} {inertia}"/>
      <geom name="{name}" type="box" size="{half} {half} {half}"/>
    </body>"""


class Momentum(NamedTuple):
    """Mean size of the momentum of both boxes, over time, axes and stacks."""

    linear: float
    """[kg m/s]."""
    angular: float
    """About the boxes' own centres [kg m²/s]."""


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Both methods in all cells."""
    cells, theirs = CELLS[effort], reference("stacks")
    single = sweep(SingleLevel(max_iterations=MOST), cells)
    bilevel = {} if effort == "quick" else sweep(Bilevel(max_iterations=MOST), cells)
    rows = list[Row]()
    for field in Momentum._fields:
        ours = {cell: getattr(m, field) for cell, m in single.items()}
        paper = {cell: row[f"{field}_momentum_single_level"] for cell, row in theirs.items()}
        ratio = np.exp(np.mean([np.log(max(value, 1e-300) / paper[cell]) for cell, value in ours.items()]))
        rows += [
            at_least(f"stacks: cells with no more {field} momentum than the paper", wins(ours, paper),
                     len(cells) * 30 / 36, unit=f"of {len(cells)}"),
            info(f"stacks: {field} momentum over the paper's, geometric mean", float(ratio)),
        ]  # fmt: skip
        if bilevel:
            mean = float(np.mean([getattr(m, field) for m in bilevel.values()]))
            other = float(np.mean([row[f"{field}_momentum_bilevel"] for row in theirs.values()]))
            rows.append(info(f"stacks, bilevel: {field} momentum", mean, paper=other))
    return rows, [_plot(single, bilevel, theirs, out / "stacks.png")]


def scene() -> Scene:
    """Two boxes and a floor, as planar shapes; q = (x, z, angle) of the lower one, then of the upper one."""
    import jax

    from tangens.geometry import HalfSpace, box

    bodies = [_BODY.format(name=name, mass=MASS, inertia=INERTIA, half=HALF) for name in ("lower", "upper")]
    xml = f"""
    <mujoco><default><geom friction="{FRICTION}"/></default><worldbody>
    <geom name="floor" type="plane" size="3 3 0.1"/>{"".join(bodies)}
    </worldbody></mujoco>"""
    with jax.enable_x64(True):
        square = box([HALF, HALF])
        return load(xml).with_shapes({"floor": HalfSpace([0.0, 1.0]), "lower": square, "upper": square})


def starts() -> Array:
    """The ten stacks, which just touch."""
    q = np.tile([0.0, HALF, 0.0, 0.0, 3 * HALF, 0.0], (len(SHIFTS), 1))
    q[:, 0] = SHIFTS
    return q


def sweep(model: InteriorContact, cells: list[Cell]) -> dict[Cell, Momentum]:
    """Let all stacks stand in all cells."""
    step = batch(scene(), model, MASS * EARTH * 2 * HALF)  # weight times size of the pair of boxes

    def stand(cell: Cell) -> Momentum:
        q, steps = starts(), round(DURATION * cell[0])
        v = np.zeros_like(q)
        linear = angular = 0.0
        for _ in range(steps):
            q, v, _ = step(q, v, cell)
            linear += float(np.abs(MASS * (v[:, 0:2] + v[:, 3:5])).mean()) / steps
            angular += float(np.abs(INERTIA * (v[:, 2] + v[:, 5])).mean()) / steps
        return Momentum(linear, angular)

    return {cell: stand(cell) for cell in cells}


def _plot(
    single: dict[Cell, Momentum], bilevel: dict[Cell, Momentum], theirs: dict[Cell, dict[str, float]], file: Path
) -> Path:
    def curves(field: str) -> dict[str, dict[Cell, float]]:
        found = {
            "single-level": {c: getattr(m, field) for c, m in single.items()},
            "bilevel": {c: getattr(m, field) for c, m in bilevel.items()},
            "single-level, paper": {c: theirs[c][f"{field}_momentum_single_level"] for c in single},
            "bilevel, paper": {c: theirs[c][f"{field}_momentum_bilevel"] for c in single},
        }
        return {name: cells for name, cells in found.items() if cells}

    panels = {"linear momentum [kg m/s]": curves("linear"), "angular momentum [kg m²/s]": curves("angular")}
    return plot("Two boxes at rest (mean over frequencies; bands: their range)", panels, file, over_relaxations=True)
