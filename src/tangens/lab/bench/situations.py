"""Robots on a floor, and states along a trajectory in which they touch it.

A robot starts in its reference pose, 2 mm above the floor where its base is free, and moves under one of our contact
models with small random controls. States are taken at even distances over 0.1 s, or more where the steps are long, from
0.1 s after the first touch on, when robots are on their feet and have not fallen over yet: each in which at least one
contact carries a force and the step has a derivative. The state before comes along, for solvers that start from the
last solution. What the trajectory was like goes into the report: contacts, steps whose solver did not converge (they
count all the same), and states passed over for want of a derivative (a choice in our favour, since peers have no such
states).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens import robots, scenes
from tangens.errors import NotDifferentiable, SolverError
from tangens.results import Step
from tangens.scene import Scene, load
from tangens.simulate import Simulator
from tangens.state import State

Array = NDArray[np.float64]

WRT = ("q", "v", "tau")
_CLEARANCE = 0.002  # [m] above the floor, at the start
_SETTLING = 0.1  # [s] after the first touch
_SPAN = 0.1  # [s] over which the states are spread
_LONGEST = 3.0  # [s] after which a trajectory ends, however few states it gave
_CONTROL = 0.02  # size of random controls, as a share of their range
_KEYFRAMES = {"worm": "arched"}  # on two points, as in paper 5
_ON_FLOOR: dict[str, Any] = {"ground": True, "motors": True}


class Sample(NamedTuple):
    """A state in contact with the controls of its step, and those one step earlier."""

    state: State
    u: Array
    before: State
    u_before: Array


@dataclass(frozen=True)
class Situation:
    """A scene and states of one of its trajectories."""

    name: str
    scene: Scene
    simulator: Simulator
    samples: tuple[Sample, ...]
    facts: dict[str, Any]
    """What the trajectory was like."""


def robots_folder() -> Path:
    """Robots that are not part of the project: $TANGENS_ROBOTS, or shared/robots beside the checkout."""
    return Path(os.environ.get("TANGENS_ROBOTS", Path(__file__).parents[5] / "shared" / "robots"))


def available(name: str) -> bool:
    """Whether a system's description is at hand."""
    return name != "atlas" or _atlas_file().is_file()


def situation(name: str, count: int, seed: int = 0, contact: str = "ncp") -> Situation:
    """A system with up to `count` states in contact."""
    scene = _load(name)
    q = scene.initial_state(_KEYFRAMES.get(name)).q.copy()
    if name == "ur5":
        q[1] = -0.4  # its shoulder: the arm above the floor, to fall onto it; in its reference pose it sticks in it
    if name not in scenes.names():  # our own scenes start as they are meant to
        q = _stand(scene, q)
        scene = _without_built_in_overlaps(scene, q)
    simulator = Simulator(scene, contact)
    samples, facts = _in_contact(simulator, State(q, np.zeros(scene.nv)), count, np.random.default_rng(seed))
    return Situation(name, scene, simulator, samples, {"nv": scene.nv, "timestep": scene.timestep} | facts)


def _atlas_file() -> Path:
    return robots_folder() / "atlas" / "atlas_v3_box_colliders.urdf"


def _load(name: str) -> Scene:
    if name == "atlas":
        return load(_atlas_file(), floating_base=True, **_ON_FLOOR)
    if name in scenes.names():
        return scenes.get(name)
    has_floor = robots.ROBOTS[name].package == "gymnasium"
    return robots.get(name, **({} if has_floor else _ON_FLOOR))


def _floors(m: mujoco.MjModel) -> NDArray[np.int64]:
    return np.flatnonzero(m.geom_type == mujoco.mjtGeom.mjGEOM_PLANE)


def _stand(scene: Scene, q: Array) -> Array:
    """The pose moved up or down so that its lowest point is just above the floor, if its base is free."""
    m = scene.shared_model
    if m.jnt_type[0] != mujoco.mjtJoint.mjJNT_FREE:
        return q
    d = mujoco.MjData(m)
    d.qpos[:] = q
    mujoco.mj_kinematics(m, d)
    solid = (m.geom_bodyid > 0) & ((m.geom_contype != 0) | (m.geom_conaffinity != 0))
    floor = int(_floors(m)[0])
    low = min(mujoco.mj_geomDistance(m, d, floor, int(g), 10.0, None) for g in np.flatnonzero(solid))
    q[2] += _CLEARANCE - low
    return q


def _without_built_in_overlaps(scene: Scene, q: Array) -> Scene:
    """Geoms that overlap others of the robot in its reference pose touch the floor alone.

    URDF leaves it to a second file (SRDF) to say which pairs of links never collide; without it, Talos is born with its
    wrists stuck in each other. The others keep colliding with themselves.
    """
    m = scene.model
    d, floors = mujoco.MjData(m), _floors(m)
    d.qpos[:] = q
    mujoco.mj_fwdPosition(m, d)
    stuck = sorted({int(g) for c in d.contact if c.dist < 0 and not np.isin(c.geom, floors).any() for g in c.geom})
    if not stuck:
        return scene
    m.geom_contype[stuck], m.geom_conaffinity[stuck] = 0, 2
    m.geom_contype[floors], m.geom_conaffinity[floors] = 3, 1
    return load(m)


def _in_contact(
    simulator: Simulator, state: State, count: int, rng: np.random.Generator
) -> tuple[tuple[Sample, ...], dict[str, Any]]:
    m, h = simulator.scene.shared_model, simulator.scene.timestep
    size = _CONTROL * np.where(m.actuator_ctrllimited, m.actuator_ctrlrange[:, 1], 1.0)
    every = max(1, round(_SPAN / h / count))
    samples: list[Sample] = []
    active: list[int] = []
    unsolved = refused = 0
    touched: int | None = None
    before, u_before, out = state, np.zeros(m.nu), None
    ended = "with enough states"
    for k in range(round(_LONGEST / h)):
        u = size * rng.normal(size=m.nu)
        try:
            out = simulator.step(state, u, guess=out)
        except SolverError:
            ended = "because a step was not finite"
            break
        n = sum(mode != "breaking" for mode in out.contacts.mode)
        touched = k if touched is None and n else touched
        if n and touched is not None and (k - touched) * h >= _SETTLING and (k - touched) % every == 0:
            if _differentiable(simulator, out):
                samples.append(Sample(state, u, before, u_before))
                active.append(n)
                unsolved += not out.solver.converged
            else:
                refused += 1
        if len(samples) == count:
            break
        before, u_before, state = state, u, out.state
    else:
        ended = f"after {_LONGEST:g} s"
    facts = {
        "states": len(samples),
        "contacts_carrying_force": float(np.median(active)) if active else 0.0,
        "steps_not_converged": unsolved,
        "states_without_derivative": refused,
        "trajectory_ended": ended,
    }
    return tuple(samples), facts


def _differentiable(simulator: Simulator, step: Step) -> bool:
    try:
        simulator.jacobian(step, wrt=WRT)
    except NotDifferentiable:
        return False
    return True
