"""Joint limits as smooth forces: the law of a point and a plane, along a joint."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.contact.geom_pairs import EARTH
from tangens.contact.soft.derive import FALL, LIMIT_SHARE
from tangens.contact.soft.law import dissipation_factor, later
from tangens.contact.soft.softplus import softplus

Array = jax.Array


class JointLimits:
    """Bounds of hinges and slides. Fixed structure; the numbers are settings."""

    def __init__(self, m: mujoco.MjModel) -> None:
        plain = np.isin(m.jnt_type, (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE)))
        on = not m.opt.disableflags & (mujoco.mjtDisableBit.mjDSBL_LIMIT | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
        joints = np.flatnonzero(plain & m.jnt_limited.astype(bool) & on)
        self._joint, side = np.repeat(joints, 2), np.tile([0, 1], len(joints))
        self._q, self._v = m.jnt_qposadr[self._joint], m.jnt_dofadr[self._joint]
        self._sign, self._bound = 1.0 - 2.0 * side, m.jnt_range[self._joint, side]

    def numbers(self, m: mujoco.MjModel, integrator: str, timestep: float) -> dict[str, NDArray[np.float64]]:
        """Stiffness, dissipation and reach of each bound, derived from inertias and ranges.

        The load is the weight of what the joint carries, at its radius of gyration. As for pairs, that load rests at
        distance 0, and small motions about it are damped critically.
        """
        inertia = np.maximum(m.dof_M0[self._v], 1e-12)
        carried = np.maximum(m.body_subtreemass[m.jnt_bodyid[self._joint]], 1e-12)
        load = EARTH * np.sqrt(carried * inertia)
        least = FALL[integrator] * timestep**2 * load / inertia
        reach = np.maximum(LIMIT_SHARE * np.ptp(m.jnt_range[self._joint], axis=1), least)
        stiffness = load / (reach * np.log(2))
        dissipation = load / np.sqrt(2 * stiffness * inertia)
        return {"limit_stiffness": stiffness, "limit_dissipation": dissipation, "limit_reach": reach}

    def __call__(self, q: Array, v: Array, s: dict[str, Any], ahead: Array | None, smooth: bool) -> tuple[Array, Array]:
        """Generalised forces (nv,), and how fast they fall with velocity (nv,); v is that at the end of `ahead`."""
        if not len(self._joint):
            return jnp.zeros_like(v), jnp.zeros_like(v)
        sign = jnp.asarray(self._sign, v.dtype)
        distance, rate = sign * (q[self._q] - self._bound), sign * v[self._v]
        depth = -later(distance, rate, ahead) / s["limit_reach"]
        spring = s["limit_stiffness"] * s["limit_reach"] * softplus(depth)
        factor, falls = dissipation_factor(rate / s["limit_dissipation"], smooth)
        falls_by = spring * falls / s["limit_dissipation"]
        if ahead is not None:
            falls_by += ahead * s["limit_stiffness"] * jax.nn.sigmoid(depth) * factor
        nothing = jnp.zeros_like(v)
        return nothing.at[self._v].add(sign * spring * factor), nothing.at[self._v].add(falls_by)
