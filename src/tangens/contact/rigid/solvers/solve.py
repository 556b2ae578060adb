"""Solvers of the contact problem, by name: semi-smooth Newton with continuation, ADMM, and pivoting for boxes.

All start from the impulses they are given and leave their result there. The work of each is bounded, whatever the
problem: by iterations, and by multiplications where an iteration has none to speak of, see `work`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.problem.contact_problem import classify, residual, velocity
from tangens.contact.rigid.solvers.admm import admm
from tangens.contact.rigid.solvers.continuation import follow_compliance
from tangens.contact.rigid.solvers.gauss_seidel import gauss_seidel
from tangens.contact.rigid.solvers.interior_point import interior_point
from tangens.contact.rigid.solvers.methods import ADMM, FALLBACK, NEWTON, PIVOTING
from tangens.contact.rigid.solvers.newton import newton
from tangens.contact.rigid.solvers.pivoting import solve_boxes
from tangens.contact.rigid.solvers.proximal import proximal
from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
Records = NDArray[np.void]


SOLVERS = ("newton", "admm", "pivoting")
"""By name; compiled code knows them by their place here."""
_NEWTON, _ADMM, _PIVOTING = 0, 1, 2
_QUICK = 8  # iterations of Newton's method from the guess, which is where most steps end
_FEW_SWEEPS, _FEW_ROWS = (
    6,
    100,
)  # of Gauss-Seidel from nothing, where it does not end there; in heaps they settle nothing
_COMPLIANCE = 1e-8  # of its equations, where contacts are redundant
_INTERIOR, _PROXIMAL = 40, 80  # iterations of the interior-point method, and of proximal steps where it ends early
_CONTINUATION = 200  # iterations along the path of compliance, for boxes and where that ends early, too
_SWEEPS = (30, 100, 300)  # of Gauss-Seidel, where the path ends before the solution
_LARGEST = 1e7  # velocity that an impulse makes by itself, relative to those there are: mass ratios of 1e4 reach 1e6
_STILL = 10.0  # velocities within so many times the solver's error are none
_PIVOTS = 16  # what pivots, sweeps and compliance cost for boxes, in iterations


@inline
def set_scales(G: Array, blocks: Records) -> None:
    """How fast each block answers a unit impulse of its own: the largest diagonal entry of G there."""
    largest = 0.0
    for i in range(G.shape[0]):
        largest = max(largest, G[i, i])
    for b in range(blocks.shape[0]):
        scale = max(1e-12 * largest, 1e-300)
        for i in range(blocks[b].start, blocks[b].start + blocks[b].width):
            scale = max(scale, G[i, i])
        blocks[b].scale = scale


@subroutine
def solve(
    G: Array, g: Array, blocks: Records, impulse: Array, sigma: Array, iterations: int, tolerance: float, solver: int
) -> tuple[int, float, int]:  # fmt: skip
    """Leave impulses that obey the laws, their velocities and the modes; returns iterations, residual and method."""
    taken, error, method = solve_easy(G, g, blocks, impulse, sigma, iterations, tolerance, solver)
    if error <= tolerance:
        return taken, error, method
    more, error, method = solve_hard(G, g, blocks, impulse, sigma, iterations - taken, tolerance, solver)
    return taken + more, error, method


@subroutine
def solve_easy(
    G: Array, g: Array, blocks: Records, impulse: Array, sigma: Array, iterations: int, tolerance: float, solver: int
) -> tuple[int, float, int]:  # fmt: skip
    """The same by what is quick and mostly enough: a few iterations from the guess, or pivots."""
    set_scales(G, blocks)
    if solver == _PIVOTING:
        total, error, method = solve_boxes(G, g, blocks, impulse, sigma, iterations, tolerance)
    elif solver == _ADMM:
        total, error = _alternate(G, g, blocks, impulse, sigma, iterations, tolerance)
        method = ADMM
    else:
        total, error = _newton_from_guess_or_sweeps(G, g, blocks, impulse, sigma, iterations, tolerance)
        method = NEWTON
    classify(G, blocks, impulse, sigma, _STILL * max(error, tolerance))
    return total, error, method


@inline
def cost_of(iterations: int, method: int) -> int:
    """How many times the equations were factored; pivots and sweeps are many, and bounded by themselves."""
    return min(iterations, _PIVOTS) if method in (PIVOTING, FALLBACK) else iterations


@subroutine
def _newton_from_guess_or_sweeps(
    G: Array, g: Array, blocks: Records, impulse: Array, sigma: Array, iterations: int, tolerance: float
) -> tuple[int, float]:  # fmt: skip
    """Newton's method from the guess; where it goes round in circles, from where a few sweeps lead."""
    quick = min(_QUICK, iterations)
    total, error = newton(G, g, blocks, impulse, sigma, quick, tolerance, _COMPLIANCE, False)
    if error <= tolerance or g.shape[0] > _FEW_ROWS:
        return total, error
    impulse[:] = 0.0
    velocity(G, g, impulse, sigma)
    total += gauss_seidel(G, blocks, impulse, sigma, _FEW_SWEEPS, 0.1 * tolerance)
    taken, error = newton(G, g, blocks, impulse, sigma, quick, tolerance, _COMPLIANCE, False)
    return total + taken, error


