"""Overlaps that the laws of contact cannot undo: a step in two stages.

Bodies that are held overlapping, by limits, by other bodies or by friction that jams, leave the contact problem without
a solution, see `solvers.certificate`. Then overlaps ask only for the share that the laws can undo, which gives a
velocity v_c. What still overlaps is parted by a motion of its own, on top of it, to which friction does not apply:

    minimise ½·|v⁺ − v_c|²_M + ½·Σ |s|²/c   so that   J·v⁺ + target + s ≥ 0,  or = 0 for an equality

Only those that ask for something (target < 0, or an equality's error) may stay behind, by s: nothing is pushed into
what it only touches. c is a hundredth of how a body answers impulses, and goes to zero with what is asked for; not that
of an equality, which asks on both sides of zero. So v⁺ is unique, continuous and differentiable, whatever overlaps; no
overlap is left that could be undone, but for about a hundredth, of which the next step undoes as much again; and
nothing is flung away: the energy of the motion is at most Σ target²/2c, that of bodies at ten times the velocity asked
for. Overlaps between parts of one tree are left: these ask for nothing and yield to others, since collision geoms of
many robots overlap in every pose.
"""

from __future__ import annotations

import math

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.contact.constraint_specs import BALL_LIMIT, CONNECT, WELD
from tangens.contact.rigid.assembly.active_set import add_violated
from tangens.contact.rigid.assembly.constraint_rows import build_every_row, build_rows
from tangens.contact.rigid.assembly.constraints import unpack_constraints
from tangens.contact.rigid.assembly.delassus import apply_impulses, is_held, least_response, set_delassus
from tangens.contact.rigid.assembly.targets import set_contact_targets
from tangens.contact.rigid.memory.settings import TOLERANCE
from tangens.contact.rigid.memory.tape import DURATION, IMPLICIT, open_tape, record
from tangens.contact.rigid.memory.views import Model, Workspace, new_workspace, open_model
from tangens.contact.rigid.problem.contact_problem import BOX, CONTACT, DRY, EQUALITY, LIMIT
from tangens.contact.rigid.report import integrate, report_contacts
from tangens.contact.rigid.solvers.certificate import share_undone
from tangens.contact.rigid.solvers.solve import set_scales, solve
from tangens.contact.rigid.solvers.work import affordable, spend
from tangens.kernels import floats, inline, ints, kernel, number

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

_SHARE = 1e-2  # of a body's response: so much less is undone, and nothing moves faster than asked / √share
_YIELD = 1e2  # of it, for parts of one tree: as good as not there, since small impulses spin light links
_SLOW = 1e-3  # of those that ask for less than this, the share is smaller [m/s, rad/s]
_IMMOBILE = 1e-18  # share of a body's response that is rounding
_FAR = 1e3  # times the largest velocity asked for
_NEVER = 1e6  # a target that no velocity violates
_ROUNDING = 1e-15  # of the terms of a sum
_NEWTON = 0  # the place of Newton's method in `solvers.solve.SOLVERS`


def body_responses(m: mujoco.MjModel) -> Array:
    """How fast each geom's body answers impulses, (ngeom,), to a power of two: no parameter changes that gradually."""
    return _power_of_two(m.body_invweight0[m.geom_bodyid, 0])


def trees(m: mujoco.MjModel) -> Array:
    """The tree that each geom's body belongs to, (ngeom,)."""
    return m.body_rootid[m.geom_bodyid].astype(np.float64)


def constraint_responses(m: mujoco.MjModel, packed: Array) -> Array:
    """The same of limits, equalities and dry friction, for moving and for turning, (constraints, 2)."""
    specs, entries = unpack_constraints.py_func(packed)
    out = np.zeros((len(specs), 2))
    for s, spec in enumerate(specs):
        if spec["shape"] in (CONNECT, WELD):
            out[s] = m.body_invweight0[spec["body"]].sum(axis=0)
        elif spec["shape"] == BALL_LIMIT:
            out[s] = m.dof_invweight0[spec["joint"][1]]
        else:
            line = entries[spec["start"] : spec["stop"]]
            out[s] = (line["coefficient"] ** 2 * m.dof_invweight0[line["dof"]]).sum()
    return _power_of_two(out)


