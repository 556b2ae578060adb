"""Newton's steps: solutions of the equations that `newton` assembles, and how v⁺ answers to a change of the problem.

Pairs first answer with their bodies held. The velocities follow from the forces of that, and pairs follow the
velocities.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from tangens.contact.interior import constraints
from tangens.contact.interior.equations import (
    Iterate,
    Problem,
    StepProducts,
    StepResidual,
    all_bodies,
    body_wrenches,
    joint_forces,
    kinematics,
    lift,
    shift_of,
)
from tangens.contact.interior.groups import seen
from tangens.contact.interior.newton import GroupSystem, System, carried_wrench
from tangens.contact.interior.pair import (
    Linear,
    Pair,
    PairResidual,
    Products,
    Response,
    Unknowns,
    linearise,
    respond,
)
from tangens.dynamics.smooth import SmoothDynamics
from tangens.dynamics.spatial import cross

Array = jax.Array


class Factor(NamedTuple):
    """An LU factorisation."""

    lu: Array
    permutation: Array


def factored(matrix: Array) -> Factor:
    """The LU factorisation of a matrix, its pivots as a permutation: many solves follow."""
    lu, _, permutation = jax.lax.linalg.lu(matrix)
    return Factor(lu, permutation)


def solve_factored(factor: Factor, b: Array) -> Array:
    """The solution x of matrix · x = b."""
    lower = solve_triangular(factor.lu, b[factor.permutation], lower=True, unit_diagonal=True)
    return solve_triangular(factor.lu, lower)


def direction(
    problem: Problem, x: Iterate, system: System, factor: Factor, residual: StepResidual, target: StepProducts
) -> Iterate:
    """Newton's step for a residual and a wanted change of the products, refined once.

    Sticking friction and closed contacts are stiff as 1/ρ. At small ρ, what rounding leaves of the forces that have to
    balance is worth a second solve; a loop, so that it is compiled once.
    """
    alone = tuple(
        _alone(group.pairs, u, own.linear, rest, goal)
        for group, u, own, rest, goal in zip(
            problem.groups, x.pairs, system.groups, residual.pairs, target.pairs, strict=True
        )
    )
    c, rho = problem.constraints, problem.relaxation
    held = constraints.alone(c, x.bounds, residual.constraints, target.bounds, rho)
    driven = constraints.joint_forces(c, system.at_end, held[0].force, held[1]) - residual.motion

    def solve(_: int, found: tuple[Array, tuple[Response, ...]]) -> tuple[Array, tuple[Response, ...]]:
        dv, responses = found
        force = _response_forces(problem, system, responses) + driven
        more = solve_factored(factor, force - system.own @ dv)
        return dv + more, _following(problem, x, system, responses, more)

    dv, responses = jax.lax.fori_loop(0, 2, solve, (jnp.zeros_like(x.v), alone))
    change = constraints.following(c, x.bounds, system.at_end, held, dv, rho)
    return Iterate(dv, tuple(response.unknowns for response in responses), *change)


def sensitivity(
    dynamics: SmoothDynamics,
    problem: Problem,
    x: Iterate,
    matrix: Array,
    frames: tuple[Array, ...],
    change: StepResidual,
    ends_change: StepProducts,
) -> Array:
    """How v⁺ answers to a change of the residual and of what products are to be: the implicit function theorem.

    Newton's matrix is the one that the method ended with; only the pairs' own blocks are made anew.
    """
    kin = kinematics(dynamics, problem, x.v)
    wrench = jnp.zeros((len(kin.dofs), 6))
    for group, u, local, rest, ends, goal in zip(
        problem.groups, x.pairs, frames, change.pairs, problem.ends.pairs, ends_change.pairs, strict=True
    ):
        pairs, bodies = group.pairs, all_bodies(group.pairs, kin.spatial, kin.twist)
        frame = bodies.place1.rotation @ local
        linear = jax.vmap(linearise)(pairs, seen(group, u, bodies), u, bodies, frame, shift_of(ends, pairs))
        target = _spread(u, goal)
        response = _alone(pairs, u, linear, rest, target)
        at = jax.vmap(lift)(u.growth.point)
        wrench += body_wrenches(pairs, len(wrench), at, response.wrench1, response.wrench2)
    c = problem.constraints
    bounds, ties = constraints.alone(c, x.bounds, change.constraints, ends_change.bounds, problem.relaxation)
    at_end = constraints.evaluated(c, kin.q, kin.spatial, jnp.eye(len(x.v)))
    force = joint_forces(kin, wrench, len(x.v)) + constraints.joint_forces(c, at_end, bounds.force, ties)
    return solve_factored(factored(matrix), force - change.motion)


def _spread(x: Unknowns, ends: Products) -> Products:
    """Products of a group from one number for all rows, one for gaps and one for cones."""
    cone = jnp.zeros((len(ends.cone), 1 + x.friction_force.shape[1])).at[:, 0].set(ends.cone)
    return Products(jnp.broadcast_to(ends.rows[:, None], x.growth.slack.shape), ends.gamma, cone)


def _alone(pairs: Pair, x: Unknowns, linear: Linear, residual: PairResidual, target: Products) -> Response:
    """How the pairs of a group answer while their bodies stay where they are."""
    none = jnp.zeros(6)
    return jax.vmap(respond, (0, 0, 0, 0, 0, None, None))(pairs, x, linear, residual, target, none, none)


def _following(
    problem: Problem, x: Iterate, system: System, responses: tuple[Response, ...], dv: Array
) -> tuple[Response, ...]:
    """Responses of all pairs, plus what comes of a change dv of the velocities."""
    own_dv = dv[system.kinematics.dofs]
    moves, twists = (jnp.einsum("bid,bd->bi", by, own_dv) for by in (system.moves, system.twists))
    twist = system.kinematics.twist

    def one(pair: Pair, own: GroupSystem, response: Response) -> Response:
        a, b, at = pair.body1, pair.body2, own.lift
        carried = at @ moves[a]
        d = at @ moves[b] - carried
        nu = at @ (twists[b] - twists[a]) - cross(carried, at @ (twist[b] - twist[a]))
        more = _unpacked(response, own.reaction @ jnp.concatenate([d, nu]))
        u, w1, w2 = jax.tree.map(jnp.add, response, more)
        # The point and the wrenches move along with body 1.
        growth = u.growth._replace(point=u.growth.point + carried[3:])
        w1, w2 = w1 + carried_wrench(carried, own.linear.wrench1), w2 + carried_wrench(carried, own.linear.wrench2)
        return Response(u._replace(growth=growth), w1, w2)

    return tuple(
        jax.vmap(one)(group.pairs, own, response)
        for group, own, response in zip(problem.groups, system.groups, responses, strict=True)
    )


def _response_forces(problem: Problem, system: System, responses: tuple[Response, ...]) -> Array:
    """Joint forces of the wrenches in responses, (nv,)."""
    wrench = jnp.zeros(system.kinematics.twist.shape)
    for group, own, response in zip(problem.groups, system.groups, responses, strict=True):
        wrench += body_wrenches(group.pairs, len(wrench), own.lift, response.wrench1, response.wrench2)
    return joint_forces(system.kinematics, wrench, len(problem.v))


def _unpacked(like: Response, rows: Array) -> Response:
    """A response from rows as `newton` packs them."""
    leaves, tree = jax.tree.flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves])
    parts = jnp.split(rows, ends[:-1])
    return jax.tree.unflatten(tree, [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)])
