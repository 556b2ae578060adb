"""Alternating directions method of multipliers, with De Saxcé's shift."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.linalg.generalized_inverse import gauss_jordan
from tangens.contact.rigid.problem.contact_problem import CONTACT, project_on_cone, residual, velocity
from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
Records = NDArray[np.void]


@subroutine
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


@inline
def _shifted_inverse(G: Array, rho: float) -> Array:
    out = G.copy()
    for i in range(G.shape[0]):
        out[i, i] += rho
    gauss_jordan(out, 0.0)
    return out
