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
from tangens.contact.rigid.assembly.delassus import apply_impulses, release_held, set_delassus
from tangens.contact.rigid.assembly.search import outruns, split_free
from tangens.contact.rigid.assembly.targets import largest_asked, set_contact_targets
from tangens.contact.rigid.memory.address_table import FREE, take
from tangens.contact.rigid.memory.settings import SOLVER, TOLERANCE
from tangens.contact.rigid.memory.tape import record
from tangens.contact.rigid.memory.views import Kinematics, Model, Workspace, new_workspace, open_kinematics, open_model
from tangens.contact.rigid.problem.contact_problem import violations, yield_to_limits
from tangens.contact.rigid.report import integrate, report_contacts
from tangens.contact.rigid.solvers.methods import NOTHING
from tangens.contact.rigid.solvers.solve import cost_of, solve_easy, solve_hard
from tangens.contact.rigid.solvers.work import affordable, spend
from tangens.dynamics.kinematic_tree import propagate_velocities
from tangens.kernels import boolean, floats, inline, integer, ints, kernel, number, subroutine

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

_ROUNDS = 10  # each lets all in that the last answer violates, in the end all that there are
_WIDE = 2.0  # hard problems are for all whose velocity is below so many times the largest one


@kernel(ints(2), integer, floats(1), number, number, number, boolean, nogil=True)
def step(
    table: IntArray, nc: int, guess: Array, h: float, implicit_h: float, correction: float, patient: bool
) -> tuple[Array, Array, Array, bool, float, int, float, float, float, float, int, float]:
    """Take a step of duration h with the nc contacts that MuJoCo found, from a guess that may be empty.

    Returns what is reported (q⁺, v⁺, then positions, normals, gaps, forces, modes and geoms of the contacts), the tape,
    and the guess for the next step; whether v⁺ leads beyond where contacts were looked for; the largest velocity that
    overlaps ask for; then iterations, residual, the violations of Signorini's law, the cones and maximum dissipation,
    the method, and what overlaps ask for that nothing can move. The residual is infinite if v⁺ is beyond reason. Unless
    `patient`, hard problems are left unsolved if something overlaps: whether they have a solution is to be found out
    first, see `certificate`.
    """
    model, kin = open_model(table, h, implicit_h, correction), open_kinematics(table)
    w = new_workspace(model, kin, nc)
    _take_free_velocity(table, w)
    read_contacts(table, w.contacts)
    set_contact_targets(model, kin, w)
    after = np.empty((kin.v.shape[0], 6))
    impulses, asked, held, iterations, error, method = _solve_contacts(model, kin, w, guess, after, patient)
    nb, n = w.counts[0], w.counts[1]
    signorini, cone, dissipation = violations(w.blocks[:nb], w.impulse, w.sigma)
    yield_to_limits(w.G[: n * n].reshape(n, n), w.blocks[:nb])
    out = np.empty(kin.q.shape[0] + kin.v.shape[0] + 13 * nc)
    if not integrate(model, kin, w, out):
        error = math.inf
    report_contacts(model, w, out[kin.q.shape[0] + kin.v.shape[0] :])
    return (
        out, record(table, model, w), write_guess(model, w, impulses),
        outruns(table, model, kin, after), asked, iterations, error, signorini, cone, dissipation,
        method, held,
    )  # fmt: skip


@inline
def _take_free_velocity(table: IntArray, w: Workspace) -> None:
    """From where `search.look_ahead` has left it."""
    v_free, L, d = split_free(take(table, FREE), w.v_free.shape[0])
    w.v_free[:], w.v_next[:], w.L[:], w.d[:] = v_free, v_free, L, d


@subroutine
def _solve_contacts(
    model: Model, kin: Kinematics, w: Workspace, guess: Array, after: Array, patient: bool
) -> tuple[Array, float, float, int, float, int]:
    """Find v⁺: solve for those who take part, add whom the answer violates, and again, until nobody joins.

    Leaves the bodies' velocities at v⁺ in `after`. Returns the impulses by contact and constraint, the largest velocity
    asked for, and that in vain, iterations, residual and method.
    """
    nc, ns, nv = w.contacts.shape[0], model.specs.shape[0], kin.v.shape[0]
    tolerance, settings = model.settings[TOLERANCE], model.settings
    impulses, limits = np.zeros(3 * nc + 6 * ns), np.zeros(2 * ns, dtype=np.int64)
    before = np.empty((nv, 6))
    read_guess(model, w, guess, impulses, limits)
    propagate_velocities(model.dofs, kin.cdof, w.v_next, before, after)
    add_violated(model, kin, w, after, limits, -tolerance)
    asked, held, iterations, error, method, hard = 0.0, 0.0, 0, 0.0, NOTHING, False
    for turn in range(_ROUNDS):
        last = turn >= _ROUNDS - 2
        build_rows(model, kin, w, limits, impulses)
        nb, n = w.counts[0], w.counts[1]
        asked = largest_asked(w)
        if n == 0:
            break
        set_delassus(model, w)
        held = release_held(w)
        G, blocks = w.G[: n * n].reshape(n, n), w.blocks[:nb]
        solver, g, impulse, sigma = int(model.settings[SOLVER]), w.g[:n], w.impulse[:n], w.sigma[:n]
        most = affordable(settings, n)
        if hard:
            taken, error, how = solve_hard(G, g, blocks, impulse, sigma, most, tolerance, solver)
        else:
            taken, error, how = solve_easy(G, g, blocks, impulse, sigma, most, tolerance, solver)
        iterations, method = iterations + taken, max(method, how)
        spend(settings, cost_of(taken, how), n)
        if not error <= tolerance and not hard and (patient or asked <= tolerance) and affordable(settings, n) > 0:
            hard = True  # and worth solving once: with all that velocities like these could reach
            add_violated(model, kin, w, after, limits, np.inf if last else _WIDE * np.abs(g).max())
            continue
        apply_impulses(model, w)
        keep_impulses(w, impulses)
        propagate_velocities(model.dofs, kin.cdof, w.v_next, before, after)
        if not error <= tolerance and not hard:
            break
        slack = np.inf if turn == _ROUNDS - 3 else -tolerance
        if last or not add_violated(model, kin, w, after, limits, slack):
            break
        hard = hard and not error <= tolerance
    return impulses, asked, held, iterations, error, method
