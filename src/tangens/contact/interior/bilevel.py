"""The baseline of paper 1, Sec. IV: collision detection solved on its own, inside each iteration of contact dynamics.

Every evaluation of the contact equations solves all growth problems to the end; their solution, a function of q⁺, is
differentiated by the implicit function theorem, which is what `growth.respond` does where the growth problem has no
residual. All else, from the equations to the linear algebra, is shared with the single-level method.
"""

from __future__ import annotations

import jax

from tangens.collision import growth
from tangens.contact.interior.equations import Iterate, Problem, all_bodies, kinematics
from tangens.contact.interior.pair import Bodies, Pair, Unknowns, places, weight_of
from tangens.dynamics.smooth import SmoothDynamics

Array = jax.Array


def solve_detection(dynamics: SmoothDynamics, problem: Problem, x: Iterate) -> Iterate:
    """The iterate with its growth problems solved where its velocities lead."""
    kin = kinematics(dynamics, problem, x.v)

    def one(pair: Pair, u: Unknowns, bodies: Bodies, end: Array) -> Unknowns:
        place1, place2 = places(pair, bodies)
        solved = growth.solve(pair.shape1, place1, pair.shape2, place2, weight_of(pair), end)
        return u._replace(growth=solved.growth)

    pairs = (
        jax.vmap(one)(group, u, all_bodies(group, kin.spatial, kin.twist), ends.rows)
        for group, u, ends in zip(problem.groups, x.pairs, problem.ends.pairs, strict=True)
    )
    return x._replace(pairs=tuple(pairs))
