"""Forces of joints, tendons and actuators in JAX: MuJoCo's `qfrc_passive` and `qfrc_actuator`.

The twin of `forces`, for `smooth`; both evaluate the same `ForceModel`. All derivatives flow; clamps, the slack of
tendons and |v| keep their kinks.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import mjtJoint
from numpy.typing import NDArray

from tangens.dynamics.force_model import mass_pattern, read_forces
from tangens.dynamics.layout import JointLayout
from tangens.dynamics.rigid_body_jax import Configuration, RigidBodies, Values
from tangens.dynamics.spatial import Ancestry, vector_product
from tangens.dynamics.tangent_jax import difference, quat_log
from tangens.dynamics.tree import rotation_matrix

_Array = NDArray[np.float64]


class JointForces:
    """Springs, dampers, gravity compensation and actuators: MuJoCo's `qfrc_passive` and `qfrc_actuator`."""

    def __init__(self, model: mujoco.MjModel, layout: JointLayout, ancestry: Ancestry, bodies: RigidBodies) -> None:
        self.model, self.layout, self._bodies = model, layout, bodies
        self.moves = ancestry.bodies.T  # (nv, nbody)
        self._forces = read_forces(model)
        self.added_inertia = self._added_inertia(ancestry)
        self._vector_springs = _vector_springs(model)
        balls = model.jnt_type == mjtJoint.mjJNT_BALL
        self._balls = list(zip(model.jnt_qposadr[balls].tolist(), model.jnt_dofadr[balls].tolist(), strict=True))

    def __call__(self, p: Values, at: Configuration, q: jax.Array, v: jax.Array, u: jax.Array) -> jax.Array:
        """Return the sum of all of them (nv,)."""
        dofs = self._forces.dofs
        weight = self._gravity_compensation(p, at)
        pushed = self._actuators(at, q, v, u) + jnp.where(dofs.gravcomp_actuated, weight, 0)
        passive = self._springs(q) + self._dampers(p, v) + jnp.where(dofs.gravcomp_actuated, 0, weight)
        return passive + _clip(pushed, dofs.force_range)

    def damping(self, p: Values) -> jax.Array:
        """Return the damping polynomial of each dof (nv, 3), what actuators reflect included."""
        dofs, dtype = self._forces.dofs, p["damping"].dtype
        if not self._forces.dampers:
            return jnp.zeros((self.layout.nv, 3), dtype)
        linear = p["damping"] + jnp.asarray(dofs.reflected_damping, dtype)
        return jnp.asarray(dofs.damper, dtype).at[:, 0].set(linear)

    def _added_inertia(self, ancestry: Ancestry) -> _Array:
        """What tendons and actuators add to the mass matrix, (nv, nv)."""
        tendons = self._forces.tendons
        along_tendons = (tendons.arm.T * tendons.armature) @ tendons.arm
        # Like MuJoCo, leave out what a tendon's armature adds between dofs of different branches.
        return np.where(ancestry.coupled, along_tendons, 0) + np.diag(self._forces.dofs.reflected_armature)

    def _springs(self, q: jax.Array) -> jax.Array:
        dofs, tendons = self._forces.dofs, self._forces.tendons
        force = jnp.zeros(self.layout.nv, q.dtype)
        if dofs.spring.any():
            x = argument = difference(self.layout, jnp.asarray(dofs.rest, q.dtype), q)
            for i in self._vector_springs:  # whose polynomial is taken of the vector's length
                argument = argument.at[i : i + 3].set(_norm(x[i : i + 3]))
            force -= x * _polynomial(dofs.spring, argument)
        if tendons.spring.any():
            arm = jnp.asarray(tendons.arm, q.dtype)
            length, (low, high) = arm @ self._coordinates(q, tendons.arm), jnp.asarray(tendons.band, q.dtype).T
            # Not length - clip(length): without slack, this has the slope of a plain spring at its rest length too.
            x = jnp.minimum(length - low, 0) + jnp.maximum(length - high, 0)
            force -= (x * _polynomial(tendons.spring, x)) @ arm
        return force

    def _dampers(self, p: Values, v: jax.Array) -> jax.Array:
        tendons = self._forces.tendons
        force = -v * _polynomial(self.damping(p), absolute(v))
        if tendons.damper.any():
            arm = jnp.asarray(tendons.arm, v.dtype)
            rate = arm @ v
            force -= (rate * _polynomial(tendons.damper, absolute(rate))) @ arm
        return force

    def _gravity_compensation(self, p: Values, at: Configuration) -> jax.Array:
        share = jnp.asarray(self._forces.gravcomp, p["mass"].dtype)
        if not self._forces.gravcomp.any():
            return jnp.zeros(self.layout.nv, share.dtype)
        lift = -(p["mass"] * share)[:, None] * p["gravity"]
        wrench = jnp.concatenate([vector_product(self._bodies.com(p, at), lift), lift], 1)
        return jnp.sum(at.axes * (jnp.asarray(self.moves, lift.dtype) @ wrench), axis=1)

    def line_damping(self, p: Values, at: Configuration, q: jax.Array, v: jax.Array, u: jax.Array) -> jax.Array:
        """Return −∂(forces of tendons and actuators)/∂v (nv, nv), where M has entries: see `implicit_damping`."""
        law, tendons, dofs = self._forces.actuators, self._forces.tendons, self._forces.dofs
        out = jnp.zeros((self.layout.nv, self.layout.nv), q.dtype)
        if tendons.damper.any():
            arm, (a, b, c) = jnp.asarray(tendons.arm, q.dtype), jnp.asarray(tendons.damper, q.dtype).T
            rate = arm @ v
            out += (arm.T * (a + 2 * b * absolute(rate) + 3 * c * rate**2)) @ arm
        if len(law.control):
            arm, force, slope = self._actuator_law(at, q, v, u)
            weight = self._gravity_compensation(p, at)
            total = _clip(force, law.force_range) @ arm + jnp.where(dofs.gravcomp_actuated, weight, 0)
            inside = (total > dofs.force_range[:, 0]) & (total < dofs.force_range[:, 1])
            on_joint = (law.tendon < 0) & (law.site < 0)
            first = np.where(on_joint, np.argmax(law.arm != 0, axis=1), 0)
            acts = jnp.where(on_joint, inside[first], True)
            acts &= (force > law.force_range[:, 0]) & (force < law.force_range[:, 1])
            out -= (arm.T * jnp.where(acts, slope, 0)) @ arm
        return jnp.where(mass_pattern(self.model), out, 0)

    def _actuators(self, at: Configuration, q: jax.Array, v: jax.Array, u: jax.Array) -> jax.Array:
        law = self._forces.actuators
        if not len(law.control):
            return jnp.zeros(self.layout.nv, q.dtype)
        arm, force, _ = self._actuator_law(at, q, v, u)
        return _clip(self._within_tendon_limits(force), law.force_range) @ arm

    def _actuator_law(self, at: Configuration, q: jax.Array, v: jax.Array, u: jax.Array) -> tuple[jax.Array, ...]:
        """Return arms (n, nv), forces before they are clamped, and their slopes by velocity."""
        law = self._forces.actuators
        length = jnp.asarray(law.length, q.dtype) @ self._coordinates(q, law.length)
        arm = self._arms(at, q)
        u = _clip(u[law.control], law.control_range)
        if np.isfinite(law.winding).any():  # go to the setpoint's nearest winding
            winding = jnp.asarray(law.winding, q.dtype)
            windings = jnp.round((u - length) / winding)
            u -= jnp.where(windings == 0, 0, windings * winding)
        measured = jnp.stack([jnp.ones_like(u), length, arm @ v], axis=1)
        gain, bias = (jnp.asarray(x, q.dtype) for x in (law.gain, law.bias))
        force = jnp.sum(gain * measured, axis=1) * u + jnp.sum(bias * measured, axis=1)
        return arm, force, gain[:, 2] * u + bias[:, 2]

    def _within_tendon_limits(self, force: jax.Array) -> jax.Array:
        """Scale the forces of actuators that together pull a tendon too much."""
        limits = self._forces.tendons.force_range
        for tendon in np.flatnonzero(np.isfinite(limits).any(axis=1)):
            pulls = self._forces.actuators.tendon == tendon
            total = jnp.sum(force, where=pulls)
            allowed = jnp.clip(total, *limits[tendon].tolist())
            share = jnp.where(total == allowed, 1, allowed / jnp.where(total == 0, 1, total))
            force = jnp.where(pulls, share * force, force)
        return force

    def _coordinates(self, q: jax.Array, lines: _Array) -> jax.Array:
        """Return the coordinate of each dof that these lines (n, nv) measure, (nv,)."""
        read = np.zeros(self.layout.nv, int)  # of quaternions, something that no line measures
        read[list(self.layout.euclid_v)] = self.layout.euclid_q
        x = q[read]
        for at_q, at_v in self._balls:
            if lines[:, at_v : at_v + 3].any():
                x = x.at[at_v : at_v + 3].set(quat_log(q[at_q : at_q + 4]))
        return x

    def _arms(self, at: Configuration, q: jax.Array) -> jax.Array:
        """Return the actuators' moment arms (n, nv)."""
        m, law = self.model, self._forces.actuators
        arm = jnp.asarray(law.arm, q.dtype)
        for i in np.flatnonzero(law.site >= 0):
            arm = arm.at[i].set(self._site_arm(at, law.site[i], jnp.asarray(law.gear[i], q.dtype)))
        for i in np.flatnonzero(law.in_parent >= 0):
            joint = law.in_parent[i]
            free = 3 * int(m.jnt_type[joint] == mjtJoint.mjJNT_FREE)
            at_q, at_v = m.jnt_qposadr[joint] + free, m.jnt_dofadr[joint] + free
            arm = arm.at[i, at_v : at_v + 3].set(_rotate_back(q[at_q : at_q + 4], arm[i, at_v : at_v + 3]))
        return arm

    def _site_arm(self, at: Configuration, site: int, gear: jax.Array) -> jax.Array:
        m, body = self.model, self.model.site_bodyid[site]
        axes = at.rotation[body] @ jnp.asarray(rotation_matrix(m.site_quat[site]), gear.dtype)
        arm = at.position[body] - at.origin[body] + at.rotation[body] @ jnp.asarray(m.site_pos[site], gear.dtype)
        force, torque = axes @ gear[:3], axes @ gear[3:]
        wrench = jnp.concatenate([torque + jnp.cross(arm, force), force])
        return at.axes @ wrench * jnp.asarray(self.moves[:, body], gear.dtype)


def _polynomial(c: _Array | jax.Array, x: jax.Array) -> jax.Array:
    """Return c₀ + c₁ x + c₂ x², row by row."""
    c = jnp.asarray(c, x.dtype)
    return c[:, 0] + x * (c[:, 1] + x * c[:, 2])


def _clip(x: jax.Array, limits: _Array) -> jax.Array:
    low, high = jnp.asarray(limits, x.dtype).T
    return jnp.clip(x, low, high)


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


def _vector_springs(m: mujoco.MjModel) -> list[int]:
    """Return where in v the displacement of a polynomial spring is a vector of three."""
    curved = m.jnt_stiffnesspoly.any(axis=1)
    ball = m.jnt_dofadr[curved & (m.jnt_type == mjtJoint.mjJNT_BALL)]
    free = m.jnt_dofadr[curved & (m.jnt_type == mjtJoint.mjJNT_FREE)]
    return [*ball.tolist(), *free.tolist(), *(free + 3).tolist()]
