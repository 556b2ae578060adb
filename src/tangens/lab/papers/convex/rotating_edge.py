"""Paper 4, Fig. 3: an edge turns above another; where they are nearest jumps as they pass through parallel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tangens.collision.edge_edge import edge_edge
from tangens.lab.papers.result_rows import Row, at_least, at_most, info
from tangens.lab.report import new_figure, save_figure

Array = NDArray[np.float64]

CASES: dict[str, tuple[float, float | int]] = {
    "no smoothing": (1e-9, 0),
    "L2 regularisation": (0.05, 0),
    "L2 and smooth choices": (0.05, 0.05),
}
"""λ and τ."""
STEP = 1e-6


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Witness points and their derivatives over half a turn."""
    del effort
    theta = np.linspace(0.0, np.pi, 601)
    figure, axes = new_figure(3, 2, width=11, height=9)
    rows, steepest = list[Row](), dict[str, float]()
    with jax.enable_x64(True):
        for row, (name, (ridge, tau)) in enumerate(CASES.items()):
            at, slope = witness_functions(ridge, tau)
            points, slopes = np.asarray(at(theta)), np.asarray(slope(theta))
            differences = (np.asarray(at(theta + STEP)) - np.asarray(at(theta - STEP))) / (2 * STEP)
            steepest[name] = float(np.linalg.norm(np.diff(points, axis=0), axis=1).max() / (theta[1] - theta[0]))
            if tau:
                error = np.abs(slopes - differences).max() / np.abs(differences).max()
                rows.append(at_most(f"{name}: derivatives against differences", float(error), 1e-5))
            _draw(axes[row], name, theta, points, differences if not tau else slopes)
            jump = float(np.linalg.norm(np.diff(points, axis=0), axis=1).max())
            what = f"{name}: largest jump between angles 0.3° apart [of half an edge]"
            rows.append(at_least(what, jump, 1.0) if row == 0 else info(what, jump))
    sharp, smooth = steepest["no smoothing"], steepest["L2 and smooth choices"]
    rows.append(at_least("steepest witness point without smoothing over that with it", sharp / smooth, 10.0))
    return rows, [save_figure(figure, out / "rotating_edge.png")]


def witness_functions(ridge: float, tau: float | int) -> tuple[Any, Any]:
    """The witness point on the turning edge (n, 2) and its derivative, by angles (n,)."""
    fixed = jnp.array([[-1.0, -1.2, 0.0], [1.0, -1.2, 0.0]])

    def point(angle: Any) -> Any:
        way = jnp.stack([jnp.sin(angle), jnp.cos(angle), jnp.zeros_like(angle)])
        return edge_edge(jnp.stack([-way, way]), fixed, ridge, tau).point1[:2]

    return jax.jit(jax.vmap(point)), jax.jit(jax.vmap(jax.jacfwd(point)))


def _draw(axes: Any, name: str, theta: Array, points: Array, slopes: Array) -> None:
    left, right = axes
    shown = left.scatter(*points.T, c=theta, cmap="viridis", s=6)
    left.plot([-1, 1], [-1.2, -1.2], color="black", lw=2)
    for angle in np.linspace(0, np.pi, 7):
        left.plot(*np.outer([np.sin(angle), np.cos(angle)], [-1, 1]), color="0.85", lw=1, zorder=0)
    left.set(title=f"{name}: nearest point of the turning edge", aspect="equal", xlabel="x", ylabel="y")
    left.figure.colorbar(shown, ax=left, label="angle [rad]")
    for k, axis in enumerate("xy"):
        right.plot(theta, slopes[:, k], label=f"of {axis}")
    right.set(title=f"{name}: derivative by the angle", xlabel="angle [rad]", yscale="symlog", ylim=(-2e3, 2e3))
    right.legend()
    right.grid(alpha=0.3)
