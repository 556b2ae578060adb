"""Checks on a compiled model that MuJoCo does not make, or not after its arrays were altered."""

from __future__ import annotations

import mujoco
import numpy as np

from tangens.errors import SceneError
from tangens.scene.support import element_name

_OBJ = mujoco.mjtObj
# Physical fields by the element they belong to; the rest cannot carry a NaN into the motion.
_FIELDS = {
    _OBJ.mjOBJ_BODY: ("pos", "quat", "ipos", "iquat", "mass", "inertia", "gravcomp"),
    _OBJ.mjOBJ_JOINT: ("pos", "axis", "stiffness", "stiffnesspoly", "range", "actfrcrange"),
    _OBJ.mjOBJ_DOF: ("damping", "dampingpoly", "armature", "frictionloss"),
    _OBJ.mjOBJ_GEOM: ("size", "pos", "quat", "friction", "margin"),
    _OBJ.mjOBJ_TENDON: ("stiffness", "stiffnesspoly", "damping", "dampingpoly", "range", "lengthspring", "armature"),
    _OBJ.mjOBJ_ACTUATOR: ("gainprm", "biasprm", "gear", "forcerange", "damping", "dampingpoly", "armature"),
    _OBJ.mjOBJ_EQUALITY: ("data",),
    _OBJ.mjOBJ_MESH: ("pos", "quat"),
    _OBJ.mjOBJ_KEY: ("qpos", "qvel", "ctrl"),
}
_PREFIX = {
    _OBJ.mjOBJ_JOINT: "jnt", _OBJ.mjOBJ_DOF: "dof", _OBJ.mjOBJ_EQUALITY: "eq", _OBJ.mjOBJ_KEY: "key",
}  # fmt: skip


# A millionth of what a grain of rice on a hinge would have, in kg·m²: a link whose mass lies on its own axis.
_NO_INERTIA = 1e-11


def check_model(m: mujoco.MjModel, file: object = None) -> None:
    """Raise SceneError for numbers no step can be taken with."""
    for kind, fields in _FIELDS.items():
        prefix = _PREFIX.get(kind, kind.name.removeprefix("mjOBJ_").lower())
        for field in fields:
            values = getattr(m, f"{prefix}_{field}")
            rows = values.reshape(len(values), values.size // max(len(values), 1))
            bad = np.flatnonzero(np.isnan(rows).any(axis=1))
            if len(bad):
                raise SceneError(
                    f"{field} is not a number: {values[bad[0]]}",
                    file=file,
                    element=_element(m, kind, int(bad[0])),
                    remedy="correct the number",
                )
    if m.nmeshvert and not np.isfinite(m.mesh_vert).all():
        raise SceneError("a mesh has vertices that are not numbers", file=file, remedy="export the mesh again")
    if not (np.isfinite(m.opt.timestep) and m.opt.timestep > 0):
        raise SceneError(
            f"timestep must be positive; got {m.opt.timestep}", file=file, element="option", remedy="set it in seconds"
        )
    if not np.isfinite(m.opt.gravity).all():
        raise SceneError(f"gravity is {m.opt.gravity}", file=file, element="option", remedy="give three finite numbers")
    _check_inertias(m, file)
    _check_mass_matrix(m, file)


def _element(m: mujoco.MjModel, kind: mujoco.mjtObj, index: int) -> str:
    if kind == _OBJ.mjOBJ_DOF:
        return element_name(m, _OBJ.mjOBJ_JOINT, int(m.dof_jntid[index]))
    return element_name(m, kind, index)


def _check_inertias(m: mujoco.MjModel, file: object) -> None:
    for body in range(1, m.nbody):
        mass, moments = m.body_mass[body], np.sort(m.body_inertia[body])
        if mass < 0:
            reason = f"its mass is negative ({mass:g})"
        elif moments[0] < 0:
            reason = f"a principal moment of inertia is negative ({moments[0]:g})"
        elif moments[2] > (moments[0] + moments[1]) * (1 + 1e-6):
            reason = f"principal moments {moments} break A + B >= C: no body has such an inertia"
        else:
            continue
        raise SceneError(
            reason, file=file, element=element_name(m, _OBJ.mjOBJ_BODY, body), remedy="correct mass or inertia"
        )


def _check_mass_matrix(m: mujoco.MjModel, file: object) -> None:
    """Every direction of motion must move some mass."""
    if m.nv == 0:
        return
    d = mujoco.MjData(m)
    mujoco.mj_fwdPosition(m, d)
    M = np.zeros((m.nv, m.nv))
    mujoco.mj_fullM(m, d, M)
    diagonal = M.diagonal()
    stuck = np.flatnonzero(~(diagonal > _NO_INERTIA))
    if not len(stuck):
        scale = 1 / np.sqrt(diagonal)
        values, vectors = np.linalg.eigh(M * np.outer(scale, scale))
        if values[0] > 1e-14:
            return
        stuck = np.argmax(np.abs(vectors[:, 0]), keepdims=True)
    raise SceneError(
        "it can move without moving any mass",
        file=file,
        element=_element(m, _OBJ.mjOBJ_DOF, int(stuck[0])),
        remedy="give the bodies behind it mass and inertia, or the joint armature",
    )
