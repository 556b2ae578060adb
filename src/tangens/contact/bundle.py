"""Many arrays as two: what never changes, and what MuJoCo fills in place.

Each array that a call of compiled code takes costs time of its own, and a step needs dozens. MuJoCo keeps all arrays of
its data in one block of memory, so one view of that block and a table of places stand for all of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache

import mujoco
import numba
import numpy as np
from numpy.typing import NDArray

from tangens.collision.shapes import Hulls

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

_FIXED = (
    "tree", "geoms", "face_normals", "faces", "corners", "constraints", "options", "quats", "gravity", "arena_layout",
)  # fmt: skip
_LIVE = (
    "M", "cdof", "cinert", "subtree_com", "geom_xpos", "geom_xmat", "xpos", "xquat", "qfrc_passive", "qfrc_actuator",
    "qfrc_bias", "qpos", "qvel", "ctrl", "qfrc_applied",
)  # fmt: skip
(
    TREE, GEOMS, FACE_NORMALS, FACES, CORNERS, CONSTRAINTS, OPTIONS, QUATS, GRAVITY, ARENA_LAYOUT,
    MASS, CDOF, CINERT, COM, GEOM_XPOS, GEOM_XMAT, XPOS, XQUAT, PASSIVE, ACTUATION,
    BIAS, QPOS, QVEL, CTRL, APPLIED,
) = range(len(_FIXED) + len(_LIVE))  # fmt: skip


class Bundle:
    """`numbers` holds the fixed arrays one after the other, `live` is MuJoCo's block, `table` says where each is."""

    def __init__(self, d: mujoco.MjData, fixed: Mapping[str, NDArray[np.float64 | np.int64]]) -> None:
        pieces = [np.ascontiguousarray(fixed[name]).ravel().view(np.float64) for name in _FIXED]
        self.numbers = np.concatenate(pieces)
        ends = np.cumsum([len(piece) for piece in pieces])
        rows = [(end - len(piece), len(piece)) for end, piece in zip(ends, pieces, strict=True)]
        arrays = [getattr(d, name) for name in _LIVE]
        filled = [array for array in arrays if array.size]
        start = min(array.ctypes.data for array in filled)
        stop = max(array.ctypes.data + array.nbytes for array in filled)
        self.live = np.ctypeslib.as_array((ctypes.c_double * ((stop - start) // 8)).from_address(start))
        rows += [((a.ctypes.data - start) // 8 if a.size else 0, a.size) for a in arrays]
        self.table = np.array(rows, dtype=np.int64)
        self._owner = d  # of the memory behind `live`


@numba.njit(cache=True, error_model="numpy")
def take(buffer: Array, table: IntArray, field: int) -> Array:
    """One array of the bundle, flat."""
    return buffer[table[field, 0] : table[field, 0] + table[field, 1]]


@numba.njit(cache=True, error_model="numpy")
def take_rows(buffer: Array, table: IntArray, field: int, width: int) -> Array:
    """One array of the bundle, with rows of the given width."""
    return buffer[table[field, 0] : table[field, 0] + table[field, 1]].reshape(table[field, 1] // width, width)


@numba.njit(cache=True, error_model="numpy")
def take_hulls(fixed: Array, table: IntArray) -> Hulls:
    """The faces of all convex hulls."""
    return Hulls(
        take_rows(fixed, table, FACE_NORMALS, 3), take(fixed, table, FACES).view(np.int64),
        take_rows(fixed, table, CORNERS, 3),
    )  # fmt: skip


_CONTACT_FIELDS = ("pos", "frame", "dist", "friction", "geom", "dim")


@cache
def contact_layout() -> tuple[int, ...]:
    """Where the fields of a contact stand in MuJoCo's memory: see `detection` for their order and units."""
    m = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><geom size='1'/><body><freejoint/><geom size='1'/></body></worldbody></mujoco>"
    )
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    views = [getattr(d.contact, name) for name in _CONTACT_FIELDS]
    offsets = [view.ctypes.data - d.contact.dist.ctypes.data for view in views]
    stride = views[0].strides[0]
    return stride // 8, *(offset // 8 for offset in offsets[:4]), *(offset // 4 for offset in offsets[4:]), stride // 4


def contact_memory(d: mujoco.MjData) -> tuple[Array, NDArray[np.int32]]:
    """MuJoCo's own contacts, as numbers and as integers.

    Reading them through MuJoCo's Python objects would take longer than solving for the contacts of a small robot. They
    stand at the beginning of its arena, in all steps.
    """
    start = d.contact.dist.ctypes.data
    numbers = np.ctypeslib.as_array((ctypes.c_double * (d.narena // 8)).from_address(start))
    integers = np.ctypeslib.as_array((ctypes.c_int32 * (d.narena // 4)).from_address(start))
    return numbers, integers


NO_ARENA = np.zeros(1), np.zeros(1, dtype=np.int32)
