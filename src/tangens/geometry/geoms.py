"""Shapes of MuJoCo's geoms, in the geom's frame.

Derivatives flow by `size`, except for meshes, whose shape is in their data, and planes, which have no end.
"""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.errors import OptionError, SceneError
from tangens.geometry.checks import Numbers, array
from tangens.geometry.hulls import convex_hull
from tangens.geometry.polytopes import box
from tangens.geometry.primitives import Capsule, Cylinder, HalfSpace, ellipsoid, sphere
from tangens.geometry.shape import Shape
from tangens.scene.support import element_name

_PREFIX = "mjGEOM_"
_NUMBERS = {"plane": 0, "sphere": 1, "capsule": 2, "cylinder": 2, "ellipsoid": 3, "box": 3, "mesh": 0}


def from_geom(type: str | int | mujoco.mjtGeom, size: Numbers, vertices: NDArray[np.float64] | None = None) -> Shape:  # noqa: A002
    """The shape of a geom with MuJoCo's `size` [m]: as many numbers as its type needs; more are ignored.

    `type` is a word of MJCF or a number of MuJoCo. A mesh stands for the convex hull of its `vertices`, shape (n, 3).
    """
    name = type.lower() if isinstance(type, str) else _word(type)
    if name not in _NUMBERS:
        raise OptionError(f"there is no shape for a geom of type {name!r}. Known types: {', '.join(_NUMBERS)}")
    s = array(f"{name} size", size, 1)
    if s.size < _NUMBERS[name]:
        raise OptionError(f"a {name} needs {_NUMBERS[name]} sizes; got {s.size}")
    match name:
        case "plane":
            return HalfSpace(np.array([0, 0, 1], s.dtype))
        case "sphere":
            return sphere(s[0])
        case "capsule":
            return Capsule(s[0], s[1])
        case "cylinder":
            return Cylinder(s[0], s[1])
        case "ellipsoid":
            return ellipsoid(s[:3])
        case "box":
            return box(s[:3])
        case _:
            if vertices is None:
                raise OptionError("a mesh needs its vertices")
            return convex_hull(vertices)


def shapes_of(model: mujoco.MjModel, size: Numbers | None = None) -> tuple[Shape | None, ...]:
    """The shape of each geom, or None where a geom touches nothing. `size`, shape (ngeom, 3), replaces the model's."""
    size = model.geom_size if size is None else array("size", size, 2)
    if size.shape != (model.ngeom, 3):
        raise OptionError(f"size must have shape {(model.ngeom, 3)}; got {size.shape}")
    hulls = {mesh: hull_vertices(model, mesh) for mesh in range(model.nmesh)}
    return tuple(
        _shape_of(model, g, size[g], hulls.get(int(model.geom_dataid[g]))) if touches else None
        for g, touches in enumerate(_touching(model))
    )


def _shape_of(model: mujoco.MjModel, g: int, size: Numbers, vertices: NDArray[np.float64] | None) -> Shape:
    try:
        return from_geom(int(model.geom_type[g]), size, vertices)
    except OptionError as error:
        raise SceneError(
            str(error),
            element=element_name(model, mujoco.mjtObj.mjOBJ_GEOM, g),
            remedy='use convex shapes or meshes, or contype="0" conaffinity="0" if it touches nothing',
        ) from error


def _touching(model: mujoco.MjModel) -> NDArray[np.bool_]:
    """Which geoms may touch others, (ngeom,)."""
    touching = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    touching[model.pair_geom1], touching[model.pair_geom2] = True, True
    return np.asarray(touching)


def hull_vertices(model: mujoco.MjModel, mesh: int) -> NDArray[np.float64]:
    """The vertices of a mesh, (n, 3): those of MuJoCo's hull if there is one, because `maxhullvert` may bound it."""
    first, count, graph = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh], model.mesh_graphadr[mesh]
    vertices = model.mesh_vert[first : first + count].astype(np.float64)
    if graph < 0:
        return np.asarray(vertices)
    n = model.mesh_graph[graph]
    return np.asarray(vertices[model.mesh_graph[graph + 2 + n : graph + 2 + 2 * n]])


def _word(kind: int | mujoco.mjtGeom) -> str:
    try:
        return mujoco.mjtGeom(kind).name.removeprefix(_PREFIX).lower()
    except ValueError:
        return str(kind)
