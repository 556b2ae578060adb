"""The contact problem: impulses that obey Signorini's and Coulomb's laws, and who judges them.

    σ = G·λ + g,    K ∋ λ ⟂ σ + Γ(σ) ∈ K*                                          (paper 2, Eq. 1)

G is the Delassus matrix, g the free velocity, both in the constraints' own frames; nothing here knows of robots. A
constraint is a block of rows: a contact (normal first, then two tangents) has the second-order cone of its friction
coefficient, or in `lcp` a box; a limit is a half-line; dry joint friction an interval; an equality has no bound.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
Records = NDArray[np.void]

CONTACT, LIMIT, DRY, EQUALITY, BOX = range(5)
"""Kinds of blocks; a box is a contact whose friction is bounded along each of its two tangents by itself."""
BREAKING, STICKING, SLIDING = 0, 1, 2
"""Modes of a block: no impulse; impulse inside its bounds; impulse on its bound while moving."""
MODE_NAMES = ("breaking", "sticking", "sliding")

_IMMOBILE = 1e-18  # response of a normal that only rounding moves, relative to its tangents': the square of a velocity
_PARALLEL = 1.0 - 1e-9  # squared cosine of two rows that measure the same: 1, but for rounding

BLOCK = np.dtype(
    [
        ("kind", np.int64),
        ("start", np.int64),  # its rows
        ("width", np.int64),
        ("mode", np.int64),  # at the solution
        ("bound", np.float64),  # friction coefficient, or largest impulse of dry friction
        ("scale", np.float64),  # how fast it answers a unit impulse of its own
        ("source", np.int64),  # contact, or −1 − constraint
        ("sign", np.float64),
        ("value", np.float64),  # what is left of a gap or limit
        ("side", np.float64, 2),  # of a box: the bounds that its tangents are at, −1, 0 or 1
    ]
)


@inline
def velocity(G: Array, g: Array, impulse: Array, out: Array) -> None:
    """σ = G·λ + g."""
    n = g.shape[0]
    for i in range(n):
        total = g[i]
        for j in range(n):
            total += G[i, j] * impulse[j]
        out[i] = total


@inline
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
    elif kind == BOX:
        x[0] = max(x[0], 0.0)
        for i in range(1, 3):
            x[i] = min(max(x[i], -bound * x[0]), bound * x[0])
    elif kind == LIMIT:
        x[0] = max(x[0], 0.0)
    elif kind == DRY:
        x[0] = min(max(x[0], -bound), bound)


@inline
def project_on_cone(kind: int, bound: float, x: Array) -> None:
    """The point of the block's set that is nearest to x: for a contact, of its second-order cone."""
    if kind != CONTACT:
        for i in range(x.shape[0]):
            project(kind, bound, x[i : i + 1])
        return
    length = math.sqrt(x[1] * x[1] + x[2] * x[2])
    if length <= bound * x[0]:
        return
    if bound * length <= -x[0]:
        x[0], x[1], x[2] = 0.0, 0.0, 0.0
        return
    normal = (x[0] + bound * length) / (1.0 + bound * bound)
    x[0], x[1], x[2] = normal, bound * normal * x[1] / length, bound * normal * x[2] / length


@subroutine
def residual(blocks: Records, impulse: Array, sigma: Array) -> float:
    """Largest violation of the laws, as a velocity."""
    worst = 0.0
    x = np.empty(6)
    for b in range(blocks.shape[0]):
        a, width, scale = blocks[b].start, blocks[b].width, blocks[b].scale
        for i in range(width):
            x[i] = impulse[a + i] - sigma[a + i] / scale
        project(blocks[b].kind, blocks[b].bound, x)
        # λ − proj(λ − σ/s) is zero if and only if the block obeys its law, for any positive s
        for i in range(width):
            deviation = scale * abs(impulse[a + i] - x[i])
            if not deviation <= worst:  # so that NaN shows
                worst = deviation
    return worst


