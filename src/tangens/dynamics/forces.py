"""Forces that joints, tendons and actuators exert by themselves, and how they change with q, v and u.

Two kinds of elements cover what a scene may hold. A degree of freedom has a spring and a damper of its own. A *line*
is a linear combination of coordinates that pulls on them: a fixed tendon's spring and damper, or an actuator acting
through a joint or a fixed tendon. All derivatives flow; at a clamp (control or force limits) and inside a tendon's dead
band they are zero, as the force is constant there.

The elements are NumPy records: compiled code takes a few record arrays much quicker than many plain ones. Each record
holds what an element is and, below the line, its derivatives at the state evaluated last.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import mujoco
import numba
import numpy as np
from numpy.typing import NDArray

from tangens.dynamics.rotations import quat_log, quat_multiply, right_jacobian_inverse
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
    """All springs, dampers, tendons and actuators of a scene."""

    dof: Records
    quat: Records
    line: Records
    row: Records


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
    return ForceElements(dof, quat, *_tabulate_lines(m, springs, dampers))


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


@numba.njit(cache=True)
def evaluate_forces(
    dof: Records, quat: Records, line: Records, row: Records, tau: Array, q: Array, v: Array, u: Array, applied: Array,
    gravcomp: Array,
) -> None:  # fmt: skip
    """Fill `tau` and the records' derivatives at (q, v, u); `applied` and gravity compensation are added."""
    nv = v.shape[0]
    actuation = np.zeros(nv)
    angle = np.zeros(nv)  # rotation vectors of ball joints: the coordinates that lines measure
    for i in range(nv):
        joint = dof[i]
        damper, spring = joint.damper, joint.spring
        force, slope, curvature = _odd_polynomial(damper, v[i])
        tau[i] = applied[i] - force
        joint.dv, joint.dvv, joint.dq = -slope, -curvature, 0.0
        if joint.coordinate >= 0 and (spring[0] != 0.0 or spring[1] != 0.0 or spring[2] != 0.0):
            force, slope = _polynomial(spring, q[joint.coordinate] - joint.rest)
            tau[i] -= force
            joint.dq = -slope
        if joint.gravcomp_actuated:
            actuation[i] += gravcomp[i]
        else:
            tau[i] += gravcomp[i]

    for k in range(quat.shape[0]):
        iq, iv = quat[k].q, quat[k].v
        _rotational_spring(q[iq : iq + 4], quat[k].spring, quat[k].rest, tau[iv : iv + 3], quat[k].dq)
        if quat[k].measured:
            quat_log(q[iq : iq + 4], angle[iv : iv + 3])

    for e in range(line.shape[0]):
        length, velocity = 0.0, 0.0
        for r in range(line[e].start, line[e].stop):
            i = row[r].dof
            x = q[dof[i].coordinate] if dof[i].coordinate >= 0 else angle[i]
            length += row[r].length * x
            velocity += row[r].moment * v[i]
            row[r].lever = row[r].length
        if line[e].kind == TENDON:
            force = _tendon_force(line[e], length, velocity)
            for r in range(line[e].start, line[e].stop):
                tau[row[r].dof] += row[r].moment * force
        else:
            force = _actuator_force(line[e], length, velocity, u[line[e].control])
            for r in range(line[e].start, line[e].stop):
                actuation[row[r].dof] += row[r].moment * force

    for k in range(quat.shape[0]):
        if quat[k].measured:
            _levers_in_tangent_space(row, quat[k].v, angle[quat[k].v : quat[k].v + 3])
    for i in range(nv):
        force, dof[i].unclamped = _clamp(actuation[i], dof[i].force_min, dof[i].force_max)
        tau[i] += force


@numba.njit(cache=True)
def _polynomial(p: Array, x: float) -> tuple[float, float]:
    """A spring's force polynomial and its slope."""
    return p[0] * x + p[1] * x * x + p[2] * x * x * x, p[0] + 2.0 * p[1] * x + 3.0 * p[2] * x * x


