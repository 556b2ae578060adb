"""Where a model uses physics that is not simulated, and how its effect is removed; the parts of `features`' table."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.dynamics.actuators import can_push, has_transmission, on_joint, on_tendon, turns_in_parent
from tangens.dynamics.tree import FREE

Mask = NDArray[np.bool_]

_DYN, _GAIN, _BIAS, _TRN, _EQ = mujoco.mjtDyn, mujoco.mjtGain, mujoco.mjtBias, mujoco.mjtTrn, mujoco.mjtEq
_FLEX_FIELDS = ("stiffness", "bending", "edgestiffness", "edgedamping", "damping", "contype", "conaffinity")
_FLEX_EQUALITIES = [int(kind) for name, kind in _EQ.__members__.items() if "FLEX" in name]


def silence(m: mujoco.MjModel, which: Mask) -> None:
    """Let these actuators exert nothing, whatever their law was."""
    m.actuator_gaintype[which], m.actuator_biastype[which] = int(_GAIN.mjGAIN_FIXED), int(_BIAS.mjBIAS_NONE)
    m.actuator_dyntype[which], m.actuator_forcelimited[which] = int(_DYN.mjDYN_NONE), 0
    m.actuator_gainprm[which], m.actuator_biasprm[which] = 0.0, 0.0
    m.actuator_damping[which], m.actuator_dampingpoly[which], m.actuator_armature[which] = 0.0, 0.0, 0.0


def muscles(m: mujoco.MjModel) -> Mask:
    """Actuators with a muscle's dynamics, gain or bias."""
    return (
        (m.actuator_dyntype == int(_DYN.mjDYN_MUSCLE))
        | (m.actuator_gaintype == int(_GAIN.mjGAIN_MUSCLE))
        | (m.actuator_biastype == int(_BIAS.mjBIAS_MUSCLE))
    )


def stateful(m: mujoco.MjModel) -> Mask:
    """Other actuators with a state of their own."""
    return (m.actuator_dyntype != int(_DYN.mjDYN_NONE)) & ~muscles(m)


def odd_law(m: mujoco.MjModel) -> Mask:
    """Other actuators whose force is not affine in length, velocity and control."""
    plain = np.isin(m.actuator_gaintype, (int(_GAIN.mjGAIN_FIXED), int(_GAIN.mjGAIN_AFFINE)))
    plain &= np.isin(m.actuator_biastype, (int(_BIAS.mjBIAS_NONE), int(_BIAS.mjBIAS_AFFINE)))
    return ~plain & ~muscles(m) & ~stateful(m)


def odd_transmission(m: mujoco.MjModel) -> Mask:
    """Actuators that push something else than joints, tendons and sites."""
    return can_push(m) & ~(on_joint(m) | on_tendon(m) | _plain_sites(m))


def turning_transmission(m: mujoco.MjModel) -> Mask:
    """Actuators whose arms turn with q."""
    return can_push(m) & (_plain_sites(m) | turns_in_parent(m))


def _plain_sites(m: mujoco.MjModel) -> Mask:
    return has_transmission(m, _TRN.mjTRN_SITE) & (m.actuator_trnid[:, 1] < 0)  # without a refsite


def delayed(m: mujoco.MjModel) -> Mask:
    """Actuators that look at controls of the past."""
    return (m.actuator_delay > 0) | (m.actuator_history[:, 0] > 0)


def _spatial(m: mujoco.MjModel) -> Mask:
    return m.tendon_type == int(mujoco.mjtTendon.mjTENDON_SPATIAL)


def _pulled_by(m: mujoco.MjModel, actuators: Mask) -> Mask:
    """Tendons that some of these actuators pull."""
    return np.isin(np.arange(m.ntendon), m.actuator_trnid[actuators & on_tendon(m), 0])


def spatial_tendons(m: mujoco.MjModel) -> Mask:
    """Spatial tendons that pull on something, or are pulled."""
    reflects = m.actuator_damping.astype(bool) | m.actuator_dampingpoly.any(axis=1) | m.actuator_armature.astype(bool)
    acts = _pulled_by(m, can_push(m) | reflects) | np.isin(np.arange(m.ntendon), _equal_tendons(m))
    for field in ("stiffness", "damping", "armature", "frictionloss", "limited"):
        acts |= getattr(m, f"tendon_{field}").astype(bool)
    return _spatial(m) & (acts | m.tendon_stiffnesspoly.any(axis=1) | m.tendon_dampingpoly.any(axis=1))


def _equal_tendons(m: mujoco.MjModel) -> NDArray[np.int64]:
    active = (m.eq_type == int(_EQ.mjEQ_TENDON)) & m.eq_active0.astype(bool)
    return np.concatenate([m.eq_obj1id[active], m.eq_obj2id[active]])


def slacken_spatial_tendons(m: mujoco.MjModel) -> None:
    """Remove all that spatial tendons do."""
    which = _spatial(m)
    for field in ("stiffness", "stiffnesspoly", "damping", "dampingpoly", "frictionloss", "armature", "limited"):
        getattr(m, f"tendon_{field}")[which] = 0
    pulls = on_tendon(m)
    pulls[pulls] = which[m.actuator_trnid[pulls, 0]]
    silence(m, pulls)
    tendons = np.flatnonzero(which)
    tied = np.isin(m.eq_obj1id, tendons) | np.isin(m.eq_obj2id, tendons)
    m.eq_active0[tied & (m.eq_type == int(_EQ.mjEQ_TENDON))] = 0


def heavy_tendons(m: mujoco.MjModel) -> Mask:
    """Fixed tendons with armature of their own or from an actuator."""
    return ((m.tendon_armature > 0) | _pulled_by(m, m.actuator_armature > 0)) & ~_spatial(m)


def drop_tendon_armature(m: mujoco.MjModel) -> None:
    """Remove it."""
    m.tendon_armature[:] = 0.0
    m.actuator_armature[on_tendon(m)] = 0.0


def polynomial_free_springs(m: mujoco.MjModel) -> Mask:
    """Free joints whose spring is not linear."""
    return (m.jnt_type == FREE) & m.jnt_stiffnesspoly.any(axis=1)


def linearise_free_springs(m: mujoco.MjModel) -> None:
    """Keep the linear part."""
    m.jnt_stiffnesspoly[polynomial_free_springs(m)] = 0.0


def flexes(m: mujoco.MjModel) -> Mask:
    """All deformable bodies, if they do anything."""
    acts = any(getattr(m, f"flex_{field}").any() for field in _FLEX_FIELDS)
    tied = m.eq_active0[np.isin(m.eq_type, _FLEX_EQUALITIES)].any()
    return np.full(m.nflex, acts or bool(tied))


def soften_flexes(m: mujoco.MjModel) -> None:
    """Remove their forces, contacts and equalities; their points stay as bodies."""
    for field in _FLEX_FIELDS:
        getattr(m, f"flex_{field}")[:] = 0
    m.eq_active0[np.isin(m.eq_type, _FLEX_EQUALITIES)] = 0
