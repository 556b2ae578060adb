"""Forces that joints, tendons and actuators exert by themselves, and how they change with q, v and u.

All derivatives flow; beyond a clamp (control or force limits) and inside a tendon's dead band they are zero, as the
force is constant there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tangens.dynamics.force_elements import TENDON, Records, unpack
from tangens.dynamics.rotations import quat_log, quat_multiply, right_jacobian_inverse
from tangens.kernels import fixed_floats, floats, inline, kernel

Array = NDArray[np.float64]


@kernel(floats(1), floats(1), fixed_floats(1), fixed_floats(1), fixed_floats(1), fixed_floats(1), fixed_floats(1))
def evaluate_forces(
    elements: Array, tau: Array, q: Array, v: Array, u: Array, applied: Array, gravcomp: Array
) -> None:  # fmt: skip
    """Fill `tau` and the records' derivatives at (q, v, u); `applied` and gravity compensation are added."""
    dof, quat, line, row = unpack(elements)
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


@inline
def _polynomial(p: Array, x: float) -> tuple[float, float]:
    """A spring's force polynomial and its slope."""
    return p[0] * x + p[1] * x * x + p[2] * x * x * x, p[0] + 2.0 * p[1] * x + 3.0 * p[2] * x * x


@inline
def _odd_polynomial(p: Array, x: float) -> tuple[float, float, float]:
    """A damper's force polynomial, in which x² is x|x|, with slope and curvature."""
    return (
        p[0] * x + p[1] * x * abs(x) + p[2] * x * x * x,
        p[0] + 2.0 * p[1] * abs(x) + 3.0 * p[2] * x * x,
        2.0 * p[1] * np.sign(x) + 6.0 * p[2] * x,
    )


@inline
def _clamp(x: float, lo: float, hi: float) -> tuple[float, float]:
    """X within its limits, and the slope of that."""
    if x < lo or lo == hi:
        return lo, 0.0
    if x > hi:
        return hi, 0.0
    return x, 1.0


@inline
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


@inline
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


@inline
def _tendon_force(line: Any, length: float, velocity: float) -> float:
    damping, slope, curvature = _odd_polynomial(line.damper, velocity)
    stretch = 0.0
    if length > line.band[1]:
        stretch = length - line.band[1]
    elif length < line.band[0]:
        stretch = length - line.band[0]
    pull, stiffness = _polynomial(line.spring, stretch)
    line.d_length = -stiffness if stretch != 0.0 else 0.0
    line.d_velocity, line.d_control = -slope, 0.0
    line.d_velocity_velocity, line.d_velocity_control = -curvature, 0.0
    return -pull - damping


@inline
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
    line.d_velocity_velocity, line.d_velocity_control = 0.0, slope * line.gain[2] * control_slope
    return force
