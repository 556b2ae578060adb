"""Superquadrics fitted to a signed distance, by robust least squares: one alone, or many together as a union.

Residuals are φ(x) − φ_mesh(x), both cut off at ±t, so that what is far from the surface only has to be on its right
side. Their derivatives by the eleven numbers of each superquadric come from JAX, steps from Levenberg and Marquardt.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tangens.dynamics.tangent_jax import exp_matrix
from tangens.geometry.superquadrics import Superquadrics, first_order_distance

Array = NDArray[np.float64]

_LOW, _HIGH = 0.1, 1.4
"""Of the exponents ε: boxes have 0, octahedra 2. Beyond 1.4, needles come out of the ends, too thin to be seen."""
_GROUP = 5
"""Superquadrics are padded to multiples of this many, so that few sizes are compiled."""
_FAR = 1e6


class Parameters(NamedTuple):
    """n superquadrics, as the fit moves them."""

    axes: Array
    """(n, 3) [m]."""
    exponents: Array
    """(n, 2)."""
    position: Array
    """(n, 3) [m]."""
    rotation: Array
    """(n, 3, 3)."""

    def take(self, which: Any) -> Parameters:
        """Some of them."""
        return Parameters(*(x[which] for x in self))

    def join(self, other: Parameters) -> Parameters:
        """These, then others."""
        return Parameters(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))

    def corners(self, around: int = 12) -> list[Array]:
        """Points on each one's surface, evenly in its own angles [m], (n, 3)."""
        up, turn = np.linspace(-np.pi / 2, np.pi / 2, around // 2 + 1), np.linspace(0, 2 * np.pi, around + 1)[:-1]
        eta, omega = np.meshgrid(up, turn)
        out = []
        for axes, (e1, e2), position, rotation in zip(*self, strict=True):
            flat = _power(np.cos(eta), e1)
            sides = flat * _power(np.cos(omega), e2), flat * _power(np.sin(omega), e2)
            x = np.stack([*sides, _power(np.sin(eta), e1)], -1).reshape(-1, 3)
            out.append(np.unique(np.round(x, 9), axis=0) * axes @ rotation.T + position)
        return out

    def along_axes(self, shares: tuple[float, ...]) -> Array:
        """Points on all half axes, at these shares of their length [m], (6 n len(shares), 3)."""
        ways = np.swapaxes(self.rotation * self.axes[:, None, :], 1, 2)  # (n, 3, 3): one half axis a row
        ends = np.concatenate([s * sign * ways for s in shares for sign in (-1, 1)], 1)
        return (self.position[:, None, :] + ends).reshape(-1, 3)

    def field(self) -> Superquadrics:
        """Their smooth union."""
        with jax.enable_x64(True):
            return Superquadrics(*(jnp.asarray(x) for x in self))


def _power(x: Array, exponent: float) -> Array:
    return np.sign(x) * np.where(np.abs(x) < 1e-12, 0.0, np.abs(x)) ** exponent  # small powers blow rounding up


def moved(p: Parameters, step: Array) -> Parameters:
    """The superquadrics after a step (n, 11): logarithms of axes, exponents, rotation, position over size."""
    size = np.cbrt(p.axes.prod(1))[:, None]
    axes = p.axes * np.exp(np.clip(step[:, :3], -0.5, 0.5))
    share = np.clip((p.exponents - _LOW) / (_HIGH - _LOW), 1e-3, 1 - 1e-3)
    logit = np.log(share / (1 - share)) + np.clip(step[:, 3:5], -1, 1)
    turn = p.rotation @ np.asarray(_turns()(step[:, 5:8]))
    return Parameters(
        axes, _LOW + (_HIGH - _LOW) / (1 + np.exp(-logit)), p.position + size * np.clip(step[:, 8:], -0.5, 0.5), turn
    )


@cache
def _turns() -> Any:
    return jax.jit(jax.vmap(exp_matrix))


@cache
def _slopes() -> Any:
    """Derivatives of each point's distance from a superquadric of its own, by a step of that, (N, 11)."""

    def one(p: Any, x: Any) -> Any:
        axes, exponents, position, rotation = p
        size = jnp.cbrt(jnp.prod(axes))
        share = (exponents - _LOW) / (_HIGH - _LOW)
        slope = (_HIGH - _LOW) * share * (1 - share)  # dε by its logit

        def after(step: Any) -> Any:
            local = rotation.T @ (x - position - size * step[8:])
            local = local - jnp.cross(step[5:8], local)  # exp(−ω×) to first order
            return first_order_distance(axes * jnp.exp(step[:3]), exponents + slope * step[3:5], local)[0]

        return jax.jacfwd(after)(jnp.zeros(11, x.dtype))

    return jax.jit(jax.vmap(one))


@cache
def _plain_distances() -> Any:
    def one(p: Any, x: Any) -> Any:
        return first_order_distance(p[0], p[1], p[3].T @ (x - p[2]))[0]

    return jax.jit(jax.vmap(jax.vmap(one, (0, None)), (None, 0)))


def distances(p: Parameters, x: Array, at_once: int = 8192) -> Array:
    """Of points from each superquadric [m], (N, n)."""
    with jax.enable_x64(True):
        run, blocks = _plain_distances(), []
        for first in range(0, len(x), at_once):
            block = x[first : first + at_once]
            full = np.concatenate([block, np.zeros((at_once - len(block), 3))])
            blocks.append(np.asarray(run(_padded(p), full))[: len(block), : len(p.axes)])
        return np.concatenate(blocks)


def _padded(p: Parameters) -> Parameters:
    more = -len(p.axes) % (_GROUP if len(p.axes) > 1 else 1)
    return p if not more else p.join(p.take(np.zeros(more, int)))


class Targets(NamedTuple):
    """What a fit should reach."""

    points: Array
    """(N, 3) [m]."""
    distance: Array
    """Signed distances there [m], (N,)."""
    weight: Array
    """(N,)."""
    cut: float
    """t: distances are cut off here [m]."""


def fit_one(start: Parameters, to: Targets, iterations: int = 40) -> tuple[Parameters, float]:
    """One superquadric on that part of a solid which it can cover: the rest of the solid counts as an outlier.

    Points outside the solid are never outliers: nothing may stand out. Returns the cost as well.
    """

    def weights(residual: Array, distance: Array) -> Array:
        missing = (to.distance <= 0) & (distance > 0)  # a part of the solid that another superquadric may cover
        robust = 1 / (1 + (residual / (0.5 * to.cut)) ** 2) ** 2
        return to.weight * np.where(missing, robust, 1.0)

    return _levenberg(start, to, weights, iterations)


def refine(start: Parameters, to: Targets, iterations: int = 30) -> tuple[Parameters, float]:
    """All superquadrics together: their union has to have the distances wanted."""

    def weights(residual: Array, distance: Array) -> Array:
        del distance
        return to.weight / np.sqrt(1 + (residual / (0.2 * to.cut)) ** 2)  # towards a mean, away from a mean square

    return _levenberg(start, to, weights, iterations)


def _levenberg(p: Parameters, to: Targets, weights: Any, iterations: int) -> tuple[Parameters, float]:
    """Each point moves the superquadric that is nearest to it: the normal equations are one block for each."""
    damping, wanted = 1e-2, np.clip(to.distance, -to.cut, to.cut)

    def look(p: Parameters) -> tuple[Array, Array, Any]:
        """Residuals, uncut distances, and whose they are."""
        d = distances(p, to.points, len(to.points))
        nearest = d.argmin(1)
        union = d[np.arange(len(d)), nearest]
        return np.clip(union, -to.cut, to.cut) - wanted, union, nearest

    residual, union, nearest = look(p)
    w = weights(residual, union)
    cost = float(w @ residual**2)
    for _ in range(iterations):
        with jax.enable_x64(True):
            J = np.asarray(_slopes()(p.take(nearest), to.points)) * (np.abs(union) < to.cut)[:, None]
        step = _blocks(J, w, residual, nearest, len(p.axes), damping)
        while damping < 1e6:
            trial = moved(p, step)
            residual2, union2, nearest2 = look(trial)
            cost2 = float(w @ residual2**2)
            if cost2 < cost:
                break
            damping *= 5
            step = _blocks(J, w, residual, nearest, len(p.axes), damping)
        else:
            break
        done = cost - cost2 < 1e-4 * cost
        p, residual, union, nearest = trial, residual2, union2, nearest2
        damping = max(damping / 4, 1e-7)
        w = weights(residual, union)
        cost = float(w @ residual**2)
        if done:
            break
    return p, cost / max(float(to.weight.sum()), 1e-300)


def _blocks(J: Array, w: Array, residual: Array, nearest: Any, count: int, damping: float) -> Array:
    """Steps (n, 11) of damped normal equations."""
    steps = np.zeros((count, 11))
    for k in range(count):
        own = nearest == k
        H, g = J[own].T @ (w[own, None] * J[own]), J[own].T @ (w[own] * residual[own])
        scale = np.diag(H) + 1e-3 * np.trace(H) / 11 + 1e-300
        steps[k] = -np.linalg.solve(H + damping * np.diag(scale), g)
    return steps
