"""Contact-free dynamics of a MuJoCo scene in JAX: MJX for the multibody algorithms, our own forces on top.

Every method of `SmoothDynamics` is a pure function of arrays: jit it, vmap it, differentiate it.

Derivatives of first and second order flow through q, v, u, tau and the parameters `mass`, `com`, `inertia`,
`damping`, `armature` and `gravity`. They are finite in every state: at rest, at identity orientation, in a
relaxed ball spring. A derivative by q runs along the four numbers of a quaternion; for the tangent space,
differentiate δ ↦ f(integrate(layout, q, δ)) at zero. All else in the model is constant. Forces that MuJoCo
defines piecewise keep their kinks: clamped controls and forces (derivative zero where the clamp binds), the
slack of a tendon spring, and quadratic damping, for whose |v| the derivative at v = 0 is taken as zero.

Joint limits, dry friction, equalities and contacts are constraints; they belong to the contact models and are
left out. What has a smooth effect that cannot be reproduced here is refused with a `SceneError`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.scipy.linalg import solve
from jax.typing import ArrayLike
from mujoco import mjtBias, mjtDyn, mjtGain, mjtJoint, mjtTrn, mjx
from mujoco import mjtDisableBit as Off
from numpy.typing import NDArray

from tangens.dynamics.layout import JointLayout
from tangens.dynamics.tangent_jax import difference, integrate, quat_log
from tangens.errors import OptionError, SceneError, StateError

Parameters = Mapping[str, ArrayLike]
_Array = NDArray[np.float64]
_Values = dict[str, jax.Array]

_TRIANGLE = ([0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2])  # xx, yy, zz, xy, xz, yz: MuJoCo's order too
_SYMMETRIC = np.array([[0, 3, 4], [3, 1, 5], [4, 5, 2]])  # where a 3x3 inertia's entries stand in those six
# As numbers: `in` compares MuJoCo's enums with NumPy's integers, and finds them different.
_ON_JOINT = (int(mjtTrn.mjTRN_JOINT), int(mjtTrn.mjTRN_JOINTINPARENT))
_SCALAR = (int(mjtJoint.mjJNT_SLIDE), int(mjtJoint.mjJNT_HINGE))
# What MJX reads of the model besides its structure; handed over at each call, in the caller's dtype.
_MJX_FIELDS = ("qpos0", "body_pos", "body_quat", "body_iquat", "body_inertia", "jnt_pos", "jnt_axis")


class SmoothDynamics:
    """Mass matrix, accelerations and Euler steps of one scene, without contacts and other constraints.

    Arrays follow MuJoCo's layout: q (nq,), v and tau (nv,), u (nu,), where None stands for zeros. Results have
    the arguments' dtype. `parameters` overrides any of `self.parameters`.
    """

    def __init__(self, model: mujoco.MjModel) -> None:
        _refuse_unsupported(model)
        self.layout = JointLayout.from_model(model)
        self._model = copy.copy(model)
        self._mjx_model, self._mjx_data = _to_mjx(model)
        self._forces = _Forces(self._model, self.layout)

    @property
    def parameters(self) -> dict[str, _Array]:
        """The model's values. `inertia`: about the centre of mass, in body axes, as xx, yy, zz, xy, xz, yz."""
        m = self._model
        axes = np.stack([_matrix(quat) for quat in m.body_iquat])
        inertia = np.einsum("bij,bj,bkj->bik", axes, m.body_inertia, axes)
        return {
            "mass": m.body_mass.copy(),
            "com": m.body_ipos.copy(),
            "inertia": inertia[:, *_TRIANGLE],
            "damping": m.dof_damping.copy(),
            "armature": m.dof_armature.copy(),
            "gravity": m.opt.gravity.copy(),
        }

    def body_poses(self, q: ArrayLike, parameters: Parameters | None = None) -> tuple[jax.Array, jax.Array]:
        """Return the bodies' positions (nbody, 3) [m] and orientations (nbody, 4), in the world frame."""
        p, (q,) = self._read(parameters, q=q)
        _, data = self._kinematics(p, q)
        return data.xpos.astype(q.dtype), data.xquat.astype(q.dtype)

    def mass_matrix(self, q: ArrayLike, parameters: Parameters | None = None) -> jax.Array:
        """Return the joint-space inertia (nv, nv), armature included."""
        p, (q,) = self._read(parameters, q=q)
        return self._mass_matrix(*self._kinematics(p, q)).astype(q.dtype)

    def bias(self, q: ArrayLike, v: ArrayLike, parameters: Parameters | None = None) -> jax.Array:
        """Return Coriolis, centrifugal and gravitational forces (nv,), MuJoCo's `qfrc_bias`."""
        p, (q, v) = self._read(parameters, q=q, v=v)
        return self._bias(*self._kinematics(p, q), v).astype(q.dtype)

    def acceleration(
        self,
        q: ArrayLike,
        v: ArrayLike,
        u: ArrayLike | None = None,
        tau: ArrayLike | None = None,
        parameters: Parameters | None = None,
    ) -> jax.Array:
        """Return v̇ (nv,) in continuous time, MuJoCo's `qacc_smooth`."""
        p, (q, v, u, tau) = self._read(parameters, q=q, v=v, u=u, tau=tau)
        inertia, force = self._equations(p, q, v, u, tau)
        return solve(inertia, force, assume_a="pos")

    def step(
        self,
        q: ArrayLike,
        v: ArrayLike,
        u: ArrayLike | None = None,
        tau: ArrayLike | None = None,
        parameters: Parameters | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Return q⁺ and v⁺ after the model's time step: semi-implicit Euler, implicit in joint damping."""
        p, (q, v, u, tau) = self._read(parameters, q=q, v=v, u=u, tau=tau)
        h = float(self._model.opt.timestep)
        inertia, force = self._equations(p, q, v, u, tau)
        if not self._model.opt.disableflags & (Off.mjDSBL_EULERDAMP | Off.mjDSBL_DAMPER):
            a, b, c = self._forces.damping(p).T
            inertia += h * jnp.diag(a + 2 * b * jnp.abs(v) + 3 * c * v**2)
        v_next = v + h * solve(inertia, force, assume_a="pos")
        return integrate(self.layout, q, h * v_next), v_next

    def _read(self, parameters: Parameters | None, **vectors: ArrayLike | None) -> tuple[_Values, list[jax.Array]]:
        """Bring all arguments to one dtype, fill in what is not given, and check sizes."""
        parameters, defaults = parameters or {}, self.parameters
        given = [x for x in (*parameters.values(), *vectors.values()) if x is not None]
        dtype = jnp.result_type(jnp.float32, *given)
        sizes = {"q": self.layout.nq, "v": self.layout.nv, "u": self._model.nu, "tau": self.layout.nv}
        arrays = [jnp.asarray(np.zeros(sizes[k]) if x is None else x, dtype) for k, x in vectors.items()]
        for name, array in zip(vectors, arrays, strict=True):
            if array.shape != (sizes[name],):
                raise StateError(f"{name} has shape {array.shape}, the scene needs ({sizes[name]},)")
        for name, value in parameters.items():
            if name not in defaults:
                raise OptionError(f"no parameter {name!r}; there are {', '.join(defaults)}")
            if jnp.shape(value) != defaults[name].shape:
                raise OptionError(f"{name} has shape {jnp.shape(value)}, needs {defaults[name].shape}")
        return {k: jnp.asarray(parameters.get(k, x), dtype) for k, x in defaults.items()}, arrays

    def _kinematics(self, p: _Values, q: jax.Array) -> tuple[Any, Any]:
        """Return MJX's model with our parameters, and its data with all that depends on q alone."""
        model = self._mjx_model.replace(
            **{name: jnp.asarray(getattr(self._model, name), q.dtype) for name in _MJX_FIELDS},
            opt=self._mjx_model.opt.replace(gravity=p["gravity"]),
            body_mass=p["mass"],
            body_ipos=p["com"],
            dof_armature=p["armature"],
        )
        data = mjx.com_pos(model, mjx.kinematics(model, self._mjx_data.replace(qpos=q)))
        # MJX knows principal moments only. Rotate the full tensor and move it to the tree's centre of mass.
        offset = data.xipos - data.subtree_com[model.body_rootid]
        square = jnp.sum(offset**2, axis=1)[:, None, None] * jnp.eye(3) - offset[:, :, None] * offset[:, None, :]
        tensor = data.xmat @ p["inertia"][:, _SYMMETRIC] @ data.xmat.mT + p["mass"][:, None, None] * square
        moment = jnp.column_stack([offset, jnp.ones(len(offset))]) * p["mass"][:, None]
        return model, data.tree_replace({"_impl.cinert": jnp.hstack([tensor[:, *_TRIANGLE], moment])})

    def _mass_matrix(self, model: Any, data: Any) -> jax.Array:
        return mjx.full_m(model, mjx.crb(model, data)) + self._forces.tables["armature"]

    def _bias(self, model: Any, data: Any, v: jax.Array) -> jax.Array:
        return mjx.rne(model, mjx.com_vel(model, data.replace(qvel=v))).qfrc_bias

    def _equations(
        self, p: _Values, q: jax.Array, v: jax.Array, u: jax.Array, tau: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return the matrix and the right-hand side of M v̇ = f."""
        model, data = self._kinematics(p, q)
        force = tau - self._bias(model, data, v) + self._forces(p, data, q, v, u)
        return self._mass_matrix(model, data).astype(q.dtype), force.astype(q.dtype)


class _Tables(NamedTuple):
    """Coefficients of springs, dampers and actuators. A polynomial's three columns: linear, quadratic, cubic."""

    armature: jax.Array  # (nv, nv) what tendons and actuators add to the mass matrix
    rest: jax.Array  # (nq,) where joint springs are relaxed
    stiffness: jax.Array  # (nv, 3)
    damping: jax.Array  # (nv, 3) without the parameter `damping`
    tendon_q: jax.Array  # (ntendon, nq) ∂length/∂q
    tendon_v: jax.Array  # (ntendon, nv) ∂length/∂q in the tangent space
    tendon_slack: jax.Array  # (ntendon, 2) lengths between which the spring is relaxed
    tendon_stiffness: jax.Array  # (ntendon, 3)
    tendon_damping: jax.Array  # (ntendon, 3)
    length: jax.Array  # (nu, nq) ∂length/∂q of the actuators for which it is constant
    moment: jax.Array  # (nu, nv) moment arms of the actuators for which they are constant
    gear: jax.Array  # (nu, 6)
    gain: jax.Array  # (nu, 3) force = gain · (1, length, rate) · u + bias · (1, length, rate)
    bias: jax.Array  # (nu, 3)
    period: jax.Array  # (nu,) one winding of a servo on a ball joint; 0 for the others
    control_range: jax.Array  # (nu, 2)
    force_range: jax.Array  # (nu, 2)
    joint_force_range: jax.Array  # (nv, 2) of all actuators together
    by_actuator: jax.Array  # (nv,) 1 where gravity compensation counts as an actuator's force


class _Forces:
    """Springs, dampers, gravity compensation and actuators.

    Not MJX's: its versions of 3.17 leave out polynomial stiffness and damping and what actuators reflect, drop
    all passive forces if either springs or dampers are disabled, and lose the derivative of a relaxed ball joint.
    """

    def __init__(self, model: mujoco.MjModel, layout: JointLayout) -> None:
        self.model, self.layout = model, layout
        self.moves = _moves(model)
        self.tables = _tabulate(model, self.moves)

    def __call__(self, p: _Values, data: Any, q: jax.Array, v: jax.Array, u: jax.Array) -> jax.Array:
        """Return MuJoCo's `qfrc_passive` and `qfrc_actuator`, added up."""
        t = _Tables(**{name: jnp.asarray(x, q.dtype) for name, x in self.tables.items()})
        weight = self._gravity_compensation(p, data)
        force = (1 - t.by_actuator) * weight
        if not self.off(Off.mjDSBL_SPRING):
            force += self._springs(t, q)
        if not self.off(Off.mjDSBL_DAMPER):
            force += self._dampers(p, t, v)
        if self.model.nu and not self.off(Off.mjDSBL_ACTUATION):
            driven = self._actuators(t, data, q, v, u) + t.by_actuator * weight
            force += jnp.clip(driven, *t.joint_force_range.T)
        return force

    def off(self, flag: Off) -> bool:
        """Whether the model disables this part of the physics."""
        return bool(self.model.opt.disableflags & flag)

    def damping(self, p: _Values) -> jax.Array:
        """Return the damping polynomial of each dof (nv, 3), what actuators reflect included."""
        return jnp.asarray(self.tables["damping"], p["damping"].dtype).at[:, 0].add(p["damping"])

    def _springs(self, t: _Tables, q: jax.Array) -> jax.Array:
        stretch = difference(self.layout, t.rest, q)
        # The polynomial is taken of the displacement in scalar joints, else of the length of its vector.
        argument = stretch
        for start in _vector_dofs(self.model):
            argument = argument.at[start : start + 3].set(_norm(stretch[start : start + 3]))
        length = t.tendon_q @ q
        tendon_stretch = length - jnp.clip(length, *t.tendon_slack.T)
        tendon_force = tendon_stretch * _polynomial(t.tendon_stiffness, tendon_stretch)
        return -stretch * _polynomial(t.stiffness, argument) - tendon_force @ t.tendon_v

    def _dampers(self, p: _Values, t: _Tables, v: jax.Array) -> jax.Array:
        rate = t.tendon_v @ v
        tendon_force = rate * _polynomial(t.tendon_damping, jnp.abs(rate))
        return -v * _polynomial(self.damping(p), jnp.abs(v)) - tendon_force @ t.tendon_v

    def _gravity_compensation(self, p: _Values, data: Any) -> jax.Array:
        share = jnp.asarray(self.model.body_gravcomp, p["mass"].dtype)
        # Switching off both springs and dampers is how MuJoCo switches off all that is passive.
        idle = self.off(Off.mjDSBL_GRAVITY) or (self.off(Off.mjDSBL_SPRING) and self.off(Off.mjDSBL_DAMPER))
        if idle or not self.model.body_gravcomp.any():
            return jnp.zeros(self.layout.nv, share.dtype)
        lift = -(p["mass"] * share)[:, None] * p["gravity"]
        arm = data.xipos - data.subtree_com[self.model.body_rootid]
        return jnp.sum(data.cdof * (self.moves @ jnp.hstack([jnp.cross(arm, lift), lift])), axis=1)

    def _actuators(self, t: _Tables, data: Any, q: jax.Array, v: jax.Array, u: jax.Array) -> jax.Array:
        m = self.model
        length, moment = self._transmission(t, data, q)
        rate = moment @ v
        if not self.off(Off.mjDSBL_CLAMPCTRL):
            u = jnp.clip(u, *t.control_range.T)
        if self.tables["period"].any():
            period = jnp.where(t.period > 0, t.period, jnp.inf)
            u -= jnp.where(t.period > 0, t.period * jnp.round((u - length) / period), 0)
        measured = jnp.stack([jnp.ones_like(u), length, rate], axis=1)
        force = jnp.sum(t.gain * measured, axis=1) * u + jnp.sum(t.bias * measured, axis=1)
        for tendon in np.flatnonzero(m.tendon_actfrclimited):
            pulls = (m.actuator_trntype == mjtTrn.mjTRN_TENDON) & (m.actuator_trnid[:, 0] == tendon)
            total = jnp.sum(force, where=pulls)
            allowed = jnp.clip(total, *m.tendon_actfrcrange[tendon].tolist())
            share = jnp.where(total == allowed, 1, allowed / jnp.where(total == 0, 1, total))
            force = jnp.where(pulls, share * force, force)
        return jnp.clip(force, *t.force_range.T) @ moment

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
                if not free:
                    length = length.at[i].set(quat_log(quat) @ axis)
        return length, moment

    def _site_moment(self, data: Any, site: int, gear: jax.Array) -> jax.Array:
        m, body = self.model, self.model.site_bodyid[site]
        axes = data.xmat[body] @ jnp.asarray(_matrix(m.site_quat[site]), gear.dtype)
        arm = data.xpos[body] + data.xmat[body] @ jnp.asarray(m.site_pos[site], gear.dtype)
        arm -= data.subtree_com[m.body_rootid[body]]
        force, torque = axes @ gear[:3], axes @ gear[3:]
        wrench = jnp.concatenate([torque + jnp.cross(arm, force), force])
        return data.cdof @ wrench * self.moves[:, body]


def _polynomial(c: jax.Array, x: jax.Array) -> jax.Array:
    """Return c₀ + c₁ x + c₂ x², row by row."""
    return c[:, 0] + x * (c[:, 1] + x * c[:, 2])


def _norm(x: jax.Array) -> jax.Array:
    """Return the length of x, with derivative zero at zero."""
    square = x @ x
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


def _rotate_back(quat: jax.Array, x: jax.Array) -> jax.Array:
    """Return x, given in the parent's axes, in the axes that the quaternion turns them into."""
    w, u = quat[0], quat[1:]
    return x + 2 * jnp.cross(u, jnp.cross(u, x) - w * x) / (quat @ quat)


def _matrix(quat: _Array) -> _Array:
    out = np.empty(9)
    mujoco.mju_quat2Mat(out, quat)
    return out.reshape(3, 3)


def _moves(m: mujoco.MjModel) -> _Array:
    """Return 1 where a dof moves a body, (nv, nbody)."""
    below = np.eye(m.nbody)
    for body in range(1, m.nbody):
        below[body] += below[m.body_parentid[body]]
    return below[:, m.dof_bodyid].T


def _vector_dofs(m: mujoco.MjModel) -> list[int]:
    """Return where, in v, the displacement of a polynomial spring is a vector of three."""
    free, ball = mjtJoint.mjJNT_FREE, mjtJoint.mjJNT_BALL
    curved = m.jnt_stiffnesspoly.any(axis=1)
    starts = [*m.jnt_dofadr[curved & (m.jnt_type == ball)], *m.jnt_dofadr[curved & (m.jnt_type == free)]]
    return [int(s) for s in (*starts, *(m.jnt_dofadr[curved & (m.jnt_type == free)] + 3))]


def _tabulate(m: mujoco.MjModel, moves: _Array) -> dict[str, _Array]:
    """Read the fields of `_Tables` off the model."""
    is_tendon = m.actuator_trntype == mjtTrn.mjTRN_TENDON
    is_joint = np.isin(m.actuator_trntype, _ON_JOINT)
    target = m.actuator_trnid[:, 0]
    # Rows that reflect an actuator's coefficients on the dofs of its joint, or on its tendon.
    reflect = m.actuator_gear[:, 0] ** 2
    on_dof = (is_joint[:, None] & (target[:, None] == m.dof_jntid)) * reflect[:, None]
    on_tendon = (is_tendon[:, None] & (target[:, None] == np.arange(m.ntendon))) * reflect[:, None]
    damping = np.column_stack([m.actuator_damping, m.actuator_dampingpoly])

    tendon_q, tendon_v = np.zeros((m.ntendon, m.nq)), np.zeros((m.ntendon, m.nv))
    for tendon in range(m.ntendon):
        for w in range(m.tendon_adr[tendon], m.tendon_adr[tendon] + m.tendon_num[tendon]):
            if m.wrap_type[w] == mujoco.mjtWrap.mjWRAP_JOINT:
                tendon_q[tendon, m.jnt_qposadr[m.wrap_objid[w]]] += m.wrap_prm[w]
                tendon_v[tendon, m.jnt_dofadr[m.wrap_objid[w]]] += m.wrap_prm[w]

    # Like MuJoCo, drop what a tendon's armature adds between dofs of different branches.
    coupled = moves[:, m.dof_bodyid] + moves[:, m.dof_bodyid].T > 0
    tendon_armature = m.tendon_armature + m.actuator_armature @ on_tendon
    armature = np.where(coupled, (tendon_v.T * tendon_armature) @ tendon_v, 0)
    armature += np.diag(m.actuator_armature @ on_dof)

    length, moment = np.zeros((m.nu, m.nq)), np.zeros((m.nu, m.nv))
    for i in range(m.nu):
        gear, j = m.actuator_gear[i], target[i]
        if is_tendon[i]:
            length[i], moment[i] = gear[0] * tendon_q[j], gear[0] * tendon_v[j]
        elif is_joint[i]:
            dofs = np.flatnonzero(m.dof_jntid == j)
            moment[i, dofs] = gear[: len(dofs)]
            if m.jnt_type[j] in _SCALAR:
                length[i, m.jnt_qposadr[j]] = gear[0]

    enabled = (m.actuator_group < 0) | (m.actuator_group > 30)
    enabled |= m.opt.disableactuator >> np.clip(m.actuator_group, 0, 30) & 1 == 0
    fixed_gain, has_bias = m.actuator_gaintype == mjtGain.mjGAIN_FIXED, m.actuator_biastype == mjtBias.mjBIAS_AFFINE
    servo = fixed_gain & has_bias & (m.actuator_gainprm[:, 0] == -m.actuator_biasprm[:, 1])
    is_ball = np.array([is_joint[i] and m.jnt_type[target[i]] == mjtJoint.mjJNT_BALL for i in range(m.nu)], bool)
    dof_limited = m.jnt_actfrclimited & np.isin(m.jnt_type, _SCALAR)
    return dict(
        armature=armature,
        rest=m.qpos_spring.copy(),
        stiffness=np.column_stack([m.jnt_stiffness, m.jnt_stiffnesspoly])[m.dof_jntid],
        damping=on_dof.T @ damping + np.column_stack([np.zeros(m.nv), m.dof_dampingpoly]),
        tendon_q=tendon_q,
        tendon_v=tendon_v,
        tendon_slack=m.tendon_lengthspring.copy(),
        tendon_stiffness=np.column_stack([m.tendon_stiffness, m.tendon_stiffnesspoly]),
        tendon_damping=np.column_stack([m.tendon_damping, m.tendon_dampingpoly]) + on_tendon.T @ damping,
        length=length,
        moment=moment,
        gear=m.actuator_gear.copy(),
        gain=m.actuator_gainprm[:, :3] * enabled[:, None] * np.where(fixed_gain[:, None], [1, 0, 0], 1),
        bias=m.actuator_biasprm[:, :3] * (enabled & has_bias)[:, None],
        period=2 * np.pi * np.linalg.norm(m.actuator_gear[:, :3], axis=1) * (servo & is_ball),
        control_range=_range(m.actuator_ctrlrange, m.actuator_ctrllimited),
        force_range=_range(m.actuator_forcerange, m.actuator_forcelimited),
        joint_force_range=_range(m.jnt_actfrcrange, dof_limited)[m.dof_jntid],
        by_actuator=m.jnt_actgravcomp[m.dof_jntid].astype(float),
    )


def _range(values: _Array, limited: NDArray[np.bool_]) -> _Array:
    return np.where(limited[:, None].astype(bool), values, [-np.inf, np.inf])


def _to_mjx(model: mujoco.MjModel) -> tuple[Any, Any]:
    """Hand the tree of bodies to MJX, hiding what it refuses and what we do not ask it for."""
    m = copy.copy(model)
    m.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    m.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    m.opt.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL
    m.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    m.opt.enableflags = 0
    m.opt.disableflags |= Off.mjDSBL_CONSTRAINT | Off.mjDSBL_CONTACT | Off.mjDSBL_SENSOR
    # Spheres that never touch: any collision pair is allowed, and no mesh is prepared for it.
    m.geom_type[:] = mujoco.mjtGeom.mjGEOM_SPHERE
    m.geom_contype[:] = m.geom_conaffinity[:] = 0
    m.eq_type[:] = mujoco.mjtEq.mjEQ_CONNECT
    m.sensor_type[:] = mujoco.mjtSensor.mjSENS_JOINTPOS
    m.wrap_type[:] = mujoco.mjtWrap.mjWRAP_JOINT
    m.actuator_trntype[:] = mjtTrn.mjTRN_JOINT
    mjx_model = mjx.put_model(m, impl="jax")
    data = mjx.make_data(mjx_model)
    return mjx_model.replace(ngeom=0, nsite=0), data


def _refuse_unsupported(m: mujoco.MjModel) -> None:
    """Raise a `SceneError` for what would change the motion and is not reproduced."""

    def refuse(what: str, kind: mujoco.mjtObj, wrong: NDArray[np.bool_]) -> None:
        for i in np.flatnonzero(wrong):
            raise SceneError(f"{what} (number {i}, {mujoco.mj_id2name(m, kind, int(i))!r}) is not supported in JAX")

    if m.nv == 0:
        raise SceneError("the scene has no joint, so nothing can move")
    if m.nflex:
        raise SceneError("flexible bodies (flex) are not supported in JAX")
    if m.opt.density > 0 or m.opt.viscosity > 0:
        raise SceneError("a surrounding fluid (option density, viscosity) is not supported in JAX")

    body, joint, tendon = mujoco.mjtObj.mjOBJ_BODY, mujoco.mjtObj.mjOBJ_JOINT, mujoco.mjtObj.mjOBJ_TENDON
    refuse("a plugin's force on a body", body, m.body_plugin >= 0)
    refuse("a joint's spring that yields (springyield)", joint, m.jnt_plasticadr >= 0)
    refuse("a tendon's spring that yields (springyield)", tendon, m.tendon_plasticadr >= 0)
    spatial = m.wrap_type[m.tendon_adr] != mujoco.mjtWrap.mjWRAP_JOINT
    active = np.column_stack([m.tendon_stiffness, m.tendon_stiffnesspoly, m.tendon_damping, m.tendon_dampingpoly])
    refuse(
        "a spatial tendon with spring, damper or armature", tendon, spatial & (active.any(1) | (m.tendon_armature != 0))
    )

    actuator, on_tendon = mujoco.mjtObj.mjOBJ_ACTUATOR, m.actuator_trntype == mjtTrn.mjTRN_TENDON
    on_site = m.actuator_trntype == mjtTrn.mjTRN_SITE
    refuse("an actuator plugin", actuator, m.actuator_plugin >= 0)
    refuse("an actuator with a state of its own (dyntype)", actuator, m.actuator_dyntype != mjtDyn.mjDYN_NONE)
    refuse("an actuator with a delay", actuator, m.actuator_delay != 0)
    refuse(
        "an actuator's gaintype", actuator, ~np.isin(m.actuator_gaintype, (mjtGain.mjGAIN_FIXED, mjtGain.mjGAIN_AFFINE))
    )
    refuse(
        "an actuator's biastype", actuator, ~np.isin(m.actuator_biastype, (mjtBias.mjBIAS_NONE, mjtBias.mjBIAS_AFFINE))
    )
    refuse("an actuator's transmission", actuator, ~(np.isin(m.actuator_trntype, _ON_JOINT) | on_tendon | on_site))
    refuse("an actuator's refsite", actuator, on_site & (m.actuator_trnid[:, 1] >= 0))
    pulled = np.array([on_tendon[i] and spatial[m.actuator_trnid[i, 0]] for i in range(m.nactuator)], bool)
    refuse("an actuator on a spatial tendon", actuator, pulled)
