"""Newton's matrix of a step, eliminated down to a system of the size of the velocities.

Newton's matrix is an arrow: each pair is eliminated on its own, all pairs of a group at once, and what it adds to the
velocities' system is one block. Joint axes turn as q⁺ changes; `turning` is what that does to the forces.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tangens.contact.interior import constraints
from tangens.contact.interior.constraints import AtEnd, evaluated
from tangens.contact.interior.equations import (
    Iterate,
    Kinematics,
    Problem,
    StepResidual,
    all_bodies,
    body_wrenches,
    joined_residual,
    kinematics,
    lift,
    shift_of,
)
from tangens.contact.interior.groups import seen
from tangens.contact.interior.pair import (
    Linear,
    Pair,
    Response,
    Unknowns,
    aligned,
    linearise,
    no_products,
    respond,
)
from tangens.dynamics.smooth import SmoothDynamics
from tangens.dynamics.spatial import cross, vector_product
from tangens.dynamics.tangent_jax import integrate_jacobians

Array = jax.Array


class GroupSystem(NamedTuple):
    """Pairs of a group at an iterate, linearised."""

    linear: Linear
    lift: Array
    """To each contact point, (n, 6, 6)."""
    reaction: Array
    """How a `Response`, packed, follows motions of the bodies, six of displacement and six of twist, (n, k, 12)."""
    frame: Array
    """Contact frames in the axes of each pair's body 1."""


class System(NamedTuple):
    """Newton's equations at an iterate."""

    residual: StepResidual
    matrix: Array
    kinematics: Kinematics
    moves: Array
    """Displacement of each body by those entries of v⁺ that move it, (nbody, 6, n)."""
    twists: Array
    """Twist of each body by v⁺ likewise, counting that its axes turn."""
    groups: tuple[GroupSystem, ...]
    at_end: AtEnd
    own: Array
    """The part of the matrix that does not come from pairs."""


def assemble(dynamics: SmoothDynamics, problem: Problem, x: Iterate) -> tuple[System, Iterate]:
    """Newton's system at an iterate, and the iterate with its tangents brought in line.

    A body moves with few of the degrees of freedom, so all that belongs to bodies is kept short: work grows with pairs.
    """
    kin = kinematics(dynamics, problem, x.v)
    path, own_path, moves, twists = _paths(dynamics, problem, x.v, kin)
    wrench, stiff = jnp.zeros((len(kin.dofs), 6)), jnp.zeros_like(problem.inertia)
    pairs, groups = list[Unknowns](), list[GroupSystem]()
    for group, unaligned, ends in zip(problem.groups, x.pairs, problem.ends.pairs, strict=True):
        own_pairs, bodies = group.pairs, all_bodies(group.pairs, kin.spatial, kin.twist)
        shapes = seen(group, unaligned, bodies)
        frame, u = jax.vmap(aligned)(shapes, unaligned, bodies)
        linear = jax.vmap(linearise)(own_pairs, shapes, u, bodies, frame, shift_of(ends, own_pairs))
        at = jax.vmap(lift)(u.growth.point)
        reaction = jax.vmap(_reaction)(own_pairs, u, linear)
        blocks = jax.vmap(_stiffness)(linear, reaction, at, bodies.twist2 - bodies.twist1)
        stiff = _add_blocks(stiff, own_pairs, blocks, kin, moves, twists)
        wrench += body_wrenches(own_pairs, len(wrench), at, linear.wrench1, linear.wrench2)
        pairs.append(u)
        local = jnp.swapaxes(bodies.place1.rotation, 1, 2) @ frame
        groups.append(GroupSystem(linear, at, jax.vmap(_packed)(reaction), local))

    x = x._replace(pairs=tuple(pairs))
    c = problem.constraints
    at_end = evaluated(c, kin.q, kin.spatial, path)
    residual = joined_residual(problem, x, kin, wrench, tuple(group.linear.residual for group in groups), at_end)
    own = problem.inertia / problem.timestep + constraints.stiffness(
        c, x.bounds, at_end, kin.q, path, problem.relaxation
    )
    own += (1 - problem.explicit) * _turning(dynamics, kin.spatial.axes, own_path, wrench)
    return System(residual, own + stiff, kin, moves, twists, tuple(groups), at_end, own), x


