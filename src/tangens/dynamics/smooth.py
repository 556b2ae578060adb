"""Contact-free dynamics of a MuJoCo scene in JAX: MJX for the multibody algorithms, our own forces on top.

Every method of `SmoothDynamics` is a pure function of arrays: jit it, vmap it, differentiate it.

Derivatives of first and second order flow through q, v, u, tau and the parameters `mass`, `com`, `inertia`,
`damping`, `armature` and `gravity`. They are finite in every state: at rest, at identity orientation, in a
relaxed ball spring. A derivative by q runs along the four numbers of a quaternion; for the tangent space,
differentiate δ ↦ f(integrate(layout, q, δ)) at zero. All else in the model is constant. Forces that MuJoCo
defines piecewise keep their kinks: clamped controls and forces (derivative zero where the clamp binds), the slack
of a tendon spring, and quadratic damping, for whose |v| the derivative at v = 0 is taken as zero.

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
from mujoco import mjtBias, mjtDyn, mjtGain, mjtJoint, mjtTrn, mjx
from mujoco import mjtDisableBit as Off
from numpy.typing import NDArray

from tangens.dynamics.layout import JointLayout
from tangens.dynamics.tangent_jax import difference, integrate, quat_log
from tangens.errors import OptionError, SceneError, StateError

Parameters = Mapping[str, ArrayLike]
_Array = NDArray[np.float64]

_TRIANGLE = ([0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2])  # xx, yy, zz, xy, xz, yz, as in MuJoCo's cinert
_SYMMETRIC = np.array([[0, 3, 4], [3, 1, 5], [4, 5, 2]])  # where each entry of a 3x3 inertia stands in the six
_ON_JOINT = (mjtTrn.mjTRN_JOINT, mjtTrn.mjTRN_JOINTINPARENT)
_SCALAR = (mjtJoint.mjJNT_SLIDE, mjtJoint.mjJNT_HINGE)
# What MJX reads of the model here, besides its structure. Handed over anew at each call, in the caller's dtype.
_MJX_FIELDS = ("qpos0", "body_pos", "body_quat", "body_iquat", "jnt_pos", "jnt_axis")


class SmoothDynamics:
    """Mass matrix, accelerations and Euler steps of one scene, without contacts and other constraints.

    Arrays follow MuJoCo's layout; the results have the dtype of the arguments. `parameters` overrides any of
    `self.parameters` and is what derivatives by physical parameters are taken with respect to.
    """

    def __init__(self, model: mujoco.MjModel) -> None:
        _refuse_unsupported(model)
        self.layout = JointLayout.from_model(model)
        self._model = copy.copy(model)
        self._mjx_model, self._mjx_data = _to_mjx(model)
        self._forces = _Forces(self._model, self.layout)

    @property
    def parameters(self) -> dict[str, _Array]:
        """The model's own values. Inertia is about the centre of mass, in body axes: xx, yy, zz, xy, xz, yz."""
        m = self._model
        axes = np.stack([_quat_matrix(quat) for quat in m.body_iquat])
        inertia = np.einsum("bij,bj,bkj->bik", axes, m.body_inertia, axes)
        return {
            "mass": m.body_mass.copy(),
            "com": m.body_ipos.copy(),
            "inertia": inertia[:, *_TRIANGLE],
            "damping": m.dof_damping.copy(),
            "armature": m.dof_armature.copy(),
            "gravity": m.opt.gravity.copy(),
        }
