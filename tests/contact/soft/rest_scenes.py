"""Scenes that nobody tuned, from 1 cm to 1 m and 10 g to 100 kg: bodies that come to rest, held, stacked, standing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

import tangens as tg

FLOOR = '<geom name="floor" type="plane" size="20 20 0.1"/>'


@dataclass(frozen=True)
class Rest:
    """A scene, where it starts and what is done to it."""

    scene: tg.Scene
    start: tg.State
    u: NDArray[np.float64]
    size: float
    """Of the smallest object [m]."""


def body(name: str, pos: str, geom: str, turn: str = "1 0 0 0") -> str:
    return f'<body name="{name}" pos="{pos}" quat="{turn}"><freejoint/><geom name="{name}" {geom}/></body>'


def world(*parts: str, rest: str = "", timestep: float = 0.002) -> tg.Scene:
    xml = f'<mujoco><option timestep="{timestep}"/><worldbody>{"".join(parts)}</worldbody>{rest}</mujoco>'
    return tg.load(xml)


def at_rest(scene: tg.Scene, size: float, u: object = None, keyframe: str | None = None) -> Rest:
    control = np.zeros(scene.nu) if u is None else np.asarray(u, float)
    return Rest(scene, scene.initial_state(keyframe), control, size)


def box(side: float, mass: float, drop: float = 0.0, turn: str = "1 0 0 0") -> Rest:
    half = side / 2
    z = half + drop if turn == "1 0 0 0" else half * 1.8 + drop
    made = body("box", f"0 0 {z}", f'type="box" size="{half} {half} {half}" mass="{mass}"', turn)
    return at_rest(world(FLOOR, made), side)


def stack(side: float, mass: float) -> Rest:
    half = side / 2
    geom = f'type="box" size="{half} {half} {half}" mass="{mass}"'
    boxes = [body(f"box{i}", f"0 0 {half + i * side}", geom) for i in range(3)]
    return at_rest(world(FLOOR, *boxes), side)


def dropped(geom: str, size: float, height: float, turn: str = "1 0 0 0") -> Rest:
    return at_rest(world(FLOOR, body("thing", f"0 0 {height}", geom, turn)), size)


def bundled(name: str, size: float, keyframe: str, steps: int = 0) -> Rest:
    del steps
    scene = tg.scenes.get(name)
    m = scene.shared_model
    key = mujoco.mj_name2id(m, mujoco.mjtObj.mjOBJ_KEY, keyframe)
    return at_rest(scene, size, m.key_ctrl[key], keyframe)


def arm_pushes_box() -> Rest:
    parts = (
        FLOOR,
        '<body name="link" pos="-0.35 0 0.06"><joint name="x" type="slide" axis="1 0 0" damping="5"/>'
        '<geom name="tip" type="capsule" fromto="0 -0.05 0 0 0.05 0" size="0.02" mass="0.5"/></body>',
        body("box", "0 0 0.06", 'type="box" size="0.06 0.06 0.06" mass="0.8"'),
    )
    rest = '<actuator><position joint="x" kp="200" kv="20"/></actuator>'
    return at_rest(world(*parts, rest=rest), 0.04, [0.4])


def hand_holds_box() -> Rest:
    finger = (
        '<body name="{n}" pos="{x} 0 0.3"><joint name="{n}" type="slide" axis="{a} 0 0" damping="5"/>'
        '<geom name="{n}" type="{t}" mass="0.1"/></body>'
    )
    parts = (
        FLOOR,
        finger.format(n="left", x=-0.06, a=1, t='box" size="0.01 0.02 0.03'),
        finger.format(n="right", x=0.06, a=-1, t='box" size="0.01 0.02 0.03'),
        body("box", "0 0 0.3", 'type="box" size="0.025 0.025 0.025" mass="0.1"'),
    )
    rest = '<actuator><position joint="left" kp="300" kv="20"/><position joint="right" kp="300" kv="20"/></actuator>'
    return at_rest(world(*parts, rest=rest), 0.02, [0.04, 0.04])


def box_against_wall() -> Rest:
    wall = '<geom type="box" pos="0.3 0 0.2" size="0.1 0.5 0.2"/>'
    scene = world(FLOOR, wall, body("box", "0.05 0 0.05", 'type="box" size="0.05 0.05 0.05" mass="0.3" friction="0.3"'))
    return Rest(scene, scene.initial_state().replace(v=[2.0, 0.5, 0, 0, 0, 1]), np.zeros(0), 0.1)


def pile() -> Rest:
    parts = (
        body("a", "0 0 0.05", 'type="box" size="0.1 0.1 0.05" mass="1"'),
        body("b", "0.02 0 0.2", 'type="cylinder" size="0.04 0.06" mass="0.4"'),
        body("c", "-0.01 0.01 0.36", 'type="box" size="0.06 0.05 0.03" mass="0.3"'),
    )
    return at_rest(world(FLOOR, *parts), 0.06)


RESTS: dict[str, Callable[[], Rest]] = {
    "box of 1 cm, 10 g": lambda: box(0.01, 0.01),
    "box of 10 cm, 1 kg, dropped": lambda: box(0.1, 1.0, 0.05),
    "box of 1 m, 100 kg": lambda: box(1.0, 100.0, 0.02),
    "box on its corner": lambda: box(0.1, 0.5, 0.02, "0.88 0.325 0.28 0.2"),
    "stack of three, 1 cm": lambda: stack(0.01, 0.01),
    "stack of three, 10 cm": lambda: stack(0.1, 0.5),
    "stack of three, 1 m": lambda: stack(1.0, 100.0),
    "sphere of 1 cm": lambda: dropped('size="0.005" mass="0.01"', 0.01, 0.02),
    "sphere of 1 m": lambda: dropped('size="0.5" mass="100"', 1.0, 0.7),
    "capsule, lying": lambda: dropped('type="capsule" size="0.03 0.08" mass="0.3"', 0.06, 0.1, "0.7071 0.7071 0 0"),
    "capsule, upright": lambda: dropped('type="capsule" size="0.03 0.08" mass="0.3"', 0.06, 0.115),
    "cylinder, upright": lambda: dropped('type="cylinder" size="0.05 0.06" mass="0.5"', 0.1, 0.1),
    "cylinder, lying": lambda: dropped('type="cylinder" size="0.05 0.06" mass="0.5"', 0.1, 0.08, "0.7071 0.7071 0 0"),
    "ellipsoid": lambda: dropped('type="ellipsoid" size="0.08 0.06 0.04" mass="0.5"', 0.08, 0.08),
    "plate": lambda: dropped('type="box" size="0.2 0.15 0.01" mass="1"', 0.02, 0.05),
    "quadruped standing": lambda: bundled("quadruped", 0.04, "home"),
    "T on a table": lambda: bundled("push_t", 0.05, "home"),
    "arm pushing a box": arm_pushes_box,
    "hand holding a box": hand_holds_box,
    "box thrown against a wall": box_against_wall,
    "pile": pile,
}
