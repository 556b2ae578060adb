"""Contact-free dynamics of a MuJoCo scene in JAX: MJX for the multibody algorithms, our own forces on top.

Every method of `SmoothDynamics` is a pure function of arrays: jit it, vmap it, differentiate it.

Derivatives of first and second order flow through q, v, u, tau and the parameters `mass`, `com`, `inertia`,
`damping`, `armature` and `gravity`. They are finite in every state: at rest, at identity orientation, in a
relaxed ball spring. A derivative by q runs along the four numbers of a quaternion; for the tangent space,
differentiate δ ↦ f(integrate(layout, q, δ)) at zero. All else in the model is constant. Forces that MuJoCo
defines piecewise keep their kinks: clamped controls and forces (derivative zero where the clamp binds), the
slack of a tendon spring, quadratic springs and dampers, for whose |x| the derivative at 0 is taken as zero.

Joint limits, dry friction, equalities and contacts are constraints; they belong to the contact models and are
left out. What has a smooth effect that cannot be reproduced here is refused with a `SceneError`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.scipy.linalg import solve
from jax.typing import ArrayLike
from mujoco import mjtDisableBit as Off
from numpy.typing import NDArray

from tangens.dynamics.features import refuse_unsupported
from tangens.dynamics.force_model import is_implicit
from tangens.dynamics.forces_jax import JointForces, Values, absolute
from tangens.dynamics.layout import JointLayout
from tangens.dynamics.mjx_model import mjx, to_mjx
from tangens.dynamics.spatial import Ancestry, SpatialKinematics, axes_of
from tangens.dynamics.tangent_jax import integrate
from tangens.dynamics.tree import inertia_matrix
from tangens.errors import OptionError, StateError

Parameters = Mapping[str, ArrayLike]
_Array = NDArray[np.float64]

_TRIANGLE = ([0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2])  # xx, yy, zz, xy, xz, yz: MuJoCo's order too
_SYMMETRIC = np.array([[0, 3, 4], [3, 1, 5], [4, 5, 2]])  # where a 3x3 inertia's entries stand in those six
# What MJX reads of the model besides its structure; handed over at each call, in the caller's dtype.
_MJX_FIELDS = ("qpos0", "body_pos", "body_quat", "body_iquat", "body_inertia", "jnt_pos", "jnt_axis")


class SmoothDynamics:
    """Mass matrix, accelerations and Euler steps of one scene, without contacts and other constraints.

    Arrays follow MuJoCo's layout: q (nq,), v and tau (nv,), u (nu,), where None stands for zeros. Results have
    the arguments' dtype. `parameters` overrides any of `self.parameters`.
    """

    def __init__(self, model: mujoco.MjModel) -> None:
        refuse_unsupported(model, "smooth")
        self.layout = JointLayout.from_model(model)
        self._model = copy.copy(model)
        self.ancestry = Ancestry(model)
        self._mjx_model, self._mjx_data = to_mjx(model, self.ancestry)
        self._forces = JointForces(self._model, self.layout, self.ancestry)
        self.timestep = float(model.opt.timestep)
        """Duration of a step [s]."""

    @property
    def parameters(self) -> dict[str, _Array]:
        """The model's values. `inertia`: about the centre of mass, in body axes, as xx, yy, zz, xy, xz, yz."""
        m = self._model
        inertia = np.stack([inertia_matrix(*body) for body in zip(m.body_inertia, m.body_iquat, strict=True)])
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
        model = self._with_parameters(p, q.dtype)
        data = mjx.kinematics(model, self._mjx_data.replace(qpos=q))
        return data.xpos.astype(q.dtype), data.xquat.astype(q.dtype)

    def spatial_kinematics(self, q: ArrayLike, parameters: Parameters | None = None) -> SpatialKinematics:
        """Return the bodies' frames and the axes of all degrees of freedom, in the world frame."""
        p, (q,) = self._read(parameters, q=q)
        model = self._with_parameters(p, q.dtype)
        data = mjx.kinematics(model, self._mjx_data.replace(qpos=q))
        rotation = data.xmat.reshape(-1, 3, 3)
        axes = axes_of(self.ancestry, data.xpos, rotation, data.xanchor, data.xaxis)
        return SpatialKinematics(data.xpos.astype(q.dtype), rotation.astype(q.dtype), axes.astype(q.dtype))

    def equations(
        self,
        q: ArrayLike,
        v: ArrayLike,
        u: ArrayLike | None = None,
        tau: ArrayLike | None = None,
        parameters: Parameters | None = None,
        timestep: ArrayLike | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Return the matrix and the force of M̃ (v⁺ − v) / h = f, the step's equation; M̃ holds implicit damping."""
        h = self.timestep if timestep is None else timestep
        p, (q, v, u, tau) = self._read(parameters, q=q, v=v, u=u, tau=tau)
        model, data = self._kinematics(p, q)
        inertia, force = self._assembled(model, data, p, q, v, u, tau)
        implicit = is_implicit(self._model)
        if implicit or not self._model.opt.disableflags & Off.mjDSBL_EULERDAMP:
            a, b, c = self._forces.damping(p).T
            inertia += h * jnp.diag(a + 2 * b * absolute(v) + 3 * c * v**2)
        if implicit:
            inertia += h * self._forces.line_damping(p, data, q, v, u)
        return inertia, force

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
        """Return q⁺ and v⁺ after the model's time step: semi-implicit Euler, implicit in damping."""
        inertia, force = self.equations(q, v, u, tau, parameters)
        q, v = jnp.asarray(q, force.dtype), jnp.asarray(v, force.dtype)
        v_next = v + self.timestep * solve(inertia, force, assume_a="pos")
        return integrate(self.layout, q, self.timestep * v_next), v_next

    def _read(self, parameters: Parameters | None, **vectors: ArrayLike | None) -> tuple[Values, list[jax.Array]]:
        """Bring all arguments to one dtype, fill in what is not given, and check sizes."""
        parameters, defaults = parameters or {}, self.parameters
        given = [x for x in (*parameters.values(), *vectors.values()) if x is not None]
        dtype = jnp.result_type(jnp.float32, *given)
        sizes = {"q": self.layout.nq, "v": self.layout.nv, "u": self._model.nu, "tau": self.layout.nv}
        arrays = [jnp.asarray(np.zeros(sizes[k]) if x is None else x, dtype) for k, x in vectors.items()]
        for name, array in zip(vectors, arrays, strict=True):
            if array.shape != (sizes[name],):
                raise StateError(f"{name} has shape {array.shape}, this scene's has ({sizes[name]},)")
        for name, value in parameters.items():
            if name not in defaults:
                raise OptionError(f"no parameter {name!r}: choose from {', '.join(defaults)}")
            if jnp.shape(value) != defaults[name].shape:
                raise OptionError(f"{name} has shape {jnp.shape(value)}, this scene's has {defaults[name].shape}")
        return {k: jnp.asarray(parameters.get(k, x), dtype) for k, x in defaults.items()}, arrays

    def _with_parameters(self, p: Values, dtype: Any) -> Any:
        """Return MJX's model with our parameters in it."""
        return self._mjx_model.replace(
            **{name: jnp.asarray(getattr(self._model, name), dtype) for name in _MJX_FIELDS},
            opt=self._mjx_model.opt.replace(gravity=p["gravity"]),
            body_mass=p["mass"],
            body_ipos=p["com"],
            dof_armature=p["armature"],
        )

    def _kinematics(self, p: Values, q: jax.Array) -> tuple[Any, Any]:
        """Return MJX's model, and its data with all that depends on q alone."""
        model = self._with_parameters(p, q.dtype)
        data = mjx.com_pos(model, mjx.kinematics(model, self._mjx_data.replace(qpos=q)))
        # JAX remembers in which precision it has seen an array, so none that traces in two precisions share: a copy.
        # MJX knows principal moments only. Rotate the full tensor and move it to the tree's centre of mass.
        r = data.xipos - data.subtree_com[model.body_rootid]
        shift = jnp.sum(r**2, axis=1)[:, None, None] * jnp.eye(3) - r[:, :, None] * r[:, None, :]
        tensor = data.xmat @ p["inertia"][:, _SYMMETRIC.copy()] @ data.xmat.mT + p["mass"][:, None, None] * shift
        first_moments = jnp.column_stack([r, jnp.ones(len(r))]) * p["mass"][:, None]
        return model, data.tree_replace({"_impl.cinert": jnp.hstack([tensor[:, *_TRIANGLE], first_moments])})

    def _mass_matrix(self, model: Any, data: Any) -> jax.Array:
        return mjx.full_m(model, mjx.crb(model, data)) + self._forces.added_inertia

    def _bias(self, model: Any, data: Any, v: jax.Array) -> jax.Array:
        return mjx.rne(model, mjx.com_vel(model, data.replace(qvel=v))).qfrc_bias

    def _equations(
        self, p: Values, q: jax.Array, v: jax.Array, u: jax.Array, tau: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return the matrix and the right-hand side of M v̇ = f."""
        return self._assembled(*self._kinematics(p, q), p, q, v, u, tau)

    def _assembled(
        self, model: Any, data: Any, p: Values, q: jax.Array, v: jax.Array, u: jax.Array, tau: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        force = tau - self._bias(model, data, v) + self._forces(p, data, q, v, u)
        return self._mass_matrix(model, data).astype(q.dtype), force.astype(q.dtype)
