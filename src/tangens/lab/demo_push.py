"""The main act of `tangens demo`: a push found by gradients alone, from a finger that does not touch the T yet."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tangens.lab import push_elsewhere, push_search
from tangens.lab.papers.soft.drawing import draw_push, t_at
from tangens.lab.pushing import REACHES, Pushing, pose
from tangens.lab.report import new_figure, save_figure

Array = NDArray[np.float64]

GOAL = np.array([-0.03356305, 0.29714255, 0.43654805])
"""x, y [m] and angle [rad]: 10 cm ahead, 3 cm to the side, turned by 25°. The second of `pushing.random_goals`."""


def push_from_a_distance(advance: Callable[[int, int], None] = lambda done, total: None) -> dict[str, Any]:
    """Find the push, take it in `soft`, and replay it in `ncp`; also what `ncp` says of the gradient at the start."""
    problem = Pushing.of_t()
    found = push_search.descend(problem, GOAL[None], advance)[0]
    via = found.via
    path = problem.simulator().rollout(problem.start, problem.basis @ via).q
    hard = problem.replay(via, "ncp")
    return {
        "goal": GOAL,
        "costs": found.costs,
        "reaches": REACHES,
        "path": path,
        "ncp_path": hard,
        "error": problem.errors(path[-1], GOAL),
        "ncp_error": problem.errors(hard[-1], GOAL),
        "first_gradient": found.first_gradient,
        "ncp_gradient": push_elsewhere.attempt(problem, GOAL, ("ncp",)).first_gradient,
    }


def draw(file: Path, result: dict[str, Any]) -> Path:
    """The push seen from above, and how the loss fell."""
    figure, (above, loss) = new_figure(1, 2, width=10, height=4.6)
    draw_push(above, result["goal"], result["ncp_path"], "0.65")
    draw_push(above, result["goal"], result["path"])
    centimetres, degrees = 100 * result["error"][0], np.rad2deg(result["error"][1])
    above.set_title(f"{centimetres:.2f} cm and {degrees:.1f}° from the goal (grey: in ncp)")
    done = 0
    for costs, reach in zip(result["costs"], result["reaches"], strict=True):
        loss.semilogy(np.arange(len(costs)) + done, costs, ".-", color="tab:blue")
        loss.annotate(
            f"{1e3 * reach:g} mm",
            (done, costs[0]),
            rotation=90,
            xytext=(2, -4),
            va="top",
            textcoords="offset points",
            size=8,
        )
        done += len(costs)
    loss.set(title="Cost; contact is felt less and less far", xlabel="Gauss-Newton step", ylabel="cost")
    loss.grid(alpha=0.3)
    return save_figure(figure, file)


def animate(file: Path, result: dict[str, Any], frames: int = 50) -> Path:
    """The push as a GIF."""
    from matplotlib import pyplot as plt
    from matplotlib.animation import FuncAnimation, PillowWriter

    figure, axes = new_figure(1, 1, width=4.2, height=4.6)
    path, goal = result["path"], result["goal"]
    axes.plot(*t_at(*goal).T, "--", color="tab:green", lw=1.5)
    (block,) = axes.plot([], [], color="tab:blue", lw=2)
    (finger,) = axes.plot([], [], "o", color="tab:orange", markersize=9)
    (way,) = axes.plot([], [], color="tab:orange", lw=1)
    axes.set(xlim=(-0.22, 0.22), ylim=(-0.06, 0.42), aspect="equal", xlabel="x [m]", ylabel="y [m]")
    chosen = np.linspace(0, len(path) - 1, frames).astype(int)

    def show(k: int) -> tuple[Any, ...]:
        q = path[chosen[k]]
        block.set_data(*t_at(*pose(q)).T)
        finger.set_data(q[7:8], q[8:9])
        way.set_data(path[: chosen[k] + 1, 7], path[: chosen[k] + 1, 8])
        return block, finger, way

    file.parent.mkdir(parents=True, exist_ok=True)
    FuncAnimation(figure, show, frames=frames, blit=True).save(file, writer=PillowWriter(fps=20), dpi=70)
    plt.close(figure)
    return file


def html(title: str, paragraphs: list[str], pictures: list[Path]) -> str:
    """A page of its own that a browser opens, pictures inside."""
    images = []
    for picture in pictures:
        kind = picture.suffix.removeprefix(".")
        data = base64.b64encode(picture.read_bytes()).decode("ascii")
        images.append(f'<p><img src="data:image/{kind};base64,{data}" alt="{picture.stem}"></p>')
    text = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    style = "body{font-family:sans-serif;max-width:60em;margin:2em auto;line-height:1.5}img{max-width:100%}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{style}</style></head><body><h1>{title}</h1>{text}{''.join(images)}</body></html>\n"
    )
