"""Fig. 4, Sec. V and App. C: a box flat on the ground.

Collision detection alone cannot say where on the shared face the contact is: the Jacobian of its optimality conditions
(Eq. 19) is rank-deficient. With the dynamics (Eq. 59), the contact must be under the centre of mass: full rank. Both
Jacobians are differences of the equations themselves (Eqs. 18 and 58), at the solution the paper gives.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tangens.contact import SingleLevel
from tangens.lab.papers.result_rows import Row, at_most, info
from tangens.lab.report import new_figure, save_figure
from tangens.scene import Scene, load
from tangens.simulate import Simulator
from tangens.state import State

Array = NDArray[np.float64]

MASS, INERTIA, TIMESTEP, GRAVITY = 1.0, 1.0, 0.01, 9.81
FACES = np.array([[0, -1], [1, 0], [0, 1], [-1, 0]], dtype=float)
"""A: the box's faces, the lower one first; b is 1."""
UP, AHEAD, PLACE = np.array([0.0, 1.0]), np.array([1.0, 0.0]), np.array([0.0, 1.0])
RELAXATION = 1e-8


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Ranks of both Jacobians, and what our solver finds."""
    del effort  # it is small
    collision, together = (singular_values(f, v) for f, v in ((collision_equations, collision_solution()),
                                                              (equations, solution())))  # fmt: skip
    aside, gap, force, moved = solved()
    rows = [
        at_most("box on ground: rank of collision detection's Jacobian, below full by (−)", _rank(collision)
                - len(collision), -1, paper=-1),
        at_most("box on ground: full rank of the single-level Jacobian, missing", len(together) - _rank(together), 0,
                paper=0),
        info("box on ground: smallest singular value, collision detection", float(collision[-1])),
        info("box on ground: smallest singular value, single-level", float(together[-1])),
        at_most("box on ground: distance of the contact from under the centre of mass", aside, 1e-4, paper=0, unit="m"),
        at_most("box on ground: α − 1", abs(gap), 1e-6, paper=0),
        at_most("box on ground: error of the force over the weight", abs(force / (MASS * GRAVITY) - 1), 1e-4, paper=0),
        at_most("box on ground: largest velocity after a step", moved, 1e-5, paper=0),
    ]  # fmt: skip
    return rows, [_plot(collision, together, out / "box_on_ground.png")]


# ------------------------------------------------------------ the paper's equations


def collision_solution() -> Array:
    """Unknowns v_col = (p, α, γ_p, γ_n, γ_α, s_p, s_n, s_α) of footnote 4."""
    return np.array([0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 1, 2, 1, 0, 1], dtype=float)


def collision_equations(unknowns: Array, place: Array = PLACE, angle: float = 0.0) -> Array:
    """Eq. 18: the optimality conditions of collision detection."""
    p, alpha, faces, ground, least, slack, slack_ground, slack_least = (
        unknowns[:2], unknowns[2], unknowns[3:7], unknowns[7], unknowns[8], unknowns[9:13], unknowns[13], unknowns[14]
    )  # fmt: skip
    c, s = np.cos(angle), np.sin(angle)
    normals = FACES @ np.array([[c, s], [-s, c]])
    return np.concatenate([
        normals.T @ faces + ground * UP,
        [1 - faces.sum() - least],
        slack + normals @ (p - place) - alpha,
        [slack_ground + p @ UP, slack_least - alpha],
        faces * slack,
        [ground * slack_ground, least * slack_least],
    ])  # fmt: skip


def solution() -> Array:
    """Unknowns v = (x⁺, θ⁺, γ, s_γ, v_col) of App. C; γ is the impulse of the weight."""
    return np.concatenate([PLACE, [0.0, MASS * GRAVITY * TIMESTEP, 0.0], collision_solution()])


def equations(unknowns: Array) -> Array:
    """Eq. 58: those of a box that was at rest, together with collision detection's."""
    place, angle, push, slack, collision = unknowns[:2], unknowns[2], unknowns[3], unknowns[4], unknowns[5:]
    p, alpha = collision[:2], collision[2]
    return np.concatenate([
        MASS / TIMESTEP * (place - PLACE) - push * UP + MASS * GRAVITY * TIMESTEP * UP,
        [INERTIA / TIMESTEP * angle - push * AHEAD @ (p - place)],
        [slack - (alpha - 1), push * slack],
        collision_equations(collision, place, angle),
    ])  # fmt: skip


def singular_values(function: Callable[[Array], Array], at: Array) -> Array:
    """Of a function's Jacobian; the equations are polynomials and sines, so central differences do."""
    step = 1e-5
    jacobian = [(function(at + step * e) - function(at - step * e)) / (2 * step) for e in np.eye(len(at))]
    return np.asarray(np.linalg.svd(np.array(jacobian), compute_uv=False))


def _rank(values: Array) -> int:
    return int((values > 1e-8 * values[0]).sum())


# ------------------------------------------------------------ our solver


def scene() -> Scene:
    """The box of the paper, of half-width 1, in the plane."""
    import jax

    from tangens.geometry import HalfSpace, Polytope

    xml = f"""
    <mujoco><option timestep="{TIMESTEP}"/><worldbody><geom name="floor" type="plane" size="3 3 0.1"/>
    <body name="box">
      <joint type="slide" axis="1 0 0"/> <joint type="slide" axis="0 0 1"/> <joint type="hinge" axis="0 -1 0"/>
      <inertial pos="0 0 0" mass="{MASS}" diaginertia="{INERTIA} {INERTIA} {INERTIA}"/>
      <geom name="box" type="box" size="1 1 1"/>
    </body></worldbody></mujoco>"""
    with jax.enable_x64(True):
        return load(xml).with_shapes({"floor": HalfSpace([0.0, 1.0]), "box": Polytope(FACES, np.ones(4))})


def solved() -> tuple[float, float, float, float]:
    """A step from rest: distance of the contact from under the centre of mass, α − 1, force, largest velocity."""
    taken = Simulator(scene(), contact=SingleLevel(relaxation=RELAXATION)).step(State([*PLACE, 0.0], np.zeros(3)))
    contacts: Any = taken.contacts
    ahead = abs(float(contacts.position[0, 0] - taken.state.q[0]))
    # The floor does not grow and the box's half-width is 1: the distance is α − 1.
    return ahead, float(contacts.distance[0]), float(contacts.force[0, 2]), float(np.abs(taken.state.v).max())


def _plot(collision: Array, together: Array, file: Path) -> Path:
    figure, axes = new_figure(1, 2, width=9, height=3.6)
    for axis, values, title in zip(
        axes, (collision, together), ("collision detection (Eq. 19)", "single-level (Eq. 59)"), strict=True
    ):
        shown, count = np.maximum(values, 1e-17), np.arange(1, len(values) + 1)
        axis.vlines(count, 1e-18, shown, color="0.8")
        for mask, colour in ((values > 1e-8, "C0"), (values <= 1e-8, "C3")):
            axis.plot(count[mask], shown[mask], "o", color=colour)
        axis.set(yscale="log", ylim=(1e-18, 1e4), title=title, xlabel="singular value of the Jacobian")
        axis.set_xticks(count[::3])
        axis.grid(axis="y", alpha=0.3)
    return save_figure(figure, file)
