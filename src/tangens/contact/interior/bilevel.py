"""The baseline of paper 1, Sec. IV: collision detection solved on its own, inside each iteration of contact dynamics.

Every evaluation of the contact equations solves all growth problems to the end; their solution, a function of q⁺, is
differentiated by the implicit function theorem, which is what `growth.respond` does where the growth problem has no
residual. All else, from the equations to the linear algebra, is shared with the single-level method.

As contact points jump while bodies turn, Newton's method may end in a root that no motion leads to: a cube in free
flight that spins until it strikes the floor. Such a root is known by the energy that it creates.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tangens.collision import growth
from tangens.collision.growth import Growth
from tangens.contact.geom_pairs import EARTH
from tangens.contact.interior.equations import Iterate, Problem, all_bodies, kinematics
from tangens.contact.interior.groups import Group, by_kind, joined, widened
from tangens.contact.interior.newton import System
from tangens.contact.interior.pair import Bodies, Pair, Unknowns, places, weight_of
from tangens.dynamics.smooth import SmoothDynamics
from tangens.geometry import Shape

Array = jax.Array

_EULER, _TURN = 0.02, 0.1
"""Shares of the kinetic energy that a step of finite length may gain, the second for the square of how far bodies turn:
of 2,200 random steps, sound ones gain 0.008 at most, and those that are no motion 0.2 to 67."""
_BARRIER = 30.0
"""Work of relaxed forces as a gap opens, over ρ·(weight of the lighter one)·length: a logarithm."""


def creates_energy(problem: Problem, system: System, v: Array) -> Array:
    """Whether contact adds to the kinetic energy that the step would have without it."""
    free = problem.v + jnp.linalg.solve(problem.inertia, problem.timestep * problem.force)
    turn = jnp.einsum("bid,bd->bi", system.moves, v[system.kinematics.dofs])[:, :3]
    farthest = jnp.max(jnp.sum(turn**2, axis=1), initial=0.0)
    stored = EARTH * sum(jnp.sum(group.pairs.mass * group.pairs.length) for group in problem.groups)
    before, after = (x @ problem.inertia @ x for x in (free, v))
    return after > (1.0 + _EULER + _TURN * farthest) * before + 2.0 * _BARRIER * problem.relaxation * stored


def solve_detection(dynamics: SmoothDynamics, problem: Problem, x: Iterate) -> Iterate:
    """The iterate with its growth problems solved where its velocities lead."""
    kin = kinematics(dynamics, problem, x.v)

    def one(shape1: Shape, shape2: Shape, pair: Pair, bodies: Bodies, end: Array) -> Growth:
        place1, place2 = places(pair, bodies)
        return growth.solve(shape1, place1, shape2, place2, weight_of(pair), end).growth

    def solved(group: Group, u: Unknowns, end: Array) -> Unknowns:
        everyone = group.pairs, all_bodies(group.pairs, kin.spatial, kin.twist), end
        found = [
            jax.vmap(one)(shape1, shape2, *jax.tree.map(lambda leaf, which=which: leaf[which], everyone))
            for shape1, shape2, which in by_kind(group)
        ]
        return u._replace(growth=joined(widened(group, found)))

    ends = (ends.rows for ends in problem.ends.pairs)
    return x._replace(pairs=tuple(map(solved, problem.groups, x.pairs, ends)))
