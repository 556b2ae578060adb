"""A floor under a robot, and poses that stand on it."""

from __future__ import annotations

from collections.abc import Mapping

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.errors import OptionError

Array = NDArray[np.float64]
Geom = mujoco.mjtGeom


def lowest_point(m: mujoco.MjModel, q: Array | None = None) -> float:
    """Height of the lowest point of all moving geoms that can touch something, in a pose; 0 without any [m]."""
    d = mujoco.MjData(m)
    if q is not None:
        d.qpos[:] = q
    mujoco.mj_kinematics(m, d)
    touches = (m.geom_contype | m.geom_conaffinity) != 0
    moving = np.flatnonzero(touches & (m.body_weldid[m.geom_bodyid] != 0))
    heights = [d.geom_xpos[g, 2] - _reach_down(m, int(g), d.geom_xmat[g].reshape(3, 3)[2]) for g in moving]
    finite = [height for height in heights if np.isfinite(height)]
    return float(min(finite, default=0.0))


def _reach_down(m: mujoco.MjModel, g: int, up: Array) -> float:
    """How far a geom reaches below its centre, given the vertical in its own frame; −∞ for planes and height fields."""
    size, kind = m.geom_size[g], m.geom_type[g]
    if kind == Geom.mjGEOM_SPHERE:
        return float(size[0])
    if kind == Geom.mjGEOM_CAPSULE:
        return float(size[0] + size[1] * abs(up[2]))
    if kind == Geom.mjGEOM_CYLINDER:
        return float(size[0] * np.hypot(up[0], up[1]) + size[1] * abs(up[2]))
    if kind == Geom.mjGEOM_ELLIPSOID:
        return float(np.linalg.norm(size * up))
    if kind == Geom.mjGEOM_BOX:
        return float(np.abs(size * up).sum())
    if kind == Geom.mjGEOM_MESH:
        mesh = m.geom_dataid[g]
        vertices = m.mesh_vert[m.mesh_vertadr[mesh] : m.mesh_vertadr[mesh] + m.mesh_vertnum[mesh]]
        return float(-(vertices @ up).min())
    return -np.inf


def add_floor(spec: mujoco.MjSpec, name: str, height: float) -> None:
    """Add a horizontal plane to the world."""
    floor = spec.worldbody.add_geom(
        name=name, type=Geom.mjGEOM_PLANE, size=[0, 0, 1], pos=[0, 0, height], rgba=[0.8, 0.8, 0.8, 1]
    )
    floor.material = ""  # that of the default class has been dropped with all others


def add_poses(
    spec: mujoco.MjSpec, m: mujoco.MjModel, poses: Mapping[str, Mapping[str, float]], floor: float | None
) -> None:
    """Add keyframes: joints by name at given positions; on a floor, a free root is lifted until the robot stands."""
    for name, joints in poses.items():
        q = m.qpos0.copy()
        for joint, value in joints.items():
            found = mujoco.mj_name2id(m, mujoco.mjtObj.mjOBJ_JOINT, joint)
            scalar = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
            if found < 0 or int(m.jnt_type[found]) not in scalar or not np.isfinite(value):
                raise OptionError(f"pose {name!r}: there is no hinge or slide {joint!r} to put at {value!r}")
            q[m.jnt_qposadr[found]] = value
        free = np.flatnonzero(m.jnt_type == mujoco.mjtJoint.mjJNT_FREE)
        if floor is not None and len(free):
            q[m.jnt_qposadr[free[0]] + 2] += floor - lowest_point(m, q)
        spec.add_key(name=name, qpos=q)
