"""How a rigid contact step answers to friction, restitution, frictionloss and geom size.

As for every input (see `linearization`), dv⁺ = P·R − T·C with C = B·K + c: here are R and C of these parameters.
A pair takes the larger friction and restitution of its two geoms; where both are the same, each has half a share.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tangens.collision.shapes import shape_motion
from tangens.contact.rigid.assembly.constraint_row_derivatives import (
    approach_of,
    motion_of_contact,
    pushes,
    world_force,
)
from tangens.contact.rigid.assembly.tangents import spin_of_tangents
from tangens.contact.rigid.assembly.targets import restitution_of
from tangens.contact.rigid.gradients.linearization import apply_B
from tangens.contact.rigid.memory.tape import open_tape
from tangens.contact.rigid.memory.views import Kinematics, Model, Workspace, open_kinematics, open_model
from tangens.contact.rigid.problem.contact_problem import BOX, DRY, SLIDING
from tangens.dynamics.implicit_damping import LineDamping, evaluate_lines, has_implicit_lines, set_line_damping
from tangens.dynamics.kinematic_tree import propagate_velocities
from tangens.kernels import floats, inline, integer, ints, kernel, number, subroutine

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

CONTACT_PARAMETERS = ("friction", "restitution", "frictionloss", "size")
"""By name; compiled code knows them by their place here."""
_FRICTION, _RESTITUTION, _FRICTIONLOSS, _SIZE = range(4)


@kernel(ints(2), floats(1), floats(2), floats(1), floats(2), integer)
def parameter_terms(
    table: IntArray, tape: Array, response: Array, friction: Array, slide: Array, parameter: int
) -> tuple[Array, Array]:
    """R (nv, n) and C (m, n) by one parameter with n entries; `friction` is that of each geom."""
    model, kin, w = open_tape(table, tape)
    geoms, specs, nv, m, h = model.geoms, model.specs, kin.v.shape[0], slide.shape[0], model.h
    count = nv if parameter == _FRICTIONLOSS else (3 if parameter == _SIZE else 1) * geoms.shape[0]
    R, C = np.zeros((nv, count)), np.zeros((m, count))
    r = 0
    for b in range(w.blocks.shape[0]):
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
            if parameter == _FRICTION and block.mode == SLIDING and not contact.frictionless:
                for side in range(2):
                    share = _share(friction, contact.geom, side, contact.friction) * w.impulse[first]
                    C[r + 1, contact.geom[side]] += share * _against(block, w.sigma, 0)
                    C[r + 2, contact.geom[side]] += share * _against(block, w.sigma, 1)
            elif parameter == _RESTITUTION and contact.bounces:
                approach = approach_of(kin.v, w.J[first])
                largest = restitution_of(geoms, contact.geom)
                for side in range(2):
                    own, other = geoms[contact.geom[side]].restitution, geoms[contact.geom[1 - side]].restitution
                    share = 0.0 if own < largest else (0.5 if own == other else 1.0)
                    C[r, contact.geom[side]] += share * approach
            elif parameter == _SIZE:
                _add_size(model, kin, w, response, contact, block, R, C[r : r + 3])
        r += block.width
    if parameter == _SIZE:
        apply_B(slide, C)
    return R, C


@kernel(ints(2), floats(1), floats(2), floats(1), floats(2), integer, floats(1), floats(1))
def parameter_gradient(
    table: IntArray, tape: Array, response: Array, friction: Array, slide: Array, parameter: int, z: Array, s: Array
) -> Array:
    """z·R − s·C, (n,)."""
    R, C = parameter_terms(table, tape, response, friction, slide, parameter)
    out = z @ R
    if s.shape[0]:
        out -= s @ C
    return out


@kernel(ints(2), integer, integer, floats(1), floats(1), number)
def gap_by_size(table: IntArray, one: int, two: int, p: Array, frame: Array, gap: float) -> Array:
    """∂gap/∂size of a contact between two geoms where MuJoCo has just placed them, shape (ngeom, 3)."""
    model, kin = open_model(table, 0.0, 0.0, 0.0), open_kinematics(table)
    geoms = model.geoms
    out, moved, witness, outward = np.zeros((geoms.shape[0], 3)), np.empty((3, 3)), np.empty(3), np.empty(3)
    for side in range(2):
        sign, geom = 2.0 * side - 1.0, two if side else one
        for i in range(3):
            witness[i] = p[i] + 0.5 * sign * gap * frame[i]
            outward[i] = -sign * frame[i]
        moved[:] = 0.0
        shape_motion(geoms, geom, kin.geom_xpos, kin.geom_xmat, witness, outward, moved)
        for k in range(3):
            out[geom, k] = sign * (frame[0] * moved[0, k] + frame[1] * moved[1, k] + frame[2] * moved[2, k])
    return out


@kernel(ints(2), floats(1))
def timestep_force(table: IntArray, tape: Array) -> Array:
    """R (nv,) by the duration of a piece of a step, whose targets do not depend on it."""
    model, kin, w = open_tape(table, tape)
    dofs, v, nv, h = model.dofs, kin.v, kin.v.shape[0], model.h
    R = np.empty(nv)
    for i in range(nv):
        damper, speed = dofs[i].damper, abs(v[i])
        slope = damper[0] + 2.0 * damper[1] * speed + 3.0 * damper[2] * speed * speed if model.implicit_h else 0.0
        R[i] = kin.passive[i] + kin.actuation[i] - kin.bias[i] + kin.tau[i] - slope * (w.v_next[i] - v[i])
    if has_implicit_lines(model.elements):
        evaluate_lines(model.elements, kin.q, v, kin.u, kin.tau, kin.actuation)
        lines = LineDamping(np.empty((nv, nv)), np.empty((nv, nv)), np.empty((nv, 0)))
        set_line_damping(dofs, model.column, model.elements, v, lines)
        R -= lines.D @ (w.v_next - v)
    for b in range(w.blocks.shape[0]):
        block = w.blocks[b]
        if block.kind == DRY and block.mode == SLIDING:  # its impulse is a force times h
            R += w.J[block.start] * w.impulse[block.start] / h
    return R


@inline
def _against(block: Any, sigma: Array, tangent: int) -> float:
    """Component of the direction that friction acts against."""
    if block.kind == BOX:
        return float(-block.side[tangent])
    x, y = sigma[block.start + 1], sigma[block.start + 2]
    return (y if tangent else x) / max(math.sqrt(x * x + y * y), 1e-300)


@inline
def _share(values: Array, geom: IntArray, side: int, used: float) -> float:
    """How much of a pair's value is one geom's: none if the pair has a value of its own."""
    own, other = values[geom[side]] == used, values[geom[1 - side]] == used
    return 0.0 if not own else (0.5 if other else 1.0)


@subroutine
def _add_size(
    model: Model, kin: Kinematics, w: Workspace, response: Array, contact: Any, block: Any, R: Array, C: Array
) -> None:
    """A larger geom moves the contact as a translation of its shape would, its body held."""
    dofs, bodies, geoms, com, cdof = model.dofs, model.bodies, model.geoms, kin.com, kin.cdof
    nv, first, p, frame, rate = kin.v.shape[0], block.start, contact.position, contact.frame, w.rate[block.start]
    D, moved, f = np.zeros((7, 6)), np.zeros((3, 3)), np.empty(6)
    if not motion_of_contact(model, kin, response, contact, block.source, D):
        return
    world_force(frame, w.impulse[first : first + 3], f)
    one, two = geoms[contact.geom[0]].body, geoms[contact.geom[1]].body
    spin, point_velocity = np.zeros((2, 3)), np.zeros((2, 3))  # relative, after and before the step
    before, after = np.empty((nv, 6)), np.empty((nv, 6))
    propagate_velocities(dofs, cdof, w.v_next, before, after)
    _relative_velocity(bodies, one, two, com, p, after, spin[0], point_velocity[0])
    propagate_velocities(dofs, cdof, kin.v, before, after)
    _relative_velocity(bodies, one, two, com, p, after, spin[1], point_velocity[1])
    witness, outward = np.empty(3), np.empty(3)
    y0, y1, y2 = spin_of_tangents(frame)
    for side in range(2):
        sign = 2.0 * side - 1.0
        for i in range(3):
            witness[i] = p[i] + 0.5 * sign * contact.gap * frame[i]
            outward[i] = -sign * frame[i]
        shape_motion(geoms, contact.geom[side], kin.geom_xpos, kin.geom_xmat, witness, outward, moved)
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


@inline
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


@inline
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
