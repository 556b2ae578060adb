"""Forces of joints, tendons and actuators in JAX: MuJoCo's `qfrc_passive` and `qfrc_actuator`.

The twin of `forces`, for `smooth`. All derivatives flow; clamps, the slack of tendons and |v| keep their kinks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import mjtBias, mjtGain, mjtJoint, mjtTrn
from mujoco import mjtDisableBit as Off
from numpy.typing import NDArray

from tangens.dynamics.layout import JointLayout
from tangens.dynamics.tangent_jax import difference, quat_log
from tangens.dynamics.tree import rotation_matrix

Values = dict[str, jax.Array]
_Array = NDArray[np.float64]

# As numbers: to `in`, an enum of MuJoCo and an integer of NumPy are never equal.
_ON_JOINT = (int(mjtTrn.mjTRN_JOINT), int(mjtTrn.mjTRN_JOINTINPARENT))
_SCALAR = (int(mjtJoint.mjJNT_SLIDE), int(mjtJoint.mjJNT_HINGE))


class _Tables(NamedTuple):
    """Coefficients of springs, dampers and actuators. A polynomial's columns: linear, quadratic, cubic."""

    armature: jax.Array  # (nv, nv) what tendons and actuators add to the mass matrix
    rest: jax.Array  # (nq,) where joint springs are relaxed
    stiffness: jax.Array  # (nv, 3)
    damping: jax.Array  # (nv, 3) without the parameter `damping`
    tendon_q: jax.Array  # (ntendon, nq) ∂length/∂q
    tendon_v: jax.Array  # (ntendon, nv) the same in the tangent space
    tendon_slack: jax.Array  # (ntendon, 2) lengths between which the spring is relaxed
    tendon_stiffness: jax.Array  # (ntendon, 3)
    tendon_damping: jax.Array  # (ntendon, 3)
    length: jax.Array  # (nu, nq) ∂length/∂q of the actuators for which it is constant
    moment: jax.Array  # (nu, nv) moment arms of the actuators for which they are constant
    gear: jax.Array  # (nu, 6)
    gain: jax.Array  # (nu, 3) force = gain · (1, length, rate) · u + bias · (1, length, rate)
    bias: jax.Array  # (nu, 3)
    period: jax.Array  # (nu,) one winding of a servo on a ball joint; infinite for the others
    control_range: jax.Array  # (nu, 2)
    force_range: jax.Array  # (nu, 2)
    joint_force_range: jax.Array  # (nv, 2) of all actuators together
    by_actuator: jax.Array  # (nv,) 1 where gravity compensation counts as an actuator's force


