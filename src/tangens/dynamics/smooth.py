"""Contact-free dynamics of a MuJoCo scene in JAX: rigid bodies, and the forces of joints, tendons and actuators.

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
from tangens.dynamics.forces_jax import JointForces, absolute
from tangens.dynamics.layout import JointLayout
from tangens.dynamics.rigid_body_jax import TRIANGLE, Configuration, RigidBodies, Values
from tangens.dynamics.spatial import Ancestry, SpatialKinematics
from tangens.dynamics.tangent_jax import integrate
from tangens.dynamics.tree import inertia_matrix
from tangens.errors import OptionError, SceneError, StateError

Parameters = Mapping[str, ArrayLike]
_Array = NDArray[np.float64]


class SmoothDynamics:
    """Mass matrix, accelerations and Euler steps of one scene, without contacts and other constraints.

    Arrays follow MuJoCo's layout: q (nq,), v and tau (nv,), u (nu,), where None stands for zeros. Results have
    the arguments' dtype. `parameters` overrides any of `self.parameters`.
    """

    def __init__(self, model: mujoco.MjModel) -> None:
        refuse_unsupported(model, "smooth")
        if model.nv == 0:
            raise SceneError("the scene has no joints, so nothing in it can move")
        self.layout = JointLayout.from_model(model)
        self._model = copy.copy(model)
        self.ancestry = Ancestry(model)
        self._bodies = RigidBodies(self._model, self.ancestry)
        self._forces = JointForces(self._model, self.layout, self.ancestry, self._bodies)
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
            "inertia": inertia[:, *TRIANGLE],
            "damping": m.dof_damping.copy(),
            "armature": m.dof_armature.copy(),
            "gravity": m.opt.gravity.copy(),
        }

    def body_poses(self, q: ArrayLike, parameters: Parameters | None = None) -> tuple[jax.Array, jax.Array]:
        """Return the bodies' positions (nbody, 3) [m] and orientations (nbody, 4), in the world frame."""
        _, (q,) = self._read(parameters, q=q)
        links = self._bodies.links
        return self._bodies(q).position, links.orientations(q)[links.body]

    def spatial_kinematics(self, q: ArrayLike, parameters: Parameters | None = None) -> SpatialKinematics:
        """Return the bodies' frames and the axes of all degrees of freedom, in the world frame."""
        _, (q,) = self._read(parameters, q=q)
        return self._bodies.in_world(self._bodies(q))

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
        at = self._bodies(q)
        inertia, force = self._assembled(p, at, q, v, u, tau)
        implicit = is_implicit(self._model)
        if implicit or not self._model.opt.disableflags & Off.mjDSBL_EULERDAMP:
            a, b, c = self._forces.damping(p).T
            inertia += h * jnp.diag(a + 2 * b * absolute(v) + 3 * c * v**2)
        if implicit:
            inertia += h * self._forces.line_damping(p, at, q, v, u)
        return inertia, force

    def mass_matrix(self, q: ArrayLike, parameters: Parameters | None = None) -> jax.Array:
        """Return the joint-space inertia (nv, nv), armature included."""
        p, (q,) = self._read(parameters, q=q)
        return self._rigid(p, self._bodies(q), jnp.zeros(self.layout.nv, q.dtype))[0]

    def bias(self, q: ArrayLike, v: ArrayLike, parameters: Parameters | None = None) -> jax.Array:
        """Return Coriolis, centrifugal and gravitational forces (nv,), MuJoCo's `qfrc_bias`."""
        p, (q, v) = self._read(parameters, q=q, v=v)
        return self._rigid(p, self._bodies(q), v)[1]

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
        inertia, force = self._assembled(p, self._bodies(q), q, v, u, tau)
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

    def _rigid(self, p: Values, at: Configuration, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the mass matrix and the bias forces."""
        inertia, bias = self._bodies.equations(p, at, v)
        return inertia + jnp.asarray(self._forces.added_inertia, v.dtype), bias

    def _assembled(
        self, p: Values, at: Configuration, q: jax.Array, v: jax.Array, u: jax.Array, tau: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return the matrix and the right-hand side of M v̇ = f."""
        inertia, bias = self._rigid(p, at, v)
        return inertia, tau - bias + self._forces(p, at, q, v, u)
