"""The actuators of a MuJoCo model: what each can exert, and by which arms.

An actuator acts through a *transmission*. On joints and fixed tendons its arms are constant. On a site, or on a ball or
free joint in the parent's axes, they turn with q.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.dynamics.tree import BALL, FREE

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_TRN, _GAIN, _BIAS, _OFF = mujoco.mjtTrn, mujoco.mjtGain, mujoco.mjtBias, mujoco.mjtDisableBit


@dataclass(frozen=True)
class ActuatorForces:
    """The actuators that can exert a force: gain·(1, length, velocity)·control + bias·(1, length, velocity)."""

    control: Ints
    """Entry of u, (n,)."""
    gain: Array
    """(n, 3)."""
    bias: Array
    """(n, 3)."""
    control_range: Array
    """(n, 2)."""
    force_range: Array
    """(n, 2)."""
    winding: Array
    """A servo on a ball joint goes to the nearest winding of its set point: its size, else infinite; (n,)."""
    arm: Array
    """∂velocity/∂v, (n, nv). Rows of `site` are zero; those of `in_parent` are meant in the parent's axes."""
    length: Array
    """∂length/∂coordinate, (n, nv)."""
    gear: Array
    """(n, 6)."""
    tendon: Ints
    """That it pulls, else −1; (n,)."""
    site: Ints
    """That it pushes along the site's axes, else −1; (n,)."""
    in_parent: Ints
    """Ball or free joint that it turns about the parent's axes, else −1; (n,)."""


def has_transmission(m: mujoco.MjModel, *kinds: mujoco.mjtTrn) -> Mask:
    """Whether each actuator has one of these transmissions, (nactuator,)."""
    return np.isin(m.actuator_trntype, [int(kind) for kind in kinds])


def on_joint(m: mujoco.MjModel) -> Mask:
    """Whether each actuator drives a joint, (nactuator,)."""
    return has_transmission(m, _TRN.mjTRN_JOINT, _TRN.mjTRN_JOINTINPARENT)


def on_tendon(m: mujoco.MjModel) -> Mask:
    """Whether each actuator pulls a tendon, (nactuator,)."""
    return has_transmission(m, _TRN.mjTRN_TENDON)


def turns_in_parent(m: mujoco.MjModel) -> Mask:
    """Whether each actuator turns a ball or free joint about axes of the parent, (nactuator,)."""
    rotary = np.isin(m.jnt_type, (FREE, BALL))
    mask = has_transmission(m, _TRN.mjTRN_JOINTINPARENT)
    mask[mask] = rotary[m.actuator_trnid[mask, 0]]
    return mask


def can_push(m: mujoco.MjModel) -> Mask:
    """Whether each actuator can exert a force, (nactuator,).

    A disabled one can if zero is out of its force range: MuJoCo clamps the force of all.
    """
    law = (m.actuator_gainprm.any(axis=1) | m.actuator_biasprm.any(axis=1)) & _group_enabled(m)
    low, high = m.actuator_forcerange.T
    clamped = m.actuator_forcelimited.astype(bool) & ((low > 0) | (high < 0))
    return (law | clamped) & (not m.opt.disableflags & _OFF.mjDSBL_ACTUATION)


def _group_enabled(m: mujoco.MjModel) -> Mask:
    group = m.actuator_group
    return ~((group >= 0) & (group <= 30) & (m.opt.disableactuator >> np.clip(group, 0, 30) & 1 == 1))


def read_actuators(m: mujoco.MjModel, tendon_arm: Array) -> ActuatorForces:
    """Read those that can push. `tendon_arm` (ntendon, nv) are the arms of the tendons."""
    which = np.flatnonzero(can_push(m))
    gear, control = m.actuator_gear[m.actuator_outadr[which]], m.actuator_ctrladr[which].astype(np.int64)
    gain, bias = _law(m, which)
    target = m.actuator_trnid[which, 0].astype(np.int64)
    arm, length = _arms(m, which, gear, tendon_arm)
    clamp = not m.opt.disableflags & _OFF.mjDSBL_CLAMPCTRL
    return ActuatorForces(
        control=control,
        gain=gain,
        bias=bias,
        control_range=limits(m.actuator_ctrlrange, clamp & m.actuator_ctrllimited.astype(bool))[control],
        force_range=limits(m.actuator_forcerange, m.actuator_forcelimited)[which],
        winding=_winding(m, which, gear, gain, bias),
        arm=arm,
        length=length,
        gear=gear,
        tendon=np.where(on_tendon(m)[which], target, -1),
        site=np.where(has_transmission(m, _TRN.mjTRN_SITE)[which], target, -1),
        in_parent=np.where(turns_in_parent(m)[which], target, -1),
    )


def _law(m: mujoco.MjModel, which: Ints) -> tuple[Array, Array]:
    """Gain and bias, (n, 3) each."""
    affine_gain = m.actuator_gaintype[which] == int(_GAIN.mjGAIN_AFFINE)
    affine_bias = m.actuator_biastype[which] == int(_BIAS.mjBIAS_AFFINE)
    enabled = _group_enabled(m)[which, None]
    gain = m.actuator_gainprm[which, :3] * np.where(affine_gain[:, None], 1.0, [1.0, 0.0, 0.0])
    bias = m.actuator_biasprm[which, :3] * affine_bias[:, None]
    return enabled * gain, enabled * bias


def _winding(m: mujoco.MjModel, which: Ints, gear: Array, gain: Array, bias: Array) -> Array:
    on_ball = on_joint(m)[which]
    on_ball[on_ball] = m.jnt_type[m.actuator_trnid[which[on_ball], 0]] == BALL
    fixed_gain = m.actuator_gaintype[which] == int(_GAIN.mjGAIN_FIXED)
    servo = on_ball & fixed_gain & (bias[:, 1] != 0) & (gain[:, 0] == -bias[:, 1])
    return np.where(servo, 2 * np.pi * np.linalg.norm(gear[:, :3], axis=1), np.inf)


def _arms(m: mujoco.MjModel, which: Ints, gear: Array, tendon_arm: Array) -> tuple[Array, Array]:
    """∂velocity/∂v and ∂length/∂coordinate, (n, nv) each."""
    arm, length = np.zeros((len(which), m.nv)), np.zeros((len(which), m.nv))
    joints, tendons = on_joint(m), on_tendon(m)
    for row, i in enumerate(which):
        target = m.actuator_trnid[i, 0]
        if tendons[i]:
            arm[row] = length[row] = gear[row, 0] * tendon_arm[target]
        elif joints[i]:
            dofs = np.flatnonzero(m.dof_jntid == target)
            arm[row, dofs] = gear[row, : len(dofs)]
            if m.jnt_type[target] != FREE:  # MuJoCo gives a free joint no length to measure
                length[row, dofs] = arm[row, dofs]
    return arm, length


def limits(values: Array, limited: NDArray[np.generic]) -> Array:
    """Ranges (n, 2), infinite where there is no limit."""
    return np.where(np.asarray(limited, bool)[:, None], values, [-np.inf, np.inf])
