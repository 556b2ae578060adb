"""One time step with contact, compiled, as a list of stages.

Contacts have been found by MuJoCo already (`assembly.contacts`). Here: free velocity, targets, the contact problem of
those who take part, its solution, the new state, and the tape that a derivative is taken from.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.assembly.active_set import add_violated, keep_impulses, read_guess, write_guess
from tangens.contact.rigid.assembly.constraint_rows import build_rows
from tangens.contact.rigid.assembly.contacts import read_contacts
from tangens.contact.rigid.assembly.delassus import apply_impulses, set_delassus
from tangens.contact.rigid.assembly.search import outruns, split_free
from tangens.contact.rigid.assembly.targets import set_contact_targets
from tangens.contact.rigid.memory.address_table import FREE, take
from tangens.contact.rigid.memory.settings import ITERATIONS, SOLVER, TOLERANCE
from tangens.contact.rigid.memory.tape import record
from tangens.contact.rigid.memory.views import Kinematics, Model, Workspace, new_workspace, open_kinematics, open_model
from tangens.contact.rigid.problem.contact_problem import BREAKING, violations, yield_to_limits
from tangens.contact.rigid.solvers.methods import NOTHING
from tangens.contact.rigid.solvers.solve import solve_easy, solve_hard
from tangens.dynamics.kinematic_tree import propagate_velocities
from tangens.dynamics.rotations import quat_exp, quat_multiply
from tangens.kernels import floats, inline, integer, ints, kernel, number, subroutine

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

_FASTEST = 1e8  # a velocity beyond this comes of a motion that diverged [m/s, rad/s]
_ROUNDS = 10  # each lets all in that the last answer violates, in the end all that there are
_WIDE = 2.0  # hard problems are for all whose velocity is below so many times the largest one


@kernel(ints(2), integer, floats(1), number, number, number, floats(1), nogil=True)
def step(
    table: IntArray, nc: int, guess: Array, h: float, implicit_h: float, correction: float, relief: Array
) -> tuple[Array, Array, Array, bool, int, float, float, float, float, int]:
    """Take a step of duration h with the nc contacts that MuJoCo found, from a guess that may be empty.

    `relief` is what targets are relaxed by: three numbers for each contact, six for each other constraint, or none.
    With some, all contacts and limits take part.

    Returns what is reported (q⁺, v⁺, then positions, normals, gaps, forces, modes and geoms of the contacts), the tape,
    and the guess for the next step; whether v⁺ leads beyond where contacts were looked for; then iterations, residual,
    the violations of Signorini's law, the cones and maximum dissipation, and the method. The residual is infinite if v⁺
    is beyond reason.
    """
    model, kin = open_model(table, h, implicit_h, correction), open_kinematics(table)
    w = new_workspace(model, kin, nc)
    _take_free_velocity(table, w)
    read_contacts(table, w.contacts)
    set_contact_targets(model, kin, w)
    after = np.empty((kin.v.shape[0], 6))
    impulses, iterations, error, method = _solve_contacts(model, kin, w, guess, relief, after)
    nb, n = w.counts[0], w.counts[1]
    signorini, cone, dissipation = violations(w.blocks[:nb], w.impulse, w.sigma)
    yield_to_limits(w.G[: n * n].reshape(n, n), w.blocks[:nb])
    out = np.empty(kin.q.shape[0] + kin.v.shape[0] + 13 * nc)
    if not _integrate(model, kin, w, out):
        error = math.inf
    _report_contacts(model, w, out[kin.q.shape[0] + kin.v.shape[0] :])
    return (
        out, record(table, model, w, relief.shape[0] > 0), write_guess(model, w, impulses),
        outruns(table, model, kin, after), iterations, error, signorini, cone, dissipation,
        method,
    )  # fmt: skip


@inline
def _take_free_velocity(table: IntArray, w: Workspace) -> None:
    """From where `search.look_ahead` has left it."""
    v_free, L, d = split_free(take(table, FREE), w.v_free.shape[0])
    w.v_free[:], w.v_next[:], w.L[:], w.d[:] = v_free, v_free, L, d


@subroutine
def _solve_contacts(
    model: Model, kin: Kinematics, w: Workspace, guess: Array, relief: Array, after: Array
) -> tuple[Array, int, float, int]:
    """Find v⁺: solve for those who take part, add whom the answer violates, and again, until nobody joins.

    Leaves the bodies' velocities at v⁺ in `after`. Returns the impulses by contact and constraint, iterations, residual
    and method.
    """
    nc, ns, nv = w.contacts.shape[0], model.specs.shape[0], kin.v.shape[0]
    tolerance, most = model.settings[TOLERANCE], int(model.settings[ITERATIONS])
    impulses, limits = np.zeros(3 * nc + 6 * ns), np.zeros(2 * ns, dtype=np.int64)
    before = np.empty((nv, 6))
    everyone = relief.shape[0] > 0
    if not everyone:
        relief = np.zeros_like(impulses)
    read_guess(model, w, guess, impulses, limits)
    propagate_velocities(model.dofs, kin.cdof, w.v_next, before, after)
    add_violated(model, kin, w, after, limits, relief, np.inf if everyone else -tolerance)
    iterations, error, method, hard = 0, 0.0, NOTHING, False
    for turn in range(_ROUNDS):
        last = turn >= _ROUNDS - 2
        build_rows(model, kin, w, limits, impulses, relief)
        nb, n = w.counts[0], w.counts[1]
        if n == 0:
            break
        set_delassus(model, w)
        G, blocks = w.G[: n * n].reshape(n, n), w.blocks[:nb]
        solver, g, impulse, sigma = int(model.settings[SOLVER]), w.g[:n], w.impulse[:n], w.sigma[:n]
        if hard:
            taken, error, how = solve_hard(G, g, blocks, impulse, sigma, most, tolerance, solver)
        else:
            taken, error, how = solve_easy(G, g, blocks, impulse, sigma, most, tolerance, solver)
        iterations, method = iterations + taken, max(method, how)
        if not error <= tolerance and not hard:
            hard = True  # and worth solving once: with all that velocities like these could reach
            add_violated(model, kin, w, after, limits, relief, np.inf if last else _WIDE * np.abs(g).max())
            continue
        apply_impulses(model, w)
        keep_impulses(w, impulses)
        propagate_velocities(model.dofs, kin.cdof, w.v_next, before, after)
        slack = np.inf if turn == _ROUNDS - 3 else -tolerance
        if last or not add_violated(model, kin, w, after, limits, relief, slack):
            break
        hard = hard and not error <= tolerance
    return impulses, iterations, error, method


@subroutine
def _integrate(model: Model, kin: Kinematics, w: Workspace, out: Array) -> bool:
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
def _report_contacts(model: Model, w: Workspace, out: Array) -> None:
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
