"""An interior-point method for hard contact problems, redundant ones above all.

With De Saxcé's shift, Coulomb's law is a complementarity of second-order cones. In units in which they are their own
duals (x = impulses, z = velocities, normal parts divided by the friction coefficient),

    z = H·x + h + |z_T|·e        x, z in the cone        x ∘ z = τ·e

where ∘ is Jordan's product and e the cone's axis. Newton's method follows τ to zero, with Mehrotra's predictor and
corrector; the shift is linearised like the rest, and held for a while where that leads to short steps, as the path may
fold: with it held, the problem is convex. All contacts take part all along, none has to be guessed open, sticking
or sliding, so that it does not matter how many of them are redundant. The last digits are left to semi-smooth Newton
steps, or to `proximal` ones. A limit is a cone of one dimension, dry friction an interval, an equality has neither.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.linalg.elimination import factor, solve_factored
from tangens.contact.rigid.problem.contact_problem import CONTACT, DRY, EQUALITY, LIMIT, residual, velocity
from tangens.contact.rigid.solvers.newton import newton
from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
Pivots = NDArray[np.int32]
Records = NDArray[np.void]

# Tuned on random stacks, walls, heaps and mass ratios, others than those of tests/contact/rigid/test_hyperstatic.py.
_START = 10.0  # where impulses and velocities begin, relative to the largest velocity
_BLUNT = 1e-3  # of √τ: where |z_T| is rounded off
_CENTRE = 1e-4  # the least share of τ that a step aims at
_NEAR = 0.03  # the share of velocities at which Newton's method is tried first
_FINISH, _FINISHING = 0.1, 4  # how far the residual has to fall before it is tried again; its iterations
_COMPLIANCE = 1e-8  # of Newton's equations
_SHORT, _HOLD = 0.3, 4  # after a step as short as this, the shift is held for so many iterations
_STUCK = 1e-6  # the shortest step


@subroutine
def interior_point(
    G: Array, g: Array, blocks: Records, impulse: Array, sigma: Array, iterations: int, tolerance: float
) -> tuple[int, float]:  # fmt: skip
    """Leave the best impulses found, from nothing; returns iterations and residual.

    One iteration is one linearisation, factored once, here and in Newton's method.
    """
    n = g.shape[0]
    f = _units(G, blocks)
    H, h = np.empty((n, n)), f * g
    for i in range(n):
        for j in range(n):
            H[i, j] = f[i] * G[i, j] * f[j]
    size = _START * max(np.abs(h).max(), 1e-300)
    numbers = np.zeros((12, n))
    x, z, other, u, r, rc, rc_other = numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6]
    dx, dz, d_other, best, trial = numbers[7], numbers[8], numbers[9], numbers[10], numbers[11]
    degree, K, pivots = _start(blocks, size, x, z, other), np.empty((n, n)), np.empty(n, dtype=np.int32)
    best_error, tried, total, held_until = np.inf, _NEAR * np.abs(g).max() / _FINISH, 0, 0
    for iteration in range(iterations):
        for i in range(n):
            impulse[i] = f[i] * x[i]
        velocity(G, g, impulse, sigma)
        error = residual(blocks, impulse, sigma)
        if not math.isfinite(error):
            break
        if error < best_error:
            best_error = error
            best[:] = impulse
        if error <= tolerance or total >= iterations:
            break
        if error < _FINISH * tried:
            tried = error
            trial[:] = impulse
            taken, found = newton(G, g, blocks, trial, sigma, _FINISHING, tolerance, _COMPLIANCE, False)
            total += taken
            if found < best_error:
                best_error = found
                best[:] = trial
            if found <= tolerance:
                break
        tau = _gap(blocks, f, x, z, other) / degree
        velocity(H, h, x, r)
        _set_slack(blocks, tau, z, other, u, r)
        if iteration < held_until:
            u[:] = 0.0
        _set_equations(H, blocks, f, x, z, other, u, K)
        if not factor(K, pivots):
            break
        _aim(blocks, f, 0.0, x, z, other, dx, dz, d_other, False, rc, rc_other)
        _set_direction(K, pivots, H, blocks, f, x, z, other, u, r, rc, rc_other, dx, dz, d_other)
        length = min(1.0, 0.999 * _longest(blocks, f, x, z, other, dx, dz, d_other))
        ahead = _gap_ahead(blocks, f, x, z, other, dx, dz, d_other, length) / degree
        centre = max(min(max(ahead / tau, 0.0), 1.0) ** 3, _CENTRE)
        _aim(blocks, f, centre * tau, x, z, other, dx, dz, d_other, True, rc, rc_other)
        _set_direction(K, pivots, H, blocks, f, x, z, other, u, r, rc, rc_other, dx, dz, d_other)
        margin = 0.9 if length < 0.9 else 0.99
        length = min(1.0, margin * _longest(blocks, f, x, z, other, dx, dz, d_other))
        total += 1
        if not length > _STUCK:
            break
        if length < _SHORT and iteration >= held_until:
            held_until = iteration + 1 + _HOLD
        for i in range(n):
            x[i] += length * dx[i]
            z[i] += length * dz[i]
            other[i] += length * d_other[i]
    impulse[:] = best
    velocity(G, g, impulse, sigma)
    return total, best_error


@inline
def _is_cone(block: object) -> bool:
    return block.kind == CONTACT and block.bound > 0.0  # type: ignore[attr-defined]


@inline
def _is_half_line(block: object) -> bool:
    return block.kind == LIMIT or (block.kind == CONTACT and block.bound == 0.0)  # type: ignore[attr-defined]


@inline
def _units(G: Array, blocks: Records) -> Array:
    """What impulses are multiples of: in these units a block answers with about 1, and a cone is its own dual."""
    f = np.empty(G.shape[0])
    for b in range(blocks.shape[0]):
        block = blocks[b]
        for i in range(block.start, block.start + block.width):
            f[i] = 1.0 / math.sqrt(block.scale)
        if _is_cone(block):
            f[block.start] /= block.bound
    return f


@inline
def _start(blocks: Records, size: float, x: Array, z: Array, other: Array) -> float:
    """Set impulses and velocities in the middle of their sets; returns how many conditions of complementarity."""
    degree = 1e-300
    for b in range(blocks.shape[0]):
        block, a = blocks[b], blocks[b].start
        if block.kind in (CONTACT, LIMIT):
            x[a], z[a], degree = size, size, degree + 1.0
        elif block.kind == DRY:
            z[a], other[a], degree = size, size, degree + 2.0
    return degree


@inline
def _gap_ahead(
    blocks: Records, f: Array, x: Array, z: Array, other: Array, dx: Array, dz: Array, d_other: Array, length: float
) -> float:  # fmt: skip
    """Σ x·z after a step."""
    total = 0.0
    for b in range(blocks.shape[0]):
        block, a = blocks[b], blocks[b].start
        if block.kind == DRY:
            bound, at = block.bound / f[a], x[a] + length * dx[a]
            total += (bound - at) * (z[a] + length * dz[a]) + (bound + at) * (other[a] + length * d_other[a])
        elif block.kind != EQUALITY:
            for i in range(a, a + (3 if _is_cone(block) else 1)):
                total += (x[i] + length * dx[i]) * (z[i] + length * dz[i])
    return total


@inline
def _gap(blocks: Records, f: Array, x: Array, z: Array, other: Array) -> float:
    """Σ x·z."""
    return _gap_ahead(blocks, f, x, z, other, x, z, other, 0.0)


@subroutine
def _set_slack(blocks: Records, tau: float, z: Array, other: Array, u: Array, r: Array) -> None:
    """From r = H·x + h to how far z is from obeying it, De Saxcé's shift included; and the shift's slope u."""
    for b in range(blocks.shape[0]):
        block, a = blocks[b], blocks[b].start
        if _is_cone(block):
            length = math.sqrt(z[a + 1] ** 2 + z[a + 2] ** 2 + _BLUNT**2 * tau)
            u[a + 1], u[a + 2] = z[a + 1] / length, z[a + 2] / length
            r[a] += u[a + 1] * z[a + 1] + u[a + 2] * z[a + 2] - z[a]
            r[a + 1] -= z[a + 1]
            r[a + 2] -= z[a + 2]
        elif _is_half_line(block):
            r[a] -= z[a]
        elif block.kind == DRY:
            r[a] -= other[a] - z[a]


@subroutine
def _set_equations(
    H: Array, blocks: Records, f: Array, x: Array, z: Array, other: Array, u: Array, K: Array
) -> None:  # fmt: skip
    """K becomes the matrix of the linearised laws in dx."""
    n, B = H.shape[0], np.empty((3, 3))
    K[:] = 0.0
    for b in range(blocks.shape[0]):
        block, a = blocks[b], blocks[b].start
        if _is_cone(block):
            _cone_product(x, u, a, B)
            for i in range(3):
                for j in range(n):
                    K[a + i, j] = B[i, 0] * H[a, j] + B[i, 1] * H[a + 1, j] + B[i, 2] * H[a + 2, j]
                K[a + i, a + i] += z[a]
            for i in range(1, 3):
                K[a, a + i] += z[a + i]
                K[a + i, a] += z[a + i]
        elif _is_half_line(block):
            for j in range(n):
                K[a, j] = x[a] * H[a, j]
            K[a, a] += z[a]
            for i in range(a + 1, a + block.width):
                K[i, i] = 1.0  # without friction, the tangents bear nothing
        else:
            for i in range(a, a + block.width):
                for j in range(n):
                    K[i, j] = H[i, j]
                K[i, i] += _COMPLIANCE**2
            if block.kind == DRY:
                bound = block.bound / f[a]
                K[a, a] += other[a] / (bound + x[a]) + z[a] / (bound - x[a])


@inline
def _cone_product(x: Array, u: Array, a: int, B: Array) -> None:
    """Jordan's product with x, after the shift: Arw(x)·(1 + e·uᵀ)."""
    B[0, 0], B[0, 1], B[0, 2] = x[a], x[a + 1] + x[a] * u[a + 1], x[a + 2] + x[a] * u[a + 2]
    for i in range(1, 3):
        B[i, 0] = x[a + i]
        for j in range(1, 3):
            B[i, j] = (x[a] if i == j else 0.0) + x[a + i] * u[a + j]


