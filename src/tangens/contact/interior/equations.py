"""A step as equations: all bodies, all pairs and all other constraints.

    M̃ (v⁺ − v) / h = f + Σ Jᵀ (wrenches of contact) + (forces of constraints),      q⁺ = q ⊕ h·v⁺

Contact is judged where the step ends, at q⁺. A pair's unknowns touch the rest by the frames and twists of two bodies
only. The residual is a plain function of the problem: implicit derivatives differentiate it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tangens.collision.growth import Place
from tangens.contact.interior import constraints
from tangens.contact.interior.cones import Scaling
from tangens.contact.interior.constraints import AtEnd, Bounds, Constraints, evaluated
from tangens.contact.interior.groups import Group, seen
from tangens.contact.interior.pair import Bodies, Pair, PairResidual, Products, Unknowns, evaluate, products
from tangens.dynamics.smooth import SmoothDynamics
from tangens.dynamics.spatial import SpatialKinematics, vector_product
from tangens.dynamics.tangent_jax import integrate

Array = jax.Array


class Problem(NamedTuple):
    """One step to take."""

    q: Array
    v: Array
    inertia: Array
    force: Array
    groups: tuple[Group, ...]
    constraints: Constraints
    timestep: Array
    relaxation: Array
    """ρ: of products, over the weights, lengths and speeds of each pair."""
    ends: StepProducts
    """What complementarity products are to be: one number for all rows of a pair, for its gap, for its cone [J, J, W];
    for each limit and side of dry friction [J, W]."""
    weight: Array
    """About how large the forces are that each degree of freedom has to bear [N or N m], (nv,)."""
    start: Kinematics
    """Where bodies are at q, and how they move."""
    explicit: Array
    """1: forces act on bodies where they are at q, so that no momentum is lost; 0: where they are at q⁺."""


class Iterate(NamedTuple):
    """All unknowns of a step, or a change of them."""

    v: Array
    pairs: tuple[Unknowns, ...]
    bounds: Bounds
    ties: Array
    """Forces of equalities [N or N m], (k,)."""


class StepResidual(NamedTuple):
    """The residual of all equations."""

    motion: Array
    """[N or N m], (nv,)."""
    pairs: tuple[PairResidual, ...]
    constraints: Array


class StepProducts(NamedTuple):
    """Complementarity products, or by how much to change them."""

    pairs: tuple[Products, ...]
    bounds: Array


class Kinematics(NamedTuple):
    """Where bodies are, and how they move."""

    q: Array
    spatial: SpatialKinematics
    jacobian: Array
    """Twist of each body by those entries of v that move it, (nbody, 6, n)."""
    levers: Array
    """The same where forces act on the bodies, at q or at q⁺: what their twists and joint forces come from."""
    twist: Array
    """Of each body, (nbody, 6)."""
    dofs: Array
    """Which entries of v⁺ move each body, (nbody, n)."""


def kinematics(dynamics: SmoothDynamics, problem: Problem, v: Array) -> Kinematics:
    """Bodies where these velocities lead."""
    there = kinematics_at(dynamics, integrate(dynamics.layout, problem.q, problem.timestep * v), v)
    levers = there.jacobian + problem.explicit * (problem.start.jacobian - there.jacobian)
    return there._replace(levers=levers, twist=twists_of(levers, v, there.dofs))


def kinematics_at(dynamics: SmoothDynamics, q: Array, v: Array) -> Kinematics:
    """Bodies at q that move with v."""
    ancestry, spatial = dynamics.ancestry, dynamics.spatial_kinematics(q)
    jacobian = jnp.swapaxes(jnp.asarray(ancestry.counts, v.dtype)[:, :, None] * spatial.axes[ancestry.dofs], 1, 2)
    dofs = jnp.asarray(ancestry.dofs)
    return Kinematics(q, spatial, jacobian, jacobian, twists_of(jacobian, v, dofs), dofs)


def twists_of(jacobian: Array, v: Array, dofs: Array) -> Array:
    """Twists of all bodies, (nbody, 6)."""
    return jnp.einsum("bid,bd->bi", jacobian, v[dofs])


def all_bodies(pairs: Pair, spatial: SpatialKinematics, twist: Array) -> Bodies:
    """The bodies of all pairs of a group."""
    a, b = pairs.body1, pairs.body2
    place1, place2 = (Place(spatial.position[i], spatial.rotation[i]) for i in (a, b))
    return Bodies(place1, place2, twist[a], twist[b])


def shift_of(ends: Products, pairs: Pair) -> Array:
    """What is taken off gaps [m].

    What keeps relaxed shapes from overlapping: the duality gap, a bound of how much α is overestimated. And what they
    have to be apart after a bounce.
    """
    return ends.rows * jnp.sum(pairs.rows, axis=-1) / pairs.sharpness + pairs.apart


def step_products(cones: tuple[Scaling, ...], y: Iterate) -> StepProducts:
    """The complementarity products of an iterate, or those of a change of it, as the iterate's cones are seen."""
    pairs = tuple(jax.vmap(products)(cone, u) for cone, u in zip(cones, y.pairs, strict=True))
    return StepProducts(pairs, y.bounds.force * y.bounds.gap)


