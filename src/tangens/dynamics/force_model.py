"""The springs, dampers, tendons and actuators of a MuJoCo model, read once for both numeric worlds.

`read_forces` returns plain NumPy arrays. What the model disables is zero in them already. `force_elements` packs them
for compiled code, `forces_jax` evaluates them in JAX. What is not in them is refused by `features`.

Springs are polynomials a·x + b·x² + c·x³, dampers a·v + b·v|v| + c·v³; the three numbers are a row.

A *line* is a linear combination of coordinates. There is one coordinate for each degree of freedom: a position or an
angle, or an entry of a ball joint's rotation vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.dynamics.actuators import ActuatorForces, limits, on_joint, on_tendon, read_actuators

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_Off = mujoco.mjtDisableBit


@dataclass(frozen=True)
class DofForces:
    """What acts on single degrees of freedom, and on quaternions."""

    spring: Array
    """Of the joint that each dof belongs to, (nv, 3). Taken of the coordinate, or of a vector's length."""
    rest: Array
    """Where springs are relaxed, (nq,)."""
    damper: Array
    """Of each dof, with what actuators reflect, (nv, 3)."""
    reflected_damping: Array
    """The share of actuators in the linear damping, (nv,)."""
    reflected_armature: Array
    """What actuators add to the armature, (nv,)."""
    force_range: Array
    """Limits of the total actuator force, (nv, 2)."""
    gravcomp_actuated: Mask
    """Whether gravity compensation counts as an actuator's force, (nv,)."""


@dataclass(frozen=True)
class TendonForces:
    """What acts along fixed tendons. Spatial tendons have rows of zeros."""

    arm: Array
    """∂length/∂coordinate, which is the moment arm too, (ntendon, nv)."""
    spring: Array
    """(ntendon, 3), of the length outside the dead band."""
    band: Array
    """Lengths between which the spring is relaxed, (ntendon, 2)."""
    damper: Array
    """With what actuators reflect, (ntendon, 3)."""
    armature: Array
    """With what actuators reflect, (ntendon,)."""
    force_range: Array
    """Limits of the total actuator force, (ntendon, 2)."""


@dataclass(frozen=True)
class ForceModel:
    """All of them, and gravity compensation."""

    dofs: DofForces
    tendons: TendonForces
    actuators: ActuatorForces
    gravcomp: Array
    """Share of each body's weight, (nbody,)."""
    dampers: bool
    """Whether dampers are enabled at all."""


def read_forces(m: mujoco.MjModel) -> ForceModel:
    """Read a compiled model in which only supported features are left."""
    tendons = _tendons(m)
    return ForceModel(
        _dofs(m), tendons, read_actuators(m, tendons.arm), _gravity_compensation(m), _enabled(m, _Off.mjDSBL_DAMPER) > 0
    )


def is_implicit(m: mujoco.MjModel) -> bool:
    """Whether a model asks for implicit damping of tendons and actuators."""
    kind = mujoco.mjtIntegrator
    return int(m.opt.integrator) in (int(kind.mjINT_IMPLICITFAST), int(kind.mjINT_IMPLICIT))


def mass_pattern(m: mujoco.MjModel) -> Mask:
    """Where the mass matrix has entries, (nv, nv)."""
    out = np.zeros((m.nv, m.nv), dtype=bool)
    row = np.repeat(np.arange(m.nv), m.M_rownnz)
    out[row, m.M_colind] = out[m.M_colind, row] = True
    return out


def effective_armature(m: mujoco.MjModel) -> Array:
    """Armature of each dof, with what actuators on its joint reflect."""
    return m.dof_armature + _reflected_on_dofs(m, m.actuator_armature)


def _enabled(m: mujoco.MjModel, flag: mujoco.mjtDisableBit) -> float:
    return 0.0 if m.opt.disableflags & flag else 1.0


