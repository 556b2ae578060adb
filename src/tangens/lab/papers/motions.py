"""Robots that move on a floor under random controls."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens import robots
from tangens.lab.papers.poses import start
from tangens.results import SolverReport, Step
from tangens.scene import Scene
from tangens.simulate import Simulator
from tangens.state import State

Array = NDArray[np.float64]
ROTOR = 0.01  # inertia of a motor and its gears, seen from the joint [kg·m²]: MuJoCo Menagerie's, for go1 and g1 alike


def robot(name: str) -> Scene:
    """A robot that can move on a floor: those from URDF get both."""
    if robots.ROBOTS[name].package == "example-robot-data":
        return robots.get(name, ground=0.0, motors=True)
    return robots.get(name)


def with_rotors(scene: Scene) -> Scene:
    """The scene with rotors in motors that have none: URDF has no place for them.

    Without them, torques that its motors have drive g1's ankles and wrists to 300 rad/s and more, ten times what they
    are made for. There Euler's method becomes unstable, with and without contact, here and in MuJoCo.
    """
    m, armature = scene.shared_model, scene.parameters["armature"].copy()
    driven = m.jnt_dofadr[m.actuator_trnid[m.actuator_trntype == int(mujoco.mjtTrn.mjTRN_JOINT), 0]]
    armature[driven] = np.where(armature[driven] == 0.0, ROTOR, armature[driven])
    return scene.replace(armature=armature)


def random_controls(scene: Scene, rng: np.random.Generator, hold: int = 1) -> Iterator[Array]:
    """Controls within 30 % of their ranges, drawn anew after every `hold` steps, for ever."""
    m = scene.shared_model
    limited = m.actuator_ctrllimited.astype(bool)[:, None]
    low, high = 0.3 * np.where(limited, m.actuator_ctrlrange, [-1.0, 1.0]).T
    while True:
        u = rng.uniform(low, high)
        yield from [u] * hold


def random_motion(simulator: Simulator, steps: int, rng: np.random.Generator) -> Iterator[SolverReport]:
    """Solver reports along a motion from just above the floor, controls drawn anew every 20 steps."""
    out: State | Step = start(simulator.scene)
    for u in islice(random_controls(simulator.scene, rng, hold=20), steps):
        out = simulator.step(out, u)
        yield out.solver