def _paths(dynamics: SmoothDynamics, problem: Problem, v: Array, kin: Kinematics) -> tuple[Array, ...]:
    """How q⁺ changes with v⁺; and how q⁺, displacements and twists of each body do with its own entries of v⁺."""
    h, ancestry, dofs = problem.timestep, dynamics.ancestry, kin.dofs
    counts, own_axes = jnp.asarray(ancestry.counts, v.dtype), kin.spatial.axes[dofs]
    path = h * integrate_jacobians(dynamics.layout, problem.q, h * v)[1]
    own_path = path[dofs[:, :, None], dofs[:, None, :]] * counts[:, :, None] * counts[:, None, :]
    carried = jnp.asarray(ancestry.axes[ancestry.dofs[:, :, None], ancestry.dofs[:, None, :]], v.dtype)
    later = jnp.einsum("bjk,bk,bki->bji", carried, counts * v[dofs], own_axes)  # of a twist, what j carries along
    turned = (1 - problem.explicit) * jnp.swapaxes(cross(own_axes, later) * counts[:, :, None], 1, 2)
    return path, own_path, kin.jacobian @ own_path, kin.levers + turned @ own_path


def _add_blocks(matrix: Array, pairs: Pair, blocks: Array, kin: Kinematics, moves: Array, twists: Array) -> Array:
    """The matrix with the stiffness of a group's pairs."""
    bodies = jnp.stack([pairs.body1, pairs.body2], axis=1)
    dofs, levers = kin.dofs[bodies], kin.levers[bodies]
    motions = jnp.concatenate([moves, twists], axis=1)[bodies]
    share = jnp.einsum("nsid,nstiy,ntye->nsdte", levers, blocks, motions)
    return matrix.at[dofs[:, :, :, None, None], dofs[:, None, None, :, :]].add(-share)


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


def _reaction(pair: Pair, x: Unknowns, linear: Linear) -> Response:
    """How a pair follows unit motions, six of displacement and six of twist, on a last axis of 12."""
    residual, target = jax.tree.map(jnp.zeros_like, linear.residual), no_products(x)
    return jax.vmap(lambda e: respond(pair, x, linear, residual, target, e[:6], e[6:]), out_axes=-1)(jnp.eye(12))


def _packed(reaction: Response) -> Array:
    """All rows of a reaction in one array, (k, 12): one product with a motion instead of a dozen."""
    return jnp.concatenate([leaf.reshape(-1, 12) for leaf in jax.tree.leaves(reaction)])


def _stiffness(linear: Linear, reaction: Response, at: Array, twist: Array) -> Array:
    """How the wrenches on both bodies change with the bodies' displacements and twists, (2, 2, 6, 12).

    Of each body by each body; last axis: by displacement, by twist; all about the origin.
    """
    units = jnp.stack([reaction.wrench1, reaction.wrench2])
    by_move, by_twist = at.T @ units[:, :, :6] @ at, at.T @ units[:, :, 6:] @ at
    # What moves with body 1 takes the relative twist and the wrenches along.
    one = jnp.eye(6)
    carry = jax.vmap(lambda e: cross(e, at @ twist), out_axes=1)(one)
    both = jnp.stack([linear.wrench1, linear.wrench2])
    along = jax.vmap(jax.vmap(carried_wrench, (0, None), 1), (None, 0))(one, both)
    own = at.T @ (along - units[:, :, 6:] @ carry) @ at
    first, second = jnp.concatenate([own - by_move, -by_twist], 2), jnp.concatenate([by_move, by_twist], 2)
    return jnp.stack([first, second], 1)


def carried_wrench(x: Array, w: Array) -> Array:
    """How a wrench changes that is carried along by the displacement x."""
    return jnp.concatenate([vector_product(x[:3], w[:3]) + vector_product(x[3:], w[3:]), vector_product(x[:3], w[3:])])
