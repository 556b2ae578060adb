"""One contact-free time step of one scene, and its exact derivative.

    (M + h·D) a = τ(q, v, u) − c(q, v)        v⁺ = v + h·a        q⁺ = q ⊕ h·v⁺

with D the slope of the joint dampers: MuJoCo's Euler step. MuJoCo takes the step itself. Its derivative comes from
Pinocchio's articulated-body derivatives, for which h·D counts as armature, plus the derivatives of the joint forces.

Derivatives flow to q, v, u, tau, mass, com, inertia, damping, armature and gravity. Nothing is smoothed. Beyond
control or force limits the force is constant, so its derivative is zero; at the limit it is the one from inside.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import mujoco
import numba
import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from tangens.dynamics.force_elements import ACTUATOR, effective_armature, tabulate, unpack
from tangens.dynamics.forces import evaluate_forces
from tangens.dynamics.rotations import exp_matrix
from tangens.dynamics.tangent import push_forward_integration
from tangens.dynamics.tree import body_inertia, build_tree

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

PARAMETERS = ("mass", "com", "inertia", "damping", "armature", "gravity")


def contact_free(model: mujoco.MjModel) -> mujoco.MjModel:
    """A copy of `model` that MuJoCo steps without constraints, by semi-implicit Euler."""
    m = copy.copy(model)
    off = mujoco.mjtDisableBit
    m.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    # Auto-reset would hide a diverging state behind a fresh one.
    m.opt.disableflags |= off.mjDSBL_CONSTRAINT | off.mjDSBL_CONTACT | off.mjDSBL_SENSOR | off.mjDSBL_AUTORESET
    m.opt.enableflags = 0
    return m


class ExactDynamics:
    """Steps and linearises one scene. Holds scratch memory: share it between threads by making one for each."""

    def __init__(self, model: mujoco.MjModel) -> None:
        self.model = contact_free(model)
        self.timestep = float(model.opt.timestep)
        m = self.model
        self._mjdata = mujoco.MjData(m)
        d = self._mjdata
        self._qpos, self._qvel, self._ctrl, self._applied = d.qpos, d.qvel, d.ctrl, d.qfrc_applied

        self.tree = build_tree(m)
        self._pin, self._data = self.tree.model, self.tree.model.createData()
        self._q_order = self.tree.q_order
        self._elements = tabulate(m)
        self._packed = self._elements.packed
        self._force = np.zeros(m.nv)
        explicit = m.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_EULERDAMP
        self.implicit_h = 0.0 if explicit else self.timestep
        self._armature = effective_armature(m)
        self._pin.armature = self._armature + self.implicit_h * self._elements.dof["damper"][:, 0]
        self._rotates = bool(len(self._elements.quat))
        self._nonlinear_damping = bool(self._elements.dof["damper"][:, 1:].any())
        self._gravcomp = _GravityCompensation(m) if _has_gravcomp(m) else None
        self._no_gravcomp = np.zeros(m.nv)
        self._inertial_map: Array | None = None

    def step(self, q: Array, v: Array, u: Array, tau: Array) -> tuple[Array, Array]:
        """q⁺ and v⁺ in fresh arrays."""
        _write(self._qpos, self._qvel, self._ctrl, self._applied, q, v, u, tau)
        # mj_step in its two halves, without its checks: they would print and log what the caller turns into an error.
        mujoco.mj_forward(self.model, self._mjdata)
        mujoco.mj_Euler(self.model, self._mjdata)
        return self._qpos.copy(), self._qvel.copy()

    def acceleration(self, q: Array, v: Array, u: Array, tau: Array) -> Array:
        """(v⁺ − v)/h by Pinocchio instead of MuJoCo: the route that the derivatives belong to."""
        q_pin = self._evaluate_forces(q, v, u, tau)
        return np.array(pin.aba(self._pin, self._data, q_pin, v, self._force))

    @property
    def dampers(self) -> Array:
        """Damper polynomials of the dofs, shape (nv, 3)."""
        return self._elements.dof["damper"]

    def jacobian(self, q: Array, v: Array, u: Array, tau: Array, wrt: Sequence[str]) -> dict[str, Array]:
        """∂(q⁺, v⁺)/∂x for each x in `wrt`, in the tangent space of q; shape (2, nv, ...) each."""
        by_state, by_u = self._linearize(q, v, u, tau, _assemble_and_integrate, "u" in wrt)
        return self.blocks(q, v, by_state, by_u, wrt)

    def pullback(
        self, q: Array, v: Array, u: Array, tau: Array, dq: Array, dv: Array, wrt: Sequence[str]
    ) -> dict[str, Array]:
        """Carry ∂L/∂(q⁺, v⁺) back to ∂L/∂x for q, v, u, tau and each parameter in `wrt`."""
        by_state, by_u = self._linearize(q, v, u, tau, _assemble_and_integrate, with_u=True)
        return self.carry_back(q, v, by_state, by_u, dq, dv, wrt)

    def blocks(self, q: Array, v: Array, by_state: Array, by_u: Array, wrt: Sequence[str]) -> dict[str, Array]:
        """The blocks asked for. A parameter acts through the generalised force that its change would call for."""
        out: dict[str, Array] = {}
        regressors: dict[str, Array] = {}
        for name in wrt:
            if name in _COLUMN:
                out[name] = by_state[_COLUMN[name]]
            elif name == "u":
                out[name] = by_u
            else:
                force = self._force_by_parameter(name, q, v, regressors)
                out[name] = np.tensordot(by_state[_COLUMN["tau"]], force, axes=1)
        return out

    def carry_back(
        self, q: Array, v: Array, by_state: Array, by_u: Array, dq: Array, dv: Array, wrt: Sequence[str]
    ) -> dict[str, Array]:
        """The transpose of `blocks`: all parameters share one cotangent of tau."""
        out = {name: dq @ by_state[k, 0] + dv @ by_state[k, 1] for name, k in _COLUMN.items()}
        out["u"] = dq @ by_u[0] + dv @ by_u[1]
        regressors: dict[str, Array] = {}
        for name in wrt:
            out[name] = np.tensordot(out["tau"], self._force_by_parameter(name, q, v, regressors), axes=1)
        return out

    def velocity_blocks(self, q: Array, v: Array, u: Array, tau: Array, with_u: bool) -> tuple[Array, Array]:
        """∂v⁺ at fixed contact impulses, by (q, v, tau) and by u.

        In arrays of shape (3, 2, nv, nv) and (2, nv, nu), of which the first of the two rows is ∂q⁺, left to
        `integrate_blocks`. Without u, the second one is empty.
        """
        return self._linearize(q, v, u, tau, _assemble, with_u)

    def _linearize(
        self, q: Array, v: Array, u: Array, tau: Array, assemble: Callable[..., None], with_u: bool
    ) -> tuple[Array, Array]:
        nv, nu = len(v), len(u) if with_u else 0
        q_pin = self._evaluate_forces(q, v, u, tau)
        data = self._data
        ddq_dq, ddq_dv, Minv = pin.computeABADerivatives(self._pin, data, q_pin, v, self._force)
        if self._gravcomp is not None:
            ddq_dq = ddq_dq + Minv @ (self._passes[:, None] * self._gravcomp.force_by_q(q_pin))
        by_state, by_u = np.empty((3, 2, nv, nv)), np.empty((2, nv, nu))
        # Only quaternions and nonlinear dampers look at the acceleration; fetching it takes longer than using it.
        ddq = data.ddq if self._rotates or self._nonlinear_damping else self._no_gravcomp
        assemble(ddq_dq, ddq_dv, Minv, ddq, v, self.timestep, self.implicit_h, self._packed, by_state, by_u)
        return by_state, by_u

    def integrate_blocks(self, v: Array, by_state: Array, by_u: Array) -> None:
        """Fill in the rows of q⁺ = q ⊕ h·v⁺, at the acceleration that was linearised last."""
        _integrate(v, self._data.ddq, self.timestep, self._packed, by_state, by_u)

    def _evaluate_forces(self, q: Array, v: Array, u: Array, tau: Array) -> Array:
        """Fill the force elements and Pinocchio's effective armature; return Pinocchio's configuration."""
        q_pin = q[self._q_order] if self._rotates else q
        gravcomp = self._no_gravcomp if self._gravcomp is None else self._gravcomp.force(q_pin)
        evaluate_forces(self._packed, self._force, q, v, u, tau, gravcomp)
        if self._nonlinear_damping:
            self._pin.armature = self._armature - self.implicit_h * self._elements.dof["dv"]
        return q_pin

    @property
    def _passes(self) -> Array:
        """1 for each dof on which gravity compensation acts, 0 where it is lost in a saturated actuator."""
        dof = self._elements.dof
        return np.where(dof["gravcomp_actuated"] != 0, dof["unclamped"], 1.0)

    def _force_by_parameter(self, name: str, q: Array, v: Array, regressors: dict[str, Array]) -> Array:
        """∂(τ − c − (M + hD) a)/∂parameter at the linearised state, shape (nv, ...).

        `regressors` keeps what mass, com and inertia share within one call.
        """
        a = np.array(self._data.ddq)
        if name == "armature":
            return np.diag(-a)
        if name == "damping":
            enabled = not self.model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_DAMPER
            return np.diag(-(v + self.implicit_h * a)) * enabled
        if name == "gravity":
            return self._force_by_gravity(q[self.tree.q_order])
        if not regressors:
            force = self._force_by_inertials(q[self.tree.q_order], v, a)
            regressors.update(mass=force[..., 0], com=force[..., 1:4], inertia=force[..., 4:10])
        return regressors[name]

    def _force_by_inertials(self, q_pin: Array, v: Array, a: Array) -> Array:
        """∂force/∂(mass, com, inertia) of each body, shape (nv, nbody, 10)."""
        nv, nbody = len(v), self.model.nbody
        if self._inertial_map is None:
            self._inertial_map = _joint_inertials_by_body(self.model, self.tree.joint, self.tree.placement)
        data = self._pin.createData()  # leaves the linearisation's own results alone
        force = -self._torque_regressor(data, q_pin, v, a)
        if self._gravcomp is not None:
            at_rest = self._torque_regressor(data, q_pin, np.zeros(nv), np.zeros(nv))
            force = force + self._passes[:, None, None] * at_rest * self.model.body_gravcomp[:, None]
        return np.einsum("vbi,bij->vbj", force, self._inertial_map, optimize=False).reshape(nv, nbody, 10)

    def _torque_regressor(self, data: pin.Data, q_pin: Array, v: Array, a: Array) -> Array:
        """∂(inverse dynamics)/∂(inertial parameters of the joint that carries each body), (nv, nbody, 10)."""
        nv = len(v)
        Y = pin.computeJointTorqueRegressor(self._pin, data, q_pin, v, a).reshape(nv, -1, 10)
        Y = np.concatenate([np.zeros((nv, 1, 10)), Y], axis=1)  # bodies fixed to the world move nothing
        return Y[:, self.tree.joint]

    def _force_by_gravity(self, q_pin: Array) -> Array:
        if self.model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_GRAVITY:
            return np.zeros((self.model.nv, 3))
        force = -_weight_by_gravity(self._pin, q_pin)
        if self._gravcomp is not None:
            force += self._passes[:, None] * _weight_by_gravity(self._gravcomp.pin, q_pin)
        return force


_COLUMN = {"q": 0, "v": 1, "tau": 2}


class _GravityCompensation:
    """Upward forces on the centres of mass: the weight of a tree whose bodies are their compensated masses."""

    def __init__(self, m: mujoco.MjModel) -> None:
        weightless = copy.copy(m)
        weightless.body_mass[:] = m.body_mass * m.body_gravcomp
        weightless.body_inertia[:] = 0.0
        self.pin = build_tree(weightless).model
        self._data = self.pin.createData()

    def force(self, q_pin: Array) -> Array:
        return np.array(pin.computeGeneralizedGravity(self.pin, self._data, q_pin))

    def force_by_q(self, q_pin: Array) -> Array:
        return np.array(pin.computeGeneralizedGravityDerivatives(self.pin, self._data, q_pin))


def _has_gravcomp(m: mujoco.MjModel) -> bool:
    off, flags = mujoco.mjtDisableBit, int(m.opt.disableflags)
    passive = int(off.mjDSBL_SPRING) | int(off.mjDSBL_DAMPER)
    # With springs and dampers both disabled, MuJoCo computes no passive force at all.
    return bool(m.body_gravcomp.any()) and not flags & off.mjDSBL_GRAVITY and flags & passive != passive


def _weight_by_gravity(model: pin.Model, q_pin: Array) -> Array:
    """∂(generalised weight)/∂gravity, shape (nv, 3): the weight is linear in gravity."""
    data, kept = model.createData(), model.gravity.copy()
    columns = []
    for axis in np.eye(3):
        model.gravity = pin.Motion(axis, np.zeros(3))
        columns.append(np.array(pin.computeGeneralizedGravity(model, data, q_pin)))
    model.gravity = kept
    return np.stack(columns, axis=1)


# Symmetric unit matrices in the order of a body's six inertia entries: xx, yy, zz, xy, xz, yz.
_ENTRIES = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))


def _joint_inertials_by_body(m: mujoco.MjModel, joint: IntArray, placement: Sequence[pin.SE3]) -> Array:
    """∂(inertial parameters in the joint's frame)/∂(mass, com, inertia of the body), shape (nbody, 10, 10).

    Pinocchio's parameters are m, m·c and the inertia about the joint frame's origin as xx, xy, yy, xz, yz, zz.
    """
    out = np.zeros((m.nbody, 10, 10))
    for body in range(1, m.nbody):
        R, p = placement[body].rotation, placement[body].translation
        mass, local = float(m.body_mass[body]), body_inertia(m, body).lever
        c = p + R @ local
        out[body, :, 0] = _pack(1.0, c, (c @ c) * np.eye(3) - np.outer(c, c))
        for k in range(3):
            dc = R[:, k]
            about_origin = 2.0 * (c @ dc) * np.eye(3) - np.outer(dc, c) - np.outer(c, dc)
            out[body, :, 1 + k] = _pack(0.0, mass * dc, mass * about_origin)
        for k, (i, j) in enumerate(_ENTRIES):
            unit = np.zeros((3, 3))
            unit[i, j] = unit[j, i] = 1.0
            out[body, :, 4 + k] = _pack(0.0, np.zeros(3), R @ unit @ R.T)
    return out


def _pack(mass: float, moment: Array, inertia: Array) -> Array:
    I = inertia  # noqa: E741
    return np.array([mass, *moment, I[0, 0], I[0, 1], I[1, 1], I[0, 2], I[1, 2], I[2, 2]])


@numba.njit(cache=True)
def _write(qpos: Array, qvel: Array, ctrl: Array, applied: Array, q: Array, v: Array, u: Array, tau: Array) -> None:
    """Set MuJoCo's inputs, quicker than four assignments."""
    for i in range(q.shape[0]):
        qpos[i] = q[i]
    for i in range(v.shape[0]):
        qvel[i], applied[i] = v[i], tau[i]
    for i in range(u.shape[0]):
        ctrl[i] = u[i]


@numba.njit(cache=True)
def _assemble(
    ddq_dq: Array, ddq_dv: Array, Minv: Array, ddq: Array, v: Array, h: float, implicit_h: float,
    elements: Array, by_state: Array, by_u: Array,
) -> None:  # fmt: skip
    """Join the derivatives of the rigid bodies with those of the joint forces: the rows of v⁺."""
    dof, quat, line, row = unpack(elements)
    nv = ddq.shape[0]
    v_q, v_v, v_tau, v_u = by_state[0, 1], by_state[1, 1], by_state[2, 1], by_u[1]

    by_q, by_v = np.empty(nv), np.empty(nv)
    for j in range(nv):
        by_q[j] = dof[j].dq
        by_v[j] = dof[j].dv + implicit_h * dof[j].dvv * ddq[j]  # the implicit damping −h·D(v)·a changes with v too
    for i in range(nv):
        for j in range(v_u.shape[1]):
            v_u[i, j] = 0.0
        for j in range(nv):
            hM = h * Minv[i, j]
            v_tau[i, j] = hM
            v_q[i, j] = h * ddq_dq[i, j] + hM * by_q[j]
            v_v[i, j] = h * ddq_dv[i, j] + hM * by_v[j]
        v_v[i, i] += 1.0

    for k in range(quat.shape[0]):
        if quat[k].spring[0] != 0.0 or quat[k].spring[1] != 0.0 or quat[k].spring[2] != 0.0:
            a, slope = quat[k].v, quat[k].dq
            for i in range(nv):
                for j in range(3):
                    for n in range(3):
                        v_q[i, a + j] += v_tau[i, a + n] * slope[n, j]

    for e in range(line.shape[0]):
        pull = line[e]
        actuator = pull.kind == ACTUATOR
        for i in range(nv):
            response = 0.0  # of v⁺[i] to a unit force along the line
            for r in range(pull.start, pull.stop):
                weight = dof[row[r].dof].unclamped if actuator else 1.0
                response += v_tau[i, row[r].dof] * row[r].moment * weight
            for r in range(pull.start, pull.stop):
                v_q[i, row[r].dof] += response * pull.d_length * row[r].lever
                v_v[i, row[r].dof] += response * pull.d_velocity * row[r].moment
            if actuator and v_u.shape[1] > 0:
                v_u[i, pull.control] += response * pull.d_control


@numba.njit(cache=True)
def _integrate(v: Array, ddq: Array, h: float, elements: Array, by_state: Array, by_u: Array) -> None:
    """The rows of q⁺ = q ⊕ h·v⁺ from those of v⁺."""
    _, quat, _, _ = unpack(elements)
    nv = v.shape[0]
    dv = np.empty(nv)
    for i in range(nv):
        dv[i] = h * (v[i] + h * ddq[i])
    for c in range(3):
        push_forward_integration(quat, dv, h, by_state[c, 1], by_state[c, 0])
    if by_u.shape[2] > 0:
        push_forward_integration(quat, dv, h, by_u[1], by_u[0])
    q_q = by_state[0, 0]
    for i in range(nv):
        q_q[i, i] += 1.0
    block = np.empty((3, 3))
    for k in range(quat.shape[0]):
        a = quat[k].v
        exp_matrix(dv[a : a + 3], block)
        for i in range(3):
            for j in range(3):
                q_q[a + i, a + j] += block[j, i] - (1.0 if i == j else 0.0)


@numba.njit(cache=True)
def _assemble_and_integrate(
    ddq_dq: Array, ddq_dv: Array, Minv: Array, ddq: Array, v: Array, h: float, implicit_h: float,
    elements: Array, by_state: Array, by_u: Array,
) -> None:  # fmt: skip
    """Both halves in one call: entering compiled code costs as much as a small robot's share of it."""
    _assemble(ddq_dq, ddq_dv, Minv, ddq, v, h, implicit_h, elements, by_state, by_u)
    _integrate(v, ddq, h, elements, by_state, by_u)
