"""How generalised forces answer to the numbers of a scene: mass, com, inertia, damping, armature, gravity.

A parameter acts on a step through the force that its change would call for at the step's own acceleration, so every
contact model gets its derivative from that of `tau`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import mujoco
import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from tangens.dynamics.force_elements import ForceElements
from tangens.dynamics.inertial_gradients import inertials_of
from tangens.dynamics.tree import RigidBodyTree, body_inertia, build_tree

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

PARAMETERS = ("mass", "com", "inertia", "damping", "armature", "gravity")
# Places in the ten numbers of a body.
_INERTIALS: dict[str, int | slice] = {"mass": 0, "com": slice(1, 4), "inertia": slice(4, 10)}
_NOWHERE = np.zeros(0)


class GravityCompensation:
    """Upward forces on the centres of mass: the weight of a tree whose bodies are their compensated masses."""

    def __init__(self, m: mujoco.MjModel) -> None:
        weightless = copy.copy(m)
        weightless.body_mass[:] = m.body_mass * m.body_gravcomp
        weightless.body_inertia[:] = 0.0
        self.pin = build_tree(weightless).model
        self._data = self.pin.createData()

    def force(self, q_pin: Array) -> Array:
        """Generalised force."""
        return np.array(pin.computeGeneralizedGravity(self.pin, self._data, q_pin))

    def force_by_q(self, q_pin: Array) -> Array:
        """Its slope, (nv, nv)."""
        return np.array(pin.computeGeneralizedGravityDerivatives(self.pin, self._data, q_pin))


class ParameterForces:
    """∂(τ − c − (M + hD)·a)/∂parameter of one scene."""

    def __init__(
        self, model: mujoco.MjModel, tree: RigidBodyTree, elements: ForceElements, gravcomp: GravityCompensation | None,
        implicit_h: float,
    ) -> None:  # fmt: skip
        self.model, self.tree, self.implicit_h = model, tree, implicit_h
        self._pin, self._elements, self._gravcomp = tree.model, elements, gravcomp
        self._inertial_map: Array | None = None
        off = mujoco.mjtDisableBit
        self._has_gravity = not model.opt.disableflags & off.mjDSBL_GRAVITY
        self.gravity = model.opt.gravity * self._has_gravity
        self.inertials = inertials_of(model)
        self._has_dampers = not model.opt.disableflags & off.mjDSBL_DAMPER

    def by(self, name: str, q: Array, v: Array, a: Array, regressors: dict[str, Array]) -> Array:
        """The force by one parameter at a state and its acceleration, shape (nv, ...).

        `regressors` keeps what mass, com and inertia share within one call.
        """
        if name == "armature":
            return np.diag(-a)
        if name == "damping":
            return np.diag(-(v + self.implicit_h * a)) * self._has_dampers
        if name == "gravity":
            return self._force_by_gravity(q[self.tree.q_order])
        if not regressors:
            force = self._force_by_inertials(q[self.tree.q_order], v, a)
            regressors.update({inertial: force[..., columns] for inertial, columns in _INERTIALS.items()})
        return regressors[name]

    def carried_back(
        self, names: Sequence[str], z: Array, v: Array, a: Array, inertial_gradients: Callable[[Array], Sequence[Array]]
    ) -> dict[str, Array]:
        """z·(the force by each of these parameters), for a virtual velocity z.

        `inertial_gradients` is the function of that name at this state; it takes the z at which gravity compensation
        acts, empty without it.
        """
        out: dict[str, Array] = {}
        found: Sequence[Array] = ()
        for name in names:
            if name == "armature":
                out[name] = -z * a
            elif name == "damping":
                out[name] = -z * (v + self.implicit_h * a) * self._has_dampers
            elif name == "gravity" and not self._has_gravity:
                out[name] = np.zeros(3)
            else:
                found = found or inertial_gradients(_NOWHERE if self._gravcomp is None else z * self.passes)
                out[name] = found[1] if name == "gravity" else found[0][:, _INERTIALS[name]]
        return out

    @property
    def passes(self) -> Array:
        """1 for each dof on which gravity compensation acts, 0 where it is lost in a saturated actuator."""
        dof = self._elements.dof
        return np.where(dof["gravcomp_actuated"] != 0, dof["unclamped"], 1.0)

    def _force_by_inertials(self, q_pin: Array, v: Array, a: Array) -> Array:
        """∂force/∂(mass, com, inertia) of each body, shape (nv, nbody, 10)."""
        nv, nbody = len(v), self.model.nbody
        if self._inertial_map is None:
            self._inertial_map = _joint_inertials_by_body(self.model, self.tree.joint, self.tree.placement)
        data = self._pin.createData()  # leaves the linearisation's own results alone
        force = -self._torque_regressor(data, q_pin, v, a)
        if self._gravcomp is not None:
            at_rest = self._torque_regressor(data, q_pin, np.zeros(nv), np.zeros(nv))
            force = force + self.passes[:, None, None] * at_rest * self.model.body_gravcomp[:, None]
        return np.einsum("vbi,bij->vbj", force, self._inertial_map, optimize=False).reshape(nv, nbody, 10)

    def _torque_regressor(self, data: pin.Data, q_pin: Array, v: Array, a: Array) -> Array:
        """∂(inverse dynamics)/∂(inertial parameters of the joint that carries each body), (nv, nbody, 10)."""
        nv = len(v)
        Y = pin.computeJointTorqueRegressor(self._pin, data, q_pin, v, a).reshape(nv, -1, 10)
        Y = np.concatenate([np.zeros((nv, 1, 10)), Y], axis=1)  # bodies fixed to the world move nothing
        return Y[:, self.tree.joint]

    def _force_by_gravity(self, q_pin: Array) -> Array:
        if not self._has_gravity:
            return np.zeros((self.model.nv, 3))
        force = -_weight_by_gravity(self._pin, q_pin)
        if self._gravcomp is not None:
            force += self.passes[:, None] * _weight_by_gravity(self._gravcomp.pin, q_pin)
        return force


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
