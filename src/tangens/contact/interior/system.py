"""All pairs of a scene and its bodies: one Newton system of the size of the velocities."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tangens.contact.interior.pair import Bodies, Change, Linear, PairData, Residual, Target, Unknowns, aligned, linearise, respond
from tangens.dynamics.screws import cross
from tangens.dynamics.smooth import SmoothDynamics
from tangens.dynamics.tangent_jax import integrate, integrate_jacobians

Array = jax.Array


class Problem(NamedTuple):
    """One step: where the scene is, and what pulls on it."""

    q: Array
    v: Array
    inertia: Array
    force: Array
    groups: tuple[PairData, ...]
    sharpness: Array
    relaxation: Array
    timestep: Array


class Iterate(NamedTuple):
    v: Array
    pairs: tuple[Unknowns, ...]


class System(NamedTuple):
    """Newton's equations at an iterate."""

    residual: Array
    matrix: Array
    turning: Array
    jacobian: Array
    twist_q: Array
    twist_v: Array
    pairs: tuple[Linear, ...]
    at: tuple[Array, ...]


def lift(p: Array) -> Array:
    """A: a twist about the origin as (ω, velocity at p)."""
    one, zero = jnp.eye(3), jnp.zeros((3, 3))
    return jnp.block([[one, zero], [jnp.cross(jnp.eye(3), p).T, one]])


def twist_matrix(v: Array) -> Array:
    """Matrix of ξ ↦ cross(ξ, v)."""
    return jax.vmap(lambda e: cross(e, v), out_axes=1)(jnp.eye(6))


def dual_matrix(w: Array) -> Array:
    """Matrix of ξ ↦ how a wrench that is carried by ξ changes."""
    return jax.vmap(lambda e: dual_cross(e, w), out_axes=1)(jnp.eye(6))


def bodies_of(data: PairData, position, rotation, twist) -> Bodies:
    a, b = data.body1, data.body2
    return Bodies(position[a], rotation[a], position[b], rotation[b], twist[a], twist[b])


def assemble(dynamics: SmoothDynamics, problem: Problem, x: Iterate) -> tuple[System, Iterate]:
    h, carriage = problem.timestep, dynamics.carriage
    q = integrate(dynamics.layout, problem.q, h * x.v)
    screws = dynamics.screws(q)
    S, mask = screws.axes, jnp.asarray(carriage.bodies)
    _, P = integrate_jacobians(dynamics.layout, problem.q, h * x.v)
    P = h * P
    J = mask[:, None, :] * S.T  # (B, 6, nv)
    twist = J @ x.v
    carried = jnp.asarray(carriage.axes)
    later = jnp.einsum("jk,bk,ki->bji", carried, mask * x.v, S)
    D = jnp.swapaxes(cross(jnp.broadcast_to(S, later.shape), later), 1, 2)
    X, Z = J @ P, J + D @ P
    nb = mask.shape[0]
    wrench, matrix = jnp.zeros((nb, 6)), problem.inertia / h
    pairs, lins, ats = [], [], []
    for data, u in zip(problem.groups, x.pairs):
        bodies = jax.vmap(bodies_of, (0, None, None, None))(data, screws.position, screws.rotation, twist)
        frame, u = jax.vmap(aligned)(data, u, bodies)
        shift = problem.relaxation * u.slack.shape[1] / problem.sharpness
        lin = jax.vmap(linearise, (0, 0, 0, 0, None, None))(data, u, bodies, frame, problem.sharpness, shift)
        units = jax.vmap(unit_responses)(data, u, lin)
        K, A = jax.vmap(stiffness)(u.point, bodies.twist2 - bodies.twist1, lin, *units)
        KX, KV = K
        a, b = data.body1, data.body2
        XX, ZZ = jnp.concatenate([X[a], X[b]], 1), jnp.concatenate([Z[a], Z[b]], 1)
        change = KX @ XX + KV @ ZZ
        matrix -= jnp.einsum("kin,kim->nm", jnp.concatenate([J[a], J[b]], 1), change)
        w1, w2 = jnp.einsum("kji,kj->ki", A, lin.wrench1), jnp.einsum("kji,kj->ki", A, lin.wrench2)
        wrench = wrench.at[a].add(w1).at[b].add(w2)
        pairs.append(u); lins.append(lin); ats.append(A)
    total = jnp.einsum("bk,bi->ki", mask, wrench)
    turning = jnp.einsum("jk,jki,ki->kj", carried, cross(S[:, None], S[None]), total)
    turning = -turning @ P
    matrix += turning
    residual = problem.inertia @ (x.v - problem.v) / h - problem.force - jnp.einsum("bin,bi->n", J, wrench)
    return System(residual, matrix, turning, J, X, Z, tuple(lins), tuple(ats)), Iterate(x.v, tuple(pairs))