@subroutine
def solve_hard(
    G: Array, g: Array, blocks: Records, impulse: Array, sigma: Array, iterations: int, tolerance: float, solver: int
) -> tuple[int, float, int]:  # fmt: skip
    """The same where that fails, from nothing, whatever the guess was."""
    set_scales(G, blocks)
    velocity(G, g, impulse, sigma)
    error, total = residual(blocks, impulse, sigma), 0
    if solver != _PIVOTING:
        trial, trial_sigma = impulse.copy(), sigma.copy()
        total, found = interior_point(G, g, blocks, trial, trial_sigma, min(iterations, _INTERIOR), tolerance)
        if not found <= tolerance and not _beyond_digits(g, blocks, trial):
            more, found = proximal(G, g, blocks, trial, trial_sigma, min(iterations - total, _PROXIMAL), tolerance)
            total += more
        if _beyond_digits(g, blocks, trial):
            found = math.inf
        if found < error or not math.isfinite(error):
            error = found
            impulse[:], sigma[:] = trial, trial_sigma
    if not error <= tolerance:
        more, error = _continue(
            G, g, blocks, impulse, sigma, max(iterations - total, 1), tolerance, error, solver == _PIVOTING
        )
        total += more
    classify(G, blocks, impulse, sigma, _STILL * max(error, tolerance))
    return total, error, FALLBACK if solver == _PIVOTING else NEWTON


@inline
def _beyond_digits(g: Array, blocks: Records, impulse: Array) -> bool:
    """Whether impulses have grown until rounding hides that there is no solution."""
    fastest, largest = 0.0, 0.0
    for b in range(blocks.shape[0]):
        for i in range(blocks[b].start, blocks[b].start + blocks[b].width):
            fastest, largest = max(fastest, abs(g[i])), max(largest, blocks[b].scale * abs(impulse[i]))
    return not largest <= _LARGEST * fastest


@subroutine
def _continue(
    G: Array, g: Array, blocks: Records, impulse: Array, sigma: Array, iterations: int, tolerance: float, error: float,
    sweep: bool,
) -> tuple[int, float]:  # fmt: skip
    """Follow the path of compliance; where it ends early, Gauss-Seidel sweeps may find places for Newton to start from.

    `error` is that of the impulses
    given, which are kept if nothing better is found.
    """
    trial, trial_sigma = impulse.copy(), sigma.copy()
    total, found, solvable = follow_compliance(
        G, g, blocks, trial, trial_sigma, min(iterations, _CONTINUATION), tolerance
    )
    for sweeps in _SWEEPS:
        if found < error or not math.isfinite(error):
            error = found
            impulse[:] = trial
            sigma[:] = trial_sigma
        if error <= tolerance or not solvable or total >= iterations or not sweep:
            break
        trial[:] = 0.0
        velocity(G, g, trial, trial_sigma)
        total += gauss_seidel(G, blocks, trial, trial_sigma, sweeps, 0.1 * tolerance)
        more, found = newton(G, g, blocks, trial, trial_sigma, 20, tolerance, _COMPLIANCE, False)
        total += more
    return total, error


@subroutine
def _alternate(
    G: Array, g: Array, blocks: Records, impulse: Array, sigma: Array, iterations: int, tolerance: float
) -> tuple[int, float]:  # fmt: skip
    """Alternating directions, longer and longer, and Newton for the last digits."""
    velocity(G, g, impulse, sigma)
    error, total, length = residual(blocks, impulse, sigma), 0, 40
    trial, trial_sigma = np.empty_like(impulse), np.empty_like(sigma)
    while not error <= tolerance and total < iterations:
        trial[:] = impulse
        velocity(G, g, trial, trial_sigma)
        taken, _ = admm(G, g, blocks, trial, trial_sigma, min(length, iterations - total), tolerance)
        more, found = newton(G, g, blocks, trial, trial_sigma, 10, tolerance, _COMPLIANCE, False)
        total, length = total + taken + more, 2 * length
        if found < error or not math.isfinite(error):
            error = found
            impulse[:] = trial
            sigma[:] = trial_sigma
    return total, error
