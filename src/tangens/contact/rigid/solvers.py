"""Solvers for the contact problem of `laws`: semi-smooth Newton with Gauss-Seidel to start it, and ADMM.

Gauss-Seidel always makes progress and finds the modes; Newton then solves the equations of those modes to the last
digits. All start from the impulses they are given and leave their result there.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.generalized_inverse import gauss_jordan
from tangens.contact.rigid.laws import CONTACT, DRY, LIMIT, classify, project_on_cone, residual, velocity
from tangens.contact.rigid.methods import ADMM, NEWTON
from tangens.contact.rigid.pivoting import solve_boxes
from tangens.contact.rigid.sweeps import gauss_seidel, solve_in_place

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

SOLVERS = ("newton", "admm", "pivoting")
"""By name; compiled code knows them by their place here."""
_NEWTON, _ADMM, _PIVOTING = 0, 1, 2
# Numbers of sweeps at which the search forgets the guess, and at which it tries ADMM.
_START_AFRESH, _TRY_THE_OTHER = 8, 256
# Newton's compliances, in turn: what one stumbles over, another may not. Measured on motions of go1, g1 and humanoid.
_COMPLIANCES = (1e-8, 1e-8, 1e-6, 1e-8, 1e-4, 1e-6, 1e-10, 1e-12, 1e-2, 1e-3, 1e-4, 1e-6)


@numba.njit(cache=True, error_model="numpy")
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


@numba.njit(cache=True, error_model="numpy")
def newton(
    G: Array, g: Array, blocks: Records, impulse: Array, sigma: Array, iterations: int, tolerance: float,
    compliance: float,
) -> tuple[int, float]:  # fmt: skip
    """Semi-smooth Newton on the laws as a fixed point λ = proj(λ − σ/s); returns iterations and the best residual.

    Impulses that the laws say outright (no contact, dry friction at its bound) are set; the equations of the others,
    sticking or sliding, are linearised and solved together. Steps are taken in full: they change modes, and the
    residual may well rise before it falls. A little compliance, relative to each block's response, keeps the equations
    of redundant contacts solvable; it only shapes the step, as the residual is that of the rigid problem.
    """
    n = G.shape[0]
    error = residual(blocks, impulse, sigma)
    if error <= tolerance:
        return 0, error
    base, base_sigma, best, best_error = np.empty(n), np.empty(n), impulse.copy(), error
    rows, owner = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    jacobian, F = np.empty(n * n), np.empty(n)
    for iteration in range(iterations):
        m = _set_what_is_known(blocks, impulse, sigma, base, rows, owner)
        velocity(G, g, base, base_sigma)
        J = jacobian[: m * m].reshape(m, m)
        _equations(G, blocks, compliance, base, base_sigma, rows[:m], owner, F, J)
        if not solve_in_place(J, F[:m]):
            break
        impulse[:] = base
        for i in range(m):
            impulse[rows[i]] -= F[i]
        velocity(G, g, impulse, sigma)
        error = residual(blocks, impulse, sigma)
        if error <= tolerance:
            return iteration + 1, error
        if not math.isfinite(error):
            break
        if error < best_error:
            best_error = error
            best[:] = impulse
    impulse[:] = best
    velocity(G, g, impulse, sigma)
    return iterations, best_error


@numba.njit(cache=True, error_model="numpy")
def _set_what_is_known(
    blocks: Records, impulse: Array, sigma: Array, base: Array, rows: IntArray, owner: IntArray
) -> int:
    """Copy the impulses with those that break or are at their bound set; list the rows left to solve for."""
    m = 0
    for b in range(blocks.shape[0]):
        kind, a, bound = blocks[b].kind, blocks[b].start, blocks[b].bound
        probe = impulse[a] - sigma[a] / blocks[b].scale
        if kind == DRY and abs(probe) > bound:
            base[a] = math.copysign(bound, probe)
        elif kind in (CONTACT, LIMIT) and probe <= 0.0:
            for i in range(a, a + blocks[b].width):
                base[i] = 0.0
        else:
            for i in range(a, a + blocks[b].width):
                base[i] = impulse[i]
                rows[m], owner[m] = i, b
                m += 1
    return m


@numba.njit(cache=True, error_model="numpy")
def _equations(
    G: Array, blocks: Records, compliance: float, impulse: Array, sigma: Array, rows: IntArray, owner: IntArray,
    F: Array, J: Array,
) -> None:  # fmt: skip
    """What the open rows must satisfy, and its slope: σ = 0, or for a sliding contact the pull of its disc's rim."""
    m = rows.shape[0]
    for r in range(m):
        i, block = rows[r], blocks[owner[r]]
        s = block.scale
        F[r] = sigma[i]
        for c in range(m):
            J[r, c] = G[i, rows[c]]
        J[r, r] += compliance * s
        if block.kind != CONTACT or i != block.start + 2:
            continue
        # The contact's three rows are there now: see whether it slides.
        a, friction = i - 2, block.bound
        normal = max(impulse[a] - sigma[a] / s, 0.0)
        x, y = impulse[a + 1] - sigma[a + 1] / s, impulse[a + 2] - sigma[a + 2] / s
        length, radius = math.sqrt(x * x + y * y), friction * normal
        if length <= radius:
            continue
        ux, uy, ratio = x / length, y / length, radius / length
        F[r - 1], F[r] = s * (impulse[a + 1] - radius * ux), s * (impulse[a + 2] - radius * uy)
        # d(radius·u) = μ·u·d(normal) + ratio·(1 − u·uᵀ)·d(x, y), with d(x, y) = dλ_T − dσ_T/s
        xx, xy, yy = ratio * (1.0 - ux * ux), -ratio * ux * uy, ratio * (1.0 - uy * uy)
        for c in range(m):
            gn, gx, gy = G[a, rows[c]], G[a + 1, rows[c]], G[a + 2, rows[c]]
            J[r - 1, c] = friction * ux * gn + xx * gx + xy * gy
            J[r, c] = friction * uy * gn + xy * gx + yy * gy
        J[r - 1, r - 1] += s * (1.0 - xx)
        J[r - 1, r] -= s * xy
        J[r, r - 1] -= s * xy
        J[r, r] += s * (1.0 - yy)
        J[r - 1, r - 2] -= s * friction * ux
        J[r, r - 2] -= s * friction * uy


