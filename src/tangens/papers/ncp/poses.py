"""Robots in poses that they can hold: what touches the floor does so exactly, and the weight lies over it.

A gap of g makes a foot fall at g/h, so a pose for v⁺ = 0 has to touch to rounding. Poses are found by Gauss-Newton.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens import robots
from tangens.errors import SolverError
from tangens.optimize import LeastSquares, by_differences, gauss_newton
from tangens.scene import Scene
from tangens.state import State

Array = NDArray[np.float64]
GO1_LEGS = ("FR", "FL", "RR", "RL")


def go1_standing(load_mass: float = 0.0) -> tuple[Scene, State]:
    """Go1 on its four feet, with a mass on its back [kg] if asked for."""
    scene = robots.get("go1", ground=True)
    if load_mass:
        scene = with_load(scene, "base", load_mass, position=(0.0, 0.0, 0.107))
    q = posed(scene, {f"{leg}_{part}_joint": a for leg in GO1_LEGS for part, a in (("thigh", 0.8), ("calf", -1.6))})
    feet = [_geom_of(scene, f"{leg}_foot") for leg in GO1_LEGS]

    def lowered(x: Array) -> Array:
        return scene.integrate(q, [0, 0, x[0], 0, 0, 0, *np.zeros(12)])

    return scene, _solved(scene, lowered, lambda q: heights(scene, q, feet), [-heights(scene, q, feet).min()])


def go1_hand_stand() -> tuple[Scene, State]:
    """Go1 upside down on its front feet, the centre of mass above the line between them."""
    scene = robots.get("go1", ground=True)
    angles = {"F": {"thigh": -0.35, "calf": -1.6}, "R": {"thigh": 2.4, "calf": -1.6}}
    q = posed(
        scene, {f"{leg}_{part}_joint": a for leg in GO1_LEGS for part, a in angles[leg[0]].items()}, pitch=1.25
    )
    feet = [_geom_of(scene, f"{leg}_foot") for leg in ("FR", "FL")]
    masses, thighs = scene.parameters["mass"], [_dof(scene, f"{leg}_thigh_joint") for leg in ("RR", "RL")]

    def turned(x: Array) -> Array:  # height, pitch, roll, and the swing of the rear legs for balance
        delta = np.zeros(scene.nv)
        delta[2], delta[4], delta[3] = x[:3]
        delta[thighs] = x[3]
        return scene.integrate(q, delta)

    def conditions(q: Array) -> Array:
        d = placed(scene, q)
        centre = masses @ d.xipos / masses.sum()
        one, two = d.geom_xpos[feet]
        normal = np.cross([0, 0, 1.0], two - one)
        return np.concatenate([heights(scene, q, feet), [(centre - one) @ normal / np.linalg.norm(normal)]])

    return scene, _solved(scene, turned, conditions, [-heights(scene, q, feet).min(), 0, 0, 0])


def g1_push_up() -> tuple[Scene, State]:
    """G1 on its hands and toes; it stands in for the paper's H1."""
    scene = robots.get("g1", ground=True)
    angles = {"shoulder_pitch": -1.5, "shoulder_roll": 0.15, "elbow": 1.5}
    signs = {"left": 1.0, "right": -1.0}
    q = posed(
        scene,
        {f"{s}_{part}_joint": a * (sign if "roll" in part else 1.0) for s, sign in signs.items()
         for part, a in angles.items()},
        pitch=1.35,
    )  # fmt: skip
    m = scene.shared_model
    hands = [_geom_of(scene, f"{s}_wrist_yaw_link") for s in signs]
    soles = {s: np.flatnonzero(m.geom_bodyid == scene.body_names.index(f"{s}_ankle_roll_link")) for s in signs}
    toes = [int(max(g, key=lambda i: m.geom_pos[i, 0])) for g in soles.values()]
    shoulders = [_dof(scene, f"{s}_shoulder_pitch_joint") for s in signs]

    def moved(x: Array) -> Array:  # height, pitch, and the hands each by its shoulder: the meshes differ a little
        delta = np.zeros(scene.nv)
        delta[2], delta[4], delta[3] = x[:3]
        delta[shoulders] = x[3:]
        return scene.integrate(q, delta)

    low = -heights(scene, q, [*hands, *toes]).min()
    return scene, _solved(scene, moved, lambda q: heights(scene, q, [*hands, *toes]), [low, 0, 0, 0, 0])


