"""How far contacts are looked for: as far as geoms can come within a step.

A step looks ahead with the velocity it starts from and with the free velocity, which knows the forces that act in it.
Contacts may send a geom elsewhere, so its reach is compared with v⁺ afterwards (`outruns`), and where it was too short,
the scratch looks again. MuJoCo adds up the gaps of two geoms; its mid phase looks at the margins of bodies. Where it
puts the contacts of a mesh depends on how far it looks, so reaches are rounded up: they stay as velocities change.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.assembly.delassus import set_free_velocity
from tangens.contact.rigid.memory.address_table import BODY_MARGIN, FREE, GEOM_GAP, PAIR_GAP, PAIR_GEOMS, take
from tangens.contact.rigid.memory.settings import MARGIN
from tangens.contact.rigid.memory.views import Kinematics, Model, open_kinematics, open_model
from tangens.dynamics.kinematic_tree import propagate_velocities
from tangens.kernels import booleans, fixed_floats, inline, ints, kernel, number, subroutine

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

_NEAR, _AHEAD = 5e-4, 1.25  # each geom looks so far [m], and so many steps ahead, and then up to twice as far


@kernel(ints(2), number, number)
def look_ahead(table: IntArray, h: float, implicit_h: float) -> None:
    """Compute the free velocity of a step, and set margins by it and by v."""
    model, kin = open_model(table, h, implicit_h, 0.0), open_kinematics(table)
    nv, free = kin.v.shape[0], take(table, FREE)
    v_free, L, d = split_free(free, nv)
    set_free_velocity(model, kin, v_free, L, d)
    reach = np.zeros(model.geoms.shape[0])
    add_reach(model, kin, kin.v, reach)
    add_reach(model, kin, v_free, reach)
    _set_margins(table, model, reach)


@subroutine
def split_free(free: Array, nv: int) -> tuple[Array, Array, Array]:
    """The free velocity, and the factors of M + h·D, in the memory that `look_ahead` fills."""
    end = free.shape[0] - nv
    return free[:nv], free[nv:end], free[end:]


@kernel(ints(2), number)
def look_around(table: IntArray, h: float) -> None:
    """Set margins by v alone."""
    model, kin = open_model(table, h, 0.0, 0.0), open_kinematics(table)
    reach = np.zeros(model.geoms.shape[0])
    add_reach(model, kin, kin.v, reach)
    _set_margins(table, model, reach)


@kernel(ints(2), number, fixed_floats(1), booleans(1))
def look_further(table: IntArray, h: float, v_next: Array, chosen: NDArray[np.bool_]) -> None:
    """Let some geoms look as far as v⁺ takes them, whatever the largest margin."""
    model, kin = open_model(table, h, 0.0, 0.0), open_kinematics(table)
    gap, reach = take(table, GEOM_GAP), np.zeros(model.geoms.shape[0])
    add_reach(model, kin, v_next, reach)
    add_reach(model, kin, kin.v, reach)
    add_reach(model, kin, take(table, FREE)[: kin.v.shape[0]], reach)
    for g in range(gap.shape[0]):
        if chosen[g]:
            gap[g] = max(gap[g], _rounded_up(_NEAR + _AHEAD * reach[g]))
    _share_gaps(table, model)


@subroutine
def outruns(table: IntArray, model: Model, kin: Kinematics, after: Array) -> bool:
    """Whether some geom moves further than it has looked for contacts; `after` are the bodies' velocities at v⁺."""
    gap, beyond = take(table, GEOM_GAP), False
    for g in range(gap.shape[0]):
        beyond = beyond or model.h * geom_speed(model, kin, g, after) > gap[g]
    return beyond


@subroutine
def add_reach(model: Model, kin: Kinematics, v: Array, reach: Array) -> None:
    """How far no point of a geom moves within the step at a velocity; the larger of that and what `reach` holds [m]."""
    nv = v.shape[0]
    before, after = np.empty((nv, 6)), np.empty((nv, 6))
    propagate_velocities(model.dofs, kin.cdof, v, before, after)
    for g in range(reach.shape[0]):
        reach[g] = max(reach[g], model.h * geom_speed(model, kin, g, after))


@inline
def geom_speed(model: Model, kin: Kinematics, g: int, after: Array) -> float:
    """No point of a geom is faster than this; `after` are the bodies' velocities [m/s]."""
    geoms, com, xpos = model.geoms, kin.com, kin.geom_xpos
    body = model.bodies[geoms[g].body]
    k = body.last_dof
    if k < 0:
        return 0.0
    x, y, z = xpos[g, 0] - com[body.root, 0], xpos[g, 1] - com[body.root, 1], xpos[g, 2] - com[body.root, 2]
    a, b, c = after[k, 0], after[k, 1], after[k, 2]
    vx, vy, vz = after[k, 3] + b * z - c * y, after[k, 4] + c * x - a * z, after[k, 5] + a * y - b * x
    return math.sqrt(vx * vx + vy * vy + vz * vz) + geoms[g].radius * math.sqrt(a * a + b * b + c * c)


@inline
def _set_margins(table: IntArray, model: Model, reach: Array) -> None:
    gap, most = take(table, GEOM_GAP), model.settings[MARGIN]
    for g in range(gap.shape[0]):
        gap[g] = min(most, _rounded_up(_NEAR + _AHEAD * reach[g]))
    _share_gaps(table, model)


@inline
def _rounded_up(x: float) -> float:
    """To a power of two."""
    return math.ldexp(1.0, math.frexp(x)[1]) if math.isfinite(x) else x


@kernel(ints(2))
def share_gaps(table: IntArray) -> None:
    """Let bodies and explicit pairs look as far as their geoms do."""
    _share_gaps(table, open_model(table, 0.0, 0.0, 0.0))


@subroutine
def _share_gaps(table: IntArray, model: Model) -> None:
    gap = take(table, GEOM_GAP)
    margin, pair_gap, pair = take(table, BODY_MARGIN), take(table, PAIR_GAP), take(table, PAIR_GEOMS).view(np.int64)
    margin[:] = 0.0
    for g in range(gap.shape[0]):
        b = model.geoms[g].body
        margin[b] = max(margin[b], gap[g])
    for p in range(pair_gap.shape[0]):
        pair_gap[p] = gap[pair[2 * p]] + gap[pair[2 * p + 1]]
