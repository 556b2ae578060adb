"""What scenes have in common that differ in numbers only: the key under which compiled functions are shared."""

from __future__ import annotations

import hashlib

import mujoco
import numpy as np

_ELEMENTS = (
    "actuator_", "body_", "dof_", "eq_", "exclude_", "geom_", "jnt_", "mesh_vert", "pair_dim", "pair_geom", "qpos",
    "site_", "tendon_", "wrap_",
)  # fmt: skip
_OTHERS = ("mesh_pos", "mesh_quat", "mesh_scale")
# Parameters, and what MuJoCo derives of them. That includes how it stores the mass matrix and which frames coincide,
# both of which change with a centre of mass.
_PARAMETERS = {
    "body_mass", "body_ipos", "body_iquat", "body_inertia", "body_subtreemass", "body_invweight0", "body_sameframe",
    "body_simple", "dof_damping", "dof_armature", "dof_invweight0", "dof_M0", "dof_Madr", "dof_simplenum", "dof_length",
    "geom_size", "geom_rbound", "geom_aabb", "geom_sameframe", "site_sameframe", "actuator_acc0", "actuator_length0",
    "tendon_invweight0", "tendon_length0",
}  # fmt: skip
_LOOKS = ("_rgba", "_matid", "_group", "_user", "_castshadow", "_bvhadr", "_bvhnum")
# Groups of actuators can be disabled; those of other elements are for the eye.
_SEEN = ("actuator_group",)


def structure(model: mujoco.MjModel, dry_joints_differ: bool = False) -> bytes:
    """A digest of all that a step depends on besides parameters, gravity and the time step.

    For a model to which friction losses of joints are parameters, too, `dry_joints_differ`: only which joints have some
    counts.
    """
    digest = hashlib.sha256()
    for name in _FIELDS:
        value = getattr(model, name)
        if name == "dof_frictionloss" and dry_joints_differ:
            value = value > 0
        if name == "geom_friction":
            value = value[:, 1:]  # the first column is a parameter
        digest.update(f"{name}{value.dtype}{value.shape}".encode())
        digest.update(value.tobytes())
    # A new size switches MuJoCo's own search for near geoms off.
    flags = int(model.opt.disableflags) & ~int(mujoco.mjtDisableBit.mjDSBL_MIDPHASE)
    opt = model.opt
    numbers = (flags, opt.enableflags, opt.disableactuator, opt.integrator, opt.density, opt.viscosity, model.nmocap)
    digest.update(repr(tuple(map(float, numbers))).encode())
    return digest.digest()


def _counts(name: str) -> bool:
    if name in _PARAMETERS or (name.endswith(_LOOKS) and name not in _SEEN):
        return False
    return name.startswith(_ELEMENTS) or name in _OTHERS


def _fields() -> tuple[str, ...]:
    model = mujoco.MjModel.from_xml_string("<mujoco/>")
    arrays = (name for name in dir(model) if not name.startswith("_") and _counts(name))
    return tuple(name for name in arrays if isinstance(getattr(model, name), np.ndarray))


_FIELDS = _fields()
