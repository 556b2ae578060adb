"""Whether the laws of a step allow another answer, far from the one that was found.

Coulomb's law with hard contact may have several: a box wedged in, two feet on the floor that stick or slide. They are
apart, so no derivative tells of them, but a neighbouring state may well be given another one, and v⁺ jumps. There is no
quick proof that there are none; here Newton's method is started from other impulses, and what it finds is compared. In
hard problems it is lost, and so are the answers of neighbouring problems looked at.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.memory.settings import SOLVER, TOLERANCE
from tangens.contact.rigid.memory.tape import open_tape
from tangens.contact.rigid.problem.contact_problem import BOX, BREAKING, CONTACT
from tangens.contact.rigid.solvers.newton import newton
from tangens.contact.rigid.solvers.solve import solve_hard
from tangens.kernels import boolean, floats, inline, ints, kernel

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

_STARTS = 24  # from nothing, without friction, and from random impulses; 8 are too few for hyq, which overlaps itself
_ITERATIONS = 20
_NEIGHBOURS, _BESIDE = 8, 1e-6  # how many, and how far their velocities are off, as a share of the largest one
_NEWTON = 0  # the place of Newton's method in `solvers.solve.SOLVERS`
_WORK = 1e11  # multiplications: of hundreds of contacts, fewer starts are tried
_COMPLIANCE = 1e-8  # of Newton's equations, as in the step
_APART = 1e-3  # answers differ by more than this share of the velocities there are


@kernel(ints(2), floats(1), boolean)
def other_answer(table: IntArray, tape: Array, hard: bool) -> bool:
    """Whether another answer to the contact problem on the tape was found, with another v⁺."""
    model, _, w = open_tape(table, tape)
    n, tolerance = w.impulse.shape[0], model.settings[TOLERANCE]
    if not _rubs(w.blocks):
        return False
    G, speed, load = w.G.reshape(n, n), 0.0, 0.0
    for i in range(n):
        speed, load = max(speed, abs(w.g[i])), max(load, abs(w.impulse[i]))
    trial, sigma = np.empty(n), np.empty(n)
    for start in range(min(_STARTS, 1 + int(_WORK / (_ITERATIONS * (1.0 + n**3))))):
        _choose_start(start, w.blocks, w.impulse, load, trial)
        _, error = newton(G, w.g, w.blocks, trial, sigma, _ITERATIONS, tolerance, _COMPLIANCE, False)
        if error <= tolerance and _differs(sigma, w.sigma, speed):
            return True
    most, nearby, blocks = int(_WORK / (_NEIGHBOURS * (1.0 + n**3))), np.empty(n), w.blocks.copy()
    for neighbour in range(_NEIGHBOURS if hard and model.settings[SOLVER] == _NEWTON else 0):
        for i in range(n):
            nearby[i] = w.g[i] + _BESIDE * speed * (2.0 * _scattered(n * neighbour + i) - 1.0)
        trial[:] = 0.0
        _, error, _ = solve_hard(G, nearby, blocks, trial, sigma, most, tolerance, _NEWTON)
        if error <= tolerance and _differs(sigma, w.sigma, speed):
            return True
    return False


@inline
def _differs(sigma: Array, other: Array, speed: float) -> bool:
    return bool(np.abs(sigma - other).max() > _APART * speed)


@inline
def _rubs(blocks: Records) -> bool:
    """Whether some contact with friction pushes: without friction, the laws are those of a convex problem."""
    for b in range(blocks.shape[0]):
        if blocks[b].kind in (CONTACT, BOX) and blocks[b].bound > 0.0 and blocks[b].mode != BREAKING:
            return True
    return False


@inline
def _scattered(k: int) -> float:
    """Numbers between 0 and 1 without a pattern that matters, the same in every call."""
    x = 43758.5453 * math.sin(12.9898 * (k + 1))
    return x - math.floor(x)


@inline
def _choose_start(start: int, blocks: Records, impulse: Array, load: float, trial: Array) -> None:
    for b in range(blocks.shape[0]):
        a, is_contact = blocks[b].start, blocks[b].kind in (CONTACT, BOX)
        for i in range(a, a + blocks[b].width):
            trial[i] = impulse[i] if start > 0 and not (is_contact and i > a) else 0.0
        if start > 1 and is_contact:
            draw = 3 * (_STARTS * b + start)
            angle = 2.0 * math.pi * _scattered(draw)
            trial[a] = 2.0 * load * _scattered(draw + 1)
            pull = blocks[b].bound * trial[a] * _scattered(draw + 2)
            trial[a + 1], trial[a + 2] = pull * math.cos(angle), pull * math.sin(angle)