@subroutine
def _aim(
    blocks: Records, f: Array, tau: float, x: Array, z: Array, other: Array, dx: Array, dz: Array, d_other: Array,
    corrected: bool, rc: Array, rc_other: Array,
) -> None:  # fmt: skip
    """What products of impulses and velocities still lack, for a τ; corrected by what the last direction made of it."""
    c = 1.0 if corrected else 0.0
    for b in range(blocks.shape[0]):
        block, a = blocks[b], blocks[b].start
        if _is_cone(block):
            rc[a] = tau
            for i in range(a, a + 3):
                rc[a] -= x[i] * z[i] + c * dx[i] * dz[i]
            for i in range(a + 1, a + 3):
                rc[i] = -(x[a] * z[i] + z[a] * x[i]) - c * (dx[a] * dz[i] + dz[a] * dx[i])
        elif _is_half_line(block):
            rc[a] = tau - x[a] * z[a] - c * dx[a] * dz[a]
        elif block.kind == DRY:
            bound = block.bound / f[a]
            rc[a] = tau - (bound - x[a]) * z[a] + c * dx[a] * dz[a]
            rc_other[a] = tau - (bound + x[a]) * other[a] - c * dx[a] * d_other[a]


@subroutine
def _set_direction(
    K: Array, pivots: Pivots, H: Array, blocks: Records, f: Array, x: Array, z: Array, other: Array, u: Array,
    r: Array, rc: Array, rc_other: Array, dx: Array, dz: Array, d_other: Array,
) -> None:  # fmt: skip
    """Solve for a direction with the factors of K."""
    n = H.shape[0]
    B, right = np.empty((3, 3)), np.zeros(n)
    for b in range(blocks.shape[0]):
        block, a = blocks[b], blocks[b].start
        if _is_cone(block):
            _cone_product(x, u, a, B)
            for i in range(3):
                right[a + i] = rc[a + i] - B[i, 0] * r[a] - B[i, 1] * r[a + 1] - B[i, 2] * r[a + 2]
        elif _is_half_line(block):
            right[a] = rc[a] - x[a] * r[a]
        elif block.kind == DRY:
            bound = block.bound / f[a]
            right[a] = rc_other[a] / (bound + x[a]) - rc[a] / (bound - x[a]) - r[a]
        else:
            for i in range(a, a + block.width):
                right[i] = -r[i]
    solve_factored(K, pivots, right)
    dx[:] = right
    velocity(H, r, dx, dz)
    for b in range(blocks.shape[0]):
        block, a = blocks[b], blocks[b].start
        if _is_cone(block):
            dz[a] += u[a + 1] * dz[a + 1] + u[a + 2] * dz[a + 2]
        elif block.kind == DRY:
            bound = block.bound / f[a]
            dz[a] = (rc[a] + z[a] * dx[a]) / (bound - x[a])
            d_other[a] = (rc_other[a] - other[a] * dx[a]) / (bound + x[a])
        elif block.kind == EQUALITY:
            dz[a : a + block.width] = 0.0


