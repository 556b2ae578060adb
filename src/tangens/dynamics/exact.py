"""One contact-free time step of one scene, and its exact derivative.

    (M + h·D) a = τ(q, v, u) − c(q, v)        v⁺ = v + h·a        q⁺ = q ⊕ h·v⁺

with D the slope of the joint dampers: MuJoCo's Euler step. Where the scene asks for `implicitfast`, D has the slopes of
tendons and actuators as well. MuJoCo takes the step itself. Its derivative comes from Pinocchio's articulated-body
derivatives, for which h·D counts as armature (or, with a D that is not diagonal, from those of inverse dynamics), plus
the derivatives of the joint forces.

Derivatives flow to q, v, u, tau, mass, com, inertia, damping, armature and gravity. Nothing is smoothed. Beyond
control or force limits the force is constant, so its derivative is zero; at the limit it is the one from inside.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property, partial

import mujoco
import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from tangens.dynamics.features import refuse_unsupported
from tangens.dynamics.force_elements import ACTUATOR, tabulate, unpack
from tangens.dynamics.force_model import is_implicit, read_forces
from tangens.dynamics.forces import evaluate_forces
from tangens.dynamics.implicit_damping import line_damping
from tangens.dynamics.inertial_gradients import inertial_gradients
from tangens.dynamics.kinematic_tree import pack_tree
from tangens.dynamics.parameter_forces import GravityCompensation, ParameterForces
from tangens.dynamics.tangent import integrate_rows
from tangens.dynamics.tree import build_tree
from tangens.kernels import fixed_floats, floats, inline, kernel, number

Array = NDArray[np.float64]


def contact_free(model: mujoco.MjModel) -> mujoco.MjModel:
    """A copy of `model` that MuJoCo steps without constraints, by semi-implicit Euler or `implicitfast`."""
    m = copy.copy(model)
    off = mujoco.mjtDisableBit
    kind = mujoco.mjtIntegrator
    m.opt.integrator = kind.mjINT_IMPLICITFAST if is_implicit(model) else kind.mjINT_EULER
    # Auto-reset would hide a diverging state behind a fresh one.
    m.opt.disableflags |= off.mjDSBL_CONSTRAINT | off.mjDSBL_CONTACT | off.mjDSBL_SENSOR | off.mjDSBL_AUTORESET
    m.opt.enableflags = 0
    return m


class ExactDynamics:
    """Steps and linearises one scene. Holds scratch memory: share it between threads by making one for each."""

    def __init__(self, model: mujoco.MjModel) -> None:
        refuse_unsupported(model, "exact")
        self.model = contact_free(model)
        self.timestep = float(model.opt.timestep)
        m = self.model
        self._mjdata = mujoco.MjData(m)
        d = self._mjdata
        self._qpos, self._qvel, self._ctrl, self._applied = d.qpos, d.qvel, d.ctrl, d.qfrc_applied

        self.tree = build_tree(m)
        self._pin = self.tree.model
        self._q_order = self.tree.q_order
        forces = read_forces(m)
        self._elements = tabulate(m, forces)
        self._packed = self._elements.packed
        self._force = np.zeros(m.nv)
        explicit = m.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_EULERDAMP
        self._implicit = is_implicit(m)
        self.implicit_h = 0.0 if explicit and not self._implicit else self.timestep
        self._armature = m.dof_armature + forces.dofs.reflected_armature
        self._pin.armature = self._armature + self.implicit_h * self._elements.dof["damper"][:, 0]
        self._rotates = bool(len(self._elements.quat))
        self._nonlinear_damping = bool(self._elements.dof["damper"][:, 1:].any())
        self._gravcomp = GravityCompensation(m) if forces.gravcomp.any() else None
        self._no_gravcomp = np.zeros(m.nv)
        self._packed_tree = pack_tree(m, self.dampers)
        self.parameter_forces = ParameterForces(m, self.tree, self._elements, self._gravcomp, self.implicit_h)

    @cached_property
    def _data(self) -> pin.Data:
        """Pinocchio's results. It has room for second derivatives, 4·nv³ numbers: contact never asks for it."""
        return self._pin.createData()

    def step(self, q: Array, v: Array, u: Array, tau: Array) -> tuple[Array, Array]:
        """q⁺ and v⁺ in fresh arrays."""
        write_inputs(self._qpos, self._qvel, self._ctrl, self._applied, q, v, u, tau)
        # mj_step in its two halves, without its checks: they would print and log what the caller turns into an error.
        mujoco.mj_forward(self.model, self._mjdata)
        if self._implicit:
            mujoco.mj_implicit(self.model, self._mjdata)
        else:
            mujoco.mj_Euler(self.model, self._mjdata)
        return self._qpos.copy(), self._qvel.copy()

    def acceleration(self, q: Array, v: Array, u: Array, tau: Array) -> Array:
        """(v⁺ − v)/h by Pinocchio instead of MuJoCo: the route that the derivatives belong to."""
        q_pin = self._evaluate_forces(q, v, u, tau)
        if self._implicit:
            return _solve(self._implicit_inertia(q_pin, v), self._force - self._bias(q_pin, v))
        return np.array(pin.aba(self._pin, self._data, q_pin, v, self._force))

    def inverse(self, q: Array, v: Array, u: Array, acceleration: Array) -> Array:
        """The tau of a step with (v⁺ − v)/h = acceleration."""
        q_pin = self._evaluate_forces(q, v, u, np.zeros(len(v)))
        tau = np.array(pin.rnea(self._pin, self._data, q_pin, v, acceleration)) - self._force
        return tau + self.implicit_h * self._lines(acceleration)[0] @ acceleration if self._implicit else tau

    @property
    def packed_elements(self) -> Array:
        """Springs, dampers, tendons and actuators, as compiled code takes them."""
        return self._packed

    def gravity_compensation(self, q: Array, v: Array, u: Array, tau: Array) -> tuple[Array, Array]:
        """Generalised force of gravity compensation and its slope by q; the slope is empty where there is none.

        The other inputs decide where it is lost in a saturated actuator.
        """
        if self._gravcomp is None:
            return self._no_gravcomp, _NO_SLOPE
        q_pin = self._evaluate_forces(q, v, u, tau)
        return self._gravcomp.force(q_pin), self.parameter_forces.passes[:, None] * self._gravcomp.force_by_q(q_pin)

    @property
    def dampers(self) -> Array:
        """Damper polynomials of the dofs, shape (nv, 3)."""
        return self._elements.dof["damper"]

    def jacobian(self, q: Array, v: Array, u: Array, tau: Array, wrt: Sequence[str]) -> dict[str, Array]:
        """∂(q⁺, v⁺)/∂x for each x in `wrt`, in the tangent space of q; shape (2, nv, ...) each."""
        by_state, by_u = self._linearize(q, v, u, tau, _assemble_and_integrate, "u" in wrt)
        return self._blocks(q, v, by_state, by_u, wrt)

    def pullback(
        self, q: Array, v: Array, u: Array, tau: Array, dq: Array, dv: Array, wrt: Sequence[str]
    ) -> dict[str, Array]:
        """Carry ∂L/∂(q⁺, v⁺) back to ∂L/∂x for q, v, u, tau and each parameter in `wrt`."""
        by_state, by_u = self._linearize(q, v, u, tau, _assemble_and_integrate, with_u=True)
        return self._carry_back(q, v, by_state, by_u, dq, dv, wrt)

    def _blocks(self, q: Array, v: Array, by_state: Array, by_u: Array, wrt: Sequence[str]) -> dict[str, Array]:
        """The blocks asked for. A parameter acts through the generalised force that its change would call for."""
        out: dict[str, Array] = {}
        regressors: dict[str, Array] = {}
        a = np.array(self._data.ddq)
        for name in wrt:
            if name in _COLUMN:
                out[name] = by_state[_COLUMN[name]]
            elif name == "u":
                out[name] = by_u
            else:
                force = self.parameter_forces.by(name, q, v, a, regressors)
                out[name] = np.tensordot(by_state[_COLUMN["tau"]], force, axes=1)
        return out

    def _carry_back(
        self, q: Array, v: Array, by_state: Array, by_u: Array, dq: Array, dv: Array, wrt: Sequence[str]
    ) -> dict[str, Array]:
        """The transpose of `blocks`: all parameters share one cotangent of tau."""
        out = {name: dq @ by_state[k, 0] + dv @ by_state[k, 1] for name, k in _COLUMN.items()}
        out["u"] = dq @ by_u[0] + dv @ by_u[1]
        a, z = np.array(self._data.ddq), out["tau"]
        by_parameter = self.parameter_forces.carried_back(wrt, z, v, a, partial(self._inertial_gradients, q, v, a, z))
        return out | by_parameter

    def _inertial_gradients(self, q: Array, v: Array, a: Array, z: Array, compensated: Array) -> Sequence[Array]:
        m, d = self.model, self._mjdata
        self._qpos[:] = q
        mujoco.mj_kinematics(m, d)
        mujoco.mj_comPos(m, d)
        where, forces = (d.cdof, d.subtree_com, d.xpos, d.xquat), self.parameter_forces
        found: Sequence[Array] = inertial_gradients(
            self._packed_tree, *where, forces.gravity, forces.inertials, v, a, z, compensated
        )
        return found

    def _linearize(
        self, q: Array, v: Array, u: Array, tau: Array, assemble: Callable[..., None], with_u: bool
    ) -> tuple[Array, Array]:
        nv, nu = len(v), len(u) if with_u else 0
        q_pin = self._evaluate_forces(q, v, u, tau)
        data = self._data
        ddq_dq, ddq_dv, Minv = (
            self._implicit_derivatives(q_pin, v)
            if self._implicit
            else pin.computeABADerivatives(self._pin, data, q_pin, v, self._force)
        )
        if self._gravcomp is not None:
            ddq_dq = ddq_dq + Minv @ (self.parameter_forces.passes[:, None] * self._gravcomp.force_by_q(q_pin))
        by_state, by_u = np.empty((3, 2, nv, nv)), np.empty((2, nv, nu))
        # Only quaternions and nonlinear dampers look at the acceleration; fetching it takes longer than using it.
        ddq = data.ddq if self._rotates or self._nonlinear_damping or self._implicit else self._no_gravcomp
        assemble(ddq_dq, ddq_dv, Minv, ddq, v, self.timestep, self.implicit_h, self._packed, by_state, by_u)
        if self._implicit and nu:
            self._add_damping_by_control(by_state, by_u)
        return by_state, by_u

    def _add_damping_by_control(self, by_state: Array, by_u: Array) -> None:
        """Where controls set how much an actuator damps."""
        _, _, damping = self._lines(np.array(self._data.ddq), by_u.shape[2])
        by_u -= self.implicit_h * np.tensordot(by_state[_COLUMN["tau"]], damping, axes=1)

    def _implicit_derivatives(self, q_pin: Array, v: Array) -> tuple[Array, Array, Array]:
        """Of the acceleration by q and v, but for forces; and (M + h·D)⁻¹. The acceleration is left in the data."""
        data = self._data
        Minv = _solve(self._implicit_inertia(q_pin, v), np.eye(len(v)))
        a = Minv @ (self._force - self._bias(q_pin, v))
        by_q, by_v, _ = pin.computeRNEADerivatives(self._pin, data, q_pin, v, a)
        data.ddq = a
        return -Minv @ by_q, -Minv @ (by_v + self.implicit_h * self._lines(a)[1]), Minv

    def _implicit_inertia(self, q_pin: Array, v: Array) -> Array:
        """M + h·D, (nv, nv)."""
        M = np.triu(pin.crba(self._pin, self._data, q_pin))
        M = M + np.triu(M, 1).T
        return M + self.implicit_h * self._lines(v)[0]

    def _bias(self, q_pin: Array, v: Array) -> Array:
        return np.array(pin.nonLinearEffects(self._pin, self._data, q_pin, v))

    def _lines(self, a: Array, controls: int = 0) -> tuple[Array, Array, Array]:
        """Implicit damping of tendons and actuators, as forces were evaluated last."""
        return line_damping(self._packed_tree, self._packed, a, controls)

    def _evaluate_forces(self, q: Array, v: Array, u: Array, tau: Array) -> Array:
        """Fill the force elements and Pinocchio's effective armature; return Pinocchio's configuration."""
        q_pin = q[self._q_order] if self._rotates else q
        gravcomp = self._no_gravcomp if self._gravcomp is None else self._gravcomp.force(q_pin)
        evaluate_forces(self._packed, self._force, q, v, u, tau, gravcomp)
        if self._nonlinear_damping:
            self._pin.armature = self._armature - self.implicit_h * self._elements.dof["dv"]
        return q_pin


