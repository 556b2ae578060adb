"""Constraint rows of one configuration.

Each row says how fast a velocity changes what a constraint measures: σ = J·v. A contact has three rows, in its frame
(normal, two tangents), for the velocity of geom 1's body relative to geom 0's at the contact point.
"""

from __future__ import annotations

import mujoco
import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

DOF = np.dtype(
    [
        ("parent", np.int64),  # dof before it on the way to the world, -1 at the root
        ("group", np.int64),  # shared by the three dofs of a rotation, whose axes turn together
        ("address", np.int64),  # of its row in M
        ("count", np.int64),
        ("coordinate", np.int64),  # address in q, of hinges and slides with limits or dry friction
        ("limited", np.int64),
        ("low", np.float64),
        ("high", np.float64),
        ("dry", np.float64),  # largest dry friction force
        ("damper", np.float64, 3),
    ]
)
BODY = np.dtype([("last_dof", np.int64), ("root", np.int64)])
GEOM = np.dtype(
    [
        ("body", np.int64),
        ("kind", np.int64),
        ("size", np.float64, 3),
        ("restitution", np.float64),
        ("first_face", np.int64),  # of its convex hull, among the faces of all hulls; meshes only
        ("faces", np.int64),
    ]
)


def tree_records(m: mujoco.MjModel, damper: Array, restitution: Array) -> tuple[Records, Records, Records]:
    """What the compiled code needs to know of dofs, bodies and geoms."""
    scalar = (int(mujoco.mjtJoint.mjJNT_SLIDE), int(mujoco.mjtJoint.mjJNT_HINGE))
    dofs = np.zeros(m.nv, dtype=DOF)
    dofs["parent"], dofs["address"], dofs["count"] = m.dof_parentid, m.M_rowadr, m.M_rownnz
    dofs["group"], dofs["coordinate"], dofs["dry"], dofs["damper"] = np.arange(m.nv), -1, m.dof_frictionloss, damper
    for j in range(m.njnt):
        a = m.jnt_dofadr[j]
        if m.jnt_type[j] in scalar:
            dofs[a]["coordinate"], dofs[a]["limited"] = m.jnt_qposadr[j], m.jnt_limited[j]
            dofs[a]["low"], dofs[a]["high"] = m.jnt_range[j]
        else:
            rotation = a + (3 if m.jnt_type[j] == int(mujoco.mjtJoint.mjJNT_FREE) else 0)
            dofs["group"][rotation : rotation + 3] = rotation
    bodies = np.zeros(m.nbody, dtype=BODY)
    bodies["root"], bodies["last_dof"] = m.body_rootid, -1
    for body in range(1, m.nbody):
        own = m.body_dofnum[body]
        inherited = bodies[m.body_parentid[body]]["last_dof"]
        bodies[body]["last_dof"] = m.body_dofadr[body] + own - 1 if own else inherited
    geoms = np.zeros(m.ngeom, dtype=GEOM)
    geoms["body"], geoms["kind"], geoms["size"] = m.geom_bodyid, m.geom_type, m.geom_size
    geoms["restitution"] = restitution
    for g in np.flatnonzero(m.geom_type == int(mujoco.mjtGeom.mjGEOM_MESH)):
        mesh = m.geom_dataid[g]
        geoms[g]["first_face"], geoms[g]["faces"] = m.mesh_polyadr[mesh], m.mesh_polynum[mesh]
    return dofs, bodies, geoms


@numba.njit(cache=True)
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
