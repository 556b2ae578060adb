"""A step as equations: all bodies, all pairs and joint limits, and Newton's system of the size of the velocities.

    M̃ (v⁺ − v) / h = f + Σ Jᵀ (wrenches of contact) + (forces of limits),      q⁺ = q ⊕ h·v⁺

Contact is judged where the step ends, at q⁺. A pair's unknowns touch the rest by the frames and twists of two bodies
only, so Newton's matrix is an arrow: each pair is eliminated on its own, all pairs of a kind at once, and what it adds
to the velocities' system is one block. Joint axes turn as q⁺ changes; `turning` is what that does to the forces.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import lu_factor, lu_solve

from tangens.collision.growth import Place
from tangens.contact.interior.pair import (
    Bodies,
    Linear,
    Pair,
    Products,
    Residual,
    Unknowns,
    aligned,
    linearise,
    products,
    residual,
    respond,
)
from tangens.dynamics.smooth import SmoothDynamics
from tangens.dynamics.spatial import SpatialKinematics, cross, vector_product
from tangens.dynamics.tangent_jax import integrate, integrate_jacobians

Array = jax.Array


class Limits(NamedTuple):
    """Bounds of joints: sign·(q − bound) ≥ 0."""

    q: Array
    """Index of the coordinate."""
    v: Array
    sign: Array
    bound: Array
    force: Array
    """About how large forces are [N or N m]: where solvers start."""


class Problem(NamedTuple):
    """One step to take."""

    q: Array
    v: Array
    inertia: Array
    force: Array
    groups: tuple[Pair, ...]
    """Pairs of one kind each, stacked."""
    limits: Limits
    timestep: Array
    relaxation: Array
    """ρ [J]."""
    detection: Array
    """ρ of the growth problems: the same, but for the bilevel method."""


class Stop(NamedTuple):
    """Unknowns of joint limits."""

    push: Array
    gap: Array


class Iterate(NamedTuple):
    """All unknowns of a step, or a change of them."""

    v: Array
    pairs: tuple[Unknowns, ...]
    limits: Stop


class Left(NamedTuple):
    """What is left of all equations."""

    v: Array
    pairs: tuple[Residual, ...]
    limits: Array


class Goals(NamedTuple):
    """Complementarity products, or by how much to change them."""

    pairs: tuple[Products, ...]
    limits: Array


class System(NamedTuple):
    """Newton's equations at an iterate."""

    left: Left
    matrix: Array
    turning: Array
    jacobian: Array
    """Twist of each body by those entries of v⁺ that move it, (nbody, 6, n); the other two likewise."""
    moves: Array
    """Displacement of each body by v⁺."""
    twists: Array
    """Twist of each body by v⁺, counting that its axes turn."""
    pairs: tuple[Linear, ...]
    lifts: tuple[Array, ...]
    dofs: Array
    """Which entries of v⁺ move each body, (nbody, n)."""
    reactions: tuple[Array, ...]
    """How each pair's unknowns and wrenches follow motions of its bodies, packed, (n, 12)."""
    inside: tuple[Array, ...]
    """Contact frames in the axes of each pair's body 1."""


def lift(p: Array) -> Array:
    """The matrix that takes a twist about the origin to (ω, velocity at p); its transpose brings wrenches back."""
    return jnp.eye(6).at[3:, :3].set(vector_product(jnp.eye(3), p).T)


def dual_cross(x: Array, w: Array) -> Array:
    """How a wrench changes that is carried along by the displacement x."""
    return jnp.concatenate([vector_product(x[:3], w[:3]) + vector_product(x[3:], w[3:]), vector_product(x[:3], w[3:])])


def bodies_of(pair: Pair, spatial: SpatialKinematics, twist: Array) -> Bodies:
    """The two bodies of a pair."""
    a, b = pair.body1, pair.body2
    place1, place2 = (Place(spatial.position[i], spatial.rotation[i]) for i in (a, b))
    return Bodies(place1, place2, twist[a], twist[b])