# ---------------------------------------------------------------------- tools


def with_load(scene: Scene, body: str, mass: float, position: Sequence[float]) -> Scene:
    """The scene with a point mass welded to a body at a position in its frame."""
    p, b = scene.parameters, scene.body_names.index(body)
    total = p["mass"][b] + mass
    com = (p["mass"][b] * p["com"][b] + mass * np.asarray(position)) / total
    inertia = p["inertia"][b].copy()
    for weight, centre in ((p["mass"][b], p["com"][b]), (mass, np.asarray(position))):
        x, y, z = centre - com
        inertia += weight * np.array([y * y + z * z, x * x + z * z, x * x + y * y, -x * y, -x * z, -y * z])
    return scene.replace(mass={body: total}, com={body: com}, inertia={body: inertia})


def posed(scene: Scene, angles: Mapping[str, float], pitch: float = 0.0) -> Array:
    """The reference pose with some joints moved and the base turned about its y axis."""
    q = scene.initial_state().q.copy()
    m = scene.shared_model
    for name, angle in angles.items():
        q[m.jnt_qposadr[scene.joint_names.index(name)]] = angle
    delta = np.zeros(scene.nv)
    delta[4] = pitch
    return scene.integrate(q, delta)


def heights(scene: Scene, q: Array, geoms: Sequence[int]) -> Array:
    """Heights of the lowest points of spheres and meshes above the floor."""
    m, d = scene.shared_model, placed(scene, q)
    low = []
    for g in geoms:
        if m.geom_type[g] == mujoco.mjtGeom.mjGEOM_SPHERE:
            low.append(d.geom_xpos[g, 2] - m.geom_size[g, 0])
        else:
            mesh = m.geom_dataid[g]
            first, count = m.mesh_vertadr[mesh], m.mesh_vertnum[mesh]
            vertices = m.mesh_vert[first : first + count] @ d.geom_xmat[g].reshape(3, 3)[2]
            low.append(d.geom_xpos[g, 2] + vertices.min())
    return np.array(low)


def _solved(scene: Scene, pose: Callable[[Array], Array], conditions: Callable[[Array], Array], guess: Any) -> State:
    """The pose at which all conditions vanish."""
    problem = LeastSquares(lambda x: conditions(pose(x)), lambda x: np.zeros((0, 0)), len(guess))
    found = gauss_newton(by_differences(problem), guess, tolerance=1e-13)
    if found.error > 1e-10:
        raise SolverError(f"no pose was found in which {scene.source} is supported: {found.message}")
    return State(pose(found.x), np.zeros(scene.nv))


def placed(scene: Scene, q: Array) -> Any:
    """The bodies of a configuration, as MuJoCo places them."""
    d = mujoco.MjData(scene.shared_model)
    d.qpos[:] = q
    mujoco.mj_kinematics(scene.shared_model, d)
    return d


def _geom_of(scene: Scene, body: str) -> int:
    return int(np.flatnonzero(scene.shared_model.geom_bodyid == scene.body_names.index(body))[0])


def _dof(scene: Scene, joint: str) -> int:
    return int(scene.shared_model.jnt_dofadr[scene.joint_names.index(joint)])


def lowest_point(scene: Scene, q: Array) -> float:
    """Height of the lowest corner of the bounding boxes of all moving shapes."""
    m, d = scene.shared_model, placed(scene, q)
    low = np.inf
    for g in range(m.ngeom):
        if m.geom_bodyid[g] and (m.geom_contype[g] or m.geom_conaffinity[g]):
            up = d.geom_xmat[g].reshape(3, 3)[2]
            centre, half = m.geom_aabb[g, :3], m.geom_aabb[g, 3:]
            low = min(low, float(d.geom_xpos[g, 2] + up @ centre - np.abs(up) @ half))
    return low
