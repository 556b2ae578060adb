"""The baseline of paper 1, Sec. IV: collision detection solved on its own, inside each iteration of contact dynamics.

Every evaluation of the contact equations solves all growth problems to the end; their solution, a function of q⁺, is
differentiated by the implicit function theorem, which is what `growth.respond` does where the growth problem has no
residual. All else, from the equations to the linear algebra, is shared with the single-level method.
"""

from __future__ import annotations

import jax

from tangens.collision import growth
from tangens.collision.growth import Growth
from tangens.contact.interior.equations import Iterate, Problem, all_bodies, kinematics
from tangens.contact.interior.groups import Group, by_kind, joined, widened
from tangens.contact.interior.pair import Bodies, Pair, Unknowns, places, weight_of
from tangens.dynamics.smooth import SmoothDynamics
from tangens.geometry import Shape

Array = jax.Array


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
