"""The kinematic tree of a compiled MuJoCo model, rebuilt as a Pinocchio model.

Both speak of the same velocities: a free joint becomes a translation followed by a spherical joint, because MuJoCo's
free joint moves in world axes and turns in body axes. Only the order of a quaternion's entries differs
(MuJoCo wxyz, Pinocchio xyzw): `RigidBodyTree.q_order` says where each Pinocchio entry is found in `qpos`.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

Array = NDArray[np.float64]

FREE, BALL, SLIDE, HINGE = (
    int(mujoco.mjtJoint.mjJNT_FREE),
    int(mujoco.mjtJoint.mjJNT_BALL),
    int(mujoco.mjtJoint.mjJNT_SLIDE),
    int(mujoco.mjtJoint.mjJNT_HINGE),
)
_REVOLUTE = (pin.JointModelRX, pin.JointModelRY, pin.JointModelRZ)
_PRISMATIC = (pin.JointModelPX, pin.JointModelPY, pin.JointModelPZ)


@dataclass(frozen=True)
class RigidBodyTree:
    """A Pinocchio model and how MuJoCo's bodies hang on its joints."""

    model: pin.Model
    joint: NDArray[np.int64]
    """Pinocchio joint that carries each MuJoCo body, 0 for bodies fixed to the world; shape (nbody,)."""
    placement: tuple[pin.SE3, ...]
    """Pose of each MuJoCo body frame in the frame of its joint."""
    q_order: NDArray[np.int64]
    """Index into `qpos` of each entry of Pinocchio's configuration; shape (nq,)."""


def inertia_matrix(principal: Array, quat: Array) -> Array:
    """Rotational inertia in body axes from MuJoCo's principal moments and their orientation (wxyz)."""
    R = rotation_matrix(quat)
    return (R * principal) @ R.T


def body_inertia(m: mujoco.MjModel, body: int) -> pin.Inertia:
    """Mass, centre of mass and rotational inertia of one body, in its own frame."""
    return pin.Inertia(
        float(m.body_mass[body]),
        m.body_ipos[body].copy(),
        inertia_matrix(m.body_inertia[body], m.body_iquat[body]),
    )


def build_tree(m: mujoco.MjModel) -> RigidBodyTree:
    """Rebuild the bodies and joints of `m` in Pinocchio.

    MuJoCo lists bodies depth first and numbers the degrees of freedom in that order, so adding the joints
    body by body gives Pinocchio the same numbering.
    """
    model = pin.Model()
    model.gravity = pin.Motion(_gravity(m), np.zeros(3))
    joint = np.zeros(m.nbody, dtype=np.int64)
    placement = [pin.SE3.Identity()] * m.nbody
    for body in range(1, m.nbody):
        parent = m.body_parentid[body]
        carrier = int(joint[parent])
        frame = placement[parent] * _pose(m.body_pos[body], m.body_quat[body])
        for j in range(m.body_jntadr[body], m.body_jntadr[body] + m.body_jntnum[body]):
            carrier, frame = _add_joint(model, m, j, carrier, frame)
        joint[body], placement[body] = carrier, frame
        model.appendBodyToJoint(carrier, body_inertia(m, body), frame)
    return RigidBodyTree(model, joint, tuple(placement), _quaternion_order(m))


def _add_joint(model: pin.Model, m: mujoco.MjModel, j: int, carrier: int, frame: pin.SE3) -> tuple[int, pin.SE3]:
    """Append MuJoCo joint `j` behind `frame`; return its Pinocchio joint and the moved frame relative to it."""
    kind, anchor, axis = m.jnt_type[j], m.jnt_pos[j], m.jnt_axis[j]
    identity = pin.SE3.Identity()
    if kind == FREE:  # its coordinates are the pose itself: whatever pose the body was given does not count
        carrier = model.addJoint(0, pin.JointModelTranslation(), identity, f"joint{j}-position")
        return model.addJoint(carrier, pin.JointModelSpherical(), identity, f"joint{j}"), identity
    to_anchor = pin.SE3(np.eye(3), anchor)
    if kind == BALL:
        index = model.addJoint(carrier, pin.JointModelSpherical(), frame * to_anchor, f"joint{j}")
        return index, to_anchor.inverse()

    # Turn the joint's frame so that its axis is a coordinate axis, for which Pinocchio is fastest, and let the
    # joint start at its reference coordinate, for MuJoCo measures the displacement from qpos0.
    which, turn = _axis_frame(axis)
    reference = -m.qpos0[m.jnt_qposadr[j]] * np.eye(3)[which]
    if kind == HINGE:
        zero, joint_model = pin.SE3(pin.exp3(reference), np.zeros(3)), _REVOLUTE[which]()
    else:
        zero, joint_model = pin.SE3(np.eye(3), reference), _PRISMATIC[which]()
    to_joint = to_anchor * pin.SE3(turn, np.zeros(3))
    index = model.addJoint(carrier, joint_model, frame * to_joint * zero, f"joint{j}")
    return index, to_joint.inverse()


def _axis_frame(axis: Array) -> tuple[int, Array]:
    """Coordinate axis to use, and the rotation that takes it to `axis`."""
    for which in range(3):
        if axis[which] == 1.0:
            return which, np.eye(3)
    z = np.array([0.0, 0.0, 1.0])
    return 2, pin.Quaternion.FromTwoVectors(z, np.asarray(axis)).toRotationMatrix()


def _gravity(m: mujoco.MjModel) -> Array:
    disabled = m.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_GRAVITY
    return np.zeros(3) if disabled else m.opt.gravity.copy()


def _quaternion_order(m: mujoco.MjModel) -> NDArray[np.int64]:
    order = np.arange(m.nq)
    for j in range(m.njnt):
        if m.jnt_type[j] in (FREE, BALL):
            w = m.jnt_qposadr[j] + (3 if m.jnt_type[j] == FREE else 0)
            order[w : w + 4] = [w + 1, w + 2, w + 3, w]
    return order


def rotation_matrix(quat: Array) -> Array:
    """Rotation matrix of a quaternion (wxyz)."""
    w, x, y, z = quat
    return pin.Quaternion(float(w), float(x), float(y), float(z)).toRotationMatrix()


def _pose(position: Array, quat: Array) -> pin.SE3:
    return pin.SE3(rotation_matrix(quat), position)