def all_bodies(group: Pair, spatial: SpatialKinematics, twist: Array) -> Bodies:
    """The bodies of all pairs of a group."""
    return jax.vmap(bodies_of, (0, None, None))(group, spatial, twist)


def shift_of(problem: Problem, group: Pair, x: Unknowns) -> Array:
    """What keeps relaxed shapes from overlapping: the duality gap, a bound of how much α is overestimated [m]."""
    return problem.detection * x.growth.slack.shape[-1] / group.sharpness


def goals(x: Iterate, y: Iterate) -> Goals:
    """The complementarity products of an iterate, if y = x, or those of a change y of it."""
    pairs = tuple(jax.vmap(products)(u, w) for u, w in zip(x.pairs, y.pairs, strict=True))
    return Goals(pairs, y.limits.push * y.limits.gap)


def kinematics(dynamics: SmoothDynamics, problem: Problem, v: Array) -> tuple[SpatialKinematics, Array, Array]:
    """Axes at q⁺, the Jacobian of all bodies' twists, and the twists."""
    ancestry = dynamics.ancestry
    spatial = dynamics.spatial_kinematics(integrate(dynamics.layout, problem.q, problem.timestep * v))
    jacobian = jnp.swapaxes(jnp.asarray(ancestry.counts, v.dtype)[:, :, None] * spatial.axes[ancestry.dofs], 1, 2)
    return spatial, jacobian, jnp.einsum("bid,bd->bi", jacobian, v[ancestry.dofs])


def left_of(dynamics: SmoothDynamics, problem: Problem, x: Iterate, inside: tuple[Array, ...]) -> Left:
    """What is left of the equations at an iterate, as a plain function: what implicit derivatives differentiate."""
    spatial, jacobian, twist = kinematics(dynamics, problem, x.v)
    force, left = problem.force, list[Residual]()
    for group, u, local in zip(problem.groups, x.pairs, inside, strict=True):
        bodies = all_bodies(group, spatial, twist)
        frame = bodies.place1.rotation @ local
        rest, w1, w2 = jax.vmap(residual)(group, u, bodies, frame, shift_of(problem, group, u))
        wrench = _wrenches(group, len(jacobian), jax.vmap(lift)(u.growth.point), w1, w2)
        force = force + joint_forces(jnp.asarray(dynamics.ancestry.dofs), jacobian, wrench, len(x.v))
        left.append(rest)
    force = force.at[problem.limits.v].add(problem.limits.sign * x.limits.push)
    return Left(problem.inertia @ (x.v - problem.v) / problem.timestep - force, tuple(left), _limit(problem, x))


def _limit(problem: Problem, x: Iterate) -> Array:
    end = problem.q[problem.limits.q] + problem.timestep * x.v[problem.limits.v]
    return x.limits.gap - problem.limits.sign * (end - problem.limits.bound)


def _wrenches(group: Pair, bodies: int, lifts: Array, w1: Array, w2: Array) -> Array:
    """Wrenches about the contact points, brought to the origin and summed for each body, (nbody, 6)."""
    wrench = jnp.zeros((bodies, 6), w1.dtype).at[group.body1].add(jnp.einsum("kji,kj->ki", lifts, w1))
    return wrench.at[group.body2].add(jnp.einsum("kji,kj->ki", lifts, w2))


def joint_forces(dofs: Array, jacobian: Array, wrench: Array, nv: int) -> Array:
    """What wrenches on bodies ask of the joints, (nv,)."""
    return jnp.zeros(nv, wrench.dtype).at[dofs].add(jnp.einsum("bid,bi->bd", jacobian, wrench))


