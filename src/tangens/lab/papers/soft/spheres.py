"""Paper 3, Figs. 1 and 5: the force between two spheres, here and in MuJoCo, as one is moved past the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.contact import Soft
from tangens.contact.compiling import compiled
from tangens.lab.papers.result_rows import Row, at_least, at_most, info
from tangens.lab.report import new_figure, save_figure
from tangens.scene import load
from tangens.simulate import Simulator

Array = NDArray[np.float64]

XML = """<mujoco><option gravity="0 0 0" timestep="0.002"/><worldbody><geom name="large" size="0.1"/>
<body pos="0 0 0"><freejoint/><geom name="small" size="0.05" mass="0.5"/></body></worldbody></mujoco>"""
REACH, STIFFNESS = 0.01, 2000.0


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Force profiles along a line and over a plane."""
    scene = load(XML)
    sim = Simulator(scene, Soft(smoothing=(None, None, REACH), stiffness=STIFFNESS, integrator="euler"))
    force, second = force_functions(sim)
    y = np.linspace(-0.2, 0.2, 801)
    line = np.column_stack([np.full_like(y, 0.01), y, np.zeros_like(y)])
    ours, theirs = np.asarray(force(line)), mujoco_forces(scene.model, line)
    far = np.array([[0.0, 0.17, 0.0]])
    bends = [_bend(partial(mujoco_forces, scene.model)), _bend(force)]
    title = "twice as dense samples bend less by a factor (4 where smooth, 2 at a corner)"
    rows = [
        info(f"MuJoCo: {title}", bends[0]),
        at_least(f"soft: {title}", bends[1], 3.5),
        info("MuJoCo: force at a gap of 2 cm", float(np.abs(mujoco_forces(scene.model, far)).max()), unit="N"),
        at_least("soft: force at a gap of 2 cm", float(np.abs(force(far)).max()), 1e-3, unit="N"),
        at_least("soft: Hessian of the force at a gap of 2 cm", float(np.abs(second(far)).max()), 1e-3, unit="N/m²"),
        at_most("soft: force when concentric", float(np.abs(force(np.zeros((1, 3)))).max()), 1e-9, unit="N"),
    ]
    n = 61 if effort == "quick" else 121
    x = np.linspace(-0.2, 0.2, n)
    plane = np.stack([*np.meshgrid(x, x), np.zeros((n, n))], -1).reshape(-1, 3)
    fields = np.asarray(force(plane)).reshape(n, n, 3), mujoco_forces(scene.model, plane).reshape(n, n, 3)
    return rows, [_draw(out / "spheres.png", y, ours, theirs, x, fields)]


def force_functions(sim: Simulator) -> tuple[Any, Any]:
    """Positions of the small sphere (n, 3) -> forces on it, and second derivatives of their y component."""
    import jax
    import jax.numpy as jnp

    from tangens.interop.jax import step

    m = sim.scene.shared_model
    with jax.enable_x64(True):
        f = step(sim)
        rest = jnp.zeros(6)

        def of(p: Any) -> Any:
            q = jnp.concatenate([p, jnp.array([1.0, 0, 0, 0])])
            return f(None, q, rest, None, None)[1][:3] * m.body_mass[1] / m.opt.timestep

        force, second = compiled(jax.vmap(of)), compiled(jax.vmap(jax.hessian(lambda p: of(p)[1])))

    def in_portions(function: Any, size: int) -> Any:
        """Compiled once, for so many positions."""

        def call(p: Array) -> Array:
            filled = np.resize(p, (-(-len(p) // size) * size, 3))
            with jax.enable_x64(True):
                return np.concatenate([function(part) for part in filled.reshape(-1, size, 3)])[: len(p)]

        return call

    return in_portions(force, 256), in_portions(second, 1)


def mujoco_forces(model: Any, positions: Array) -> Array:
    """What MuJoCo's constraint solver makes of the same positions, at rest, (n, 3)."""
    data, out = mujoco.MjData(model), np.zeros_like(positions)
    for k, p in enumerate(positions):
        mujoco.mj_resetData(model, data)
        data.qpos[:3] = p
        mujoco.mj_forward(model, data)
        out[k] = data.qfrc_constraint[:3]
    return out


def _bend(force: Callable[[Array], Array]) -> float:
    """How much smaller second differences of the force become when samples along a line are twice as dense."""
    largest = []
    for n in (2001, 4001):
        y = np.linspace(0.08, 0.2, n)
        f = np.asarray(force(np.column_stack([np.full(n, 0.05), y, np.zeros(n)])))
        largest.append(np.abs(np.diff(f, 2, axis=0)).max())
    return float(largest[0] / largest[1])


def _draw(file: Path, y: Array, ours: Array, theirs: Array, x: Array, fields: tuple[Array, Array]) -> Path:
    figure, axes = new_figure(2, 3, width=13, height=7.5)
    for row, (name, force, field) in enumerate((("soft", ours, fields[0]), ("MuJoCo", theirs, fields[1]))):
        axes[row, 0].plot(y, force[:, 1], label="along y")
        axes[row, 0].plot(y, force[:, 0], label="along x")
        axes[row, 0].set(title=f"{name}: force as one sphere passes the other", xlabel="y [m]", ylabel="force [N]")
        axes[row, 0].legend()
        axes[row, 0].grid(alpha=0.3)
        for k, axis in enumerate("xy"):
            most = np.abs(field).max()
            shown = axes[row, 1 + k].pcolormesh(x, x, field[:, :, k], cmap="RdBu_r", vmin=-most, vmax=most)
            axes[row, 1 + k].set(title=f"{name}: force along {axis} [N]", xlabel="x [m]", aspect="equal")
            figure.colorbar(shown, ax=axes[row, 1 + k])
    return save_figure(figure, file)
