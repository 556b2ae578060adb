"""Many arrays as one: a table of addresses, for compiled code that takes dozens of arrays in every step.

Each array that a call of compiled code takes costs time of its own, more than a small robot's share of the work. So all
of them are handed over at once, as the places in memory where they stand: ours, and those that MuJoCo fills.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import mujoco
import numba
import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from tangens.collision.shapes import Hulls

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

_OURS = (
    "tree", "geoms", "face_normals", "faces", "corners", "constraints", "options", "quats", "gravity", "arena_layout",
    "elements", "gravcomp", "gravcomp_q", "frozen", "memory", "warm", "arena", "geom_gap",
)  # fmt: skip
FILLED_BY_MUJOCO = (
    "M", "cdof", "cinert", "subtree_com", "geom_xpos", "geom_xmat", "xpos", "xquat", "qfrc_passive", "qfrc_actuator",
    "qfrc_bias", "qpos", "qvel", "ctrl", "qfrc_applied",
)  # fmt: skip
_NAMES = _OURS + FILLED_BY_MUJOCO
(
    TREE, GEOMS, FACE_NORMALS, FACES, CORNERS, CONSTRAINTS, OPTIONS, QUATS, GRAVITY, ARENA_LAYOUT,
    ELEMENTS, GRAVCOMP, GRAVCOMP_Q, FROZEN, MEMORY, WARM, ARENA, GEOM_GAP,
    MASS, CDOF, CINERT, COM, GEOM_XPOS, GEOM_XMAT, XPOS, XQUAT, PASSIVE, ACTUATION,
    BIAS, QPOS, QVEL, CTRL, APPLIED,
) = range(len(_NAMES))  # fmt: skip


class Bundle:
    """Keeps arrays alive; `table` says where each begins, and how many numbers it has."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.table = np.zeros((len(_NAMES), 2), dtype=np.int64)
        self._kept: dict[str, NDArray[Any]] = {}
        for name, array in arrays.items():
            self.put(name, array)

    def put(self, name: str, array: NDArray[Any]) -> None:
        """Let `name` stand for the memory of this array of 8-byte numbers."""
        if not array.flags.c_contiguous:
            raise ValueError(f"{name} must be contiguous")
        self._kept[name] = array
        self.table[_NAMES.index(name)] = array.ctypes.data, array.nbytes // 8

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._kept[name]


@intrinsic
def _pointer(_context: Any, _address: Any) -> tuple[Any, Callable[..., Any]]:
    """An address as a pointer to numbers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float64)(types.int64), generate


@numba.njit(cache=True, error_model="numpy")
def take(table: IntArray, field: int) -> Array:
    """One array of the bundle, flat."""
    return numba.carray(_pointer(table[field, 0]), (table[field, 1],))


@numba.njit(cache=True, error_model="numpy")
def take_rows(table: IntArray, field: int, width: int) -> Array:
    """One array of the bundle, with rows of the given width."""
    return numba.carray(_pointer(table[field, 0]), (table[field, 1] // width, width))


@numba.njit(cache=True, error_model="numpy")
def take_hulls(table: IntArray) -> Hulls:
    """The faces of all convex hulls."""
    return Hulls(
        take_rows(table, FACE_NORMALS, 3), take(table, FACES).view(np.int64), take_rows(table, CORNERS, 3)
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


def contact_memory(d: mujoco.MjData) -> Array:
    """MuJoCo's own contacts, of which there must be one at least.

    Reading them through MuJoCo's Python objects would take longer than solving for the contacts of a small robot. They
    stand at the beginning of its arena, in all steps.
    """
    return np.ctypeslib.as_array((ctypes.c_double * (d.narena // 8)).from_address(d.contact.dist.ctypes.data))