def assemble(dynamics: SmoothDynamics, problem: Problem, x: Iterate) -> tuple[System, Iterate]:
    """Newton's system at an iterate, and the iterate with its tangents brought in line.

    A body moves with few of the degrees of freedom, so all that belongs to bodies is kept short: work grows with pairs.
    """
    h, ancestry, nv = problem.timestep, dynamics.ancestry, len(x.v)
    dofs, counts = jnp.asarray(ancestry.dofs), jnp.asarray(ancestry.counts, x.v.dtype)
    spatial, jacobian, twist = kinematics(dynamics, problem, x.v)
    axes = spatial.axes
    own_axes = axes[dofs]
    path = h * integrate_jacobians(dynamics.layout, problem.q, h * x.v)[1]
    own_path = path[dofs[:, :, None], dofs[:, None, :]] * counts[:, :, None] * counts[:, None, :]
    carried = jnp.asarray(ancestry.axes[ancestry.dofs[:, :, None], ancestry.dofs[:, None, :]], x.v.dtype)
    later = jnp.einsum("bjk,bk,bki->bji", carried, counts * x.v[dofs], own_axes)  # of a twist, what j carries along
    turned = jnp.swapaxes(cross(own_axes, later) * counts[:, :, None], 1, 2)
    moves, twists = jacobian @ own_path, jacobian + turned @ own_path

    wrench, matrix = jnp.zeros((len(dofs), 6)), problem.inertia / h
    pairs, left, linears = list[Unknowns](), list[Residual](), list[Linear]()
    lifts, reactions, inside = list[Array](), list[Array](), list[Array]()
    for group, u in zip(problem.groups, x.pairs, strict=True):
        bodies, a, b = all_bodies(group, spatial, twist), group.body1, group.body2
        frame, u_aligned = jax.vmap(aligned)(group, u, bodies)
        linear = jax.vmap(linearise)(group, u_aligned, bodies, frame, shift_of(problem, group, u))
        at = jax.vmap(lift)(u.growth.point)
        reaction = jax.vmap(_reaction)(group, u_aligned, linear)
        blocks = jax.vmap(_stiffness)(linear, reaction[:, -12:], at, bodies.twist2 - bodies.twist1)
        for side, other, block in ((a, a, 0), (a, b, 1), (b, a, 2), (b, b, 3)):
            change = blocks[:, block, 0] @ moves[other] + blocks[:, block, 1] @ twists[other]
            share = jnp.swapaxes(jacobian[side], 1, 2) @ change
            matrix = matrix.at[dofs[side][:, :, None], dofs[other][:, None, :]].add(-share)
        wrench += _wrenches(group, len(dofs), at, linear.wrench1, linear.wrench2)
        pairs.append(u_aligned)
        inside.append(jnp.swapaxes(bodies.place1.rotation, 1, 2) @ frame)
        left.append(linear.residual)
        linears.append(linear)
        lifts.append(at)
        reactions.append(reaction)

    turning = _turning(dynamics, axes, own_path, wrench)
    force = problem.force + joint_forces(dofs, jacobian, wrench, nv)
    force = force.at[problem.limits.v].add(problem.limits.sign * x.limits.push)
    wall = jnp.zeros_like(x.v).at[problem.limits.v].add(h * x.limits.push / x.limits.gap)
    x = x._replace(pairs=tuple(pairs))
    rest = Left(problem.inertia @ (x.v - problem.v) / h - force, tuple(left), _limit(problem, x))
    matrix = matrix + turning + jnp.diag(wall)
    return System(
        rest,
        matrix,
        turning,
        jacobian,
        moves,
        twists,
        tuple(linears),
        tuple(lifts),
        dofs,
        tuple(reactions),
        tuple(inside),
    ), x


