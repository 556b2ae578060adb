"""Bodies of signed distances that fall on a floor and on each other: scenes, energy, and how they come to rest."""

from __future__ import annotations

from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.contact import Convex
from tangens.contact.base import Point
from tangens.contact.convex.engine import ConvexEngine
from tangens.lab.creatures import Body
from tangens.results import Contacts, Trajectory
from tangens.scene import Scene, load
from tangens.simulate import Simulator

Array = NDArray[np.float64]

DENSITY = 500.0
"""[kg/m³]: wood."""


class Fall(NamedTuple):
    """What a rollout was like."""

    scene: Scene
    trajectory: Trajectory
    energy: Array
    """Kinetic and potential [J], (T + 1,)."""
    speed: float
    """The largest velocity at the end [m/s, rad/s]."""
    depth: float
    """The deepest overlap at the end, over the size of the smallest body."""
    deepest: float
    """That of the whole rollout."""
    gain: float
    """The most energy gained in one step, springs included, over what was lost in all."""
    lifted: float
    """The same without springs: what they give back counts."""


def falling_scene(bodies: dict[str, Body], places: dict[str, Array], timestep: float, friction: float = 0.6) -> Scene:
    """A floor, and bodies at positions and orientations (7,)."""
    text = [
        f'<mujoco><option timestep="{timestep:g}"/><worldbody>'
        f'<geom name="floor" type="plane" size="2 2 0.1" friction="{friction:g}"/>'
    ]
    for name, body in bodies.items():
        inertia = DENSITY * body.inertia[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
        pose = places[name]
        text.append(
            f'<body name="{name}" pos="{_text(pose[:3])}" quat="{_text(pose[3:])}"><freejoint/>'
            f'<inertial pos="0 0 0" mass="{DENSITY * body.volume:.9g}" fullinertia="{_text(inertia)}"/>'
            f'<geom name="{name}" type="sphere" size="{size_of(body) / 2:.6g}" friction="{friction:g}"/></body>'
        )
    scene = load("".join([*text, "</worldbody></mujoco>"]))
    solids: dict[str, Any] = {name: body.solid for name, body in bodies.items()}
    return scene.with_shapes(solids)


def size_of(body: Body) -> float:
    """The longest side of its bounding box [m]."""
    return float(np.ptp(body.surface.vertices, axis=0).max())


def fall(scene: Scene, bodies: dict[str, Body], contact: Convex, seconds: float) -> Fall:
    """Let everything fall."""
    simulator = Simulator(scene, contact)
    trajectory = simulator.rollout(scene.initial_state(), round(seconds / scene.timestep))
    total, size = energy(scene, trajectory), min(map(size_of, bodies.values()))
    depths = [overlap(c) for c in trajectory.contacts]
    springs, lost = elastic_energy(simulator, trajectory), max(float(total[0] - total.min()), 1e-12)
    gain, lifted = (float(np.diff(e).max()) / lost for e in (total + springs, total))
    speed = float(np.abs(trajectory.v[-1]).max())
    return Fall(scene, trajectory, total, speed, depths[-1] / size, max(depths) / size, gain, lifted)


def overlap(contacts: Contacts) -> float:
    """The deepest overlap [m] of contacts that count for a tenth at least."""
    counts = np.asarray(contacts.activity) > 0.1
    return max(0.0, -float(contacts.distance[counts].min())) if counts.any() else 0.0


def energy(scene: Scene, trajectory: Trajectory) -> Array:
    """Kinetic and potential energy along a trajectory [J]."""
    m = scene.model
    data, out = mujoco.MjData(m), []
    for q, v in zip(trajectory.q, trajectory.v, strict=True):
        data.qpos[:], data.qvel[:] = q, v
        mujoco.mj_fwdPosition(m, data)
        mujoco.mj_fwdVelocity(m, data)
        mujoco.mj_energyPos(m, data)
        mujoco.mj_energyVel(m, data)
        out.append(float(data.energy.sum()))
    return np.array(out)


def elastic_energy(simulator: Simulator, trajectory: Trajectory) -> Array:
    """What the springs of contacts hold along a trajectory [J]."""
    engine, scene = simulator.engine, simulator.scene
    assert isinstance(engine, ConvexEngine)
    nothing = np.zeros(scene.nu), np.zeros(scene.nv)
    return np.array(
        [engine.elastic_energy(Point(q, v, *nothing)) for q, v in zip(trajectory.q, trajectory.v, strict=True)]
    )


def _text(values: Array) -> str:
    return " ".join(f"{x:.9g}" for x in values)