def step_residual(dynamics: SmoothDynamics, problem: Problem, x: Iterate, frames: tuple[Array, ...]) -> StepResidual:
    """The residual at an iterate, its contact frames given in the axes of each pair's body 1."""
    kin = kinematics(dynamics, problem, x.v)
    wrench, residuals = jnp.zeros((len(kin.dofs), 6)), list[PairResidual]()
    for group, u, local, ends in zip(problem.groups, x.pairs, frames, problem.ends.pairs, strict=True):
        pairs, bodies = group.pairs, all_bodies(group.pairs, kin.spatial, kin.twist)
        frame = bodies.place1.rotation @ local
        at = seen(group, u, bodies)
        rest, w1, w2 = jax.vmap(evaluate)(pairs, at, u, bodies, frame, shift_of(ends, pairs))
        wrench += body_wrenches(pairs, len(wrench), jax.vmap(lift)(u.growth.point), w1, w2)
        residuals.append(rest)
    at_end = evaluated(problem.constraints, kin.q, kin.spatial, jnp.eye(len(x.v)))
    return joined_residual(problem, x, kin, wrench, tuple(residuals), at_end)


def joined_residual(
    problem: Problem, x: Iterate, kin: Kinematics, wrench: Array, pairs: tuple[PairResidual, ...], at_end: AtEnd
) -> StepResidual:
    """The residual of all equations, from wrenches on bodies, (nbody, 6), residuals of pairs, and other constraints."""
    c, h = problem.constraints, problem.timestep
    force = (
        problem.force
        + joint_forces(kin, wrench, len(x.v))
        + constraints.joint_forces(c, at_end, x.bounds.force, x.ties)
    )
    rest = constraints.residual(c, x.bounds, x.ties, x.v, at_end, problem.relaxation)
    return StepResidual(problem.inertia @ (x.v - problem.v) / h - force, pairs, rest)


def lift(p: Array) -> Array:
    """The matrix that takes a twist about the origin to (ω, velocity at p); its transpose brings wrenches back."""
    return jnp.eye(6).at[3:, :3].set(vector_product(jnp.eye(3), p).T)


def body_wrenches(pairs: Pair, bodies: int, lifts: Array, w1: Array, w2: Array) -> Array:
    """Wrenches about the contact points, brought to the origin and summed for each body, (nbody, 6)."""
    wrench = jnp.zeros((bodies, 6), w1.dtype).at[pairs.body1].add(jnp.einsum("kji,kj->ki", lifts, w1))
    return wrench.at[pairs.body2].add(jnp.einsum("kji,kj->ki", lifts, w2))


def joint_forces(kin: Kinematics, wrench: Array, nv: int) -> Array:
    """What wrenches on bodies ask of the joints, (nv,)."""
    return jnp.zeros(nv, wrench.dtype).at[kin.dofs].add(jnp.einsum("bid,bi->bd", kin.levers, wrench))