def _turning(dynamics: SmoothDynamics, axes: Array, own_path: Array, wrench: Array) -> Array:
    """How forces that joints feel change as their axes turn with q⁺: minus the derivative, by v⁺, (nv, nv)."""
    ancestry = dynamics.ancestry
    total = jnp.einsum("bk,bi->ki", jnp.asarray(ancestry.bodies, axes.dtype), wrench)
    above = ancestry.dofs[ancestry.body]  # of each degree of freedom, those that carry its body
    carried = jnp.asarray(
        ancestry.axes[above, np.arange(len(above))[:, None]] * ancestry.counts[ancestry.body], axes.dtype
    )
    by_q = carried * jnp.einsum(
        "kji,ki->kj", cross(axes[above], jnp.broadcast_to(axes[:, None], (*above.shape, 6))), total
    )
    by_v = jnp.einsum("kj,kjd->kd", by_q, own_path[ancestry.body])
    return jnp.zeros((len(axes), len(axes))).at[np.arange(len(axes))[:, None], above].add(-by_v)


def _reaction(pair: Pair, x: Unknowns, linear: Linear) -> Array:
    """How a pair's unknowns, then the wrenches on bodies 1 and 2, follow unit motions: six of d, six of nu."""
    nothing = jax.tree.map(jnp.zeros_like, (linear.residual, products(x, x)))
    left, goal = nothing
    return jax.vmap(lambda e: _packed(*respond(pair, x, linear, left, goal, e[:6], e[6:])), out_axes=1)(jnp.eye(12))


def _packed(*answer: Any) -> Array:
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(answer)])


def _stiffness(linear: Linear, wrenches: Array, at: Array, twist: Array) -> Array:
    """How the wrenches on both bodies change with the bodies' displacements and twists, (4, 2, 6, 6).

    First axis: on 1 by 1, on 1 by 2, on 2 by 1, on 2 by 2. Second: by displacement, by twist; all about the origin.
    """
    units = jnp.stack([wrenches[:6], wrenches[6:]])
    by_move, by_twist = at.T @ units[:, :, :6] @ at, at.T @ units[:, :, 6:] @ at
    # What moves with body 1 takes the relative twist and the wrenches along.
    one = jnp.eye(6)
    carry = jax.vmap(lambda e: cross(e, at @ twist), out_axes=1)(one)
    both = jnp.stack([linear.wrench1, linear.wrench2])
    along = jax.vmap(jax.vmap(dual_cross, (0, None), 1), (None, 0))(one, both)
    own = at.T @ (along - units[:, :, 6:] @ carry) @ at
    first, second = jnp.stack([own - by_move, -by_twist], 1), jnp.stack([by_move, by_twist], 1)
    return jnp.stack([first, second], 1).reshape(4, 2, 6, 6)


def direction(problem: Problem, x: Iterate, system: System, factor: Any, left: Left, target: Goals) -> Iterate:
    """Newton's step for what is left of the equations and a wanted change of the products, refined once.

    Sticking friction and closed contacts are stiff as 1/ρ. At small ρ, what rounding leaves of the forces that have to
    balance is worth a second solve.
    """
    none = jnp.zeros(6)
    answer = jax.vmap(lambda pair, u, linear, rest, goal: _packed(*respond(pair, u, linear, rest, goal, none, none)))
    alone = tuple(answer(*a) for a in zip(problem.groups, x.pairs, system.pairs, left.pairs, target.pairs, strict=True))
    limits = problem.limits
    stop_gap = -left.limits
    stop_push = (target.limits - x.limits.push * stop_gap) / x.limits.gap
    given = _answered_forces(problem, system, alone, len(x.v)).at[limits.v].add(limits.sign * stop_push)
    dv = lu_solve(factor, given - left.v)
    answers = _following(problem, x, system, alone, dv)
    wall = jnp.zeros_like(dv).at[limits.v].add(problem.timestep * x.limits.push / x.limits.gap)
    force = _answered_forces(problem, system, answers, len(x.v)).at[limits.v].add(limits.sign * stop_push)
    missing = force - left.v - problem.inertia @ dv / problem.timestep - system.turning @ dv - wall * dv
    again = lu_solve(factor, missing)
    answers, dv = _following(problem, x, system, answers, again), dv + again
    push = limits.sign * problem.timestep * dv[limits.v]
    pairs = tuple(_unpacked(u, answer) for u, answer in zip(x.pairs, answers, strict=True))
    return Iterate(dv, pairs, Stop(stop_push - x.limits.push / x.limits.gap * push, stop_gap + push))