def _power_of_two(x: Array) -> Array:
    return np.where(x > 0.0, 2.0 ** np.round(np.log2(np.maximum(x, 1e-300))), 0.0)


@kernel(ints(2), floats(1), number, floats(1), floats(1), floats(2), nogil=True)
def undo_overlaps(
    table: IntArray, tape: Array, correction: float, tree: Array, by_geom: Array, by_constraint: Array
) -> tuple[Array, Array, int, float, float]:
    """The second stage, from the tape of the first, which undid nothing.

    Returns what is reported of it as of a step, its tape, iterations, residual, and the largest velocity asked for.
    """
    _, kin, first = open_tape(table, tape)
    model = open_model(table, tape[DURATION], tape[IMPLICIT], correction)
    nc = first.contacts.shape[0]
    w = new_workspace(model, kin, nc)
    w.contacts[:], w.L[:], w.d[:], w.v_free[:] = first.contacts, first.L, first.d, first.v_next
    set_contact_targets(model, kin, w)
    build_every_row(model, kin, w)
    nb, n = w.counts[0], w.counts[1]
    left = _leave_trees(w, tree)
    _without_friction(w)
    target = w.g[:n].copy()
    set_delassus(model, w)
    soft = _add_compliance(model, w, target, left, by_geom, by_constraint)
    G, impulse, sigma = w.G[: n * n].reshape(n, n), w.impulse[:n], w.sigma[:n]
    tolerance, most = model.settings[TOLERANCE], affordable(model.settings, n)
    iterations, error, _ = solve(G, w.g[:n], w.blocks[:nb], impulse, sigma, most, tolerance, _NEWTON)
    spend(model.settings, iterations, n)
    error = max(error - _rounding(G, impulse), 0.0)
    asked = _set_slopes(w, target, left, soft)
    apply_impulses(model, w)
    out = np.empty(kin.q.shape[0] + kin.v.shape[0] + 13 * nc)
    if not integrate(model, kin, w, out):
        error = np.inf
    report_contacts(model, w, out[kin.q.shape[0] + kin.v.shape[0] :])
    return out, record(table, model, w), iterations, error, asked


@kernel(ints(2), floats(1), number, nogil=True)
def share_to_undo(table: IntArray, tape: Array, asked: float) -> float:
    """The share of overlaps that a step undoes under the laws of contact, see `certificate`, from its tape.

    `asked` is the largest velocity that they ask for: what is further open than bodies could come by many times that is
    in nobody's way.
    """
    model, kin, plain = open_tape(table, tape)
    nc, ns, nv = plain.contacts.shape[0], model.specs.shape[0], kin.v.shape[0]
    w = new_workspace(model, kin, nc)
    w.contacts[:], w.L[:], w.d[:], w.v_free[:], w.v_next[:] = plain.contacts, plain.L, plain.d, 0.0, 0.0
    limits = np.zeros(2 * ns, dtype=np.int64)
    for c in range(nc):
        w.contacts[c].chosen = 0
    add_violated(model, kin, w, np.zeros((nv, 6)), limits, _FAR * asked)
    build_rows(model, kin, w, limits, np.zeros(3 * nc + 6 * ns))
    set_delassus(model, w)
    nb, n = w.counts[0], w.counts[1]
    set_scales(w.G[: n * n].reshape(n, n), w.blocks[:nb])
    rows, blocks = _static_problem(w)
    m = rows.shape[0]
    half, target = np.empty((m, w.half.shape[1])), np.empty(m)
    for r in range(m):
        target[r], half[r] = w.g[rows[r]], w.half[rows[r]]
    return float(share_undone(half, target, blocks))


