"""Where each joint's numbers live in q and v: all the tangent-space helpers need to know of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import mujoco


@dataclass(frozen=True)
class JointLayout:
    """Addresses of the rotations and of the plain coordinates in MuJoCo's `qpos` and `qvel`.

    Tuples of ints make it hashable: a static argument to JAX, a key of a cache of compiled functions.
    """

    nq: int
    """Size of q."""
    nv: int
    """Size of v, and of every tangent vector."""
    quat_q: tuple[int, ...]
    """Address in q of each quaternion's w; x, y, z follow it."""
    quat_v: tuple[int, ...]
    """Address in v of the matching rotation vector (body frame), three entries each."""
    euclid_q: tuple[int, ...]
    """Address in q of each coordinate that adds plainly: slides, hinges, positions of free joints."""
    euclid_v: tuple[int, ...]
    """Address in v of the matching velocity."""

    @classmethod
    def from_model(cls, model: mujoco.MjModel) -> Self:
        """Read the layout from a compiled model."""
        quat, euclid = [], []
        for kind, q, v in zip(
            model.jnt_type.tolist(), model.jnt_qposadr.tolist(), model.jnt_dofadr.tolist(), strict=True
        ):
            match mujoco.mjtJoint(kind):
                case mujoco.mjtJoint.mjJNT_FREE:
                    euclid += [(q + i, v + i) for i in range(3)]
                    quat.append((q + 3, v + 3))
                case mujoco.mjtJoint.mjJNT_BALL:
                    quat.append((q, v))
                case _:
                    euclid.append((q, v))
        return cls(
            nq=int(model.nq),
            nv=int(model.nv),
            quat_q=tuple(q for q, _ in quat),
            quat_v=tuple(v for _, v in quat),
            euclid_q=tuple(q for q, _ in euclid),
            euclid_v=tuple(v for _, v in euclid),
        )