@numba.njit(cache=True)
def _odd_polynomial(p: Array, x: float) -> tuple[float, float, float]:
    """A damper's force polynomial, in which x² is x|x|, with slope and curvature."""
    return (
        p[0] * x + p[1] * x * abs(x) + p[2] * x * x * x,
        p[0] + 2.0 * p[1] * abs(x) + 3.0 * p[2] * x * x,
        2.0 * p[1] * np.sign(x) + 6.0 * p[2] * x,
    )


@numba.njit(cache=True)
def _clamp(x: float, lo: float, hi: float) -> tuple[float, float]:
    """X within its limits, and the slope of that."""
    if x < lo or lo == hi:
        return lo, 0.0
    if x > hi:
        return hi, 0.0
    return x, 1.0


@numba.njit(cache=True)
def _rotational_spring(q: Array, spring: Array, rest: Array, tau: Array, slope: Array) -> None:
    """Spring that turns a ball or free joint back to its reference."""
    for i in range(3):
        for j in range(3):
            slope[i, j] = 0.0
    if spring[0] == 0.0 and spring[1] == 0.0 and spring[2] == 0.0:
        return
    conjugate, relative, w = np.empty(4), np.empty(4), np.empty(3)
    conjugate[0] = rest[0]
    for i in range(3):
        conjugate[1 + i] = -rest[1 + i]
    quat_multiply(conjugate, q, relative)
    quat_log(relative, w)
    angle = math.sqrt(w[0] ** 2 + w[1] ** 2 + w[2] ** 2)
    stiffness = spring[0] + spring[1] * angle + spring[2] * angle * angle
    growth = (spring[1] + 2.0 * spring[2] * angle) / angle if angle > 0.0 else 0.0
    log_d = np.empty((3, 3))
    right_jacobian_inverse(w, log_d)
    for i in range(3):
        tau[i] -= stiffness * w[i]
        for j in range(3):
            slope[i, j] = -stiffness * log_d[i, j]
            for k in range(3):
                slope[i, j] -= growth * w[i] * w[k] * log_d[k, j]


@numba.njit(cache=True)
def _levers_in_tangent_space(row: Records, first_dof: int, angle: Array) -> None:
    """Turn ∂length/∂(rotation vector) of lines along a ball joint into ∂length/∂q."""
    log_d = np.empty((3, 3))
    right_jacobian_inverse(angle, log_d)
    for r in range(row.shape[0]):
        if row[r].dof == first_dof:
            for j in range(3):
                row[r + j].lever = 0.0
                for i in range(3):
                    row[r + j].lever += row[r + i].length * log_d[i, j]


@numba.njit(cache=True)
def _tendon_force(line: Any, length: float, velocity: float) -> float:
    damping, slope, _ = _odd_polynomial(line.damper, velocity)
    stretch = 0.0
    if length > line.band[1]:
        stretch = length - line.band[1]
    elif length < line.band[0]:
        stretch = length - line.band[0]
    pull, stiffness = _polynomial(line.spring, stretch)
    line.d_length = -stiffness if stretch != 0.0 else 0.0
    line.d_velocity, line.d_control = -slope, 0.0
    return -pull - damping


@numba.njit(cache=True)
def _actuator_force(line: Any, length: float, velocity: float, control: float) -> float:
    control, control_slope = _clamp(control, line.control_range[0], line.control_range[1])
    if line.winding < np.inf:
        control -= line.winding * np.round((control - length) / line.winding)
    gain = line.gain[0] + line.gain[1] * length + line.gain[2] * velocity
    bias = line.bias[0] + line.bias[1] * length + line.bias[2] * velocity
    force, slope = _clamp(gain * control + bias, line.force_range[0], line.force_range[1])
    line.d_length = slope * (line.gain[1] * control + line.bias[1])
    line.d_velocity = slope * (line.gain[2] * control + line.bias[2])
    line.d_control = slope * gain * control_slope
    return force
