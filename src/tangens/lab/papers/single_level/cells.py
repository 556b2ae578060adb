"""Figs. 9 and 10 are tables over step frequencies and relaxations: their cells, the paper's numbers, batches."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from tangens.contact.base import Point
from tangens.contact.interior.options import InteriorContact
from tangens.lab.report import new_figure, save_figure
from tangens.scene import Scene
from tangens.simulate import Simulator

if TYPE_CHECKING:
    from tangens.contact.interior.engine import InteriorEngine

Array = NDArray[np.float64]
Cell = tuple[int, float]
"""Steps per second, and ρ."""

FREQUENCIES = (10, 20, 30, 50, 70, 100)
RELAXATIONS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10)
CELLS: dict[str, list[Cell]] = {
    "quick": [(f, r) for f in (10, 50) for r in (1e-4, 1e-8)],
    "normal": [(f, r) for f in FREQUENCIES for r in RELAXATIONS],
    "full": [(f, r) for f in FREQUENCIES for r in RELAXATIONS],
}


class Taken(NamedTuple):
    """One step of a batch."""

    q: Array
    v: Array
    iterations: NDArray[np.int32]


def batch(scene: Scene, model: InteriorContact, energy: float = 1.0) -> Callable[[Array, Array, Cell], Taken]:
    """Steps of many states at once; one compilation serves all cells.

    The relaxations of the cells are energies [J]; `energy` is the one that our own, without a unit, counts in.
    """
    engines: dict[Cell, InteriorEngine] = {}

    def step(q: Array, v: Array, cell: Cell) -> Taken:
        if cell not in engines:
            simulator = Simulator(scene.replace(timestep=1 / cell[0]), replace(model, relaxation=cell[1] / energy))
            engines[cell] = cast("InteriorEngine", simulator.engine)
        out = engines[cell].steps(Point(q, v, np.zeros((len(q), scene.nu)), np.zeros_like(v)), lanes=len(q))
        return Taken(out.q, out.v, out.iterations)

    return step


def reference(name: str) -> dict[Cell, dict[str, float]]:
    """The numbers behind the paper's figure, by cell."""
    with (Path(__file__).parent / f"{name}.csv").open(encoding="utf-8") as file:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    return {(int(row["frequency_hz"]), row["relaxation"]): row for row in rows}


def wins(ours: Mapping[Cell, float], theirs: Mapping[Cell, float]) -> int:
    """In how many cells ours is no worse."""
    return sum(value <= theirs[cell] for cell, value in ours.items())


def plot(
    title: str, panels: Mapping[str, Mapping[str, Mapping[Cell, float]]], file: Path, over_relaxations: bool = False
) -> Path:
    """A panel for each quantity: a line for each method over frequencies or relaxations, the mean over the other."""
    figure, axes = new_figure(1, len(panels), width=4.5 * len(panels), height=4)
    for axis, (label, curves) in zip(axes, panels.items(), strict=True):
        for name, cells in curves.items():
            ours, colour = "paper" not in name, "C1" if "bilevel" in name else "C0"
            across = sorted({cell[over_relaxations] for cell in cells})
            columns = [[value for cell, value in cells.items() if cell[over_relaxations] == at] for at in across]
            mean = [np.mean(column) for column in columns]
            axis.plot(across, mean, "o-" if ours else "s--", color=colour, label=name, markersize=4)
            if ours:
                axis.fill_between(across, list(map(min, columns)), list(map(max, columns)), color=colour, alpha=0.15)
        axis.set(xlabel="ρ" if over_relaxations else "steps per second", title=label, xscale="log")
        if over_relaxations:
            axis.set_yscale("log")
        else:
            axis.set_xticks(across, [str(at) for at in across])
            axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.suptitle(title)
    return save_figure(figure, file)
