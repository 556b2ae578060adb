"""Restitution: bodies that would meet within a step leave at e times the speed at which they approach (Newton).

    gap(q⁺) ≥ gap(q) + h·e·(speed of approach at q),      where gap(q) < h·(speed of approach)

That is a gap like all others, with an offset, so bounces, contacts and friction are solved for together. Gaps at the
beginning of a step come from the same relaxed growth problem as those at its end: what relaxation blurs cancels out.

Derivatives flow to q, v, restitution and shapes; whether a pair bounces at all is frozen.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from tangens.collision import growth
from tangens.collision.detection import solved
from tangens.contact.geom_pairs import EARTH
from tangens.contact.interior.equations import Kinematics, all_bodies, shift_of
from tangens.contact.interior.groups import Group, by_kind
from tangens.contact.interior.pair import Bodies, Pair, Products, places, weight_of
from tangens.dynamics.spatial import vector_product
from tangens.geometry import Shape

Array = jax.Array

_HOVERING = 5.0
"""Bodies at rest hover by ρ·ℓ, give or take as much: only what would go deeper than this many of it bounces. Without,
a ball that has come to rest goes on in bounces of 4e-5 m/s."""


def with_bounces(group: Group, ends: Products, start: Kinematics, timestep: Array) -> Group:
    """The group with what bounces ask of its gaps."""
    pairs, shift = group.pairs, shift_of(ends, group.pairs)
    blur = _HOVERING * ends.gamma / (EARTH * pairs.mass)
    everyone = pairs, all_bodies(pairs, start.spatial, start.twist), ends.rows / weight_of(pairs), shift, blur

    def of_kind(shape1: Shape, shape2: Shape, which: slice) -> Array:
        own = jax.tree.map(lambda leaf: leaf[which], everyone)
        return jax.vmap(partial(_apart, timestep))(shape1, shape2, *own)

    apart = jnp.concatenate([of_kind(*kind) for kind in by_kind(group)])
    return group._replace(pairs=pairs._replace(apart=apart))


def _apart(
    timestep: Array,
    shape1: Shape,
    shape2: Shape,
    pair: Pair,
    bodies: Bodies,
    relaxation: Array,
    shift: Array,
    blur: Array,
) -> Array:
    """How far apart the step has to leave a pair [m]."""
    place1, place2 = places(pair, bodies)
    x = solved(shape1, place1, shape2, place2, relaxation)[0]
    _, normal2 = growth.normals(growth.seen(shape1, place1, shape2, place2, x), x)
    twist = bodies.twist2 - bodies.twist1
    gap, rate = pair.length * (x.scale - 1) - shift, -normal2 @ (twist[3:] + vector_product(twist[:3], x.point))
    after = jnp.maximum(gap - timestep * pair.restitution * rate, 0.0)
    return jnp.where((pair.restitution > 0) & (gap + timestep * rate < -blur), after, 0.0)
