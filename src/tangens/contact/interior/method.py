"""A primal-dual interior-point method: Mehrotra's predictor and corrector, down to a relaxation ρ.

Each iteration factors one matrix and solves twice with it. The first direction aims at ρ itself; how far it gets
before a positive variable turns negative decides how ambitious the second one is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import lu_factor

from tangens.collision.central_path import (
    centring_target,
    largest_step,
    second_order_term,
    step_in_neighbourhood,
)
from tangens.contact.interior import cones
from tangens.contact.interior.directions import direction
from tangens.contact.interior.equations import (
    Iterate,
    LimitUnknowns,
    Problem,
    StepProducts,
    StepResidual,
    step_products,
)
from tangens.contact.interior.newton import System, assemble
from tangens.contact.interior.pair import Products, Unknowns, friction_cones
from tangens.dynamics.smooth import SmoothDynamics

Array = jax.Array

_FRACTION = 0.99
"""Of the way to the boundary."""
_PATIENCE = 50
"""Iterations, after which the method starts anew: steps take 7 to 14 on average (Fig. 9), so it has jammed."""
_RESERVE = 20
"""Iterations that there must be for a new start to make sense, and ..."""
_FAR = 100.0
"""... how far the residual must be from ρ: what is nearer is about to converge."""
_LESS, _MORE = 0.1, 5.0
"""Slacks and forces of the next guess, over those of the one before."""


class Outcome(NamedTuple):
    """Where the method ended."""

    x: Iterate
    system: System
    iterations: Array
    residual: Array
    """The worst of the equations: forces relative to the largest one, but at least to 1 N; gaps [m]; speeds [m/s]."""
    complementarity: Array
    """The worst distance of a product from ρ."""
    converged: Array


def solve(
    dynamics: SmoothDynamics,
    problem: Problem,
    guess: Iterate,
    most: Array,
    tolerance: Array,
    detection: Callable[[Problem, Iterate], Iterate] | None = None,
) -> Outcome:
    """Solve a step's equations from a guess, to `tolerance` times ρ.

    `detection` solves the growth problems of an iterate to the end: then they are not part of the method, and it is the
    bilevel one.
    """
    counts_rows, enough = detection is None, tolerance * problem.relaxation

    def look(x: Iterate) -> Outcome:
        x = x if detection is None else detection(problem, x)
        system, x = assemble(dynamics, problem, x)
        residual, product = _worst_equation(problem, x, system.residual), _worst_product(problem, x, counts_rows)
        converged = (residual <= enough) & (product <= enough)
        return Outcome(x, system, jnp.zeros((), jnp.int32), residual, product, converged)

    def goes_on(carry: tuple[Iterate, Outcome, Array]) -> Array:
        _, here, k = carry
        return (k <= most) & ~here.converged

    def iterate(carry: tuple[Iterate, Outcome, Array]) -> tuple[Iterate, Outcome, Array]:
        x, _, k = carry
        here = look(x)
        x = jax.lax.cond(here.converged, lambda: here.x, lambda: _advance(problem, here.x, here.system, counts_rows))
        tries, rest = jnp.divmod(k + 1, _PATIENCE)
        far = jnp.maximum(here.residual, here.complementarity) > _FAR * problem.relaxation
        anew = (rest == 0) & (k < most - _RESERVE) & far
        x = jax.tree.map(lambda on, other: jnp.where(anew, other, on), x, _another(guess, tries))
        return x, here._replace(iterations=k), k + 1

    # To look at the guess inside the loop, too, compiles in two thirds of the time.
    nowhere = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(look, guess))
    return jax.lax.while_loop(goes_on, iterate, (guess, nowhere, jnp.zeros((), jnp.int32)))[1]


def _advance(problem: Problem, x: Iterate, system: System, counts_rows: bool) -> Iterate:
    """One iteration."""
    rho, factor = problem.relaxation, lu_factor(system.matrix)
    now = step_products(x, x)
    mean = _mean(x, counts_rows)

    def towards(value: Array, less: StepProducts | None = None) -> Iterate:
        wanted = _neutral(problem, x, value, counts_rows)
        change = jax.tree.map(jnp.subtract, wanted, now)
        change = change if less is None else jax.tree.map(jnp.subtract, change, less)
        return direction(problem, x, system, factor, system.residual, change)

    first = towards(rho)
    reach = jnp.minimum(1.0, _largest_step(x, first, counts_rows))
    after = _mean(_moved(x, first, reach), counts_rows)
    target = centring_target(mean, after, rho)
    step = towards(target, second_order_term(step_products(x, first), reach, target, mean))
    length = jnp.minimum(1.0, _FRACTION * _largest_step(x, step, counts_rows))

    def balance(share: Array) -> Array:
        low, total, count = _tally(_moved(x, step, share * length), counts_rows)
        return low / jnp.maximum(total / count, 1e-300)

    there = _moved(x, step, length * step_in_neighbourhood(balance))
    # At the smallest ρ digits may run out. What has been found by then is kept.
    fine = jnp.all(jnp.isfinite(there.v))
    return jax.tree.map(lambda old, new: jnp.where(fine, new, old), x, there)


def _another(x: Iterate, number: Array) -> Iterate:
    """Another guess: slacks nearer to zero, larger forces.

    Where friction's direction has to turn while its cone is nearly full, steps are short, and one in a thousand hard
    impacts gets nowhere. Most of those are easy from here.
    """
    less, more = _LESS**number, _MORE**number

    def of(u: Unknowns) -> Unknowns:
        grown = u.growth._replace(slack=less * u.growth.slack)
        u = u._replace(growth=grown, gap=less * u.gap, psi=less * u.psi, slip=less * u.slip)
        return u._replace(gamma=more * u.gamma, normal_force=more * u.normal_force)

    return Iterate(x.v, tuple(of(u) for u in x.pairs), x.limits._replace(gap=less * x.limits.gap))


def _moved(x: Iterate, change: Iterate, length: Array) -> Iterate:
    return jax.tree.map(lambda a, b: a + length * b, x, change)


def _neutral(problem: Problem, x: Iterate, value: Array, counts_rows: bool) -> StepProducts:
    """Products that all have this value; those of growth problems that are not part of the method have their own."""

    def of(u: Unknowns) -> Products:
        head = jnp.zeros((len(u.gamma), 1 + u.friction_force.shape[1])).at[:, 0].set(value)
        rows = value if counts_rows else problem.detection
        return Products(jnp.full_like(u.growth.slack, rows), jnp.full_like(u.gamma, value), head)

    return StepProducts(tuple(of(u) for u in x.pairs), jnp.full_like(x.limits.force, value))


def _worst_equation(problem: Problem, x: Iterate, residual: StepResidual) -> Array:
    scale = jnp.maximum(1.0, jnp.max(jnp.abs(problem.inertia @ (x.v - problem.v))) / problem.timestep)
    worst = jnp.max(jnp.abs(residual.motion)) / scale
    for rest in jax.tree.leaves((residual.pairs, residual.limits)):
        worst = jnp.maximum(worst, jnp.max(jnp.abs(rest), initial=0.0))
    return worst


def _worst_product(problem: Problem, x: Iterate, counts_rows: bool) -> Array:
    gap = jax.tree.map(jnp.subtract, step_products(x, x), _neutral(problem, x, problem.relaxation, counts_rows))
    worst = jnp.zeros(())
    for rest in jax.tree.leaves(gap):
        worst = jnp.maximum(worst, jnp.max(jnp.abs(rest), initial=0.0))
    return worst


def _tally(x: Iterate, counts_rows: bool) -> tuple[Array, Array, int]:
    """The smallest product, the sum of all, and their number."""

    def of(u: Unknowns) -> tuple[Array, Array]:
        z, s = friction_cones(u)
        # Half the harmonic mean of the cone's two eigenvalues is their smaller one, or up to twice that.
        cone = (z[0] ** 2 - z[1:] @ z[1:]) * (s[0] ** 2 - s[1:] @ s[1:]) / (z @ s)
        gamma, rows = u.gamma * u.gap, u.growth.slack * u.growth.dual
        low, total = jnp.minimum(gamma, cone), gamma + z @ s
        return (jnp.minimum(low, jnp.min(rows)), total + jnp.sum(rows)) if counts_rows else (low, total)

    limits = x.limits.force * x.limits.gap
    low, total, count = jnp.min(limits, initial=jnp.inf), jnp.sum(limits), limits.size
    for u in x.pairs:
        each, each_total = jax.vmap(of)(u)
        low, total = jnp.minimum(low, jnp.min(each, initial=jnp.inf)), total + jnp.sum(each_total)
        count += each.size * (2 + (u.growth.slack.shape[1] if counts_rows else 0))
    return low, total, max(count, 1)


def _mean(x: Iterate, counts_rows: bool) -> Array:
    _, total, count = _tally(x, counts_rows)
    return total / count


def _largest_step(x: Iterate, step: Iterate, counts_rows: bool) -> Array:
    """How far a step can go before something that must stay positive is zero."""

    def of(u: Unknowns, c: Unknowns) -> Array:
        most = jnp.minimum(largest_step(u.gamma, c.gamma), largest_step(u.gap, c.gap))
        for cone, change in zip(friction_cones(u), friction_cones(c), strict=True):
            most = jnp.minimum(most, cones.largest_step(cone, change))
        g, d = u.growth, c.growth
        rows = jnp.minimum(largest_step(g.slack, d.slack), largest_step(g.dual, d.dual))
        return jnp.minimum(most, rows) if counts_rows else most

    def of_limits(u: LimitUnknowns, c: LimitUnknowns) -> Array:
        return jnp.minimum(largest_step(u.force, c.force), largest_step(u.gap, c.gap))

    most = of_limits(x.limits, step.limits)
    for u, c in zip(x.pairs, step.pairs, strict=True):
        most = jnp.minimum(most, jnp.min(jax.vmap(of)(u, c), initial=jnp.inf))
    return most
