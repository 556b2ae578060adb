"""Where arrays stand in memory: one table of addresses, for compiled code that reads dozens of arrays in every step.

Each array that a call of compiled code takes costs time of its own, more than a small robot's share of the work. So all
of them are handed over at once, as the places in memory where they stand: ours, and those that MuJoCo fills. A table
belongs to one scratch, so it is never copied or pickled.
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

from tangens.kernels import inline

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

_OURS = (
    "tree", "geoms", "face_normals", "faces", "corners", "constraints", "settings", "joints", "gravity", "elements",
    "body_margin", "pair_gap", "pair_geoms", "free", "calls", "arena_layout", "arena",
)  # fmt: skip
KINEMATICS = (
    "qpos", "qvel", "ctrl", "qfrc_applied", "M", "cdof", "cinert", "subtree_com", "geom_xpos", "geom_xmat", "xpos",
    "xquat", "qfrc_passive", "qfrc_actuator", "qfrc_bias",
)  # fmt: skip
"""Arrays of `mujoco.MjData` that a step reads, in the order of a tape."""
_NAMES = (*_OURS, *KINEMATICS, "geom_gap")
(
    TREE, GEOMS, FACE_NORMALS, FACES, CORNERS, CONSTRAINTS, SETTINGS, JOINTS, GRAVITY, ELEMENTS, BODY_MARGIN,
    PAIR_GAP, PAIR_GEOMS, FREE, CALLS, ARENA_LAYOUT, ARENA,
) = range(len(_OURS))  # fmt: skip
FIRST_OF_KINEMATICS = len(_OURS)
GEOM_GAP = FIRST_OF_KINEMATICS + len(KINEMATICS)


class AddressTable:
    """Keeps arrays alive; `addresses` says where each begins, and how many numbers it has."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.addresses = np.zeros((len(_NAMES), 2), dtype=np.int64)
        self._kept: dict[str, NDArray[Any]] = {}
        for name, array in arrays.items():
            self.put(name, array)

    def put(self, name: str, array: NDArray[Any]) -> None:
        """Let `name` stand for the memory of this array of 8-byte numbers."""
        if not array.flags.c_contiguous:
            raise ValueError(f"{name} must be contiguous")
        self._kept[name] = array
        self.addresses[_NAMES.index(name)] = array.ctypes.data, array.nbytes // 8

    def __contains__(self, name: str) -> bool:
        return name in self._kept


@intrinsic
def _pointer(_context: Any, _address: Any) -> tuple[Any, Callable[..., Any]]:
    """An address as a pointer to numbers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float64)(types.int64), generate


@inline
def numbers_at(address: int, start: int, count: int) -> Array:
    """So many numbers of what begins at an address; whoever asks keeps that alive."""
    return numba.carray(_pointer(address + 8 * start), (count,))


@inline
def rows_at(address: int, start: int, rows: int, width: int) -> Array:
    """The same as rows of the given width."""
    return numba.carray(_pointer(address + 8 * start), (rows, width))


@inline
def take(table: IntArray, field: int) -> Array:
    """One array of the table, flat."""
    return numbers_at(table[field, 0], 0, table[field, 1])


@inline
def take_rows(table: IntArray, field: int, width: int) -> Array:
    """One array of the table, with rows of the given width."""
    return rows_at(table[field, 0], 0, table[field, 1] // width, width)


_CONTACT_FIELDS = ("pos", "frame", "dist", "friction", "geom", "dim")


@cache
def contact_layout() -> tuple[int, ...]:
    """Where the fields of a contact stand in MuJoCo's memory: see `assembly.contacts` for their order and units."""
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