@subroutine
def classify(G: Array, blocks: Records, impulse: Array, sigma: Array, still: float) -> None:
    """The mode of each block at a solution (paper 2, Sec. 3.2).

    What moves no faster than `still`, the solver's error, does not slide, even if its impulse is on its bound:
    redundant contacts may press friction against friction. A contact along whose normal nothing can move bears no load:
    any would do, and the least is none.
    """
    for b in range(blocks.shape[0]):
        block = blocks[b]
        kind, a, s = block.kind, block.start, block.scale
        if kind == EQUALITY:
            block.mode = STICKING
        elif kind == DRY:
            slides = abs(impulse[a] - sigma[a] / s) > block.bound and abs(sigma[a]) > still
            block.mode = SLIDING if slides else STICKING
        elif impulse[a] - sigma[a] / s <= 0.0 or G[a, a] <= _IMMOBILE * s:
            block.mode = BREAKING
        elif kind == LIMIT:
            block.mode = STICKING
        elif kind == BOX:
            block.mode = STICKING
            for i in range(2):
                probe, high = impulse[a + 1 + i] - sigma[a + 1 + i] / s, block.bound * impulse[a]
                slides = block.bound == 0.0 or (abs(probe) > high and abs(sigma[a + 1 + i]) > still)
                block.side[i] = math.copysign(1.0, probe) if slides else 0.0
                if slides:
                    block.mode = SLIDING
        else:
            x, y = impulse[a + 1] - sigma[a + 1] / s, impulse[a + 2] - sigma[a + 2] / s
            # without friction nothing ever sticks, even where nothing moves
            moves = math.sqrt(sigma[a + 1] ** 2 + sigma[a + 2] ** 2) > still
            slides = block.bound == 0.0 or (moves and math.sqrt(x * x + y * y) > block.bound * impulse[a])
            block.mode = SLIDING if slides else STICKING


@subroutine
def yield_to_limits(G: Array, blocks: Records) -> None:
    """Dry friction that holds what a limit or an equality holds as well has no say: it slides, at a constant force.

    Both rows have no velocity, and how they share the load is open; but whoever moves the limit moves the joint.
    """
    for b in range(blocks.shape[0]):
        if blocks[b].kind != DRY or blocks[b].mode != STICKING:
            continue
        i = blocks[b].start
        for c in range(blocks.shape[0]):
            if (blocks[c].kind == LIMIT or blocks[c].kind == EQUALITY) and blocks[c].mode == STICKING:
                for j in range(blocks[c].start, blocks[c].start + blocks[c].width):
                    if G[i, j] ** 2 >= _PARALLEL * G[i, i] * G[j, j]:
                        blocks[b].mode = SLIDING


@subroutine
def violations(blocks: Records, impulse: Array, sigma: Array) -> tuple[float, float, float]:
    """How far the worst block is from each law by itself.

    Signorini: the smaller of normal velocity and normal impulse (as the velocity it makes) [m/s]. Cone: impulse beyond
    the friction cone or its bound [N·s]. Dissipation: what the friction impulse fails to take out of the motion [J].
    """
    signorini, cone, dissipation = 0.0, 0.0, 0.0
    for b in range(blocks.shape[0]):
        kind, a, bound = blocks[b].kind, blocks[b].start, blocks[b].bound
        if kind in (CONTACT, BOX, LIMIT):
            signorini = max(signorini, abs(min(blocks[b].scale * impulse[a], sigma[a])))
        if kind == CONTACT:
            radius = bound * impulse[a]
            x, y, u, v = impulse[a + 1], impulse[a + 2], sigma[a + 1], sigma[a + 2]
            cone = max(cone, math.sqrt(x * x + y * y) - radius)
            dissipation = max(dissipation, abs(x * u + y * v + radius * math.sqrt(u * u + v * v)))
        elif kind == BOX:
            radius = bound * impulse[a]
            for i in range(a + 1, a + 3):
                cone = max(cone, abs(impulse[i]) - radius)
                dissipation = max(dissipation, abs(impulse[i] * sigma[i] + radius * abs(sigma[i])))
        elif kind == DRY:
            cone = max(cone, abs(impulse[a]) - bound)
            dissipation = max(dissipation, abs(impulse[a] * sigma[a] + bound * abs(sigma[a])))
        elif kind == EQUALITY:
            for i in range(a, a + blocks[b].width):
                signorini = max(signorini, abs(sigma[i]))
    return signorini, cone, dissipation