class JointForces:
    """Springs, dampers, gravity compensation and actuators: MuJoCo's `qfrc_passive` and `qfrc_actuator`.

    Not MJX's: in 3.17 it leaves out polynomial stiffness and damping and what actuators reflect, drops all
    passive forces if either springs or dampers are disabled, and has wrong derivatives at a relaxed ball joint.
    """

    def __init__(self, model: mujoco.MjModel, layout: JointLayout) -> None:
        self.model, self.layout = model, layout
        self.moves = _moves(model)
        self.tables = _tabulate(model)

    def __call__(self, p: Values, data: Any, q: jax.Array, v: jax.Array, u: jax.Array) -> jax.Array:
        """Return the sum of all of them (nv,)."""
        t = _Tables(**{name: jnp.asarray(x, q.dtype) for name, x in self.tables.items()})
        weight = self._gravity_compensation(p, data)
        force = weight * (1 - t.by_actuator)
        if not self.off(Off.mjDSBL_SPRING):
            force += self._springs(t, q)
        if not self.off(Off.mjDSBL_DAMPER):
            force += self._dampers(p, t, v)
        if self.model.nu and not self.off(Off.mjDSBL_ACTUATION):
            force += _clip(self._actuators(t, data, q, v, u) + weight * t.by_actuator, t.joint_force_range)
        return force

    def off(self, flag: Off) -> bool:
        """Whether the model disables this part of the physics."""
        return bool(self.model.opt.disableflags & flag)

    def damping(self, p: Values) -> jax.Array:
        """Return the damping polynomial of each dof (nv, 3), what actuators reflect included."""
        return jnp.asarray(self.tables["damping"], p["damping"].dtype).at[:, 0].add(p["damping"])

    def _springs(self, t: _Tables, q: jax.Array) -> jax.Array:
        force = jnp.zeros(self.layout.nv, q.dtype)
        if self.tables["stiffness"].any():
            x = argument = difference(self.layout, t.rest, q)
            for i in _vector_springs(self.model):  # whose polynomial is taken of the vector's length
                argument = argument.at[i : i + 3].set(_norm(x[i : i + 3]))
            force -= x * _polynomial(t.stiffness, argument)
        if self.tables["tendon_stiffness"].any():
            length = t.tendon_q @ q
            # Not length - clip(length): without slack, this has the slope of a plain spring at its rest length too.
            x = jnp.minimum(length - t.tendon_slack[:, 0], 0) + jnp.maximum(length - t.tendon_slack[:, 1], 0)
            force -= (x * _polynomial(t.tendon_stiffness, x)) @ t.tendon_v
        return force

    def _dampers(self, p: Values, t: _Tables, v: jax.Array) -> jax.Array:
        force = -v * _polynomial(self.damping(p), absolute(v))
        if self.tables["tendon_damping"].any():
            rate = t.tendon_v @ v
            force -= (rate * _polynomial(t.tendon_damping, absolute(rate))) @ t.tendon_v
        return force

    def _gravity_compensation(self, p: Values, data: Any) -> jax.Array:
        share = jnp.asarray(self.model.body_gravcomp, p["mass"].dtype)
        # Disabling both springs and dampers is how MuJoCo disables all that is passive.
        idle = self.off(Off.mjDSBL_GRAVITY) or (self.off(Off.mjDSBL_SPRING) and self.off(Off.mjDSBL_DAMPER))
        if idle or not self.model.body_gravcomp.any():
            return jnp.zeros(self.layout.nv, share.dtype)
        lift = -(p["mass"] * share)[:, None] * p["gravity"]
        arm = data.xipos - data.subtree_com[self.model.body_rootid]
        wrench = jnp.hstack([jnp.cross(arm, lift), lift])
        return jnp.sum(data.cdof * (jnp.asarray(self.moves, lift.dtype) @ wrench), axis=1)

    def _actuators(self, t: _Tables, data: Any, q: jax.Array, v: jax.Array, u: jax.Array) -> jax.Array:
        m = self.model
        length, moment = self._transmission(t, data, q)
        if not self.off(Off.mjDSBL_CLAMPCTRL):
            u = _clip(u, t.control_range)
        if np.isfinite(self.tables["period"]).any():  # go to the setpoint's nearest winding
            windings = jnp.round((u - length) / t.period)
            u -= jnp.where(windings == 0, 0, windings * t.period)
        measured = jnp.stack([jnp.ones_like(u), length, moment @ v], axis=1)
        force = jnp.sum(t.gain * measured, axis=1) * u + jnp.sum(t.bias * measured, axis=1)
        for tendon in np.flatnonzero(m.tendon_actfrclimited):
            pulls = (m.actuator_trntype == mjtTrn.mjTRN_TENDON) & (m.actuator_trnid[:, 0] == tendon)
            total = jnp.sum(force, where=pulls)
            allowed = jnp.clip(total, *m.tendon_actfrcrange[tendon].tolist())
            share = jnp.where(total == allowed, 1, allowed / jnp.where(total == 0, 1, total))
            force = jnp.where(pulls, share * force, force)
        return _clip(force, t.force_range) @ moment

    def _transmission(self, t: _Tables, data: Any, q: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the actuators' lengths (nu,) and moment arms (nu, nv)."""
        m = self.model
        length, moment = t.length @ q, t.moment
        for i, (kind, target) in enumerate(zip(m.actuator_trntype, m.actuator_trnid[:, 0], strict=True)):
            if kind == mjtTrn.mjTRN_SITE:
                moment = moment.at[i].set(self._site_moment(data, target, t.gear[i]))
            elif kind in _ON_JOINT and m.jnt_type[target] not in _SCALAR:
                free = 3 * int(m.jnt_type[target] == mjtJoint.mjJNT_FREE)
                at_q, at_v = m.jnt_qposadr[target] + free, m.jnt_dofadr[target] + free
                quat, axis = q[at_q : at_q + 4], t.gear[i, free : free + 3]
                if kind == mjtTrn.mjTRN_JOINTINPARENT:
                    axis = _rotate_back(quat, axis)
                    moment = moment.at[i, at_v : at_v + 3].set(axis)
                if not free:  # MuJoCo gives a free joint no length
                    length = length.at[i].set(quat_log(quat) @ axis)
        return length, moment

    def _site_moment(self, data: Any, site: int, gear: jax.Array) -> jax.Array:
        m, body = self.model, self.model.site_bodyid[site]
        axes = data.xmat[body] @ jnp.asarray(rotation_matrix(m.site_quat[site]), gear.dtype)
        arm = data.xpos[body] + data.xmat[body] @ jnp.asarray(m.site_pos[site], gear.dtype)
        arm -= data.subtree_com[m.body_rootid[body]]
        force, torque = axes @ gear[:3], axes @ gear[3:]
        wrench = jnp.concatenate([torque + jnp.cross(arm, force), force])
        return (data.cdof @ wrench * self.moves[:, body]).astype(gear.dtype)


def _polynomial(c: jax.Array, x: jax.Array) -> jax.Array:
    """Return c₀ + c₁ x + c₂ x², row by row."""
    return c[:, 0] + x * (c[:, 1] + x * c[:, 2])


def _clip(x: jax.Array, limits: jax.Array) -> jax.Array:
    return jnp.clip(x, limits[:, 0], limits[:, 1])


def absolute(x: jax.Array) -> jax.Array:
    """Return |x|, with derivative zero at zero, the mean of both sides; `jnp.abs` takes that of the right side."""
    return x * jnp.sign(x)


def _norm(x: jax.Array) -> jax.Array:
    """Return the length of x, with derivative zero at zero."""
    square = x @ x
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


def _rotate_back(quat: jax.Array, x: jax.Array) -> jax.Array:
    """Return x, given in the parent's axes, in the axes that the quaternion turns them into."""
    w, u = quat[0], quat[1:]
    return x + 2 * jnp.cross(u, jnp.cross(u, x) - w * x) / (quat @ quat)


def _moves(m: mujoco.MjModel) -> _Array:
    """Return 1 where a dof moves a body, (nv, nbody)."""
    carried_by = np.eye(m.nbody)
    for body in range(1, m.nbody):
        carried_by[body] += carried_by[m.body_parentid[body]]
    return carried_by[:, m.dof_bodyid].T


def coupled(m: mujoco.MjModel) -> NDArray[np.bool_]:
    """Return whether two dofs lie on one branch, (nv, nv)."""
    above = _moves(m)[:, m.dof_bodyid] > 0
    return above | above.T


def _vector_springs(m: mujoco.MjModel) -> list[int]:
    """Return where in v the displacement of a polynomial spring is a vector of three."""
    curved = m.jnt_stiffnesspoly.any(axis=1)
    ball = m.jnt_dofadr[curved & (m.jnt_type == mjtJoint.mjJNT_BALL)]
    free = m.jnt_dofadr[curved & (m.jnt_type == mjtJoint.mjJNT_FREE)]
    return [*ball.tolist(), *free.tolist(), *(free + 3).tolist()]


def _tabulate(m: mujoco.MjModel) -> dict[str, _Array]:
    """Read the fields of `_Tables` off the model."""
    target, gear = m.actuator_trnid[:, 0], m.actuator_gear
    on_joint, on_tendon = np.isin(m.actuator_trntype, _ON_JOINT), m.actuator_trntype == mjtTrn.mjTRN_TENDON
    # By how much an actuator's own damping and armature count on the dofs of its joint, or on its tendon.
    reflected_v = np.where(on_joint[:, None] & (target[:, None] == m.dof_jntid), gear[:, :1] ** 2, 0)
    reflected_t = np.where(on_tendon[:, None] & (target[:, None] == np.arange(m.ntendon)), gear[:, :1] ** 2, 0)
    own_damping = np.column_stack([m.actuator_damping, m.actuator_dampingpoly])

    tendon_q, tendon_v = np.zeros((m.ntendon, m.nq)), np.zeros((m.ntendon, m.nv))
    for tendon, (start, count) in enumerate(zip(m.tendon_adr, m.tendon_num, strict=True)):
        for joint, coefficient in zip(m.wrap_objid[start : start + count], m.wrap_prm[start:], strict=False):
            if m.wrap_type[start] == mujoco.mjtWrap.mjWRAP_JOINT:
                tendon_q[tendon, m.jnt_qposadr[joint]] += coefficient
                tendon_v[tendon, m.jnt_dofadr[joint]] += coefficient

    # Like MuJoCo, leave out what a tendon's armature adds between dofs of different branches.
    tendon_armature = m.tendon_armature + m.actuator_armature @ reflected_t
    armature = np.where(coupled(m), (tendon_v.T * tendon_armature) @ tendon_v, 0)

    length, moment, on_ball = np.zeros((m.nu, m.nq)), np.zeros((m.nu, m.nv)), np.zeros(m.nu, bool)
    for i, j in enumerate(target):
        if on_tendon[i]:
            length[i], moment[i] = gear[i, 0] * tendon_q[j], gear[i, 0] * tendon_v[j]
        elif on_joint[i]:
            on_ball[i] = m.jnt_type[j] == mjtJoint.mjJNT_BALL
            moment[i, m.dof_jntid == j] = gear[i, : np.sum(m.dof_jntid == j)]
            if m.jnt_type[j] in _SCALAR:
                length[i, m.jnt_qposadr[j]] = gear[i, 0]

    group = m.actuator_group
    disabled = (group >= 0) & (group <= 30) & (m.opt.disableactuator >> np.clip(group, 0, 30) & 1 == 1)
    gain = np.where(m.actuator_gaintype[:, None] == mjtGain.mjGAIN_FIXED, [1, 0, 0], 1) * m.actuator_gainprm[:, :3]
    bias = np.where(m.actuator_biastype[:, None] == mjtBias.mjBIAS_AFFINE, m.actuator_biasprm[:, :3], 0)
    servo = (m.actuator_gaintype == mjtGain.mjGAIN_FIXED) & (gain[:, 0] == -bias[:, 1]) & (bias[:, 1] != 0)
    return {
        "armature": armature + np.diag(m.actuator_armature @ reflected_v),
        "rest": m.qpos_spring.copy(),
        "stiffness": np.column_stack([m.jnt_stiffness, m.jnt_stiffnesspoly])[m.dof_jntid],
        "damping": reflected_v.T @ own_damping + np.column_stack([np.zeros(m.nv), m.dof_dampingpoly]),
        "tendon_q": tendon_q,
        "tendon_v": tendon_v,
        "tendon_slack": m.tendon_lengthspring.copy(),
        "tendon_stiffness": np.column_stack([m.tendon_stiffness, m.tendon_stiffnesspoly]),
        "tendon_damping": np.column_stack([m.tendon_damping, m.tendon_dampingpoly]) + reflected_t.T @ own_damping,
        "length": length,
        "moment": moment,
        "gear": gear.copy(),
        "gain": np.where(disabled[:, None], 0, gain),
        "bias": np.where(disabled[:, None], 0, bias),
        "period": np.where(servo & on_ball, 2 * np.pi * np.linalg.norm(gear[:, :3], axis=1), np.inf),
        "control_range": _limits(m.actuator_ctrlrange, m.actuator_ctrllimited),
        "force_range": _limits(m.actuator_forcerange, m.actuator_forcelimited),
        "joint_force_range": _limits(m.jnt_actfrcrange, m.jnt_actfrclimited & np.isin(m.jnt_type, _SCALAR))[
            m.dof_jntid
        ],
        "by_actuator": m.jnt_actgravcomp[m.dof_jntid].astype(np.float64),
    }


def _limits(values: _Array, limited: NDArray[np.bool_]) -> _Array:
    return np.where(limited[:, None], values, [-np.inf, np.inf])
