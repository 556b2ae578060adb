"""The contact problem: impulses that obey Signorini's and Coulomb's laws, and who judges them.

    σ = G·λ + g,    K ∋ λ ⟂ σ + Γ(σ) ∈ K*                                          (paper 2, Eq. 1)

G is the Delassus matrix, g the free velocity, both in the constraints' own frames; nothing here knows of robots. A
constraint is a block of rows: a contact (normal first, then two tangents) has the second-order cone of its friction
coefficient; a limit is a half-line; dry joint friction an interval; an equality has no bound.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

CONTACT, LIMIT, DRY, EQUALITY = 0, 1, 2, 3
"""Kinds of blocks."""
BREAKING, STICKING, SLIDING = 0, 1, 2
"""Modes of a block: no impulse; impulse inside its bounds; impulse on its bound while moving."""
MODE_NAMES = ("breaking", "sticking", "sliding")


@numba.njit(cache=True)
def velocity(G: Array, g: Array, impulse: Array, out: Array) -> None:
    """σ = G·λ + g."""
    n = g.shape[0]
    for i in range(n):
        total = g[i]
        for j in range(n):
            total += G[i, j] * impulse[j]
        out[i] = total


@numba.njit(cache=True)
def project(kind: int, bound: float, x: Array) -> None:
    """Clip a block of impulses to what its bound allows once the normal part is known.

    For a contact, x[0] goes to the half-line and the tangential part to the disc of radius bound·x[0].
    """
    if kind == CONTACT:
        x[0] = max(x[0], 0.0)
        radius, length = bound * x[0], math.sqrt(x[1] * x[1] + x[2] * x[2])
        if length > radius:
            scale = radius / length if length > 0.0 else 0.0
            x[1] *= scale
            x[2] *= scale
    elif kind == LIMIT:
        x[0] = max(x[0], 0.0)
    elif kind == DRY:
        x[0] = min(max(x[0], -bound), bound)


@numba.njit(cache=True)
def _deviation(kind: int, bound: float, s: float, impulse: Array, sigma: Array, out: Array) -> None:
    """Fill out with λ − proj(λ − σ/s) of one block: zero if and only if it obeys its law, for any positive s."""
    width = impulse.shape[0]
    for i in range(width):
        out[i] = impulse[i] - sigma[i] / s
    project(kind, bound, out)
    for i in range(width):
        out[i] = impulse[i] - out[i]


@numba.njit(cache=True)
def residual(kind: IntArray, start: IntArray, bound: Array, scale: Array, impulse: Array, sigma: Array) -> float:
    """Largest violation of the laws, as a velocity; `scale` is each block's own response s to an impulse."""
    worst = 0.0
    x = np.empty(3)
    for b in range(kind.shape[0]):
        a, z = start[b], start[b + 1]
        _deviation(kind[b], bound[b], scale[b], impulse[a:z], sigma[a:z], x)
        for i in range(z - a):
            worst = max(worst, scale[b] * abs(x[i]))
    return worst


@numba.njit(cache=True)
def merit(kind: IntArray, start: IntArray, bound: Array, scale: Array, impulse: Array, sigma: Array) -> float:
    """The violation as an energy, over all blocks: what a Newton step must reduce.

    The largest violation alone, which decides convergence, would forbid steps that trade one block for another.
    """
    total = 0.0
    x = np.empty(3)
    for b in range(kind.shape[0]):
        a, z = start[b], start[b + 1]
        _deviation(kind[b], bound[b], scale[b], impulse[a:z], sigma[a:z], x)
        for i in range(z - a):
            total += scale[b] * x[i] * x[i]
    return total


@numba.njit(cache=True)
def classify(
    kind: IntArray, start: IntArray, bound: Array, scale: Array, impulse: Array, sigma: Array, mode: IntArray
) -> None:
    """The mode of each block at a solution (paper 2, Sec. 3.2)."""
    for b in range(kind.shape[0]):
        a, s = start[b], scale[b]
        if kind[b] == EQUALITY:
            mode[b] = STICKING
        elif kind[b] == DRY:
            mode[b] = SLIDING if abs(impulse[a] - sigma[a] / s) > bound[b] else STICKING
        elif impulse[a] - sigma[a] / s <= 0.0:
            mode[b] = BREAKING
        elif kind[b] == LIMIT:
            mode[b] = STICKING
        else:
            x, y = impulse[a + 1] - sigma[a + 1] / s, impulse[a + 2] - sigma[a + 2] / s
            mode[b] = SLIDING if math.sqrt(x * x + y * y) > bound[b] * impulse[a] else STICKING
