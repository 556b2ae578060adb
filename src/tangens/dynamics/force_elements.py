"""A `ForceModel` as records that compiled code evaluates: see `forces`.

Two kinds of elements cover what a scene may hold. A degree of freedom has a spring and a damper of its own. A *line*
is a linear combination of coordinates that pulls on them: a fixed tendon's spring and damper, or an actuator acting
through a joint or a fixed tendon.

Each record holds what an element is and, below the line, its derivatives at the state evaluated last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.dynamics.force_model import ForceModel, is_implicit
from tangens.dynamics.layout import JointLayout
from tangens.dynamics.tree import BALL
from tangens.kernels import inline

Array = NDArray[np.float64]
Records = NDArray[np.void]

TENDON, ACTUATOR = 0, 1

DOF = np.dtype(
    [
        ("coordinate", np.int64),  # address in q of the coordinate that moves with it, -1 if it turns a quaternion
        ("damper", np.float64, 3),  # force a·v + b·v|v| + c·v³
        ("spring", np.float64, 3),  # force a·x + b·x² + c·x³
        ("rest", np.float64),  # where the spring is at rest
        ("force_min", np.float64),  # limits of the total actuator force
        ("force_max", np.float64),
        ("gravcomp_actuated", np.int64),  # whether gravity compensation passes through the actuators
        # ---
        ("dq", np.float64),  # ∂tau/∂q of the spring
        ("dv", np.float64),  # ∂tau/∂v of the damper
        ("dvv", np.float64),  # ∂²tau/∂v² of the damper, which the step treats implicitly
        ("unclamped", np.float64),  # 0 where the total actuator force is at its limit, else 1
    ]
)
QUAT = np.dtype(
    [
        ("q", np.int64),  # address in q
        ("v", np.int64),  # address in v
        ("spring", np.float64, 3),  # force polynomial in the angle away from `rest`
        ("rest", np.float64, 4),
        ("measured", np.int64),  # whether lines measure its rotation vector: ball joints yes, free joints no
        # ---
        ("dq", np.float64, (3, 3)),  # ∂tau/∂q of the spring
    ]
)
LINE = np.dtype(
    [
        ("kind", np.int64),  # TENDON or ACTUATOR
        ("start", np.int64),  # its entries: rows start to stop
        ("stop", np.int64),
        ("spring", np.float64, 3),  # TENDON: polynomials as above, outside the dead band
        ("damper", np.float64, 3),
        ("band", np.float64, 2),
        ("control", np.int64),  # ACTUATOR: index of its control
        ("gain", np.float64, 3),  # force (gain₀ + gain₁·length + gain₂·velocity)·control + bias likewise
        ("bias", np.float64, 3),
        ("control_range", np.float64, 2),
        ("force_range", np.float64, 2),
        ("winding", np.float64),  # a servo on a ball joint takes the set point nearest to where it is; else infinite
        ("implicit", np.int64),  # whether the step treats its damping implicitly, see `implicit_damping`
        ("clamped_by", np.int64),  # that stays explicit where the actuator force of this dof is at its limit; or -1
        # ---
        ("d_length", np.float64),  # ∂force/∂length, velocity, control
        ("d_velocity", np.float64),
        ("d_control", np.float64),
        ("d_velocity_velocity", np.float64),  # how ∂force/∂velocity changes
        ("d_velocity_control", np.float64),
    ]
)
ROW = np.dtype(
    [
        ("dof", np.int64),
        ("moment", np.float64),  # ∂velocity/∂v, and so the force's arm
        ("length", np.float64),  # ∂length/∂coordinate
        # ---
        ("lever", np.float64),  # ∂length/∂q in the tangent space
    ]
)


class ForceElements(NamedTuple):
    """All springs, dampers, tendons and actuators of a scene.

    The records are views of one plain array, which is what compiled code takes: entering it with four record arrays
    would take longer than evaluating them. `unpack` finds them again on the other side.
    """

    packed: Array
    dof: Records
    quat: Records
    line: Records
    row: Records


_TYPES = (DOF, QUAT, LINE, ROW)
_DOF_SIZE, _QUAT_SIZE, _LINE_SIZE, _ROW_SIZE = (kind.itemsize // 8 for kind in _TYPES)


def _pack(records: Sequence[Records]) -> ForceElements:
    counts = [len(array) for array in records]
    packed = np.concatenate(
        [np.array(counts, dtype=np.float64), *(array.view(np.float64).ravel() for array in records)]
    )
    views, start = [], 4
    for kind, count in zip(_TYPES, counts, strict=True):
        stop = start + count * kind.itemsize // 8
        views.append(packed[start:stop].view(kind))
        start = stop
    return ForceElements(packed, *views)


@inline
def unpack(packed: Array) -> tuple[Records, Records, Records, Records]:
    """The records behind `ForceElements.packed`, in compiled code."""
    a = 4 + int(packed[0]) * _DOF_SIZE
    b = a + int(packed[1]) * _QUAT_SIZE
    c = b + int(packed[2]) * _LINE_SIZE
    d = c + int(packed[3]) * _ROW_SIZE
    return packed[4:a].view(DOF), packed[a:b].view(QUAT), packed[b:c].view(LINE), packed[c:d].view(ROW)


def tabulate(m: mujoco.MjModel, forces: ForceModel) -> ForceElements:
    """Pack the forces of a model, which gives the places of its joints in q and v."""
    joints = JointLayout.from_model(m)
    quat = _tabulate_quaternions(m, forces, joints)
    line, row = _tabulate_lines(forces, quat)
    line["implicit"] = is_implicit(m)
    return _pack((_tabulate_dofs(forces, joints), quat, line, row))


def _tabulate_dofs(forces: ForceModel, joints: JointLayout) -> Records:
    dof = np.zeros(joints.nv, dtype=DOF)
    euclid_q, euclid_v = list(joints.euclid_q), list(joints.euclid_v)
    dof["coordinate"] = -1
    dof["coordinate"][euclid_v] = euclid_q
    dof["spring"][euclid_v], dof["rest"][euclid_v] = forces.dofs.spring[euclid_v], forces.dofs.rest[euclid_q]
    dof["damper"] = forces.dofs.damper
    dof["force_min"], dof["force_max"] = forces.dofs.force_range.T
    dof["gravcomp_actuated"], dof["unclamped"] = forces.dofs.gravcomp_actuated, 1.0
    return dof


def _tabulate_quaternions(m: mujoco.MjModel, forces: ForceModel, joints: JointLayout) -> Records:
    quat = np.zeros(len(joints.quat_q), dtype=QUAT)
    for record, q, v in zip(quat, joints.quat_q, joints.quat_v, strict=True):
        record["q"], record["v"], record["measured"] = q, v, m.jnt_type[m.dof_jntid[v]] == BALL
        record["spring"], record["rest"] = forces.dofs.spring[v], forces.dofs.rest[q : q + 4]
    return quat


def _tabulate_lines(forces: ForceModel, quat: Records) -> tuple[Records, Records]:
    tendons, actuators = forces.tendons, forces.actuators
    pulling = np.flatnonzero(tendons.spring.any(axis=1) | tendons.damper.any(axis=1))
    count = len(actuators.control)
    line = np.zeros(len(pulling) + count, dtype=LINE)
    passive, active = line[: len(pulling)], line[len(pulling) :]
    passive["kind"], active["kind"] = TENDON, ACTUATOR
    for name in ("spring", "damper", "band"):
        passive[name] = getattr(tendons, name)[pulling]
    for name in ("control", "gain", "bias", "control_range", "force_range", "winding"):
        active[name] = getattr(actuators, name)
    arms = np.concatenate([tendons.arm[pulling], actuators.arm])
    lengths = np.concatenate([tendons.arm[pulling], actuators.length])
    rows = [_row(arm, length, quat) for arm, length in zip(arms, lengths, strict=True)]
    stop = np.cumsum([len(row) for row in rows], dtype=np.int64)
    line["start"], line["stop"] = stop - [len(row) for row in rows], stop
    on_joint = np.concatenate([np.zeros(len(pulling), dtype=bool), (actuators.tendon < 0) & (actuators.site < 0)])
    firsts = [int(row["dof"][0]) if len(row) else -1 for row in rows]
    line["clamped_by"] = np.where(on_joint, np.array(firsts, dtype=np.int64), -1)
    return line, np.concatenate([np.zeros(0, dtype=ROW), *rows])


def _row(arm: Array, length: Array, quat: Records) -> Records:
    """Entries of a line; of a ball joint always all three, one after the other."""
    counts = (arm != 0) | (length != 0)
    for v in quat["v"]:
        counts[v : v + 3] |= counts[v : v + 3].any()
    row = np.zeros(counts.sum(), dtype=ROW)
    row["dof"], row["moment"], row["length"] = np.flatnonzero(counts), arm[counts], length[counts]
    return row
