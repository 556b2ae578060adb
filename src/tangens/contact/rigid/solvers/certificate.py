"""Whether overlaps can be undone at all, as a property of the problem and not of who solves it.

Coulomb's problem has a solution if some velocity lies inside all dual friction cones, targets included (Acary, Cadoux,
Lemaréchal and Malick, 2011): if overlaps can be undone by a motion that slides so little, where bodies touch, that no
friction could hold it back. Whether there is one is a convex question. Here it has a price, so that there always is an
answer, and one that changes gradually. Of all motions from rest, one is the cheapest:

    minimise ½·|v|²_M + ½·Σ s²/c        s: what J·v + target lacks of the dual cone, of ≥ 0 for a limit, of = 0

c is so small that s is nothing next to the targets, unless it takes impulses many thousands of times those that would
do for each alone: then friction or bodies jam. Newton's method finds s, from large c to small ones. In most steps it
need not: a motion that undoes more than is asked for bounds all impulses by its energy, and the first one that is tried
is such a motion.
Motions are y with v = W·y, |v|_M = |y|.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.problem.contact_problem import CONTACT, EQUALITY
from tangens.contact.rigid.solvers.newton import solve_equations
from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
Records = NDArray[np.void]

_PRICES = (1e-4, 1e-6, 1e-8, 1e-10)  # c, as shares of the least response of any block
_FLOOR = 0.1  # of c's root, for those that ask for little or nothing
_ALL, _NOTHING = 1e-5, 1e-3  # s, as a share of a target: below, all is undone under the laws, and above, nothing
_AHEAD, _APART = 0.5, 0.1  # more than is asked for, as a share of a target; of the largest, for who does not ask
_ENOUGH = 0.5  # of that, to bound impulses by
_FEW, _REDUNDANT = 60, 1e-9  # rows of the first motion tried, and their compliance
_ROUND = 1e-3  # of the largest target: where slip is rounded off
_NEWTON, _HALVINGS = 40, 30
_WORK = 1e10  # multiplications, after which what has been found counts: about two seconds
_SETTLED = 1e-7  # s is known to this share of its target


@subroutine
def share_undone(half: Array, target: Array, blocks: Records) -> float:
    """The share of all targets that the laws of contact can meet: 1 in most steps, 0 where something jams.

    `half` are the rows J·W of the blocks, so that G = half·halfᵀ.
    """
    nv, largest, least = half.shape[1], 0.0, np.inf
    for b in range(blocks.shape[0]):
        least = min(least, blocks[b].scale)
        for i in range(blocks[b].start, blocks[b].start + blocks[b].width):
            largest = max(largest, _asked(blocks[b].kind, target[i]))
    if not largest > 0.0:
        return 1.0
    c, y = _compliance(target, blocks, largest, least), np.zeros(nv)
    left = int(_WORK / (1.0 + nv**2 * (nv + target.shape[0])))
    ahead, has_equalities = _ahead(target, blocks, largest)
    if not has_equalities:
        if _part(half, ahead, y) and _is_ahead(half, target, ahead, blocks, largest, least, y):
            return 1.0
        y[:] = 0.0
        for price in _PRICES[:2]:
            enough = (1e-3 * largest) ** 2 / (price * least)
            left -= _cheapest(half, ahead, blocks, price * c, largest, enough, left // 2, y)[1]
            if _is_ahead(half, target, ahead, blocks, largest, least, y):
                return 1.0
    y[:] = 0.0
    s = np.zeros(0)
    for price in _PRICES:
        enough = (_SETTLED * largest) ** 2 / (price * least)
        s, taken = _cheapest(half, target, blocks, price * c, largest, enough, left, y)
        left -= taken
    worst = 0.0
    for b in range(blocks.shape[0]):
        for i in range(blocks[b].start, blocks[b].start + blocks[b].width):
            asked = _asked(blocks[b].kind, target[i])
            if asked > 0.0:
                worst = max(worst, abs(s[i]) / max(asked, _FLOOR * largest))
    return min(max((_NOTHING - worst) / (_NOTHING - _ALL), 0.0), 1.0)


@inline
def _ahead(target: Array, blocks: Records, largest: float) -> tuple[Array, bool]:
    """Targets that ask for more, so that a motion that nearly meets them is well inside; and whether equalities do."""
    out, has_equalities = target.copy(), False
    for b in range(blocks.shape[0]):
        i = blocks[b].start
        out[i] -= _AHEAD * -target[i] if target[i] < 0.0 else _APART * largest
        has_equalities = has_equalities or blocks[b].kind == EQUALITY
    return out, has_equalities


@subroutine
def _part(half: Array, ahead: Array, y: Array) -> bool:
    """Try the motion that parts all that asks and slides nowhere: feet on a floor, boxes on each other."""
    n = ahead.shape[0]
    if n > _FEW:
        return False
    G, load = np.dot(half, half.T), np.maximum(-ahead, 0.0)
    largest = 0.0
    for i in range(n):
        largest = max(largest, G[i, i])
    for i in range(n):
        G[i, i] += _REDUNDANT * largest
    if not solve_equations(G, load):
        return False
    y[:] = np.dot(half.T, load)
    return True


@subroutine
def _is_ahead(
    half: Array, target: Array, ahead: Array, blocks: Records, largest: float, least: float, y: Array
) -> bool:  # fmt: skip
    """Whether a motion undoes enough more than is asked for, everywhere, for as little as bounds all impulses."""
    if not _PRICES[-1] * least * float(np.dot(y, y)) <= _ALL * _AHEAD * _ENOUGH * largest**2:
        return False
    n = target.shape[0]
    u, s, between = np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        between[i] = target[i] + _ENOUGH * (ahead[i] - target[i])
    _cost(half, between, blocks, np.ones(n), _ROUND * largest, y, u, s)
    return not s.any()


@subroutine
def _cheapest(
    half: Array, target: Array, blocks: Records, c: Array, largest: float, enough: float, iterations: int, y: Array
) -> tuple[Array, int]:  # fmt: skip
    """Lead y to the cheapest motion, to a cost that is known to `enough`; returns s there, and the iterations taken."""
    n, nv, blunt = target.shape[0], half.shape[1], _ROUND * largest
    trial, u, s = np.zeros(nv), np.zeros(n), np.zeros(n)
    cost, taken = _cost(half, target, blocks, c, blunt, y, u, s), 0
    while taken < min(_NEWTON, iterations):
        taken += 1
        gradient, H = _slopes(half, blocks, c, blunt, y, u, s)
        step = gradient.copy()
        if not solve_equations(H, step):
            break
        decrement, length, new = float(np.dot(gradient, step)), 1.0, cost
        for _ in range(_HALVINGS):
            for i in range(nv):
                trial[i] = y[i] - length * step[i]
            new = _cost(half, target, blocks, c, blunt, trial, u, s)
            if new <= cost - 1e-4 * length * decrement:
                break
            length *= 0.5
        if not new < cost:
            break
        y[:], cost = trial, new
        if decrement <= enough:
            break
    _cost(half, target, blocks, c, blunt, y, u, s)
    return s, taken


@inline
def _asked(kind: int, target: float) -> float:
    return abs(target) if kind == EQUALITY else max(-target, 0.0)


@inline
def _compliance(target: Array, blocks: Records, largest: float, least: float) -> Array:
    """Of each row, c at a price of 1; rows of friction have none."""
    c = np.zeros(target.shape[0])
    for b in range(blocks.shape[0]):
        for i in range(blocks[b].start, blocks[b].start + (1 if blocks[b].kind == CONTACT else blocks[b].width)):
            c[i] = least * max(_asked(blocks[b].kind, target[i]) / largest, _FLOOR) ** 2
    return c


@inline
def _energy(y: Array) -> float:
    return float(np.dot(y, y))


@inline
def _price(s: Array, c: Array) -> float:
    total = 0.0
    for i in range(s.shape[0]):
        if s[i] != 0.0:
            total += s[i] ** 2 / c[i]
    return total


@subroutine
def _cost(half: Array, target: Array, blocks: Records, c: Array, blunt: float, y: Array, u: Array, s: Array) -> float:
    """Of the motion y, twice; leaves what rows measure of it, and what they lack, for equalities with a sign."""
    u[:] = np.dot(half, y)
    for b in range(blocks.shape[0]):
        a, kind, bound = blocks[b].start, blocks[b].kind, blocks[b].bound
        if kind == CONTACT:
            slip = math.sqrt(u[a + 1] ** 2 + u[a + 2] ** 2 + blunt**2) - blunt
            s[a], s[a + 1], s[a + 2] = max(bound * slip - u[a] - target[a], 0.0), 0.0, 0.0
        else:
            for i in range(a, a + blocks[b].width):
                lack = -u[i] - target[i]
                s[i] = lack if kind == EQUALITY else max(lack, 0.0)
    return _energy(y) + _price(s, c)


@subroutine
def _slopes(
    half: Array, blocks: Records, c: Array, blunt: float, y: Array, u: Array, s: Array
) -> tuple[Array, Array]:  # fmt: skip
    """Gradient and Hessian of half the cost."""
    m, nv = half.shape
    by_u, scaled, a3, B = np.zeros(m), np.zeros((m, nv)), np.empty(3), np.empty((3, 3))
    for b in range(blocks.shape[0]):
        a, kind, bound = blocks[b].start, blocks[b].kind, blocks[b].bound
        if kind == CONTACT:
            if s[a] == 0.0:
                continue
            rho = math.sqrt(u[a + 1] ** 2 + u[a + 2] ** 2 + blunt**2)
            a3[0], a3[1], a3[2] = -1.0, bound * u[a + 1] / rho, bound * u[a + 2] / rho
            for i in range(3):
                by_u[a + i] = s[a] / c[a] * a3[i]
                for j in range(3):
                    B[i, j] = a3[i] * a3[j] / c[a]
                    if i > 0 and j > 0:
                        turn = (1.0 if i == j else 0.0) - u[a + i] * u[a + j] / rho**2
                        B[i, j] += s[a] / c[a] * bound / rho * turn
            for i in range(3):
                for j in range(3):
                    for k in range(nv):
                        scaled[a + i, k] += B[i, j] * half[a + j, k]
        else:
            for i in range(a, a + blocks[b].width):
                if s[i] != 0.0:
                    by_u[i] = -s[i] / c[i]
                    for k in range(nv):
                        scaled[i, k] = half[i, k] / c[i]
    return y + np.dot(half.T, by_u), np.eye(nv) + np.dot(half.T, scaled)
