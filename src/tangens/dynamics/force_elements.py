"""The springs, dampers, tendons and actuators of a scene, as records that `forces` evaluates.

Two kinds of elements cover what a scene may hold. A degree of freedom has a spring and a damper of its own. A *line*
is a linear combination of coordinates that pulls on them: a fixed tendon's spring and damper, or an actuator acting
through a joint or a fixed tendon.

The elements are NumPy records. Each record
holds what an element is and, below the line, its derivatives at the state evaluated last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import mujoco
import numba
import numpy as np
from numpy.typing import NDArray

from tangens.dynamics.tree import BALL, FREE

Array = NDArray[np.float64]
Records = NDArray[np.void]

TENDON, ACTUATOR = 0, 1
_JOINT_TRANSMISSIONS = {int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT)}
_TENDON_TRANSMISSION = int(mujoco.mjtTrn.mjTRN_TENDON)

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
        # ---
        ("d_length", np.float64),  # ∂force/∂length, velocity, control
        ("d_velocity", np.float64),
        ("d_control", np.float64),
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


@numba.njit(cache=True)
def unpack(packed: Array) -> tuple[Records, Records, Records, Records]:
    """The records behind `ForceElements.packed`, in compiled code."""
    a = 4 + int(packed[0]) * _DOF_SIZE
    b = a + int(packed[1]) * _QUAT_SIZE
    c = b + int(packed[2]) * _LINE_SIZE
    d = c + int(packed[3]) * _ROW_SIZE
    return packed[4:a].view(DOF), packed[a:b].view(QUAT), packed[b:c].view(LINE), packed[c:d].view(ROW)


def tabulate(m: mujoco.MjModel) -> ForceElements:
    """Read the elements off a compiled model, in which only supported features are left."""
    off = mujoco.mjtDisableBit
    springs = 0.0 if m.opt.disableflags & off.mjDSBL_SPRING else 1.0
    dampers = 0.0 if m.opt.disableflags & off.mjDSBL_DAMPER else 1.0

    dof = np.zeros(m.nv, dtype=DOF)
    dof["coordinate"], dof["force_min"], dof["force_max"], dof["unclamped"] = -1, -np.inf, np.inf, 1.0
    rotary = [j for j in range(m.njnt) if m.jnt_type[j] in (FREE, BALL)]
    quat = np.zeros(len(rotary), dtype=QUAT)
    for j in range(m.njnt):
        kind, iq, iv = int(m.jnt_type[j]), m.jnt_qposadr[j], m.jnt_dofadr[j]
        spring = springs * np.array([m.jnt_stiffness[j], *m.jnt_stiffnesspoly[j]])
        for k in range({FREE: 3, BALL: 0}.get(kind, 1)):
            dof[iv + k]["coordinate"], dof[iv + k]["rest"] = iq + k, m.qpos_spring[iq + k]
            dof[iv + k]["spring"] = spring
        if kind in (FREE, BALL):
            offset = 3 if kind == FREE else 0
            record = quat[rotary.index(j)]
            record["q"], record["v"], record["measured"] = iq + offset, iv + offset, kind == BALL
            record["spring"], record["rest"] = spring, m.qpos_spring[iq + offset : iq + offset + 4]
        if m.jnt_actfrclimited[j]:
            dof[iv]["force_min"], dof[iv]["force_max"] = m.jnt_actfrcrange[j]
        dof["gravcomp_actuated"][_joint_dofs(m, j)] = m.jnt_actgravcomp[j]
    if m.opt.disableflags & off.mjDSBL_ACTUATION or not m.nactuator:  # then MuJoCo drops what passes through actuators
        dof["force_min"], dof["force_max"] = 0.0, 0.0
    dof["damper"] = dampers * np.column_stack([effective_damping(m), _damping_polynomial(m)])
    return _pack((dof, quat, *_tabulate_lines(m, springs, dampers)))


def effective_damping(m: mujoco.MjModel) -> Array:
    """Linear damping of each dof, with what actuators on its joint reflect."""
    return m.dof_damping + _reflected_on_dofs(m, m.actuator_damping)


def effective_armature(m: mujoco.MjModel) -> Array:
    """Armature of each dof, with what actuators on its joint reflect."""
    return m.dof_armature + _reflected_on_dofs(m, m.actuator_armature)


def _damping_polynomial(m: mujoco.MjModel) -> Array:
    reflected = [_reflected_on_dofs(m, m.actuator_dampingpoly[:, order]) for order in range(2)]
    return m.dof_dampingpoly + np.stack(reflected, axis=1)


def _reflected_on_dofs(m: mujoco.MjModel, per_actuator: Array) -> Array:
    """Coefficients of actuators, scaled by the gear ratio squared, on the dofs of the joints that they drive."""
    out = np.zeros(m.nv)
    for i in range(m.nactuator):
        if int(m.actuator_trntype[i]) in _JOINT_TRANSMISSIONS:
            out[_joint_dofs(m, m.actuator_trnid[i, 0])] += per_actuator[i] * _gear(m, i)[0] ** 2
    return out


def _reflected_on_tendon(m: mujoco.MjModel, tendon: int) -> Array:
    """Damper polynomial that actuators add to the tendon that they pull."""
    out = np.zeros(3)
    for i in range(m.nactuator):
        if m.actuator_trntype[i] == _TENDON_TRANSMISSION and m.actuator_trnid[i, 0] == tendon:
            out += np.array([m.actuator_damping[i], *m.actuator_dampingpoly[i]]) * _gear(m, i)[0] ** 2
    return out


def _on_ball(m: mujoco.MjModel, actuator: int) -> bool:
    joint = int(m.actuator_trntype[actuator]) in _JOINT_TRANSMISSIONS
    return joint and m.jnt_type[m.actuator_trnid[actuator, 0]] == BALL


def _joint_dofs(m: mujoco.MjModel, j: int) -> slice:
    start = int(m.jnt_dofadr[j])
    return slice(start, start + {FREE: 6, BALL: 3}.get(int(m.jnt_type[j]), 1))


def _gear(m: mujoco.MjModel, actuator: int) -> Array:
    return m.actuator_gear[m.actuator_outadr[actuator]]


def _tabulate_lines(m: mujoco.MjModel, springs: float, dampers: float) -> tuple[Records, Records]:
    lines: list[Any] = []
    rows: list[tuple[int, float, float, float]] = []

    def new_line(kind: int, entries: list[tuple[int, float, float]]) -> Any:
        record = np.zeros((), dtype=LINE)
        record["kind"], record["start"], record["stop"] = kind, len(rows), len(rows) + len(entries)
        rows.extend((*entry, 0.0) for entry in entries)
        lines.append(record[()])
        return lines[-1]

    for i in range(m.ntendon):
        spring = springs * np.array([m.tendon_stiffness[i], *m.tendon_stiffnesspoly[i]])
        damper = np.array([m.tendon_damping[i], *m.tendon_dampingpoly[i]])
        damper = dampers * (damper + _reflected_on_tendon(m, i))
        if spring.any() or damper.any():
            line = new_line(TENDON, _tendon_row(m, i))
            line["spring"], line["damper"], line["band"] = spring, damper, m.tendon_lengthspring[i]

    clamp = not m.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_CLAMPCTRL
    unlimited = (-np.inf, np.inf)
    for i in range(m.nactuator):
        if not _actuator_enabled(m, i):
            continue
        line = new_line(ACTUATOR, _actuator_row(m, i))
        control = line["control"] = m.actuator_ctrladr[i]
        affine_gain = m.actuator_gaintype[i] == mujoco.mjtGain.mjGAIN_AFFINE
        affine_bias = m.actuator_biastype[i] == mujoco.mjtBias.mjBIAS_AFFINE
        line["gain"] = m.actuator_gainprm[i, :3] * ([1.0, 1.0, 1.0] if affine_gain else [1.0, 0.0, 0.0])
        line["bias"] = m.actuator_biasprm[i, :3] * (1.0 if affine_bias else 0.0)
        line["control_range"] = (
            m.actuator_ctrlrange[control] if clamp and m.actuator_ctrllimited[control] else unlimited
        )
        line["force_range"] = m.actuator_forcerange[i] if m.actuator_forcelimited[i] else unlimited
        servo = not affine_gain and affine_bias and line["gain"][0] == -line["bias"][1]
        line["winding"] = 2 * np.pi * np.linalg.norm(_gear(m, i)[:3]) if servo and _on_ball(m, i) else np.inf
    return np.array(lines, dtype=LINE), np.array(rows, dtype=ROW)


def _actuator_enabled(m: mujoco.MjModel, i: int) -> bool:
    """Whether actuator `i` can exert a force at all; unsupported ones have been silenced by then."""
    if not (m.actuator_gainprm[i].any() or m.actuator_biasprm[i].any()):
        return False
    if m.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_ACTUATION:
        return False
    group = int(m.actuator_group[i])
    return not (0 <= group <= 30 and m.opt.disableactuator & (1 << group))


def _tendon_row(m: mujoco.MjModel, i: int) -> list[tuple[int, float, float]]:
    """Dofs a fixed tendon pulls on; a joint that stands in it twice counts twice."""
    row: dict[int, float] = {}
    for w in range(m.tendon_adr[i], m.tendon_adr[i] + m.tendon_num[i]):
        dof = int(m.jnt_dofadr[m.wrap_objid[w]])
        row[dof] = row.get(dof, 0.0) + float(m.wrap_prm[w])
    return [(dof, coef, coef) for dof, coef in row.items()]


def _actuator_row(m: mujoco.MjModel, i: int) -> list[tuple[int, float, float]]:
    gear = _gear(m, i)
    target = m.actuator_trnid[i, 0]
    if m.actuator_trntype[i] == _TENDON_TRANSMISSION:
        return [(dof, gear[0] * coef, gear[0] * coef) for dof, coef, _ in _tendon_row(m, target)]
    kind, iv = m.jnt_type[target], int(m.jnt_dofadr[target])
    if kind == FREE:  # MuJoCo gives a free joint no length to measure
        return [(iv + k, gear[k], 0.0) for k in range(6)]
    return [(iv + k, gear[k], gear[k]) for k in range(3 if kind == BALL else 1)]
