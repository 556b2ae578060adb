"""Pictures of pushes, seen from above."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tangens.lab.pushing import pose
from tangens.lab.report import new_figure, save_figure

Array = NDArray[np.float64]

T_OUTLINE = np.array(
    [[-0.125, 0.0125], [-0.025, 0.0125], [-0.025, -0.1375], [0.025, -0.1375], [0.025, 0.0125], [0.125, 0.0125],
     [0.125, 0.0625], [-0.125, 0.0625], [-0.125, 0.0125]]
)  # fmt: skip
"""Of the bundled push-T scene, about its centre of mass [m]."""


def t_at(x: float, y: float, angle: float) -> Array:
    """The T's outline at a pose, (n, 2)."""
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return T_OUTLINE @ turn.T + [x, y]


def draw_push(axes: Any, goal: Array | None, path: Array, colour: str = "tab:blue", label: str = "") -> None:
    """The T at its start and end, where it should be, and the way of the finger; q is (T, 9)."""
    for k, t in enumerate(np.linspace(0, len(path) - 1, 5).astype(int)):
        axes.plot(*t_at(*pose(path[t])).T, color=colour, alpha=0.25 + 0.75 * (k == 4), lw=1 + (k == 4))
    if goal is not None:
        axes.plot(*t_at(*goal).T, "--", color="tab:green", lw=1.5)
    axes.plot(*path[:, 7:9].T, color="tab:orange", lw=1.2)
    axes.plot(*path[-1, 7:9], "o", color="tab:orange", markersize=5, label=label or None)
    axes.set(aspect="equal", xlabel="x [m]", ylabel="y [m]")
    axes.grid(alpha=0.3)


def draw_pushes(file: Path, pushes: list[tuple[Array, Array, Array]]) -> Path:
    """Each push in MuJoCo (above) and under soft contact (below)."""
    figure, axes = new_figure(2, len(pushes), width=3.2 * len(pushes), height=7)
    for k, (goal, there, here) in enumerate(pushes):
        for row, (path, title) in enumerate(((there, "MuJoCo"), (here, "soft, rk4, 2 ms, 32 points"))):
            draw_push(axes[row, k], goal, path)
            axes[row, k].set_title(title)
    figure.suptitle("The same controls, open loop; dashed: the goal of the search")
    return save_figure(figure, file)
