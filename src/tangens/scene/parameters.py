"""The numbers of a scene that a derivative can be taken by: how to read them, and how to write them.

Each parameter is one array over bodies, geoms or degrees of freedom. They are independent of each other: a new mass
leaves centre of mass and inertia as they are, just as ∂/∂mass holds them fixed.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.dynamics.tree import inertia_matrix
from tangens.errors import OptionError, SceneError
from tangens.scene.support import element_name

Array = NDArray[np.float64]
_OBJ = mujoco.mjtObj
_ENTRIES = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))


@dataclass(frozen=True)
class Parameter:
    """One kind of number, over all elements of one kind."""

    name: str
    owner: mujoco.mjtObj | None
    """What a row belongs to; None if the parameter is the scene's own."""
    read: Callable[[mujoco.MjModel], Array]
    write: Callable[[mujoco.MjModel, Array], None]
    minimum: float
    """Smallest value allowed; -inf for any finite number."""


def _field(name: str) -> Callable[[mujoco.MjModel], Array]:
    return lambda m: getattr(m, name).copy()


def _write_field(name: str) -> Callable[[mujoco.MjModel, Array], None]:
    def write(m: mujoco.MjModel, value: Array) -> None:
        getattr(m, name)[:] = value

    return write


def read_inertia(m: mujoco.MjModel) -> Array:
    """Rotational inertia of each body about its centre of mass, in body axes: xx, yy, zz, xy, xz, yz."""
    out = np.zeros((m.nbody, 6))
    for body in range(m.nbody):
        matrix = inertia_matrix(m.body_inertia[body], m.body_iquat[body])
        out[body] = [matrix[i, j] for i, j in _ENTRIES]
    return out


def _write_inertia(m: mujoco.MjModel, value: Array) -> None:
    """Store principal moments and axes, for the bodies whose inertia changes."""
    before = read_inertia(m)
    for body in range(m.nbody):
        if np.array_equal(value[body], before[body]):
            continue
        matrix = np.zeros((3, 3))
        for (i, j), entry in zip(_ENTRIES, value[body], strict=True):
            matrix[i, j] = matrix[j, i] = entry
        moments, axes = np.linalg.eigh(matrix)
        if moments[0] <= 0 or moments[2] > (moments[0] + moments[1]) * (1 + 1e-9):
            raise SceneError(
                f"principal moments {moments[0]:.3g}, {moments[1]:.3g}, {moments[2]:.3g} belong to no body: "
                "they must be positive, and none larger than the sum of the others",
                element=element_name(m, _OBJ.mjOBJ_BODY, body),
                remedy="give the inertia about the centre of mass as xx, yy, zz, xy, xz, yz",
            )
        if np.linalg.det(axes) < 0:
            axes[:, 0] *= -1
        m.body_inertia[body] = moments
        mujoco.mju_mat2Quat(m.body_iquat[body], axes.flatten())


def _write_friction(m: mujoco.MjModel, value: Array) -> None:
    """Set the sliding coefficients; an explicit `<pair>` follows when all geoms share one value."""
    m.geom_friction[:, 0] = value
    if m.npair and len(value) and (value == value[0]).all():
        m.pair_friction[:, :2] = value[0]


def _write_size(m: mujoco.MjModel, value: Array) -> None:
    """Set the sizes of primitive shapes and of the bounds that MuJoCo keeps around them; inertias stay."""
    kinds = mujoco.mjtGeom
    for g in np.flatnonzero((value != m.geom_size).any(axis=1)):
        kind, (a, b, c) = mujoco.mjtGeom(m.geom_type[g]), value[g]
        halves = {
            kinds.mjGEOM_SPHERE: (a, a, a),
            kinds.mjGEOM_CAPSULE: (a, a, a + b),
            kinds.mjGEOM_CYLINDER: (a, a, b),
            kinds.mjGEOM_ELLIPSOID: (a, b, c),
            kinds.mjGEOM_BOX: (a, b, c),
        }.get(kind)
        if halves is None and kind != kinds.mjGEOM_PLANE:
            raise SceneError(
                f"the size of a {kind.name.removeprefix('mjGEOM_').lower()} comes from its data",
                element=element_name(m, _OBJ.mjOBJ_GEOM, int(g)),
                remedy="scale the mesh in the model instead",
            )
        m.geom_size[g] = value[g]
        if halves is None:  # a plane has no bounds, whatever size is drawn
            continue
        around = {kinds.mjGEOM_BOX: np.linalg.norm(halves), kinds.mjGEOM_CYLINDER: np.hypot(a, b)}
        m.geom_rbound[g] = around.get(kind, max(halves))
        m.geom_aabb[g] = [0.0, 0.0, 0.0, *halves]
        # The tree of boxes in which MuJoCo looks for close geoms was made for the old sizes.
        m.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_MIDPHASE


