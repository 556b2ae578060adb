"""Solvers of the contact problem, by name: semi-smooth Newton started by Gauss-Seidel, ADMM, and pivoting for boxes.

Gauss-Seidel always makes progress and finds the modes; Newton then solves the equations of those modes to the last
digits. All start from the impulses they are given and leave their result there.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.problem.contact_problem import classify, residual, velocity
from tangens.contact.rigid.solvers.admm import admm
from tangens.contact.rigid.solvers.gauss_seidel import gauss_seidel
from tangens.contact.rigid.solvers.methods import ADMM, NEWTON
from tangens.contact.rigid.solvers.newton import newton
from tangens.contact.rigid.solvers.pivoting import solve_boxes
from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
Records = NDArray[np.void]


SOLVERS = ("newton", "admm", "pivoting")
"""By name; compiled code knows them by their place here."""
_NEWTON, _ADMM, _PIVOTING = 0, 1, 2
# Numbers of sweeps at which the search forgets the guess, and at which it tries ADMM.
_START_AFRESH, _TRY_THE_OTHER = 8, 256
# Newton's compliances, in turn: what one stumbles over, another may not. Measured on motions of go1, g1 and humanoid.
_COMPLIANCES = (1e-8, 1e-8, 1e-6, 1e-8, 1e-4, 1e-6, 1e-10, 1e-12, 1e-2, 1e-3, 1e-4, 1e-6)


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
    """Leave impulses that obey the laws, their velocities and the modes; returns iterations, residual and method.

    `newton` goes from the guess; where that fails, Gauss-Seidel sweeps, longer and longer, find it better places to
    start from, at first near the guess, then from nothing. With `admm`, that does it instead.
    """
    set_scales(G, blocks)
    if solver == _PIVOTING:
        total, error, method = solve_boxes(G, g, blocks, impulse, sigma, iterations, tolerance)
        classify(blocks, impulse, sigma)
        return total, error, method
    velocity(G, g, impulse, sigma)
    total, error = 0, residual(blocks, impulse, sigma)
    if error > tolerance and solver == _NEWTON:
        total, error = newton(G, g, blocks, impulse, sigma, 10, tolerance, _COMPLIANCES[0])
    sweeps, turn, near, near_sigma = 2, 1, impulse.copy(), np.empty_like(sigma)
    while not error <= tolerance and total < iterations:
        if sweeps == _START_AFRESH:
            near[:] = 0.0
        velocity(G, g, near, near_sigma)
        trial = near.copy()
        if solver == _ADMM or sweeps == _TRY_THE_OTHER:
            taken, _ = admm(G, g, blocks, trial, near_sigma, min(20 * sweeps, 2000), tolerance)
        else:
            taken = gauss_seidel(G, blocks, near, near_sigma, sweeps, 0.1 * tolerance)
            trial[:] = near
        velocity(G, g, trial, near_sigma)
        compliance = _COMPLIANCES[turn % len(_COMPLIANCES)]
        patience = 10 if turn < 3 else 60 if turn < 7 else 200
        more, found = newton(G, g, blocks, trial, near_sigma, patience, tolerance, compliance)
        total, turn = total + taken + more, turn + 1
        if found < error or not math.isfinite(error):
            error = found
            impulse[:] = trial
            sigma[:] = near_sigma
        sweeps *= 2
    classify(blocks, impulse, sigma)
    return total, error, ADMM if solver == _ADMM else NEWTON
