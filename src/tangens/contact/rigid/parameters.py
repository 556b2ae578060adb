"""How an `ncp` step answers to friction, restitution, frictionloss and geom size.

As for every input (see `gradient`), dv⁺ = P·R − T·C with C = B·K + c: here are R and C of these parameters.
A pair takes the larger friction and restitution of its two geoms; where both are the same, each has half a share.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from tangens.collision.motion import contact_response
from tangens.collision.rows import GEOM
from tangens.collision.shapes import shape_motion
from tangens.contact.rigid.bundle import (
    ACTUATION,
    APPLIED,
    BIAS,
    CDOF,
    COM,
    CONSTRAINTS,
    FROZEN,
    GEOM_XMAT,
    GEOM_XPOS,
    GEOMS,
    MASS,
    MEMORY,
    OPTIONS,
    PASSIVE,
    QVEL,
    TREE,
    take,
    take_hulls,
    take_rows,
)
from tangens.contact.rigid.constraints import unpack_constraints
from tangens.contact.rigid.gradient import apply_B
from tangens.contact.rigid.laws import BOX, DRY, EQUALITY, SLIDING
from tangens.contact.rigid.options import IMPLICIT, ROWS, TIMESTEP
from tangens.contact.rigid.rows import restitution_of
from tangens.contact.rigid.slopes import approach_of, pushes, world_force
from tangens.contact.rigid.tangents import spin_of_tangents
from tangens.contact.rigid.workspace import carve
from tangens.dynamics.kinematic_tree import propagate_velocities, unpack_tree

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

CONTACT_PARAMETERS = ("friction", "restitution", "frictionloss", "size")
"""By name; compiled code knows them by their place here."""
_FRICTION, _RESTITUTION, _FRICTIONLOSS, _SIZE = range(4)


@numba.njit(cache=True, error_model="numpy")
def parameter_terms(
    table: IntArray, nc: int, friction: Array, slide: Array, parameter: int
) -> tuple[Array, Array]:  # fmt: skip
    """R (nv, n) and C (m, n) by one parameter with n entries; `friction` is that of each geom."""
    dofs, bodies, _ = unpack_tree(take(table, TREE))
    geoms, options = take(table, GEOMS).view(GEOM), take(table, OPTIONS)
    v = take(table, QVEL)
    nv, m, h = v.shape[0], slide.shape[0], options[TIMESTEP]
    w = carve(take(table, MEMORY), nv, take(table, MASS).shape[0], nc, int(options[ROWS]))
    specs, _ = unpack_constraints(take(table, CONSTRAINTS))
    count = nv if parameter == _FRICTIONLOSS else (3 if parameter == _SIZE else 1) * geoms.shape[0]
    R, C = np.zeros((nv, count)), np.zeros((m, count))
    r = 0
    for b in range(int(w.counts[0])):
        block = w.blocks[b]
        first = block.start
        if not pushes(block):
            if parameter == _FRICTIONLOSS and block.kind == DRY and block.mode == SLIDING:
                owner = specs[-1 - block.source].owner
                if owner >= 0:
                    for i in range(nv):
                        R[i, owner] += h * math.copysign(1.0, w.impulse[first]) * w.J[first, i]
            continue
        if block.source >= 0:
            contact = w.contacts[block.source]
            if parameter == _FRICTION and block.mode == SLIDING:
                for side in range(2):
                    share = _share(friction, contact.geom, side, contact.friction) * w.impulse[first]
                    C[r + 1, contact.geom[side]] += share * _against(block, w.sigma, 0)
                    C[r + 2, contact.geom[side]] += share * _against(block, w.sigma, 1)
            elif parameter == _RESTITUTION and contact.bounces:
                approach = approach_of(v, w.J[first])
                largest = restitution_of(geoms, contact.geom)
                for side in range(2):
                    own, other = geoms[contact.geom[side]].restitution, geoms[contact.geom[1 - side]].restitution
                    share = 0.0 if own < largest else (0.5 if own == other else 1.0)
                    C[r, contact.geom[side]] += share * approach
            elif parameter == _SIZE:
                _add_size(
                    table, dofs, bodies, geoms, options, contact, block, w.impulse, w.rate[first], w.v_next, v,
                    w.J, R, C[r : r + 3],
                )  # fmt: skip
        r += block.width
    if parameter == _SIZE:
        apply_B(slide, C)
    return R, C


@numba.njit(cache=True, error_model="numpy")
def gap_by_size(table: IntArray, one: int, two: int, p: Array, frame: Array, gap: float) -> Array:
    """∂gap/∂size of a contact between two geoms, shape (ngeom, 3)."""
    geoms, gxpos, gxmat = take(table, GEOMS).view(GEOM), take_rows(table, GEOM_XPOS, 3), take_rows(table, GEOM_XMAT, 9)
    out, moved, witness, outward = np.zeros((geoms.shape[0], 3)), np.empty((3, 3)), np.empty(3), np.empty(3)
    for side in range(2):
        sign, geom = 2.0 * side - 1.0, two if side else one
        for i in range(3):
            witness[i] = p[i] + 0.5 * sign * gap * frame[i]
            outward[i] = -sign * frame[i]
        moved[:] = 0.0
        shape_motion(geoms, geom, gxpos, gxmat, witness, outward, moved)
        for k in range(3):
            out[geom, k] = sign * (frame[0] * moved[0, k] + frame[1] * moved[1, k] + frame[2] * moved[2, k])
    return out


@numba.njit(cache=True, error_model="numpy")
def timestep_terms(table: IntArray, nc: int, active: IntArray) -> tuple[Array, Array]:
    """R (nv,) and K (m,) by the duration of the step."""
    dofs, _, _ = unpack_tree(take(table, TREE))
    options, v = take(table, OPTIONS), take(table, QVEL)
    nv, h = v.shape[0], options[TIMESTEP]
    w = carve(take(table, MEMORY), nv, take(table, MASS).shape[0], nc, int(options[ROWS]))
    R, K = np.empty(nv), np.zeros(active.shape[0])
    passive, actuation, bias = take(table, PASSIVE), take(table, ACTUATION), take(table, BIAS)
    applied = take(table, APPLIED)
    for i in range(nv):
        damper, speed = dofs[i].damper, abs(v[i])
        slope = damper[0] + 2.0 * damper[1] * speed + 3.0 * damper[2] * speed * speed if options[IMPLICIT] else 0.0
        R[i] = passive[i] + actuation[i] - bias[i] + applied[i] - slope * (w.v_next[i] - v[i])
    r = 0
    for b in range(int(w.counts[0])):
        block = w.blocks[b]
        if block.kind == DRY and block.mode == SLIDING:  # its impulse is a force times h
            R += w.J[block.start] * w.impulse[block.start] / h
        if not pushes(block):
            continue
        for i in range(block.start, block.start + block.width):
            left = block.value  # targets are what is left of a gap, limit or error, over h
            if block.kind == EQUALITY:
                left = (w.g[i] - np.dot(w.J[i], w.v_free)) / w.rate[i] if w.rate[i] else 0.0
            K[r] = -w.rate[i] * left / h
            r += 1
    return R, K


@numba.njit(cache=True, error_model="numpy")
def _against(block: Any, sigma: Array, tangent: int) -> float:
    """Component of the direction that friction acts against."""
    if block.kind == BOX:
        return float(-block.side[tangent])
    x, y = sigma[block.start + 1], sigma[block.start + 2]
    return (y if tangent else x) / max(math.sqrt(x * x + y * y), 1e-300)


@numba.njit(cache=True, error_model="numpy")
def _share(values: Array, geom: IntArray, side: int, used: float) -> float:
    """How much of a pair's value is one geom's: none if the pair has a value of its own."""
    own, other = values[geom[side]] == used, values[geom[1 - side]] == used
    return 0.0 if not own else (0.5 if other else 1.0)


@numba.njit(cache=True, error_model="numpy")
def _add_size(
    table: IntArray, dofs: Records, bodies: Records, geoms: Records, options: Array, contact: Any, block: Any,
    impulse: Array, rate: float, v_next: Array, v: Array, J: Array, R: Array, C: Array,
) -> None:  # fmt: skip
    """A larger geom moves the contact as a translation of its shape would, its body held."""
    hulls, frozen = take_hulls(table), take_rows(table, FROZEN, 42)
    gxpos, gxmat = take_rows(table, GEOM_XPOS, 3), take_rows(table, GEOM_XMAT, 9)
    cdof, com = take_rows(table, CDOF, 6), take_rows(table, COM, 3)
    nv, first, p, frame = v.shape[0], block.start, contact.position, contact.frame
    D, moved, f = np.zeros((7, 6)), np.zeros((3, 3)), np.empty(6)
    if frozen.shape[0] and not math.isnan(frozen[block.source, 0]):
        D[:] = frozen[block.source].reshape(7, 6)
    elif not contact_response(geoms, hulls, contact.geom, gxpos, gxmat, p, frame, contact.gap, D):
        return
    world_force(frame, impulse[first : first + 3], f)
    one, two = geoms[contact.geom[0]].body, geoms[contact.geom[1]].body
    spin, point_velocity = np.zeros((2, 3)), np.zeros((2, 3))  # relative, after and before the step
    before, after = np.empty((nv, 6)), np.empty((nv, 6))
    propagate_velocities(dofs, cdof, v_next, before, after)
    _relative_velocity(bodies, one, two, com, p, after, spin[0], point_velocity[0])
    propagate_velocities(dofs, cdof, v, before, after)
    _relative_velocity(bodies, one, two, com, p, after, spin[1], point_velocity[1])
    witness, outward = np.empty(3), np.empty(3)
    y0, y1, y2 = spin_of_tangents(frame)
    for side in range(2):
        sign = 2.0 * side - 1.0
        for i in range(3):
            witness[i] = p[i] + 0.5 * sign * contact.gap * frame[i]
            outward[i] = -sign * frame[i]
        shape_motion(geoms, contact.geom[side], gxpos, gxmat, witness, outward, moved)
        for k in range(3):
            s = moved[:, k].copy()
            change = sign * (D @ np.concatenate((s, np.zeros(3))))
            dp, turn = change[:3], change[3:6]
            turn += (y0 * turn[0] + y1 * turn[1] + y2 * turn[2]) * frame[:3]
            if side == 0:
                dp += s
            at = 3 * contact.geom[side] + k
            moment, force = np.cross(dp, f[:3]), np.cross(turn, f[:3])
            _add_force(dofs, bodies, one, two, com, p, cdof, force, moment, R[:, at])
            now = np.cross(spin[0], dp) - np.cross(turn, point_velocity[0])
            for i in range(3):
                C[i, at] += frame[3 * i] * now[0] + frame[3 * i + 1] * now[1] + frame[3 * i + 2] * now[2]
            C[0, at] += rate * change[6]
            if contact.gain != 0.0:
                past = np.cross(spin[1], dp) - np.cross(turn, point_velocity[1])
                C[0, at] += contact.gain * (frame[0] * past[0] + frame[1] * past[1] + frame[2] * past[2])


@numba.njit(cache=True, error_model="numpy")
def _relative_velocity(
    bodies: Records, one: int, two: int, com: Array, p: Array, after: Array, spin: Array, velocity: Array
) -> None:  # fmt: skip
    """Of body `two` against body `one`, at p."""
    for side in range(2):
        body = bodies[two if side else one]
        k, sign = body.last_dof, 2.0 * side - 1.0
        if k >= 0:
            spin += sign * after[k, :3]
            velocity += sign * (after[k, 3:] + np.cross(after[k, :3], p - com[body.root]))


@numba.njit(cache=True, error_model="numpy")
def _add_force(
    dofs: Records, bodies: Records, one: int, two: int, com: Array, p: Array, cdof: Array, force: Array, moment: Array,
    out: Array,
) -> None:  # fmt: skip
    """Add the generalised force of a wrench on body `two` at p and its reaction on `one`."""
    for side in range(2):
        body = bodies[two if side else one]
        k, sign = body.last_dof, 2.0 * side - 1.0
        arm = p - com[body.root]
        while k >= 0:
            w = cdof[k, :3]
            velocity = cdof[k, 3:] + np.cross(w, arm)
            out[k] += sign * (np.dot(velocity, force) + np.dot(w, moment))
            k = dofs[k].parent