def unit_responses(data, u, lin):
    zero, none = jax.tree.map(jnp.zeros_like, lin.residual), Target(jnp.zeros_like(u.slack), jnp.zeros_like(u.push), jnp.zeros(1 + u.grip.shape[0]))
    def one(e):
        _, w1, w2 = respond(data, u, lin, zero, none, e[:6], e[6:])
        return w1, w2
    return jax.vmap(one, out_axes=1)(jnp.eye(12))


def stiffness(p, twist, lin, R1, R2):
    A = lift(p)
    V = twist_matrix(A @ twist)
    W1, W2 = dual_matrix(lin.wrench1), dual_matrix(lin.wrench2)
    def by(R, W):
        Rd, Rn = R[:, :6] @ A, R[:, 6:] @ A
        first = -Rd - R[:, 6:] @ V @ A + W @ A
        return jnp.concatenate([A.T @ first, A.T @ Rd], 1), jnp.concatenate([-A.T @ Rn, A.T @ Rn], 1)
    (x1, v1), (x2, v2) = by(R1, W1), by(R2, W2)
    return (jnp.concatenate([x1, x2]), jnp.concatenate([v1, v2])), A


def solve(problem: Problem, x: Iterate, system: System, factor: Any, residuals: Any, targets: Any) -> tuple[Array, Any]:
    """Newton's direction for given residuals and targets, refined once.

    Sticking friction and closed contacts are stiff as 1/ρ. What rounding leaves of a force that they should balance is
    worth a second solve at small ρ.
    """
    nothing = jnp.zeros_like(x.v)
    _, given = _respond(problem, x, system, residuals[1], targets, nothing)
    dv = jax.scipy.linalg.lu_solve(factor, given - residuals[0])
    changes, given = _respond(problem, x, system, residuals[1], targets, dv)
    left = given - residuals[0] - problem.inertia @ dv / problem.timestep - system.turning @ dv
    again = jax.scipy.linalg.lu_solve(factor, left)
    zero = jax.tree.map(jnp.zeros_like, (residuals[1], targets))
    more, _ = _respond(problem, x, system, *zero, again)
    return dv + again, jax.tree.map(jnp.add, changes, more)


def _respond(problem: Problem, x: Iterate, system: System, residuals: Any, targets: Any, dv: Array) -> tuple[Any, Array]:
    """Changes of all pairs' unknowns as the velocities change by dv, and of the joint forces of their wrenches."""
    xi, zeta = system.twist_q @ dv, system.twist_v @ dv
    twist = system.jacobian @ x.v
    changes, force = [], jnp.zeros_like(dv)
    for data, u, lin, A, res, t in zip(problem.groups, x.pairs, system.pairs, system.at, residuals, targets, strict=True):
        a, b = data.body1, data.body2

        def one(data, u, lin, A, res, t, x1, x2, z1, z2, V):
            x1 = A @ x1
            d, nu = A @ x2 - x1, A @ (z2 - z1) - cross(x1, A @ V)
            change, w1, w2 = respond(data, u, lin, res, t, d, nu)
            w1, w2 = w1 + dual_cross(x1, lin.wrench1), w2 + dual_cross(x1, lin.wrench2)
            return change._replace(point=change.point + x1[3:]), A.T @ w1, A.T @ w2

        change, w1, w2 = jax.vmap(one)(data, u, lin, A, res, t, xi[a], xi[b], zeta[a], zeta[b], twist[b] - twist[a])
        force += jnp.einsum("kin,ki->n", system.jacobian[a], w1) + jnp.einsum("kin,ki->n", system.jacobian[b], w2)
        changes.append(change)
    return tuple(changes), force


def dual_cross(x: Array, w: Array) -> Array:
    """How a wrench changes that is carried along by the displacement x."""
    return jnp.concatenate([jnp.cross(x[:3], w[:3]) + jnp.cross(x[3:], w[3:]), jnp.cross(x[:3], w[3:])])
