"""What a compiled step reports: the new state, and its contacts."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.memory.views import Kinematics, Model, Workspace
from tangens.contact.rigid.problem.contact_problem import BREAKING
from tangens.dynamics.rotations import quat_exp, quat_multiply
from tangens.kernels import subroutine

Array = NDArray[np.float64]

_FASTEST = 1e8  # a velocity beyond this comes of a motion that diverged [m/s, rad/s]


@subroutine
def integrate(model: Model, kin: Kinematics, w: Workspace, out: Array) -> bool:
    """Fill out with q⁺ = q ⊕ h·v⁺ and v⁺; False if v⁺ is beyond reason."""
    joints, q, v, h = model.joints, kin.q, w.v_next, model.h
    turn, product, dv = np.empty(4), np.empty(4), np.empty(3)
    for k in range(joints.shape[0]):
        iq, iv = joints[k, 0], joints[k, 1]
        if not joints[k, 2]:
            out[iq] = q[iq] + h * v[iv]
            continue
        for i in range(3):
            dv[i] = h * v[iv + i]
        quat_exp(dv, turn)
        quat_multiply(q[iq : iq + 4], turn, product)
        length = math.sqrt(product[0] ** 2 + product[1] ** 2 + product[2] ** 2 + product[3] ** 2)
        for i in range(4):
            out[iq + i] = product[i] / length
    reasonable = True
    for i in range(v.shape[0]):
        out[q.shape[0] + i] = v[i]
        reasonable = reasonable and abs(v[i]) <= _FASTEST
    return reasonable


@subroutine
def report_contacts(model: Model, w: Workspace, out: Array) -> None:
    """Fill out with positions, normals, gaps, forces, modes and geoms of the contacts."""
    contacts, blocks, impulse, h = w.contacts, w.blocks, w.impulse, model.h
    nc = contacts.shape[0]
    force, mode = out[7 * nc : 10 * nc], out[10 * nc : 11 * nc]
    for c in range(nc):
        out[11 * nc + 2 * c], out[11 * nc + 2 * c + 1] = contacts[c].geom[0], contacts[c].geom[1]
        for i in range(3):
            out[3 * c + i] = contacts[c].position[i]
            out[3 * nc + 3 * c + i] = contacts[c].frame[i]
            force[3 * c + i] = 0.0
        out[6 * nc + c] = contacts[c].gap
        mode[c] = BREAKING
    for b in range(w.counts[0]):
        c, r = blocks[b].source, blocks[b].start
        if c < 0:
            break
        mode[c] = blocks[b].mode
        for k in range(3):
            for i in range(3):
                force[3 * c + i] += contacts[c].frame[3 * k + i] * impulse[r + k] / h
