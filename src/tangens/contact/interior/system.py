"""A step as equations: all bodies, all pairs and joint limits, and Newton's system of the size of the velocities.

    M̃ (v⁺ − v) / h = f + Σ Jᵀ (wrenches of contact) + (forces of limits),      q⁺ = q ⊕ h·v⁺

Contact is judged where the step ends, at q⁺. The unknowns of a pair touch the rest by the frames and twists of two bodies
only, so Newton's matrix is an arrow: each pair is eliminated on its own, all pairs of a kind at once, and what it adds
to the velocities' system is one block. The axes of joints turn as q⁺ changes; `turning` is what that does to the forces.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import lu_solve

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
from tangens.dynamics.screws import Screws, cross
from tangens.dynamics.smooth import SmoothDynamics
from tangens.dynamics.tangent_jax import integrate, integrate_jacobians

Array = jax.Array


class Limits(NamedTuple):
    """Bounds of joints: sign·(q − bound) ≥ 0."""

    q: Array
    """Index of the coordinate."""
    v: Array
    sign: Array
    bound: Array


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
    sharpness: Array
    """Objective of a growth problem over its length [N]."""


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
    """Twist of each body by v⁺, (nbody, 6, nv)."""
    moves: Array
    """Displacement of each body by v⁺."""
    twists: Array
    """Twist of each body by v⁺, counting that its axes turn."""
    pairs: tuple[Linear, ...]
    lifts: tuple[Array, ...]


def lift(p: Array) -> Array:
    """The matrix that takes a twist about the origin to (ω, velocity at p); its transpose brings wrenches back."""
    return jnp.eye(6).at[3:, :3].set(jnp.cross(jnp.eye(3), p).T)


def dual_cross(x: Array, w: Array) -> Array:
    """How a wrench changes that is carried along by the displacement x."""
    return jnp.concatenate([jnp.cross(x[:3], w[:3]) + jnp.cross(x[3:], w[3:]), jnp.cross(x[:3], w[3:])])


def bodies_of(pair: Pair, screws: Screws, twist: Array) -> Bodies:
    """The two bodies of a pair."""
    a, b = pair.body1, pair.body2
    place1, place2 = (Place(screws.position[i], screws.rotation[i]) for i in (a, b))
    return Bodies(place1, place2, twist[a], twist[b])


def all_bodies(group: Pair, screws: Screws, twist: Array) -> Bodies:
    """The bodies of all pairs of a group."""
    return jax.vmap(bodies_of, (0, None, None))(group, screws, twist)


def shift_of(problem: Problem, x: Unknowns) -> Array:
    """What keeps relaxed shapes from overlapping: the duality gap, a bound of how much α is overestimated [m]."""
    return problem.detection * x.growth.slack.shape[-1] / problem.sharpness


def goals(x: Iterate) -> Goals:
    """The complementarity products of an iterate."""
    return Goals(tuple(jax.vmap(products)(u) for u in x.pairs), x.limits.push * x.limits.gap)


def kinematics(dynamics: SmoothDynamics, problem: Problem, v: Array) -> tuple[Screws, Array, Array]:
    """Axes at q⁺, the Jacobian of all bodies' twists, and the twists."""
    screws = dynamics.screws(integrate(dynamics.layout, problem.q, problem.timestep * v))
    jacobian = jnp.asarray(dynamics.carriage.bodies, v.dtype)[:, None, :] * screws.axes.T
    return screws, jacobian, jacobian @ v


def frames(dynamics: SmoothDynamics, problem: Problem, x: Iterate) -> tuple[tuple[Array, ...], Iterate]:
    """Contact frames at an iterate in the axes of each pair's body 1, and the iterate with its tangents in them."""
    screws, _, twist = kinematics(dynamics, problem, x.v)
    inside, pairs = list[Array](), list[Unknowns]()
    for group, u in zip(problem.groups, x.pairs, strict=True):
        bodies = all_bodies(group, screws, twist)
        frame, u_aligned = jax.vmap(aligned)(group, u, bodies)
        inside.append(jnp.swapaxes(bodies.place1.rotation, 1, 2) @ frame)
        pairs.append(u_aligned)
    return tuple(inside), x._replace(pairs=tuple(pairs))


