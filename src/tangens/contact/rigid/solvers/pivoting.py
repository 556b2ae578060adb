"""Boxed linear complementarity problems by pivoting (paper 5, Appendices A and B).

Every row has an impulse between a lower and an upper bound: 0 and infinity for normals and limits, ±μ times its own
contact's normal impulse for friction. A row rests on one of its bounds or, in between, has no velocity: who is where is
all there is to find out, for then the impulses follow from linear equations, in which bounded friction goes along with
its normal. The first try is what held in the step before, the next ones are what that leads to. Where they fail,
Dantzig's method takes the rows in one by one and lets the others change places as they must. It may cycle, and a boxed
problem need not have a solution: then Gauss-Seidel sweeps find places to try, and the best answer counts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.linalg.elimination import solve_in_place
from tangens.contact.rigid.linalg.generalized_inverse import minimal_solution
from tangens.contact.rigid.problem.contact_problem import BOX, DRY, EQUALITY, LIMIT, residual, velocity
from tangens.contact.rigid.solvers.gauss_seidel import gauss_seidel
from tangens.contact.rigid.solvers.methods import FALLBACK, GUESS, PIVOTING
from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

# Where a row is: on a bound, in between, in between but held by the others already, or not taken in yet.
LOW, FREE, HIGH, HELD, OUTSIDE = -1, 0, 1, 2, 3
_AT_BOUND = 1e-9  # share of the bound's size
_STILL = 1e-11  # a rate this small, relative to what moves it, is none
_CORRECTIONS = 6  # of the places that a round of sweeps leads to
_SHARES = 6  # ways to share the load that are tried, each with more rows on their bounds
_PIVOTS = 8  # for each row, before Dantzig's method counts as cycling
_WORK = 1e9  # multiplications for pivots, and as many again for the fallback: no step of a heap of contacts hangs


class Box(NamedTuple):
    """Bounds of each row: low and high, or ±factor times the impulse of the row `normal`, if that is not negative."""

    low: Array
    high: Array
    factor: Array
    normal: IntArray


@subroutine
def solve_boxes(
    G: Array, g: Array, blocks: Records, impulse: Array, sigma: Array, iterations: int, tolerance: float
) -> tuple[int, float, int]:  # fmt: skip
    """Leave impulses that obey the laws and their velocities; returns pivots or sweeps, residual and method."""
    n = g.shape[0]
    box = _bounds(n, blocks)
    places = np.empty(n, dtype=np.int64)
    _places_of(box, impulse, places)
    _settle(G, g, box, places, impulse)
    velocity(G, g, impulse, sigma)
    error = residual(blocks, impulse, sigma)
    if error <= tolerance:
        return 0, _let_stick(G, g, blocks, box, places, impulse, sigma, tolerance, error), GUESS
    best, best_error, elimination = impulse.copy(), error, 1.0 + n**3
    corrections = min(_CORRECTIONS, 1 + int(_WORK / elimination))
    for pivot in range(corrections):  # all rows that are in the wrong place at once: quick, but it may cycle
        _places_by_probe(blocks, impulse, sigma, places)
        _settle(G, g, box, places, impulse)
        velocity(G, g, impulse, sigma)
        error = residual(blocks, impulse, sigma)
        if error <= tolerance:
            return pivot + 1, _let_stick(G, g, blocks, box, places, impulse, sigma, tolerance, error), PIVOTING
    taken = _dantzig(G, g, blocks, box, places, impulse, sigma)
    if taken >= 0:
        error = _stabilize(G, g, blocks, box, places, impulse, sigma, tolerance)
        if error <= tolerance:
            return taken, error, PIVOTING
        if not best_error <= error:
            best_error = error
            best[:] = impulse
    taken, sweeps, swept, work = abs(taken), 16, np.zeros(n), 0.0
    while not best_error <= tolerance and taken < iterations and work < _WORK:
        velocity(G, g, swept, sigma)
        taken += gauss_seidel(G, blocks, swept, sigma, sweeps, 0.1 * tolerance)
        impulse[:] = swept
        work += corrections * elimination + sweeps * n**2
        for _ in range(corrections):
            velocity(G, g, impulse, sigma)
            error = residual(blocks, impulse, sigma)
            if not best_error <= error:
                best_error = error
                best[:] = impulse
            if error <= tolerance or not math.isfinite(error):
                break
            _places_by_probe(blocks, impulse, sigma, places)
            _settle(G, g, box, places, impulse)
        sweeps *= 2
    impulse[:] = best
    velocity(G, g, impulse, sigma)
    if best_error <= tolerance:
        _places_of(box, impulse, places)
        best_error = _let_stick(G, g, blocks, box, places, impulse, sigma, tolerance, best_error)
    return taken, best_error, FALLBACK


@inline
def _bounds(n: int, blocks: Records) -> Box:
    low, high = np.full(n, -np.inf), np.full(n, np.inf)
    factor, normal = np.zeros(n), np.full(n, -1, dtype=np.int64)
    for b in range(blocks.shape[0]):
        kind, a = blocks[b].kind, blocks[b].start
        if kind in (BOX, LIMIT):
            low[a] = 0.0
        if kind == BOX:
            for i in range(a + 1, a + 3):
                factor[i], normal[i] = blocks[b].bound, a
        elif kind == DRY:
            low[a], high[a] = -blocks[b].bound, blocks[b].bound
    return Box(low, high, factor, normal)


@inline
def _places_of(box: Box, impulse: Array, places: IntArray) -> None:
    """Where impulses are within their bounds."""
    for i in range(impulse.shape[0]):
        x, normal = impulse[i], box.normal[i]
        low, high = box.low[i], box.high[i]
        if normal >= 0:
            high = box.factor[i] * max(impulse[normal], 0.0)
            low = -high
        slack = _AT_BOUND * high if math.isfinite(high) else 0.0
        if x >= high - slack:
            places[i] = HIGH
        elif x <= low + slack:
            places[i] = LOW
        else:
            places[i] = FREE


@inline
def _places_by_probe(blocks: Records, impulse: Array, sigma: Array, places: IntArray) -> None:
    """Where rows go if each follows its own velocity."""
    for b in range(blocks.shape[0]):
        kind, a, s, bound = blocks[b].kind, blocks[b].start, blocks[b].scale, blocks[b].bound
        for i in range(a, a + blocks[b].width):
            probe = impulse[i] - sigma[i] / s
            places[i] = FREE
            if kind == LIMIT or (kind == BOX and i == a):
                places[i] = FREE if probe > 0.0 else LOW
            elif kind != EQUALITY:
                high = bound if kind == DRY else bound * max(impulse[a] - sigma[a] / s, 0.0)
                places[i] = HIGH if probe > high else LOW if probe < -high else FREE


@inline
def _is_free(box: Box, places: IntArray, i: int) -> bool:
    """Whether a row has an equation: friction has none where its normal rests on zero."""
    normal = box.normal[i]
    return places[i] == FREE and (normal < 0 or places[normal] == FREE)


@inline
def _free_rows(box: Box, places: IntArray) -> IntArray:
    out, m = np.empty(places.shape[0], dtype=np.int64), 0
    for i in range(places.shape[0]):
        if _is_free(box, places, i):
            out[m] = i
            m += 1
    return out[:m]


@subroutine
def _equations(G: Array, box: Box, places: IntArray, rows: IntArray) -> Array:
    """A_CC with what bounded friction adds to the columns of its normals (Appendix A)."""
    m = rows.shape[0]
    A, column = np.empty((m, m)), np.full(places.shape[0], -1, dtype=np.int64)
    for c in range(m):
        column[rows[c]] = c
    for r in range(m):
        for c in range(m):
            A[r, c] = G[rows[r], rows[c]]
    for b in range(places.shape[0]):
        if box.normal[b] >= 0 and (places[b] == LOW or places[b] == HIGH):
            c = column[box.normal[b]]
            if c >= 0:
                for r in range(m):
                    A[r, c] += places[b] * box.factor[b] * G[rows[r], b]
    return A


@inline
def _complete(box: Box, places: IntArray, x: Array, with_constants: bool) -> None:
    """Set the rows that have no equation: constants, and friction that follows its normal."""
    for i in range(places.shape[0]):
        if box.normal[i] < 0 and places[i] != FREE:
            bound = box.low[i] if places[i] == LOW else box.high[i] if places[i] == HIGH else 0.0
            x[i] = bound if with_constants and math.isfinite(bound) else 0.0
    for i in range(places.shape[0]):
        if box.normal[i] >= 0 and not _is_free(box, places, i):
            side = places[i] if places[i] == LOW or places[i] == HIGH else 0
            x[i] = side * box.factor[i] * x[box.normal[i]]


@subroutine
def _settle(G: Array, g: Array, box: Box, places: IntArray, impulse: Array) -> None:
    """The smallest impulses that belong to these places."""
    rows = _free_rows(box, places)
    impulse[:] = 0.0
    _complete(box, places, impulse, True)
    right = np.empty(rows.shape[0])
    for r in range(rows.shape[0]):
        total = -g[rows[r]]
        for j in range(places.shape[0]):
            if impulse[j] != 0.0:
                total -= G[rows[r], j] * impulse[j]
        right[r] = total
    x = minimal_solution(_equations(G, box, places, rows), right)
    for r in range(rows.shape[0]):
        impulse[rows[r]] = x[r]
    _complete(box, places, impulse, True)


@subroutine
def _let_stick(
    G: Array, g: Array, blocks: Records, box: Box, places: IntArray, impulse: Array, sigma: Array, tolerance: float,
    error: float,
) -> float:  # fmt: skip
    """Look for smaller impulses where some row is on a bound without moving; returns the residual."""
    for i in range(places.shape[0]):
        normal = box.normal[i]
        if normal < 0:
            could_bear = places[i] == LOW and box.low[i] == 0.0
        else:
            could_bear = places[i] in (LOW, HIGH) and impulse[normal] > 0.0 and box.factor[i] > 0.0
        if could_bear and abs(sigma[i]) <= tolerance:
            return _stabilize(G, g, blocks, box, places, impulse, sigma, tolerance)
    return error


@subroutine
def _stabilize(
    G: Array, g: Array, blocks: Records, box: Box, places: IntArray, impulse: Array, sigma: Array, tolerance: float
) -> float:  # fmt: skip
    """Share the load among all rows that could bear some of it, if the laws allow it; returns the residual."""
    wide = places.copy()
    for i in range(places.shape[0]):
        normal = box.normal[i]
        if normal < 0:
            if places[i] == HELD or (places[i] == LOW and box.low[i] == 0.0 and abs(sigma[i]) <= tolerance):
                wide[i] = FREE
        elif places[i] == HELD or (places[normal] != FREE and wide[normal] == FREE) or abs(sigma[i]) <= tolerance:
            wide[i] = FREE
    basic, error = impulse.copy(), residual(blocks, impulse, sigma)
    for _ in range(_SHARES):
        _settle(G, g, box, wide, impulse)
        velocity(G, g, impulse, sigma)
        found = residual(blocks, impulse, sigma)
        if found <= tolerance:
            return found
        if not _put_on_bounds(box, wide, impulse):
            break
    if not error <= tolerance:
        _settle(G, g, box, places, impulse)
        velocity(G, g, impulse, sigma)
        found = residual(blocks, impulse, sigma)
        if found <= tolerance:
            return found
    impulse[:] = basic
    velocity(G, g, impulse, sigma)
    return error


@inline
def _put_on_bounds(box: Box, places: IntArray, impulse: Array) -> bool:
    """Whether rows in between are beyond a bound; they are put on it, friction only where no normal is."""
    found = False
    for i in range(places.shape[0]):
        if places[i] == FREE and box.normal[i] < 0 and not box.low[i] <= impulse[i] <= box.high[i]:
            places[i], found = LOW if impulse[i] < box.low[i] else HIGH, True
    if not found:
        for i in range(places.shape[0]):
            if _is_free(box, places, i) and box.normal[i] >= 0:
                bound = box.factor[i] * impulse[box.normal[i]]
                if abs(impulse[i]) > bound:
                    places[i], found = HIGH if impulse[i] > 0.0 else LOW, True
    return found


@subroutine
def _dantzig(
    G: Array, g: Array, blocks: Records, box: Box, places: IntArray, impulse: Array, sigma: Array
) -> int:  # fmt: skip
    """Take in row after row, normals before friction; returns the pivots, negative if it did not come to an end."""
    n = g.shape[0]
    places[:] = OUTSIDE
    impulse[:] = 0.0
    change, rate = np.empty(n), np.empty(n)
    pivots, most = 0, min(_PIVOTS * n + 20, int(_WORK / (1.0 + n**3)))
    for turn in range(3):  # equalities, then normals, limits and dry friction, then the friction of contacts
        for i in range(n):
            kind = 2 if box.normal[i] >= 0 else 1 if math.isfinite(box.low[i]) else 0
            if kind != turn:
                continue
            velocity(G, g, impulse, sigma)
            while places[i] == OUTSIDE:
                if _take_in_at_once(G, box, places, sigma, i):
                    break
                pivots += 1
                if pivots > most or not _pivot(G, box, places, impulse, sigma, change, rate, i):
                    return -pivots
    velocity(G, g, impulse, sigma)
    return pivots


@inline
def _take_in_at_once(G: Array, box: Box, places: IntArray, sigma: Array, i: int) -> bool:
    """Whether the row obeys its law with no impulse."""
    normal, small = box.normal[i], 1e-14 * (1.0 + abs(sigma[i]))
    if normal >= 0 and (places[normal] != FREE or box.factor[i] == 0.0):
        places[i] = LOW if sigma[i] > 0.0 else HIGH  # it follows its normal, whatever that will be
    elif box.low[i] == 0.0:
        if sigma[i] < -small:
            return False
        places[i] = LOW
    elif box.low[i] == box.high[i]:
        places[i] = LOW
    elif abs(sigma[i]) <= small:
        places[i] = HELD
    else:
        return False
    return True


@subroutine
def _pivot(
    G: Array, box: Box, places: IntArray, impulse: Array, sigma: Array, change: Array, rate: Array, i: int
) -> bool:  # fmt: skip
    """Push row i against its velocity until it stops, meets its bound, or another row has to change places."""
    n = places.shape[0]
    rows = _free_rows(box, places)
    direction = -1.0 if sigma[i] > 0.0 else 1.0
    right = np.empty(rows.shape[0])
    for r in range(rows.shape[0]):
        right[r] = -G[rows[r], i] * direction
    A = _equations(G, box, places, rows)
    if not solve_in_place(A, right):
        return False
    change[:] = 0.0
    for r in range(rows.shape[0]):
        change[rows[r]] = right[r]
    _complete(box, places, change, False)
    change[i] = direction
    size = 0.0
    for j in range(n):
        rate[j] = 0.0
        for k in range(n):
            rate[j] += G[j, k] * change[k]
        size = max(size, math.sqrt(G[j, j]) * abs(change[j]))
    step, who, where = np.inf, -1, FREE
    for j in range(n):
        if places[j] == OUTSIDE and j != i:
            continue
        still = _STILL * size * math.sqrt(G[j, j])
        length, place = _until_event(box, places, impulse, sigma, change, rate, j, i, still)
        # where several rows change at once, normals go first: their friction follows them
        if length < step or (length == step and who >= 0 and box.normal[who] >= 0 and box.normal[j] < 0):
            step, who, where = length, j, place
    if not math.isfinite(step):
        return False
    for j in range(n):
        impulse[j] += step * change[j]
        sigma[j] += step * rate[j]
    places[who] = where
    if box.normal[who] < 0 and box.low[who] == 0.0:
        if where == LOW:
            impulse[who] = 0.0
        for j in range(n):
            if box.normal[j] == who and places[j] != OUTSIDE:
                places[j] = LOW if sigma[j] > 0.0 else HIGH
    return True


@inline
def _until_event(
    box: Box, places: IntArray, impulse: Array, sigma: Array, change: Array, rate: Array, j: int, driven: int,
    still: float,
) -> tuple[float, int]:  # fmt: skip
    """How far row j lets the pivot go, and where it is then."""
    normal, best, where = box.normal[j], np.inf, FREE
    if j == driven and rate[j] * sigma[j] < 0.0 and abs(rate[j]) > still:
        best = -sigma[j] / rate[j]
    if j == driven or _is_free(box, places, j):
        low, high, widen = box.low[j], box.high[j], 0.0
        if normal >= 0:
            high, widen = box.factor[j] * impulse[normal], box.factor[j] * change[normal]
            low = -high
        shrink = change[j] - widen  # of the distance to the upper bound
        if shrink > 0.0 and math.isfinite(high):
            length = max(high - impulse[j], 0.0) / shrink
            if length < best:
                best, where = length, HIGH
        shrink = -change[j] - widen
        if shrink > 0.0 and math.isfinite(low):
            length = max(impulse[j] - low, 0.0) / shrink
            if length < best:
                best, where = length, LOW
        return best, where
    if normal >= 0 and places[normal] != FREE:
        return best, where  # no impulse, and no law for its velocity
    if places[j] == HELD:
        return (0.0, FREE) if abs(rate[j]) > still else (best, where)
    if places[j] == LOW and rate[j] < -still:
        return max(sigma[j], 0.0) / -rate[j], FREE
    if places[j] == HIGH and rate[j] > still:
        return max(-sigma[j], 0.0) / rate[j], FREE
    return best, where
