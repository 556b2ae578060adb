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
    def carry(e: Array) -> Array:
        return jnp.concatenate([jnp.cross(e[:3], w[:3]) + jnp.cross(e[3:], w[3:]), jnp.cross(e[:3], w[3:])])
    return jax.vmap(carry, out_axes=1)(jnp.eye(6))


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
    matrix -= turning @ P
    residual = problem.inertia @ (x.v - problem.v) / h - problem.force - jnp.einsum("bin,bi->n", J, wrench)
    return System(residual, matrix, J, X, Z, tuple(lins), tuple(ats)), Iterate(x.v, tuple(pairs))


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


def solve(problem, x: Iterate, system: System, factor, residuals, targets):
    """Newton direction for given residuals and targets."""
    right = -residuals[0]
    for data, u, lin, A, res, t in zip(problem.groups, x.pairs, system.pairs, system.at, residuals[1], targets):
        _, w1, w2 = jax.vmap(respond, (0, 0, 0, 0, 0, None, None))(data, u, lin, res, t, jnp.zeros(6), jnp.zeros(6))
        J = system.jacobian
        w1, w2 = jnp.einsum("kji,kj->ki", A, w1), jnp.einsum("kji,kj->ki", A, w2)
        right += jnp.einsum("kin,ki->n", J[data.body1], w1) + jnp.einsum("kin,ki->n", J[data.body2], w2)
    dv = jax.scipy.linalg.lu_solve(factor, right)
    changes = []
    xi, zeta = system.twist_q @ dv, system.twist_v @ dv
    twist = system.jacobian @ x.v
    for data, u, lin, A, res, t in zip(problem.groups, x.pairs, system.pairs, system.at, residuals[1], targets):
        a, b = data.body1, data.body2
        def one(data, u, lin, A, res, t, x1, x2, z1, z2, V):
            d = A @ (x2 - x1)
            nu = A @ (z2 - z1) - cross(A @ x1, A @ V)
            c, *_ = respond(data, u, lin, res, t, d, nu)
            return c._replace(point=c.point + (A @ x1)[3:])
        changes.append(jax.vmap(one)(data, u, lin, A, res, t, xi[a], xi[b], zeta[a], zeta[b], twist[b] - twist[a]))
    return dv, tuple(changes)