def left_of(dynamics: SmoothDynamics, problem: Problem, x: Iterate, inside: tuple[Array, ...]) -> Left:
    """What is left of the equations at an iterate, as a plain function: what implicit derivatives differentiate."""
    screws, jacobian, twist = kinematics(dynamics, problem, x.v)
    force, left = problem.force, list[Residual]()
    for group, u, local in zip(problem.groups, x.pairs, inside, strict=True):
        bodies = all_bodies(group, screws, twist)
        frame = bodies.place1.rotation @ local
        one = jax.vmap(residual, (0, 0, 0, 0, None, None))
        rest, w1, w2 = one(group, u, bodies, frame, problem.sharpness, shift_of(problem, u))
        force = force + _joint_forces(group, jacobian, jax.vmap(lift)(u.growth.point), w1, w2)
        left.append(rest)
    force = force.at[problem.limits.v].add(problem.limits.sign * x.limits.push)
    return Left(problem.inertia @ (x.v - problem.v) / problem.timestep - force, tuple(left), _limit(problem, x))


def _limit(problem: Problem, x: Iterate) -> Array:
    end = problem.q[problem.limits.q] + problem.timestep * x.v[problem.limits.v]
    return x.limits.gap - problem.limits.sign * (end - problem.limits.bound)


def _joint_forces(group: Pair, jacobian: Array, lifts: Array, w1: Array, w2: Array) -> Array:
    """Joint forces of wrenches about the contact points."""
    wrench = jnp.zeros(jacobian.shape[:2], w1.dtype)
    wrench = wrench.at[group.body1].add(jnp.einsum("kji,kj->ki", lifts, w1))
    wrench = wrench.at[group.body2].add(jnp.einsum("kji,kj->ki", lifts, w2))
    return jnp.einsum("bin,bi->n", jacobian, wrench)


def assemble(dynamics: SmoothDynamics, problem: Problem, x: Iterate) -> tuple[System, Iterate]:
    """Newton's system at an iterate, and the iterate with its tangents brought in line."""
    h, mask = problem.timestep, jnp.asarray(dynamics.carriage.bodies, x.v.dtype)
    screws, jacobian, twist = kinematics(dynamics, problem, x.v)
    axes, carried = screws.axes, jnp.asarray(dynamics.carriage.axes, x.v.dtype)
    path = h * integrate_jacobians(dynamics.layout, problem.q, h * x.v)[1]
    later = jnp.einsum("jk,bk,ki->bji", carried, mask * x.v, axes)  # of each twist, what j carries along
    turned = jnp.swapaxes(cross(jnp.broadcast_to(axes, later.shape), later), 1, 2)
    moves, twists = jacobian @ path, jacobian + turned @ path

    nb = len(mask)
    wrench, stiff = jnp.zeros((nb, 6)), jnp.zeros((2, nb, nb, 6, 6))
    force, pairs, left, linears, lifts = problem.force, list[Unknowns](), list[Residual](), list[Linear](), list[Array]()
    for group, u in zip(problem.groups, x.pairs, strict=True):
        bodies, a, b = all_bodies(group, screws, twist), group.body1, group.body2
        frame, u_aligned = jax.vmap(aligned)(group, u, bodies)
        one = jax.vmap(linearise, (0, 0, 0, 0, None, None))
        linear = one(group, u_aligned, bodies, frame, problem.sharpness, shift_of(problem, u))
        at = jax.vmap(lift)(u.growth.point)
        blocks = jax.vmap(_stiffness)(group, u_aligned, linear, at, bodies.twist2 - bodies.twist1)
        for side, other, block in ((a, a, 0), (a, b, 1), (b, a, 2), (b, b, 3)):
            stiff = stiff.at[:, side, other].add(jnp.swapaxes(blocks[:, block], 0, 1))
        wrench = wrench.at[a].add(jnp.einsum("kji,kj->ki", at, linear.wrench1))
        wrench = wrench.at[b].add(jnp.einsum("kji,kj->ki", at, linear.wrench2))
        pairs.append(u_aligned)
        left.append(linear.residual)
        linears.append(linear)
        lifts.append(at)

    carried_wrench = jnp.einsum("bk,bi->ki", mask, wrench)
    turning = -jnp.einsum("jk,jki,ki->kj", carried, cross(axes[:, None], axes[None]), carried_wrench) @ path
    force = force + jnp.einsum("bin,bi->n", jacobian, wrench)
    force = force.at[problem.limits.v].add(problem.limits.sign * x.limits.push)
    wall = jnp.zeros_like(x.v).at[problem.limits.v].add(h * x.limits.push / x.limits.gap)
    change = jnp.einsum("abij,bjn->ain", stiff[0], moves) + jnp.einsum("abij,bjn->ain", stiff[1], twists)
    matrix = problem.inertia / h + jnp.diag(wall) + turning - jnp.einsum("bin,bim->nm", jacobian, change)
    x = x._replace(pairs=tuple(pairs))
    rest = Left(problem.inertia @ (x.v - problem.v) / h - force, tuple(left), _limit(problem, x))
    return System(rest, matrix, turning, jacobian, moves, twists, tuple(linears), tuple(lifts)), x


