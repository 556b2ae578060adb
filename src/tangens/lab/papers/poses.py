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
LOAD_HEIGHT = 0.107  # of a load on Go1's back, above the middle of its trunk [m]


def go1_standing(load_mass: float = 0.0) -> tuple[Scene, State]:
    """Go1 on its four feet, with a mass on its back [kg] if asked for."""
    scene = robots.get("go1", ground=0.0)
    if load_mass:
        scene = with_load(scene, "base", load_mass, position=(0.0, 0.0, LOAD_HEIGHT))
    q = posed(scene, {f"{leg}_{part}_joint": a for leg in GO1_LEGS for part, a in (("thigh", 0.8), ("calf", -1.6))})
    feet = [_geom_of(scene, f"{leg}_foot") for leg in GO1_LEGS]

    def lowered(x: Array) -> Array:
        return scene.integrate(q, [0, 0, x[0], 0, 0, 0, *np.zeros(12)])

    return scene, _solved(scene, lowered, lambda q: heights(scene, q, feet), [-heights(scene, q, feet).min()])


def go1_hand_stand() -> tuple[Scene, State]:
    """Go1 upside down on its front feet, the centre of mass above the line between them."""
    scene = robots.get("go1", ground=0.0)
    angles = {"F": {"thigh": -0.35, "calf": -1.6}, "R": {"thigh": 2.4, "calf": -1.6}}
    q = posed(scene, {f"{leg}_{part}_joint": a for leg in GO1_LEGS for part, a in angles[leg[0]].items()}, pitch=1.25)
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
    scene = robots.get("g1", ground=0.0)
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


def g1_crouching() -> tuple[Scene, State]:
    """G1 with bent knees, flat on its soles, its centre of mass above their middle; it has motors."""
    scene = robots.get("g1", ground=0.0, motors=True)
    angles, sides = {"hip_pitch": -0.7, "knee": 1.4, "ankle_pitch": -0.7}, ("left", "right")
    q = posed(scene, {f"{s}_{part}_joint": a for s in sides for part, a in angles.items()})
    soles = g1_soles(scene)
    masses, ankles = scene.parameters["mass"], [_dof(scene, f"{s}_ankle_pitch_joint") for s in sides]

    def moved(x: Array) -> Array:  # height, pitch and ankles
        delta = np.zeros(scene.nv)
        delta[2], delta[4], delta[ankles] = x
        return scene.integrate(q, delta)

    def conditions(q: Array) -> Array:
        d = placed(scene, q)
        ahead = masses @ d.xipos[:, 0] / masses.sum() - d.geom_xpos[soles, 0].mean()
        return np.concatenate([heights(scene, q, soles), [ahead]])

    return scene, _solved(scene, moved, conditions, [-heights(scene, q, soles).min(), 0, 0])


def g1_soles(scene: Scene) -> list[int]:
    """The spheres under G1's feet."""
    m = scene.shared_model
    bodies = [scene.body_names.index(f"{side}_ankle_roll_link") for side in ("left", "right")]
    spheres = np.isin(m.geom_bodyid, bodies) & (m.geom_type == int(mujoco.mjtGeom.mjGEOM_SPHERE))
    return [int(g) for g in np.flatnonzero(spheres)]


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


def start(scene: Scene, gap: float = 0.01) -> State:
    """The reference pose at rest, with joints inside their limits and, if the base floats, just above the floor."""
    m, q = scene.shared_model, scene.initial_state().q.copy()
    for j in np.flatnonzero(m.jnt_limited):
        low, high = m.jnt_range[j]
        if m.jnt_type[j] >= int(mujoco.mjtJoint.mjJNT_SLIDE):
            inside = 0.1 * (high - low)
            q[m.jnt_qposadr[j]] = np.clip(q[m.jnt_qposadr[j]], low + inside, high - inside)
    if floating(scene):
        q[2] += gap - _lowest_point(scene, q)
    return State(q, np.zeros(scene.nv))


def floating(scene: Scene) -> bool:
    """Whether the first joint is a free one."""
    m = scene.shared_model
    return bool(m.njnt) and int(m.jnt_type[0]) == int(mujoco.mjtJoint.mjJNT_FREE)


def _lowest_point(scene: Scene, q: Array) -> float:
    """Height of the lowest corner of the bounding boxes of all moving shapes."""
    m, d = scene.shared_model, placed(scene, q)
    low = np.inf
    for g in range(m.ngeom):
        if m.geom_bodyid[g] and (m.geom_contype[g] or m.geom_conaffinity[g]):
            up = d.geom_xmat[g].reshape(3, 3)[2]
            centre, half = m.geom_aabb[g, :3], m.geom_aabb[g, 3:]
            low = min(low, float(d.geom_xpos[g, 2] + up @ centre - np.abs(up) @ half))
    return low


def outlines(scene: Scene, q: Array) -> list[tuple[Array, Array]]:
    """Convex outlines (x, z) of all moving shapes, from the side; boxes stand in for all but spheres and meshes."""
    from scipy.spatial import ConvexHull

    m, d = scene.shared_model, placed(scene, q)
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    circle = np.linspace(0, 2 * np.pi, 40)
    out = []
    for g in range(m.ngeom):
        if not m.geom_bodyid[g] or not (m.geom_contype[g] or m.geom_conaffinity[g]):
            continue
        where, R = d.geom_xpos[g], d.geom_xmat[g].reshape(3, 3)
        if m.geom_type[g] == mujoco.mjtGeom.mjGEOM_SPHERE:
            r = m.geom_size[g, 0]
            out.append((where[0] + r * np.cos(circle), where[2] + r * np.sin(circle)))
            continue
        if m.geom_type[g] == mujoco.mjtGeom.mjGEOM_MESH:
            first, count = m.mesh_vertadr[m.geom_dataid[g]], m.mesh_vertnum[m.geom_dataid[g]]
            local = m.mesh_vert[first : first + count]
        else:
            local = m.geom_aabb[g, :3] + signs * m.geom_aabb[g, 3:]
        points = (where + local @ R.T)[:, [0, 2]]
        hull = points[ConvexHull(points).vertices]
        out.append((hull[:, 0], hull[:, 1]))
    return out
