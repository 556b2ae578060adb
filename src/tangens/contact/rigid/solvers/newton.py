"""Semi-smooth Newton: solves the equations of the modes that an iterate is in, to the last digits."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.linalg.elimination import solve_in_place
from tangens.contact.rigid.problem.contact_problem import CONTACT, DRY, LIMIT, residual, velocity
from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]


@subroutine
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


@inline
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


@subroutine
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