def sensitivity(
    dynamics: SmoothDynamics, problem: Problem, x: Iterate, matrix: Array, inside: tuple[Array, ...], change: Left
) -> Array:
    """How v⁺ answers to a change of the residual, products held: the implicit function theorem, linear in the change.

    Newton's matrix is the one that the method ended with; only the pairs' own blocks are made anew.
    """
    spatial, jacobian, twist = kinematics(dynamics, problem, x.v)
    none, wrench = jnp.zeros(6), jnp.zeros((len(jacobian), 6))
    for group, u, local, rest in zip(problem.groups, x.pairs, inside, change.pairs, strict=True):
        bodies = all_bodies(group, spatial, twist)
        frame = bodies.place1.rotation @ local
        linear = jax.vmap(linearise)(group, u, bodies, frame, shift_of(problem, group, u))
        goal = jax.tree.map(jnp.zeros_like, jax.vmap(products)(u, u))
        _, w1, w2 = jax.vmap(respond, (0, 0, 0, 0, 0, None, None))(group, u, linear, rest, goal, none, none)
        wrench += _wrenches(group, len(wrench), jax.vmap(lift)(u.growth.point), w1, w2)
    push = x.limits.push / x.limits.gap * change.limits
    given = joint_forces(jnp.asarray(dynamics.ancestry.dofs), jacobian, wrench, len(x.v))
    given = given.at[problem.limits.v].add(problem.limits.sign * push)
    return lu_solve(lu_factor(matrix), given - change.v)


def _following(
    problem: Problem, x: Iterate, system: System, answers: tuple[Array, ...], dv: Array
) -> tuple[Array, ...]:
    """Packed answers of all pairs, plus what comes of a change dv of the velocities."""
    own, now = dv[system.dofs], x.v[system.dofs]
    moves, twists = jnp.einsum("bid,bd->bi", system.moves, own), jnp.einsum("bid,bd->bi", system.twists, own)
    twist = jnp.einsum("bid,bd->bi", system.jacobian, now)

    def one(pair: Pair, linear: Linear, at: Array, reaction: Array, answer: Array) -> Array:
        a, b = pair.body1, pair.body2
        own = at @ moves[a]
        d, nu = at @ moves[b] - own, at @ (twists[b] - twists[a]) - cross(own, at @ (twist[b] - twist[a]))
        answer = answer + reaction @ jnp.concatenate([d, nu])
        # The point and the wrenches move along with body 1.
        carried = jnp.concatenate([dual_cross(own, linear.wrench1), dual_cross(own, linear.wrench2)])
        return answer.at[:3].add(own[3:]).at[-12:].add(carried)

    return tuple(
        jax.vmap(one)(*a)
        for a in zip(problem.groups, system.pairs, system.lifts, system.reactions, answers, strict=True)
    )


def _unpacked(like: Unknowns, answers: Array) -> Unknowns:
    leaves, tree = jax.tree.flatten(like)
    parts, at = list[Array](), 0
    for leaf in leaves:
        size = leaf[0].size
        parts.append(answers[:, at : at + size].reshape(leaf.shape))
        at += size
    return jax.tree.unflatten(tree, parts)


def _answered_forces(problem: Problem, system: System, answers: tuple[Array, ...], nv: int) -> Array:
    """Joint forces of the wrenches in packed answers."""
    wrench = jnp.zeros(system.jacobian.shape[:2])
    for group, at, answer in zip(problem.groups, system.lifts, answers, strict=True):
        wrench += _wrenches(group, len(wrench), at, answer[:, -12:-6], answer[:, -6:])
    return joint_forces(system.dofs, system.jacobian, wrench, nv)
