"""The path of an interior-point method: complementarity products, from where they start to where they end.

Products of different kinds are of different size. An impact's force is m·v/h, a hundred times the weight at small time
steps; sliding is judged in watts and gaps in joules. So every product goes down from a height of its own to an end of
its own, all of them together:

    product = end + place · height,        place from 1 (the start) to 0 (the solution)

Friction's products start far above the others (`pair.start`), so that its direction is free to turn until the normal
force is known. On the edge of its cone it could only turn by about √(2·margin) in an iteration: that is where methods
with one height for all products jam.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tangens.contact.interior.equations import Iterate, Problem, StepProducts
from tangens.contact.interior.pair import Products, Unknowns, friction_cones

Array = jax.Array

_TINY = 1e-300


class Path(NamedTuple):
    """Where products start and end. Those of a pair's rows are alike, so there is one number for them, (n,)."""

    ends: StepProducts
    heights: StepProducts
    """Of the start above the ends."""
    rows: tuple[Array, ...]
    """1 for rows of pairs, 0 for those that only fill up."""
    counts_rows: bool
    """Whether the growth problems are part of the method."""


def path_from(problem: Problem, guess: Iterate, counts_rows: bool) -> Path:
    """The path from a guess."""

    def of(u: Unknowns, rows: Array) -> Products:
        z, s = friction_cones(u)
        return Products(rows @ (u.growth.slack * u.growth.dual) / jnp.sum(rows), u.gamma * u.gap, z @ s)

    rows, ends = tuple(group.pairs.rows for group in problem.groups), problem.ends
    tops = StepProducts(tuple(map(jax.vmap(of), guess.pairs, rows)), guess.bounds.force * guess.bounds.gap)
    return Path(ends, jax.tree.map(lambda top, end: jnp.maximum(top - end, 0.0), tops, ends), rows, counts_rows)


def wanted(path: Path, x: Iterate, place: Array) -> StepProducts:
    """All products at a place on the path."""

    def of(u: Unknowns, end: Products, height: Products) -> Products:
        if not path.counts_rows:
            height = height._replace(rows=jnp.zeros_like(height.rows))
        rows, gamma, cone = (a + place * b for a, b in zip(end, height, strict=True))
        head = jnp.zeros((len(gamma), 1 + u.friction_force.shape[1])).at[:, 0].set(cone)
        return Products(jnp.broadcast_to(rows[:, None], u.growth.slack.shape), gamma, head)

    pairs = tuple(map(of, x.pairs, path.ends.pairs, path.heights.pairs))
    return StepProducts(pairs, path.ends.bounds + place * path.heights.bounds)


def place_of(path: Path, x: Iterate) -> Array:
    """How far from the end: the share of all heights that is left."""
    above, height = jnp.sum(x.bounds.force * x.bounds.gap - path.ends.bounds), jnp.sum(path.heights.bounds)
    for u, end, top, rows in zip(x.pairs, path.ends.pairs, path.heights.pairs, path.rows, strict=True):
        z, s = jax.vmap(friction_cones)(u)
        above += jnp.sum(u.gamma * u.gap - end.gamma) + jnp.sum(jnp.sum(z * s, axis=1) - end.cone)
        height += jnp.sum(top.gamma) + jnp.sum(top.cone)
        if path.counts_rows:
            above += jnp.sum(rows * (u.growth.slack * u.growth.dual - end.rows[:, None]))
            height += jnp.sum(rows * top.rows[:, None])
    return jnp.maximum(above, 0.0) / jnp.maximum(height, _TINY)


def relaxation_at(path: Path, place: Array, relaxation: Array) -> Array:
    """The relaxation whose gaps and limits have about these products."""
    heights, ends = jnp.sum(path.heights.bounds), jnp.sum(path.ends.bounds)
    for top, end in zip(path.heights.pairs, path.ends.pairs, strict=True):
        heights, ends = heights + jnp.sum(top.gamma), ends + jnp.sum(end.gamma)
    return relaxation * place * heights / jnp.maximum(ends, _TINY)


def balance(path: Path, x: Iterate) -> Array:
    """The least product over what it should be at this place."""
    place = place_of(path, x)

    def of(u: Unknowns, end: Products, top: Products, real: Array) -> Array:
        z, s = friction_cones(u)
        # Half the harmonic mean of the cone's two eigenvalues is their smaller one, or up to twice that.
        cone = (z[0] ** 2 - z[1:] @ z[1:]) * (s[0] ** 2 - s[1:] @ s[1:]) / (z @ s)
        low = jnp.minimum(u.gamma * u.gap / (end.gamma + place * top.gamma), cone / (end.cone + place * top.cone))
        rows = jnp.min(jnp.where(real > 0, u.growth.slack * u.growth.dual, jnp.inf)) / (end.rows + place * top.rows)
        return jnp.minimum(low, rows) if path.counts_rows else low

    bounds = x.bounds.force * x.bounds.gap / (path.ends.bounds + place * path.heights.bounds)
    low = jnp.min(bounds, initial=jnp.inf)
    for pairs in zip(x.pairs, path.ends.pairs, path.heights.pairs, path.rows, strict=True):
        low = jnp.minimum(low, jnp.min(jax.vmap(of)(*pairs), initial=jnp.inf))
    return low


def farthest_product(ends: StepProducts, now: StepProducts, counts_rows: bool) -> Array:
    """How far the worst product is from its end, over that end."""
    worst = jnp.max(jnp.abs(now.bounds / ends.bounds - 1), initial=0.0)
    for here, there in zip(now.pairs, ends.pairs, strict=True):
        for off in (
            here.rows / there.rows[:, None] - 1 if counts_rows else jnp.zeros(1),
            here.gamma / there.gamma - 1,
            (here.cone / there.cone[:, None]).at[:, 0].add(-1.0),
        ):
            worst = jnp.maximum(worst, jnp.max(jnp.abs(off), initial=0.0))
    return worst