def _dofs(m: mujoco.MjModel) -> DofForces:
    own_damper = np.column_stack([m.actuator_damping, m.actuator_dampingpoly])
    dampers = _enabled(m, _Off.mjDSBL_DAMPER)
    reflected = dampers * _reflected_on_dofs(m, own_damper)
    return DofForces(
        spring=_enabled(m, _Off.mjDSBL_SPRING) * np.column_stack([m.jnt_stiffness, m.jnt_stiffnesspoly])[m.dof_jntid],
        rest=m.qpos_spring.copy(),
        damper=dampers * np.column_stack([m.dof_damping, m.dof_dampingpoly]) + reflected,
        reflected_damping=reflected[:, 0],
        reflected_armature=_reflected_on_dofs(m, m.actuator_armature),
        force_range=_joint_force_range(m),
        gravcomp_actuated=m.jnt_actgravcomp.astype(bool)[m.dof_jntid],
    )


def _joint_force_range(m: mujoco.MjModel) -> Array:
    if not m.nactuator or m.opt.disableflags & _Off.mjDSBL_ACTUATION:
        return np.zeros((m.nv, 2))  # MuJoCo drops all that passes through actuators
    first = m.jnt_dofadr[m.dof_jntid] == np.arange(m.nv)  # the only one of a ball joint that MuJoCo would clamp
    return limits(m.jnt_actfrcrange[m.dof_jntid], first & m.jnt_actfrclimited.astype(bool)[m.dof_jntid])


def _tendons(m: mujoco.MjModel) -> TendonForces:
    arm = np.zeros((m.ntendon, m.nv))
    for tendon in np.flatnonzero(m.tendon_type == int(mujoco.mjtTendon.mjTENDON_FIXED)):
        for wrap in range(m.tendon_adr[tendon], m.tendon_adr[tendon] + m.tendon_num[tendon]):
            arm[tendon, m.jnt_dofadr[m.wrap_objid[wrap]]] += m.wrap_prm[wrap]

    def reflected(values: Array) -> Array:
        return _reflected(m, on_tendon(m), m.tendon_actuatorid, values)

    own_damper = np.column_stack([m.actuator_damping, m.actuator_dampingpoly])
    damper = np.column_stack([m.tendon_damping, m.tendon_dampingpoly]) + reflected(own_damper)
    return TendonForces(
        arm=arm,
        spring=_enabled(m, _Off.mjDSBL_SPRING) * np.column_stack([m.tendon_stiffness, m.tendon_stiffnesspoly]),
        band=m.tendon_lengthspring.copy(),
        damper=_enabled(m, _Off.mjDSBL_DAMPER) * damper,
        armature=m.tendon_armature + reflected(m.actuator_armature),
        force_range=limits(m.tendon_actfrcrange, m.tendon_actfrclimited),
    )


def _reflected_on_dofs(m: mujoco.MjModel, values: Array) -> Array:
    return _reflected(m, on_joint(m), m.jnt_actuatorid, values)[m.dof_jntid]


def _reflected(m: mujoco.MjModel, drives: Mask, contributor: Ints, values: Array) -> Array:
    """Coefficients of actuators, times the gear ratio squared, on the joints or tendons that they drive.

    `contributor` is MuJoCo's note, from when it compiled the model, of whose coefficients count: one actuator's, none's
    (−1) or those of all that drive it (below −1).
    """
    out = np.zeros((len(contributor), *values.shape[1:]))
    for i in np.flatnonzero(drives):
        target = m.actuator_trnid[i, 0]
        if contributor[target] == i or contributor[target] < -1:
            out[target] += values[i] * m.actuator_gear[m.actuator_outadr[i], 0] ** 2
    return out


def _gravity_compensation(m: mujoco.MjModel) -> Array:
    # With springs and dampers both disabled, MuJoCo computes no passive force at all.
    passive = _enabled(m, _Off.mjDSBL_SPRING) or _enabled(m, _Off.mjDSBL_DAMPER)
    counts = m.ngravcomp and passive and _enabled(m, _Off.mjDSBL_GRAVITY)
    return m.body_gravcomp.copy() if counts else np.zeros(m.nbody)