def _solve(A: Array, b: Array) -> Array:
    return np.asarray(np.linalg.solve(A, b), dtype=np.float64)


_COLUMN = {"q": 0, "v": 1, "tau": 2}
_NO_SLOPE = np.zeros((0, 0))


@kernel(floats(1), floats(1), floats(1), floats(1), fixed_floats(1), fixed_floats(1), fixed_floats(1), fixed_floats(1))
def write_inputs(
    qpos: Array, qvel: Array, ctrl: Array, applied: Array, q: Array, v: Array, u: Array, tau: Array
) -> None:
    """Set MuJoCo's inputs, quicker than four assignments."""
    for i in range(q.shape[0]):
        qpos[i] = q[i]
    for i in range(v.shape[0]):
        qvel[i], applied[i] = v[i], tau[i]
    for i in range(u.shape[0]):
        ctrl[i] = u[i]


@inline
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


@kernel(floats(2), floats(2), floats(2), floats(1), floats(1), number, number, floats(1), floats(4), floats(3))
def _assemble_and_integrate(
    ddq_dq: Array, ddq_dv: Array, Minv: Array, ddq: Array, v: Array, h: float, implicit_h: float,
    elements: Array, by_state: Array, by_u: Array,
) -> None:  # fmt: skip
    """Both halves in one call: entering compiled code costs as much as a small robot's share of it."""
    _assemble(ddq_dq, ddq_dv, Minv, ddq, v, h, implicit_h, elements, by_state, by_u)
    v_next = np.empty(v.shape[0])
    for i in range(v.shape[0]):
        v_next[i] = v[i] + h * ddq[i]
    integrate_rows(unpack(elements)[1], v_next, h, by_state, by_u)
