"""Fig. 9: a polytope is dropped on the floor 3600 times, at six step frequencies and six relaxations.

A run fails if any of its steps uses all iterations. The paper's ρ is an impulse times a scale, ours has no unit:
the same numbers are asked for here, though at 100 Hz the paper's allow a hundred times the hovering.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens import scenes
from tangens.contact import Bilevel, SingleLevel
from tangens.contact.interior.options import InteriorContact
from tangens.lab.papers.result_rows import Row, at_least, at_most, info
from tangens.lab.papers.single_level.cells import CELLS, Cell, batch, plot, reference, wins
from tangens.scene import Scene

Array = NDArray[np.float64]

NORMALS = np.array([[1, 0.2], [0, 1], [-1, -0.3], [0, -1], [0.8, -0.8]])
NORMALS /= np.linalg.norm(NORMALS, axis=1, keepdims=True)
DISTANCE = 0.4  # of all faces from the centre of mass [m]
STARTS = {"quick": 20, "normal": 20, "full": 100}
BILEVEL_STARTS = {"quick": 20, "normal": 5, "full": 20}  # it is ten times as slow
DURATION, MOST = 1.5, 30


class Drops(NamedTuple):
    """Runs of one cell."""

    failures: int
    starts: int
    iterations: float
    """Of a step, on average."""
    violation: float
    """Deepest penetration of a run, on average [m]."""


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Both methods in all cells."""
    cells, theirs = CELLS[effort], reference("drops")
    single = sweep(SingleLevel(max_iterations=MOST), cells, STARTS[effort])
    bilevel = sweep(Bilevel(max_iterations=MOST), cells, BILEVEL_STARTS[effort])
    n, full = len(cells), effort == "full"
    fails, share = sum(d.failures for d in single.values()), failure_rate(bilevel)
    fewer = wins({c: d.iterations for c, d in single.items()}, _column(theirs, "iterations_single_level"))
    tighter = wins({c: d.violation for c, d in single.items()}, _column(theirs, "violation_rate_single_level"))
    enough = n * 30 / 36
    paper = {key: float(np.mean([theirs[c][key] for c in cells])) for key in theirs[cells[0]]}
    runs = f"of {sum(d.starts for d in single.values())}"
    rows = [
        at_most("drops: runs that fail", fails, 4 if full else 1, unit=runs,
                paper=round(paper["failure_rate_single_level"] * n * STARTS[effort])),
        at_least("drops: cells with no more iterations than the paper", fewer, enough, unit=f"of {n}"),
        at_least("drops: cells with no deeper penetration than the paper", tighter, enough, unit=f"of {n}"),
        info("drops: iterations of a step", _mean(single, "iterations"), paper=paper["iterations_single_level"]),
        info("drops: deepest penetration", _mean(single, "violation"), paper=paper["violation_rate_single_level"],
             unit="m"),
        at_least("drops, bilevel: share of runs that fail", share, 0.5, paper=paper["failure_rate_bilevel"]),
        info("drops, bilevel: iterations of a step", _mean(bilevel, "iterations"), paper=paper["iterations_bilevel"]),
        info("drops, bilevel: deepest penetration", _mean(bilevel, "violation"), paper=paper["violation_rate_bilevel"],
             unit="m"),
    ]  # fmt: skip
    return rows, [_plot(single, bilevel, theirs, out / "drops.png")]


def scene() -> Scene:
    """The polytope above the floor, as planar shapes."""
    import jax

    from tangens.geometry import HalfSpace, Polytope

    with jax.enable_x64(True):  # faces to double precision: penetrations of 1e-10 are measured
        shape, floor = Polytope(NORMALS, np.full(len(NORMALS), DISTANCE)), HalfSpace([0.0, 1.0])
    return scenes.polytope_planar().with_shapes({"floor": floor, "polytope": shape})


def starts(count: int) -> tuple[Array, Array]:
    """Random states above the floor; the first ones of a larger number are others."""
    rng = np.random.default_rng(0)
    q = np.c_[np.zeros(count), rng.uniform(np.sqrt(0.5), 1.5, count), rng.uniform(0, 2 * np.pi, count)]
    v = np.c_[rng.uniform(-1, 1, count), rng.uniform(-2, 0, count), rng.uniform(-1, 1, count)]
    return q, v


def sweep(model: InteriorContact, cells: list[Cell], count: int) -> dict[Cell, Drops]:
    """Drop from all starts in all cells."""
    step = batch(scene(), model)

    def drop(cell: Cell) -> Drops:
        q, v = starts(count)
        iterations, failed, deepest = np.zeros(count), np.zeros(count, bool), np.zeros(count)
        steps = round(DURATION * cell[0])
        for _ in range(steps):
            q, v, spent = step(q, v, cell)
            iterations += spent / steps
            failed |= spent >= MOST
            deepest = np.fmax(deepest, penetration(q))  # a run that has diverged keeps what it had
        return Drops(int(failed.sum()), count, float(iterations.mean()), float(deepest.mean()))

    return {cell: drop(cell) for cell in cells}


def penetration(q: Array) -> Array:
    """How deep the lowest corner is below the floor [m], 0 if it is above."""
    from tangens.geometry import corners

    corner = corners(NORMALS, np.full(len(NORMALS), DISTANCE))
    s, c = np.sin(q[:, 2:]), np.cos(q[:, 2:])
    heights = q[:, 1:2] + s * corner[:, 0] + c * corner[:, 1]
    return np.asarray(np.maximum(0.0, -heights.min(axis=1)))


def failure_rate(found: dict[Cell, Drops]) -> float:
    """Share of all runs that fail."""
    return sum(d.failures for d in found.values()) / sum(d.starts for d in found.values())


def _mean(found: dict[Cell, Drops], field: str) -> float:
    return float(np.mean([getattr(d, field) for d in found.values()]))


def _column(theirs: dict[Cell, dict[str, float]], key: str) -> dict[Cell, float]:
    return {cell: row[key] for cell, row in theirs.items()}


def _plot(
    single: dict[Cell, Drops], bilevel: dict[Cell, Drops], theirs: dict[Cell, dict[str, float]], file: Path
) -> Path:
    def curves(ours: str, paper: str) -> dict[str, dict[Cell, float]]:
        def value(d: Drops) -> float:
            return d.failures / d.starts if ours == "failures" else float(getattr(d, ours))

        return {
            "single-level": {c: value(d) for c, d in single.items()},
            "bilevel": {c: value(d) for c, d in bilevel.items()},
            "single-level, paper": {c: theirs[c][f"{paper}_single_level"] for c in single},
            "bilevel, paper": {c: theirs[c][f"{paper}_bilevel"] for c in single},
        }

    panels = {
        "runs that fail, share": curves("failures", "failure_rate"),
        "iterations of a step": curves("iterations", "iterations"),
        "deepest penetration [m]": curves("violation", "violation_rate"),
    }
    return plot("Drops of a polytope (mean over relaxations; bands: their range)", panels, file)
