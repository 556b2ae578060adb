"""What a solved step tells of its contacts."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tangens.contact.interior.function import Solution
from tangens.contact.interior.pair import Pair, Unknowns
from tangens.results import NO_CONTACTS, Contacts

Array = jax.Array

_NEAR = 1.05  # contacts are reported of shapes that touch when grown by this factor


class Touching(NamedTuple):
    """All pairs of a kind, and which of them touch; the rest is as in `Contacts`."""

    touches: Array
    position: Array
    normal: Array
    distance: Array
    force: Array
    geom: Array
    activity: Array


def touching(solution: Solution, relaxation: Array) -> tuple[Touching, ...]:
    """Contacts of each kind of pair, those of shapes that nearly touch being marked."""
    out = list[Touching]()
    outcome = solution.outcome
    for group, u, linear in zip(solution.problem.groups, outcome.x.pairs, outcome.system.pairs, strict=True):
        normal = (linear.growth.normal1 - linear.growth.normal2) / 2
        distance = jax.vmap(_distance)(group, u, normal)
        activity = u.load / (u.load + jnp.sqrt(relaxation))
        force = linear.wrench2[:, 3:]
        frame = linear.growth.frame[:, :, 0]
        out.append(Touching(u.growth.scale <= _NEAR, u.growth.point, frame, distance, force, group.geoms, activity))
    return tuple(out)


def _distance(pair: Pair, u: Unknowns, normal: Array) -> Array:
    steep = jnp.linalg.norm(normal) / pair.sharpness
    return (u.growth.scale - 1) * pair.length / jnp.maximum(steep, 1e-12)


def gathered(kinds: tuple[Touching, ...]) -> Contacts:
    """The pairs that touch, one after the other."""
    if not kinds:
        return NO_CONTACTS._replace(activity=np.zeros(0))
    picked = [[np.asarray(column)[np.asarray(kind.touches)] for column in kind[1:]] for kind in kinds]
    position, normal, distance, force, geom, activity = (np.concatenate(column) for column in zip(*picked, strict=True))
    return Contacts(position, normal, distance, force, geom.astype(int), (), activity)
