"""Figs. 9 and 10 are tables over step frequencies and relaxations: their cells, the paper's numbers, batches."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.contact.interior.options import InteriorContact
from tangens.report import new_figure, save_figure
from tangens.scene import Scene

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
    iterations: NDArray[np.int_]


def batch(scene: Scene, model: InteriorContact) -> Callable[[Array, Array, Cell], Taken]:
    """Steps of many states at once; frequency and relaxation are arguments, so one compilation serves all cells."""
    import jax

    from tangens.contact.interior.engine import compiled
    from tangens.contact.interior.function import StepFunction

    with jax.enable_x64(True):
        function = StepFunction(scene, model.settings, None)

    def one(q: Any, v: Any, timestep: Any, relaxation: Any) -> Any:
        solution = function.solve({"q": q, "v": v, "timestep": timestep}, relaxation)
        return solution.q, solution.v, solution.outcome.iterations

    run = compiled(jax.vmap(one, (0, 0, None, None)))

    def step(q: Array, v: Array, cell: Cell) -> Taken:
        with jax.enable_x64(True):
            return Taken(*map(np.asarray, run(q, v, 1 / cell[0], cell[1])))

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
    title: str, panels: Mapping[str, Mapping[str, Mapping[Cell, float]]], file: Path, logarithmic: bool = False
) -> Path:
    """A panel for each quantity: a line for each method over frequencies, the mean over relaxations in a band."""
    figure, axes = new_figure(1, len(panels), width=4.5 * len(panels), height=4)
    for axis, (label, curves) in zip(axes, panels.items(), strict=True):
        for name, cells in curves.items():
            frequencies = sorted({f for f, _ in cells})
            columns = [np.array([value for (f, _), value in cells.items() if f == g]) for g in frequencies]
            ours, colour = "paper" not in name, "C1" if "bilevel" in name else "C0"
            middle = [np.exp(np.log(c).mean()) if logarithmic and (c > 0).all() else c.mean() for c in columns]
            axis.plot(frequencies, middle, "o-" if ours else "s--", color=colour, label=name, markersize=4)
            if ours:
                low, high = [c.min() for c in columns], [c.max() for c in columns]
                axis.fill_between(frequencies, low, high, color=colour, alpha=0.15)
        axis.set(xlabel="steps per second", title=label, xscale="log", xticks=frequencies)
        axis.set_xticklabels([str(f) for f in frequencies])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        if logarithmic:
            axis.set_yscale("log")
    axes[0].legend(fontsize=8)
    figure.suptitle(title)
    return save_figure(figure, file)
