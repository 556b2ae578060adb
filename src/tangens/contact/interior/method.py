"""A primal-dual interior-point method: Mehrotra's predictor and corrector, down to a relaxation ρ.

Each iteration factors one matrix and solves twice with it. The first direction aims at the end of the path; how far it
gets before a positive variable turns negative decides how ambitious the second one is.

The equations are not linear: bodies turn, round shapes curve. So an iteration turns bodies and grows shapes by a third
at most.

What does not converge starts anew from another guess. What does not converge then is solved at a larger ρ, as a last
resort, and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tangens.collision.central_path import largest_step, step_in_neighbourhood
from tangens.contact.interior import cones
from tangens.contact.interior.directions import direction, factored
from tangens.contact.interior.equations import (
    Iterate,
    Problem,
    StepProducts,
    step_products,
)
from tangens.contact.interior.misfit import misfit, motion_misfit
from tangens.contact.interior.newton import System, assemble
from tangens.contact.interior.pair import Products, Unknowns, friction_cones
from tangens.contact.interior.path import Path, balance, farthest_product, path_from, place_of, relaxation_at, wanted
from tangens.dynamics.smooth import SmoothDynamics

Array = jax.Array

_FRACTION = 0.99
"""Of the way to the boundary."""
_SECOND_ORDER = 0.5
"""Most that the second-order term may change a product by, over its target."""
_ROUNDING = 1e-14
"""What rounding leaves of the equations, times ρ."""
_STALLED = 1e-6
"""Most that may be left of them where they get no better: a tip's contact point costs digits as 1/ρ. Forces still
explain the motion to this share."""
_TURN, _GROWTH, _INNER = 0.3, 0.3, 0.7
"""Most that an iteration turns a body [rad], changes α and brings ε towards zero, relative."""
_TINY = 1e-300
_PATIENCE, WARM_PATIENCE = 40, 10
"""Iterations after which an attempt is given up: steps take 7 to 15 on average, 4 from where the one before ended."""
_MANY = 100
"""Rows of a pair beyond which the first attempt may take all iterations: hulls of a thousand faces take 60 and more."""
_SLACKS, _FORCES = (1.0, 1.0, 0.3, 0.1, 1.0, 1.0, 0.3), (1.0, 1.0, 0.3, 5.0, 1.0, 1.0, 0.3)
"""Of the guesses of all attempts, over those of the first. Between two walls that it does not touch, the first guess's
forces turn a peg so far that it jams; an impact wants larger ones."""
_RELIEF = (1.0, 1.0, 1.0, 1.0, 1.0, 100.0, 1e4)
"""By how much ρ is larger: as a last resort. From its solution, the last attempts lead down to ρ again, or back."""
_FIRST_RESORT, _DOWN, _BACK, _WARM = 5, 7, 8, 9
"""Where a guess comes from the step before, the last number is the first attempt."""
_TURNED = (0.5, 0.5, 0.0, 0.5, 0.2, 0.5, 0.2, 0.2, 0.5, 0.5)
"""Friction is set anew where its cone would cut a step to less than this share: where it can follow sliding, all else
converges. Without, 24 of 60,000 steps of thrown boxes and cylinders jam, and none of those with it."""
_HOLD = (0.0, 0.0, 0.0, 0.03, 0.03, 0.0, 0.03, 0.0, 0.0, 0.0)
"""Products go down no faster than this times the misfit of the motion, in units of ρ."""
_BLUR = (0.2, 0.0, 0.0, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2)
"""Friction that is set anew is relaxed over this share of the change of sliding: without, it overshoots for ever in
some steps; with it, in others."""


class Outcome(NamedTuple):
    """Where the method ended."""

    x: Iterate
    system: System
    products: StepProducts
    iterations: Array
    residual: Array
    """The worst of the equations, relative to the forces, lengths and speeds at work."""
    complementarity: Array
    """The worst distance of a product from its end, over that end."""
    converged: Array
    relief: Array
    """By how much ρ was multiplied, as a last resort; else 1."""


class _Walk(NamedTuple):
    """The state of the loop."""

    x: Iterate
    """Where to look next."""
    base: Iterate
    """Where the attempt began."""
    attempt: Array
    k: Array
    ends: Array
    """The iteration at which the attempt is given up."""
    relief: Array
    """That of a last resort that was solved."""
    done: Array
    here: Outcome


def solve(
    dynamics: SmoothDynamics,
    problem: Problem,
    guess: Iterate,
    most: Array,
    tolerance: Array,
    detection: Callable[[Problem, Iterate], Iterate] | None = None,
    resorts: bool = True,
    pause: Array | int = 2**30,
    warm: tuple[Iterate, Array] | None = None,
) -> Outcome:
    """Solve a step's equations from a guess, to `tolerance`, relative to ρ.

    `warm` is another guess, which is tried first, and whether it is one.

    `detection` solves the growth problems of an iterate to the end: then they are not part of the method, and it is the
    bilevel one. After `pause` iterations it ends, whatever it has found.
    """
    counts_rows = detection is None
    patience = _PATIENCE if all(group.pairs.rows.shape[-1] <= _MANY for group in problem.groups) else most
    zero, one = jnp.zeros((), jnp.int32), jnp.ones(())

    def look(x: Iterate, relief: Array, before: Array) -> Outcome:
        here = relieved(problem, relief)
        x = x if detection is None else detection(here, x)
        system, x = assemble(dynamics, here, x)
        residual = misfit(here, x, system.residual)
        products = step_products(tuple(group.linear.cone for group in system.groups), x)
        product = farthest_product(here.ends, products, counts_rows)
        converged = (product <= tolerance) & _holds(residual, before, tolerance, here.relaxation)
        return Outcome(x, system, products, zero, residual, product, converged, relief)

    def iterate(walk: _Walk) -> _Walk:
        attempt = walk.attempt
        relief = jnp.asarray((*_RELIEF, 1.0, 1.0, 1.0))[attempt]
        relief = jnp.where(attempt == _BACK, walk.relief, relief)
        here = look(walk.x, relief, walk.here.residual)
        path = path_from(relieved(problem, relief), walk.base, counts_rows)
        x = jax.lax.cond(here.converged, lambda: here.x, lambda: _advance(problem, here, path, attempt))
        is_resort = (attempt >= _FIRST_RESORT) & (attempt < _DOWN)
        over = (walk.k + 1 >= walk.ends) & ~here.converged
        following = jnp.where(here.converged & is_resort, _DOWN, _following(attempt, walk.k + 1 >= most, resorts))
        done = (here.converged & ~is_resort) | (over & ((following > _WARM) | (most <= 0)))
        changes = (over | (here.converged & is_resort)) & ~done
        # Down from a resort's solution, and back to it where that fails; else from another guess.
        base = _chosen(following == _DOWN, here.x, _chosen(following == _BACK, walk.base, _another(guess, following)))
        return _Walk(
            _chosen(changes, base, x),
            _chosen(changes, base, walk.base),
            jnp.where(changes, following, attempt),
            walk.k + 1,
            jnp.where(changes, walk.k + 1 + _patience(following, walk.k + 1, most), walk.ends),
            jnp.where(is_resort, relief, walk.relief),
            done,
            here._replace(iterations=walk.k),
        )

    # To look at the guess inside the loop, too, compiles in two thirds of the time.
    nowhere = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(look, guess, one, one))
    first, is_warm = (guess, jnp.zeros((), bool)) if warm is None else (_chosen(warm[1], warm[0], guess), warm[1])
    ends = jnp.minimum(jnp.where(is_warm, WARM_PATIENCE, patience), most) + 1
    begin = _Walk(first, first, jnp.where(is_warm, _WARM, zero), zero, ends, one, most < 0, nowhere)
    return jax.lax.while_loop(lambda walk: ~walk.done & (walk.k <= pause), iterate, begin).here


def _following(attempt: Array, late: Array, resorts: bool) -> Array:
    """The attempt after one that was given up; beyond the last one if there is none."""
    none = _WARM + 1
    resort = _FIRST_RESORT if resorts else none
    following = jnp.where(late & (attempt < _FIRST_RESORT), resort, attempt + 1)
    following = jnp.where(following == _FIRST_RESORT, resort, following)
    following = jnp.where((following == _DOWN) | (attempt == _BACK), none, following)  # no solution to go down from
    return jnp.where(attempt == _WARM, 0, following)


def _patience(attempt: Array, k: Array, most: Array) -> Array:
    """How many iterations an attempt has, of those that are left before last resorts."""
    return jnp.where(
        attempt < _FIRST_RESORT,
        jnp.clip(most + 1 - k, 1, _PATIENCE),
        jnp.where(attempt == _DOWN, jnp.minimum(_PATIENCE, most), _PATIENCE),
    )


def _holds(residual: Array, before: Array, tolerance: Array, relaxation: Array) -> Array:
    """Whether the equations hold: to `tolerance` times ρ, or as well as rounding allows, once they get no better.

    A contact point that is free along a line or sits in a tip costs digits as 1/ρ.
    """
    stalled = (residual > 0.1 * before) & (residual <= jnp.minimum(_STALLED, _ROUNDING / relaxation))
    return (residual <= jnp.maximum(tolerance * relaxation, 1e-13)) | stalled


def relieved(problem: Problem, relief: Array) -> Problem:
    """The same step at a larger ρ."""
    ends = jax.tree.map(lambda end: relief * end, problem.ends)
    return problem._replace(ends=ends, relaxation=relief * problem.relaxation)


def _advance(problem: Problem, here: Outcome, path: Path, attempt: Array) -> Iterate:
    """One iteration."""
    hold, turned, blurred = (jnp.asarray(column)[attempt] for column in (_HOLD, _TURNED, _BLUR))
    x, system, factor = here.x, here.system, factored(here.system.matrix)
    place, cones_seen = place_of(path, x), tuple(group.linear.cone for group in system.groups)

    held = hold * motion_misfit(problem, x, system.residual)
    held /= jnp.maximum(relaxation_at(path, place, problem.relaxation), _TINY)

    def towards(corrects: int, found: tuple[Iterate, Array]) -> tuple[Iterate, Array]:
        """The predictor, which aims at the end; then the corrector. A loop, so that it is compiled once."""
        first, _ = found
        reach = jnp.minimum(1.0, _largest_step(x, first, path.counts_rows))
        share = place_of(path, _moved(x, first, reach)) / jnp.maximum(place, _TINY)
        share = jnp.where(corrects, jnp.clip(jnp.maximum(share**2, held), 0.0, 1.0), 0.0)
        goal, trust = wanted(path, x, share * place), reach**2 * (1 - share)
        bends = step_products(cones_seen, first)
        bent = jax.tree.map(lambda p, most: jnp.clip(trust * p, -most, most), bends, _bounds(goal))
        change = jax.tree.map(lambda goal, bent, now: goal - bent - now, goal, bent, here.products)
        return direction(problem, x, system, factor, system.residual, change), share

    nothing = jax.tree.map(jnp.zeros_like, x), jnp.zeros(())
    step, goal_share = jax.lax.fori_loop(0, 2, towards, nothing)
    length = jnp.minimum(1.0, _FRACTION * _largest_step(x, step, path.counts_rows, cones=False))
    length = jnp.minimum(length, _trusted(problem, x, system, step))
    rooms = tuple(_FRACTION * jax.vmap(_cone_room)(u, c) for u, c in zip(x.pairs, step.pairs, strict=True))
    turns = tuple(room < turned * length for room in rooms)
    for room, turn in zip(rooms, turns, strict=True):
        length = jnp.minimum(length, jnp.min(jnp.where(turn, jnp.inf, room), initial=jnp.inf))

    def after(length: Array, blur: Array | float) -> Iterate:
        there, change = _moved(x, step, length), _moved(jax.tree.map(jnp.zeros_like, x), step, blur * length)
        # Of the goal of the corrector, that share is reached.
        return _turned(path, there, change, turns, place * (1 - length * (1 - goal_share)))

    length *= step_in_neighbourhood(lambda share: balance(path, after(share * length, 0.0)))
    there = after(length, blurred)
    # At the smallest ρ digits may run out. What has been found by then is kept.
    return _chosen(jnp.all(jnp.isfinite(there.v)), there, x)


def _trusted(problem: Problem, x: Iterate, system: System, step: Iterate) -> Array:
    """How much of a step the linearised equations can be trusted with: bodies turn, and rows of shapes curve.

    Without it, 77 of 21,600 steps of thrown ellipsoids fail, with it none of those. ε counts where it is positive and
    goes to zero: the section of a cone is the more curved, the nearer to its tip. A capsule's may change its sign.
    """
    turn = jnp.einsum("bid,bd->bi", system.moves, step.v[system.kinematics.dofs])[:, :3]
    most = _TURN / jnp.maximum(jnp.max(jnp.linalg.norm(turn, axis=1), initial=0.0), _TINY)
    for group, u, c in zip(problem.groups, x.pairs, step.pairs, strict=True):
        (alpha, inner), (d_alpha, d_inner) = ((g.scale, g.inner) for g in (u.growth, c.growth))
        grown = _GROWTH * alpha / jnp.maximum(jnp.abs(d_alpha), _TINY)
        room = _INNER * (inner + 1e-9 * group.pairs.length[:, None]) / jnp.maximum(-d_inner, _TINY)
        shrunk = jnp.where(group.pairs.positive, room, jnp.inf)
        most = jnp.minimum(most, jnp.minimum(jnp.min(grown, initial=jnp.inf), jnp.min(shrunk, initial=jnp.inf)))
    return most


def _bounds(goal: StepProducts) -> StepProducts:
    """Most that second-order terms may change products by."""
    pairs = tuple(p._replace(cone=jnp.broadcast_to(p.cone[:, :1], p.cone.shape)) for p in goal.pairs)
    bounds: StepProducts = jax.tree.map(lambda p: _SECOND_ORDER * p, goal._replace(pairs=pairs))
    return bounds


def _another(x: Iterate, number: Array) -> Iterate:
    """The guesses in turn: slacks nearer to zero, smaller or larger forces."""
    less, more = (jnp.asarray(column)[jnp.minimum(number, len(column) - 1)] for column in (_SLACKS, _FORCES))

    def of(u: Unknowns) -> Unknowns:
        grown = u.growth._replace(slack=less * u.growth.slack)
        u = u._replace(growth=grown, gap=less * u.gap, psi=less * u.psi, slip=less * u.slip)
        return u._replace(gamma=more * u.gamma, normal_force=more * u.normal_force)

    return Iterate(x.v, tuple(of(u) for u in x.pairs), x.bounds._replace(gap=less * x.bounds.gap), x.ties)


def _chosen(first: Array, a: Iterate, b: Iterate) -> Iterate:
    chosen: Iterate = jax.tree.map(lambda a, b: jnp.where(first, a, b), a, b)
    return chosen


def _moved(x: Iterate, change: Iterate, length: Array) -> Iterate:
    moved: Iterate = jax.tree.map(lambda a, b: a + length * b, x, change)
    return moved


def _turned(path: Path, x: Iterate, change: Iterate, turns: tuple[Array, ...], place: Array) -> Iterate:
    """The iterate with friction set anew where it `turns`: opposite to sliding, as relaxed as this place asks for.

    On the edge of its cone, friction can only turn by about √(2·margin) in an iteration, and holds up all the rest.
    """

    def of(u: Unknowns, c: Unknowns, turn: Array, end: Products, height: Products) -> Unknowns:
        product = jnp.maximum(end.cone + place * height.cone, u.normal_force * jnp.linalg.norm(c.slip))
        force, psi = cones.central(u.normal_force, u.slip, product)
        return u._replace(friction_force=jnp.where(turn, force, u.friction_force), psi=jnp.where(turn, psi, u.psi))

    pairs = map(jax.vmap(of), x.pairs, change.pairs, turns, path.ends.pairs, path.heights.pairs)
    return x._replace(pairs=tuple(pairs))


def _cone_room(u: Unknowns, c: Unknowns) -> Array:
    """How far a step can go inside the cones of friction."""
    z, s = (cones.largest_step(*both) for both in zip(friction_cones(u), friction_cones(c), strict=True))
    return jnp.minimum(z, s)


def _largest_step(x: Iterate, step: Iterate, counts_rows: bool, cones: bool = True) -> Array:
    """How far a step can go before something that must stay positive is zero."""

    def of(u: Unknowns, c: Unknowns) -> Array:
        most = jnp.minimum(largest_step(u.gamma, c.gamma), largest_step(u.gap, c.gap))
        most = jnp.minimum(most, _cone_room(u, c) if cones else largest_step(u.normal_force, c.normal_force))
        g, d = u.growth, c.growth
        rows = jnp.minimum(largest_step(g.slack, d.slack), largest_step(g.dual, d.dual))
        return jnp.minimum(most, rows) if counts_rows else most

    (force, gap), (d_force, d_gap) = x.bounds, step.bounds
    most = jnp.minimum(largest_step(force, d_force), largest_step(gap, d_gap))
    for u, c in zip(x.pairs, step.pairs, strict=True):
        most = jnp.minimum(most, jnp.min(jax.vmap(of)(u, c), initial=jnp.inf))
    return most