PARAMETERS = {
    parameter.name: parameter
    for parameter in (
        Parameter("friction", _OBJ.mjOBJ_GEOM, lambda m: m.geom_friction[:, 0].copy(), _write_friction, 0.0),
        Parameter("size", _OBJ.mjOBJ_GEOM, _field("geom_size"), _write_size, 0.0),
        Parameter("frictionloss", _OBJ.mjOBJ_DOF, _field("dof_frictionloss"), _write_field("dof_frictionloss"), 0.0),
        Parameter("mass", _OBJ.mjOBJ_BODY, _field("body_mass"), _write_field("body_mass"), 0.0),
        Parameter("com", _OBJ.mjOBJ_BODY, _field("body_ipos"), _write_field("body_ipos"), -np.inf),
        Parameter("placement", _OBJ.mjOBJ_BODY, _field("body_pos"), _write_field("body_pos"), -np.inf),
        Parameter("inertia", _OBJ.mjOBJ_BODY, read_inertia, _write_inertia, -np.inf),
        Parameter("damping", _OBJ.mjOBJ_DOF, _field("dof_damping"), _write_field("dof_damping"), 0.0),
        Parameter("armature", _OBJ.mjOBJ_DOF, _field("dof_armature"), _write_field("dof_armature"), 0.0),
        Parameter(
            "gravity", None, lambda m: m.opt.gravity.copy(), lambda m, x: m.opt.gravity.__setitem__(..., x), -np.inf
        ),
    )
}


def merged(
    what: str, current: Array, value: ArrayLike | Mapping[str, ArrayLike], index: Callable[[str], NDArray[np.int64]]
) -> Array:
    """`current` with a new value: for all rows (a number, a row, a whole array) or for those that a mapping names."""
    out = current.copy()
    if isinstance(value, Mapping):
        for name, entry in value.items():
            rows = index(name)
            out[rows] = _shaped(f"{what}[{name!r}]", entry, out[rows].shape)
        return out
    out[...] = _shaped(what, value, out.shape)
    return out


def _shaped(what: str, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    try:
        array = np.asarray(value, dtype=np.float64)
        broadcast = np.broadcast_to(array, shape)
    except (TypeError, ValueError):
        raise OptionError(f"{what}={value!r} does not fit: expected numbers of shape {shape}, or one for all") from None
    if not np.isfinite(broadcast).all():
        raise OptionError(f"{what} must be finite; got {value!r}")
    return broadcast


def row_index(m: mujoco.MjModel, parameter: str, owner: mujoco.mjtObj | None) -> Callable[[str], NDArray[np.int64]]:
    """How a name of the scene finds the rows of a parameter: a joint's name stands for its degrees of freedom."""
    if owner is None:
        raise OptionError(f"{parameter} belongs to the scene as a whole: give its value, not a mapping")
    kind = _OBJ.mjOBJ_JOINT if owner == _OBJ.mjOBJ_DOF else owner
    count = {_OBJ.mjOBJ_BODY: m.nbody, _OBJ.mjOBJ_GEOM: m.ngeom, _OBJ.mjOBJ_JOINT: m.njnt}[kind]
    names = {mujoco.mj_id2name(m, kind, i): i for i in range(count)}

    def find(name: str) -> NDArray[np.int64]:
        if name not in names or not name:
            known = [known for known in names if known]
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(known[:8])}"
            label = kind.name.removeprefix("mjOBJ_").lower()
            raise OptionError(f"{parameter}: the scene has no {label} {name!r}.{hint}")
        if owner == _OBJ.mjOBJ_DOF:
            return np.flatnonzero(m.dof_jntid == names[name])
        return np.array([names[name]])

    return find