def _stiffness(pair: Pair, x: Unknowns, linear: Linear, at: Array, twist: Array) -> Array:
    """How the wrenches on both bodies change with the bodies' displacements and twists, (4, 2, 6, 6).

    First axis: on 1 by 1, on 1 by 2, on 2 by 1, on 2 by 2. Second: by displacement, by twist; all about the origin.
    """
    nothing = jax.tree.map(jnp.zeros_like, (linear.residual, products(x)))

    def unit_motion(e: Array) -> tuple[Array, Array]:
        _, w1, w2 = respond(pair, x, linear, *nothing, e[:6], e[6:])
        return w1, w2

    blocks = []
    carry = jax.vmap(lambda e: cross(e, at @ twist), out_axes=1)(jnp.eye(6))
    for unit, wrench in zip(
        jax.vmap(unit_motion, out_axes=1)(jnp.eye(12)), (linear.wrench1, linear.wrench2), strict=True
    ):
        by_move, by_twist = at.T @ unit[:, :6] @ at, at.T @ unit[:, 6:] @ at
        # What moves with body 1 takes the relative twist and the wrench along.
        along = jax.vmap(lambda e, w=wrench: dual_cross(e, w), out_axes=1)(jnp.eye(6))
        own = at.T @ (along - unit[:, 6:] @ carry) @ at
        blocks += [jnp.stack([own - by_move, -by_twist]), jnp.stack([by_move, by_twist])]
    return jnp.stack(blocks)


def direction(problem: Problem, x: Iterate, system: System, factor: Any, left: Left, target: Goals) -> Iterate:
    """Newton's step for what is left of the equations and a wanted change of the products, refined once.

    Sticking friction and closed contacts are stiff as 1/ρ. At small ρ, what rounding leaves of the forces that have to
    balance is worth a second solve.
    """
    _, given = _follow(problem, x, system, left, target, jnp.zeros_like(x.v))
    dv = lu_solve(factor, given - left.v)
    change, given = _follow(problem, x, system, left, target, dv)
    missing = given - left.v - problem.inertia @ dv / problem.timestep - system.turning @ dv
    again = lu_solve(factor, missing)
    nothing = jax.tree.map(jnp.zeros_like, (left, target))
    more, _ = _follow(problem, x, system, *nothing, again)
    return jax.tree.map(jnp.add, change, more)


def _follow(
    problem: Problem, x: Iterate, system: System, left: Left, target: Goals, dv: Array
) -> tuple[Iterate, Array]:
    """How all unknowns follow a change of the velocities, and the change of joint forces that comes of it."""
    moves, twists, twist = system.moves @ dv, system.twists @ dv, system.jacobian @ x.v
    force, pairs = jnp.zeros_like(dv), list[Unknowns]()

    def one(
        pair: Pair, u: Unknowns, linear: Linear, at: Array, rest: Residual, goal: Products
    ) -> tuple[Unknowns, Array, Array]:
        a, b = pair.body1, pair.body2
        own = at @ moves[a]
        d, nu = at @ moves[b] - own, at @ (twists[b] - twists[a]) - cross(own, at @ (twist[b] - twist[a]))
        change, w1, w2 = respond(pair, u, linear, rest, goal, d, nu)
        grown = change.growth._replace(point=change.growth.point + own[3:])
        return change._replace(growth=grown), w1 + dual_cross(own, linear.wrench1), w2 + dual_cross(own, linear.wrench2)

    for group, u, linear, at, rest, goal in zip(
        problem.groups, x.pairs, system.pairs, system.lifts, left.pairs, target.pairs, strict=True
    ):
        change, w1, w2 = jax.vmap(one)(group, u, linear, at, rest, goal)
        force += _joint_forces(group, system.jacobian, at, w1, w2)
        pairs.append(change)
    limits = problem.limits
    gap = -left.limits + limits.sign * problem.timestep * dv[limits.v]
    push = (target.limits - x.limits.push * gap) / x.limits.gap
    force = force.at[limits.v].add(limits.sign * push)
    return Iterate(dv, tuple(pairs), Stop(push, gap)), force
