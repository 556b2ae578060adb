"""The interior-point method: Mehrotra's predictor and corrector, to a relaxation ρ."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tangens.contact.interior.pair import Change, PairData, Target, Unknowns, embed, _places, Bodies
from tangens.contact.interior.system import Iterate, Problem, assemble, bodies_of, solve

Array = jax.Array


class Outcome(NamedTuple):
    x: Iterate
    iterations: Array
    residual: Array
    violation: Array


def jordan(a0, a1, b0, b1):
    return jnp.concatenate([(a0 * b0 + a1 @ b1)[None], a0 * b1 + b0 * a1])


def products(u: Unknowns) -> Target:
    return Target(u.slack * u.dual, u.push * u.gap, jordan(u.load, u.grip, u.rate, u.slip))


def neutral(u: Unknowns, value) -> Target:
    return Target(jnp.full_like(u.slack, value), jnp.full_like(u.push, value), jnp.zeros(1 + u.grip.shape[0]).at[0].set(value))


def soc_step(x0, x1, d0, d1):
    a, b, c = d0 * d0 - d1 @ d1, x0 * d0 - x1 @ d1, x0 * x0 - x1 @ x1
    root = jnp.sqrt(jnp.maximum(b * b - a * c, 0.0))
    # smallest positive root of a t² + 2 b t + c, c > 0
    q = -(b + jnp.where(b >= 0, root, -root))
    r1, r2 = q / jnp.where(a == 0, 1.0, a), c / jnp.where(q == 0, 1.0, q)
    r1 = jnp.where((a == 0) | (r1 <= 0), jnp.inf, r1)
    r2 = jnp.where((q == 0) | (r2 <= 0), jnp.inf, r2)
    complexr = b * b - a * c < 0
    return jnp.where(complexr, jnp.inf, jnp.minimum(r1, r2))


def longest(u: Unknowns, c: Change) -> Array:
    def ratio(x, d):
        return jnp.min(jnp.where(d < 0, -x / jnp.where(d < 0, d, -1.0), jnp.inf))
    return jnp.min(jnp.stack([ratio(u.slack, c.slack), ratio(u.dual, c.dual), ratio(u.push, c.push), ratio(u.gap, c.gap),
        soc_step(u.load, u.grip, c.load, c.grip), soc_step(u.rate, u.slip, c.rate, c.slip)]))


def moved(u: Unknowns, c: Change, t) -> Unknowns:
    return Unknowns(*[a + t * b for a, b in zip(u[:-1], c)], u.tangent)


def initial(dynamics, problem: Problem, start_gap=0.1) -> Iterate:
    from tangens.dynamics.tangent_jax import integrate
    v = 0 * problem.v
    q = integrate(dynamics.layout, problem.q, problem.timestep * v)
    screws = dynamics.screws(q)
    def one(data: PairData) -> Unknowns:
        bodies = bodies_of(data, screws.position, screws.rotation, jnp.zeros((screws.position.shape[0], 6)))
        (x1, R1), (x2, R2) = _places(data, bodies)
        E = embed(data.shape1.dim)
        g1, g2 = data.shape1.girth, data.shape2.girth
        a1 = x1 + R1 @ E @ data.shape1.core(E.T @ R1.T @ (x2 - x1))
        a2 = x2 + R2 @ E @ data.shape2.core(E.T @ R2.T @ (x1 - x2))
        p = a1 + (a2 - a1) * g1 / (g1 + g2)
        p1, p2 = E.T @ R1.T @ (p - x1), E.T @ R2.T @ (p - x2)
        alpha = 1.2 * jnp.maximum(1.0, jnp.maximum(jnp.sqrt(p1 @ p1) / jnp.maximum(g1, 1e-9) * (g1 > 0), jnp.sqrt(p2 @ p2) / jnp.maximum(g2, 1e-9) * (g2 > 0)))
        e1, e2 = data.shape1.inner_guess(p1, alpha), data.shape2.inner_guess(p2, alpha)
        def g(alpha):
            return jnp.concatenate([data.shape1.rows(p1, alpha, e1), data.shape2.rows(p2, alpha, e2), -alpha[None]])
        rows, slope = jax.jvp(g, (alpha,), (jnp.ones_like(alpha),))
        slack = jnp.maximum(-rows, 0.1 * data.length)
        w = problem.sharpness * data.length
        mu = w / jnp.sum(-slope / slack)
        gap = jnp.maximum(data.length * (alpha - 1), 0.1 * data.length)
        k = data.shape1.dim - 1 + data.spin.shape[0]
        load = mu / gap
        rate = mu / load
        return Unknowns(p, alpha, jnp.concatenate([e1, e2]), slack, mu / slack, mu / gap, gap, load, jnp.zeros(k), rate, jnp.zeros(k), R1.T @ jnp.array([1.0, 0.0, 0.0]))
    return Iterate(v, tuple(jax.vmap(one)(g) for g in problem.groups))


SHRINK = 0.8 ** jnp.arange(16)
NEAR = 0.02
BEND = 0.5


def worst(u: Unknowns) -> tuple[Array, Array, int]:
    """Smallest and summed complementarity products of a pair."""
    p = products(u)
    det = (u.load**2 - u.grip @ u.grip) * (u.rate**2 - u.slip @ u.slip)
    cone = det / p.cone[0]
    return jnp.minimum(jnp.minimum(jnp.min(p.rows), p.push), cone), jnp.sum(p.rows) + p.push + p.cone[0]


def centred(x, ch, t):
    """The largest of some shares of a step that stays near the central path."""
    def quality(share):
        low, total, n = jnp.inf, 0.0, 0
        for u, c in zip(x.pairs, ch):
            a, b = jax.vmap(worst)(jax.vmap(moved, (0, 0, None))(u, c, share * t))
            low, total, n = jnp.minimum(low, jnp.min(a)), total + jnp.sum(b), n + a.size * (u.slack.shape[1] + 2)
        return low / (total / n)
    q = jax.vmap(quality)(SHRINK)
    ok = q >= jnp.minimum(NEAR, 0.9 * quality(0.0))
    return jnp.where(jnp.any(ok), SHRINK[jnp.argmax(ok)], SHRINK[jnp.argmax(q)])


def parts(dynamics, problem: Problem, fraction=0.99):
    rho = problem.relaxation

    def norms(x, system):
        eq = jnp.max(jnp.abs(system.residual)) / jnp.maximum(1.0, jnp.max(jnp.abs(problem.inertia @ (x.v - problem.v) / problem.timestep)))
        comp = jnp.zeros(())
        mu, count = jnp.zeros(()), 0
        for u, lin in zip(x.pairs, system.pairs):
            for r in jax.tree.leaves(lin.residual):
                eq = jnp.maximum(eq, jnp.max(jnp.abs(r)))
            t = jax.vmap(products)(u)
            n = jax.vmap(neutral, (0, None))(u, rho)
            for a, b in zip(jax.tree.leaves(t), jax.tree.leaves(n)):
                comp = jnp.maximum(comp, jnp.max(jnp.abs(a - b)))
            mu += jnp.sum(t.rows) + jnp.sum(t.push) + jnp.sum(t.cone[:, 0])
            count += t.rows.size + t.push.size + t.push.size
        return eq, comp, mu / max(count, 1)

    def advance(x, system):
        factor = jax.scipy.linalg.lu_factor(system.matrix)
        residuals = (system.residual, tuple(l.residual for l in system.pairs))
        now = tuple(jax.vmap(products)(u) for u in x.pairs)
        minus = tuple(jax.vmap(lambda u, t: jax.tree.map(jnp.subtract, neutral(u, rho), t))(u, t) for u, t in zip(x.pairs, now))
        _, _, mu = norms(x, system)
        dv, aff = solve(problem, x, system, factor, residuals, minus)
        t = jnp.minimum(1.0, jnp.min(jnp.stack([jnp.min(jax.vmap(longest)(u, c)) for u, c in zip(x.pairs, aff)])))
        after, count = jnp.zeros(()), 0
        for u, c in zip(x.pairs, aff):
            p = jax.vmap(products)(jax.vmap(moved, (0, 0, None))(u, c, t))
            after += jnp.sum(p.rows) + jnp.sum(p.push) + jnp.sum(p.cone[:, 0])
            count += p.rows.size + 2 * p.push.size
        after /= count
        sigma = jnp.clip((after - rho) / (mu - rho), 0, 1) ** 3
        aim = jnp.where(mu > rho, rho + sigma * (mu - rho), rho)
        def goal(u, c, p, t=t):
            bend = Target(c.slack * c.dual, c.push * c.gap, jordan(c.load, c.grip, c.rate, c.slip))
            return jax.tree.map(lambda n, a, b: n - a - jnp.clip(t**2 * jnp.maximum(1 - aim / mu, 0.0) * b, -BEND * aim, BEND * aim), neutral(u, aim), p, bend)
        targets = tuple(jax.vmap(goal)(u, c, p) for u, c, p in zip(x.pairs, aff, now))
        dv, ch = solve(problem, x, system, factor, residuals, targets)
        t = jnp.minimum(1.0, fraction * jnp.min(jnp.stack([jnp.min(jax.vmap(longest)(u, c)) for u, c in zip(x.pairs, ch)])))
        t = t * centred(x, ch, t)
        return Iterate(x.v + t * dv, tuple(jax.vmap(moved, (0, 0, None))(u, c, t) for u, c in zip(x.pairs, ch))), (t, aim, mu)

    return advance, norms


def step(dynamics, problem: Problem, start: Iterate, most: int = 30, tolerance=0.1, fraction=0.99):
    advance, norms = parts(dynamics, problem, fraction)
    rho = problem.relaxation

    def body(carry):
        x, system, k, _, _ = carry
        x, _ = advance(x, system)
        system, x = assemble(dynamics, problem, x)
        eq, comp, _ = norms(x, system)
        return x, system, k + 1, eq, comp

    def cond(carry):
        _, _, k, eq, comp = carry
        return (k < most) & ~((eq <= tolerance * rho) & (comp <= tolerance * rho))

    system, x = assemble(dynamics, problem, start)
    eq, comp, _ = norms(x, system)
    x, system, k, eq, comp = jax.lax.while_loop(cond, body, (x, system, 0, eq, comp))
    return Outcome(x, k, eq, comp), advance, norms
