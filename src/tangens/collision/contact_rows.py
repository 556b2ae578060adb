"""Constraint rows of one configuration.

Each row says how fast a velocity changes what a constraint measures: σ = J·v. A contact has three rows, in its frame
(normal, two tangents), for the velocity of geom 1's body relative to geom 0's at the contact point.
"""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.kernels import inline

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

GEOM = np.dtype(
    [
        ("body", np.int64),
        ("kind", np.int64),
        ("size", np.float64, 3),
        ("radius", np.float64),  # of a sphere around it
        ("restitution", np.float64),
        ("first_face", np.int64),  # of its convex hull, among the faces of all hulls; meshes only
        ("faces", np.int64),
    ]
)


def geom_records(m: mujoco.MjModel, restitution: Array) -> Array:
    """What compiled code needs to know of geoms, as plain numbers: `.view(GEOM)` makes them records again."""
    geoms = np.zeros(m.ngeom, dtype=GEOM)
    geoms["body"], geoms["kind"], geoms["size"] = m.geom_bodyid, m.geom_type, m.geom_size
    geoms["restitution"], geoms["radius"] = restitution, m.geom_rbound
    for g in np.flatnonzero(m.geom_type == int(mujoco.mjtGeom.mjGEOM_MESH)):
        mesh = m.geom_dataid[g]
        geoms[g]["first_face"], geoms[g]["faces"] = m.mesh_polyadr[mesh], m.mesh_polynum[mesh]
    return geoms.view(np.float64).ravel()


def rotation_of(w: Array) -> Array:
    """The matrix of a rotation vector."""
    quaternion, R = np.zeros(4), np.zeros(9)
    angle = float(np.linalg.norm(w))
    mujoco.mju_axisAngle2Quat(quaternion, w / angle if angle > 0.0 else np.array([1.0, 0.0, 0.0]), angle)
    mujoco.mju_quat2Mat(R, quaternion)
    return R.reshape(3, 3)


@inline
def point_rows(
    dofs: Records, bodies: Records, body0: int, body1: int, p: Array, frame: Array, cdof: Array, com: Array, J: Array
) -> None:  # fmt: skip
    """Fill the three rows of one contact; `cdof` are MuJoCo's motion axes about the tree's centre of mass `com`."""
    for side in range(2):
        sign = 2.0 * side - 1.0
        body = bodies[body0 if side == 0 else body1]
        j, r = body.last_dof, body.root
        ox, oy, oz = p[0] - com[r, 0], p[1] - com[r, 1], p[2] - com[r, 2]
        while j >= 0:
            wx, wy, wz = cdof[j, 0], cdof[j, 1], cdof[j, 2]
            vx = cdof[j, 3] + wy * oz - wz * oy
            vy = cdof[j, 4] + wz * ox - wx * oz
            vz = cdof[j, 5] + wx * oy - wy * ox
            for k in range(3):
                J[k, j] += sign * (frame[3 * k] * vx + frame[3 * k + 1] * vy + frame[3 * k + 2] * vz)
            j = dofs[j].parent
