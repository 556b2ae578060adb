"""What a solved step tells of its contacts."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tangens.contact.geom_pairs import EARTH
from tangens.contact.interior.equations import Problem
from tangens.contact.interior.method import Outcome
from tangens.contact.interior.pair import Pair, Unknowns
from tangens.contact.jax_model import ContactArrays

Array = jax.Array

_NEAR = 1.05  # contacts are reported of shapes that touch when grown by this factor


def touching(problem: Problem, outcome: Outcome) -> tuple[ContactArrays, ...]:
    """Contacts of each group of pairs, those of shapes that nearly touch being marked."""
    out = list[ContactArrays]()
    for group, u, own, ends in zip(
        problem.groups, outcome.x.pairs, outcome.system.groups, problem.ends.pairs, strict=True
    ):
        linear, pairs = own.linear, group.pairs
        normal = (linear.growth.residual.normal1 - linear.growth.residual.normal2) / 2
        distance = jax.vmap(_distance)(pairs, u, normal)
        activity = u.normal_force / (u.normal_force + jnp.sqrt(ends.gamma * EARTH * pairs.mass / pairs.length))
        force = linear.wrench2[:, 3:]
        frame = linear.growth.frame[:, :, 0]
        near = u.growth.scale <= _NEAR
        out.append(ContactArrays(near, u.growth.point, frame, distance, force, pairs.geoms, activity))
    return tuple(out)


def _distance(pair: Pair, u: Unknowns, normal: Array) -> Array:
    steep = jnp.linalg.norm(normal) / pair.sharpness
    return (u.growth.scale - 1) * pair.length / jnp.maximum(steep, 1e-12)