@inline
def _static_problem(w: Workspace) -> tuple[IntArray, Records]:
    """Rows and blocks of all that may keep overlaps from being undone.

    Dry friction has a bound, bounces are no overlaps, and what nothing can move asks in vain.
    """
    nb, n = w.counts[0], w.counts[1]
    rows, blocks, m, k, least = np.empty(n, dtype=np.int64), w.blocks[:nb].copy(), 0, 0, least_response(w)
    for b in range(nb):
        block = w.blocks[b]
        if block.kind == DRY or is_held(w, b, least):
            continue
        blocks[k] = block
        blocks[k].start = m
        if block.kind == BOX:
            blocks[k].kind, blocks[k].bound = CONTACT, math.sqrt(2.0) * block.bound
        if _bounces(w, b):
            w.g[block.start] = max(w.g[block.start], 0.0)
        for i in range(block.start, block.start + block.width):
            rows[m] = i
            m += 1
        k += 1
    return rows[:m], blocks[:k]


@inline
def _bounces(w: Workspace, b: int) -> bool:
    return w.blocks[b].source >= 0 and w.contacts[w.blocks[b].source].bounces != 0


@inline
def _rounding(G: Array, impulse: Array) -> float:
    """How well velocities are known: what stays behind bears impulses that are large, and cancel."""
    worst = 0.0
    for i in range(G.shape[0]):
        total = 0.0
        for j in range(G.shape[0]):
            total += abs(G[i, j] * impulse[j])
        worst = max(worst, total)
    return _ROUNDING * worst


@inline
def _leave_trees(w: Workspace, tree: Array) -> Array:
    """Parts of one tree that overlap ask for nothing; returns what they would have asked for, row by row.

    Collision geoms of many robots overlap in every pose. What parts them does so again in each step.
    """
    left = np.zeros(w.counts[1])
    for b in range(w.counts[0]):
        block = w.blocks[b]
        if block.kind in (CONTACT, BOX) and w.g[block.start] < 0.0:
            geom, i = w.contacts[block.source].geom, block.start
            if tree[geom[0]] == tree[geom[1]]:
                left[i], w.g[i] = -w.g[i], 0.0
    return left


@inline
def _without_friction(w: Workspace) -> None:
    for b in range(w.counts[0]):
        block = w.blocks[b]
        if block.kind in (CONTACT, BOX):
            block.kind, block.bound = CONTACT, 0.0
        elif block.kind == DRY:
            block.kind, w.g[block.start] = LIMIT, _NEVER


@inline
def _add_compliance(
    model: Model, w: Workspace, target: Array, left: Array, by_geom: Array, by_constraint: Array
) -> Array:  # fmt: skip
    """Add c to the diagonal of G; returns what it is a share of: the response of each row that may stay behind."""
    n = w.counts[1]
    soft = np.zeros(n)
    for b in range(w.counts[0]):
        block = w.blocks[b]
        for i in range(block.start, block.start + block.width):
            if block.kind == CONTACT:
                geom = w.contacts[block.source].geom
                response = by_geom[geom[0]] + by_geom[geom[1]] if i == block.start else 0.0
            else:
                response = by_constraint[-1 - block.source, 1 if i >= block.start + 3 else 0]
            asked = left[i] + abs(target[i])
            if target[i] < 0.0 or left[i] > 0.0 or block.kind == EQUALITY:
                soft[i] = (_SHARE if left[i] == 0.0 else _YIELD) * response
                if block.kind != EQUALITY and w.G[i * n + i] <= _IMMOBILE * response:
                    w.g[i] = _NEVER  # nothing moves that way: it bears no load
                w.G[i * n + i] += soft[i] if block.kind == EQUALITY else soft[i] * asked / (asked + _SLOW)
    return soft


@inline
def _set_slopes(w: Workspace, target: Array, left: Array, soft: Array) -> float:
    """How rows change with their targets, c included; returns the largest velocity asked for."""
    most = 0.0
    for b in range(w.counts[0]):
        block = w.blocks[b]
        for i in range(block.start, block.start + block.width):
            if soft[i] == 0.0:
                continue
            asked = left[i] + abs(target[i])
            most = max(most, asked)
            if block.kind == EQUALITY:
                continue
            factor = (0.0 if left[i] > 0.0 else 1.0) - soft[i] * w.impulse[i] * _SLOW / (asked + _SLOW) ** 2
            w.rate[i] *= factor
            if block.kind == CONTACT:
                w.contacts[block.source].gain *= factor
    return most