@numba.njit(cache=True, error_model="numpy")
def admm(
    G: Array, g: Array, blocks: Records, impulse: Array, sigma: Array, iterations: int, tolerance: float
) -> tuple[int, float]:  # fmt: skip
    """Alternating directions: a linear solve, then a projection on the cones; returns iterations and residual.

    σ is shifted by De Saxcé's Γ(σ) = μ|σ_T| of the last iterate, which makes the cones those of Coulomb's law.
    """
    n = G.shape[0]
    rho, step = 0.0, np.empty(n)
    for i in range(n):
        rho += G[i, i] / n
    rho = max(0.1 * rho, 1e-300)
    inverse = _shifted_inverse(G, rho)
    z, w, x, shift, right = impulse.copy(), np.zeros(n), np.empty(n), np.zeros(n), np.empty(n)
    best, best_error = impulse.copy(), residual(blocks, impulse, sigma)
    for iteration in range(iterations):
        for i in range(n):
            right[i] = rho * (z[i] - w[i]) - g[i] - shift[i]
        velocity(inverse, np.zeros(n), right, x)
        moved, apart = 0.0, 0.0
        for i in range(n):
            step[i] = z[i]
            z[i] = x[i] + w[i]
        for b in range(blocks.shape[0]):
            project_on_cone(blocks[b].kind, blocks[b].bound, z[blocks[b].start : blocks[b].start + blocks[b].width])
        for i in range(n):
            w[i] += x[i] - z[i]
            apart = max(apart, abs(x[i] - z[i]))
            moved = max(moved, abs(z[i] - step[i]))
        velocity(G, g, z, sigma)
        for b in range(blocks.shape[0]):
            if blocks[b].kind == CONTACT:
                a = blocks[b].start
                shift[a] = blocks[b].bound * math.sqrt(sigma[a + 1] ** 2 + sigma[a + 2] ** 2)
        error = residual(blocks, z, sigma)
        if error < best_error:
            best_error = error
            best[:] = z
        if error <= tolerance:
            break
        if iteration % 10 == 9 and (apart > 10.0 * moved or moved > 10.0 * apart):  # balance the two
            factor = 5.0 if apart > moved else 0.2
            rho *= factor
            inverse = _shifted_inverse(G, rho)
            for i in range(n):
                w[i] /= factor
    impulse[:] = best
    velocity(G, g, impulse, sigma)
    return iteration + 1, best_error


@numba.njit(cache=True, error_model="numpy")
def _shifted_inverse(G: Array, rho: float) -> Array:
    out = G.copy()
    for i in range(G.shape[0]):
        out[i, i] += rho
    gauss_jordan(out, 0.0)
    return out


@numba.njit(cache=True, error_model="numpy")
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