@subroutine
def _longest(
    blocks: Records, f: Array, x: Array, z: Array, other: Array, dx: Array, dz: Array, d_other: Array
) -> float:  # fmt: skip
    """How far a direction may be followed until something leaves its set."""
    longest = 1e300
    for b in range(blocks.shape[0]):
        block, a = blocks[b], blocks[b].start
        if _is_cone(block):
            longest = min(longest, _to_cone(x[a : a + 3], dx[a : a + 3]), _to_cone(z[a : a + 3], dz[a : a + 3]))
        elif _is_half_line(block):
            longest = min(longest, _to_zero(x[a], dx[a]), _to_zero(z[a], dz[a]))
        elif block.kind == DRY:
            bound = block.bound / f[a]
            longest = min(longest, _to_zero(bound - x[a], -dx[a]), _to_zero(bound + x[a], dx[a]))
            longest = min(longest, _to_zero(z[a], dz[a]), _to_zero(other[a], d_other[a]))
    return longest


@inline
def _to_zero(x: float, d: float) -> float:
    return -x / d if d < 0.0 else 1e300


@inline
def _to_cone(x: Array, d: Array) -> float:
    """The smallest positive root of |x + a·d|² = 0 in Minkowski's sense."""
    a = d[0] * d[0] - d[1] * d[1] - d[2] * d[2]
    b = x[0] * d[0] - x[1] * d[1] - x[2] * d[2]
    c = x[0] * x[0] - x[1] * x[1] - x[2] * x[2]
    out, inside = _to_zero(x[0], d[0]), b * b - a * c
    if inside >= 0.0:
        q = -(b + math.copysign(math.sqrt(inside), b))
        for root in (c / q if q != 0.0 else -1.0, q / a if a != 0.0 else -1.0):
            if root > 0.0:
                out = min(out, root)
    return out
