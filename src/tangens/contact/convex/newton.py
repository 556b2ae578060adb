"""Newton's method on the convex objective, with an exact line search: it finds the minimum from anywhere."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve

from tangens.contact.convex.objective import Problem, Value, slopes_along, value

Array = jax.Array

_SEARCHES = 40
"""Most evaluations of a line search: enough to halve a bracket down to rounding."""
_FLAT = 1e-8
"""A line search is done when the slope has fallen to this share of that at its start."""


_Bracket = tuple[Array, Array, Array, Array, Array]


class Outcome(NamedTuple):
    """Where the method ended."""

    v: Array
    value: Value
    residual: Array
    """‖∇ℓ‖ over the momenta that balance, each weighed by 1/√M."""
    iterations: Array
    stuck: Array
    """Whether no step reduces the gradient any more: rounding is reached."""


def minimize(problem: Problem, start: Array, tolerance: Array, most: Array) -> Outcome:
    """Velocities that minimise the objective."""
    first = _outcome(problem, start, jnp.zeros((), jnp.int32))
    zero = first._replace(stuck=jnp.zeros((), bool))

    def go_on(now: Outcome) -> Array:
        return (now.residual > tolerance) & (now.iterations < most) & ~now.stuck

    def step(now: Outcome) -> Outcome:
        direction = -cho_solve(cho_factor(now.value.hessian), now.value.gradient)
        alpha = _line_search(problem, now.v, direction)
        after = _outcome(problem, now.v + alpha * direction, now.iterations + 1)
        small = jnp.max(jnp.abs(alpha * direction)) <= 1e-15 * (1e-3 + jnp.max(jnp.abs(now.v)))
        return after._replace(stuck=small)

    return jax.lax.while_loop(go_on, step, zero)


def _outcome(problem: Problem, v: Array, iterations: Array) -> Outcome:
    at = value(problem, v)
    weigh = 1 / jnp.sqrt(jnp.diag(problem.inertia))
    residual = jnp.linalg.norm(weigh * at.gradient) / (at.scale + 1e-12)
    return Outcome(v, at, residual, iterations, jnp.zeros((), bool))


def _line_search(problem: Problem, v: Array, direction: Array) -> Array:
    """The α >= 0 at which the objective is least along the direction, by Newton's method inside a bracket."""
    start, _ = slopes_along(problem, v, direction, jnp.zeros(()))

    def go_on(state: _Bracket) -> Array:
        _, _, _, slope, count = state
        return (jnp.abs(slope) > _FLAT * jnp.abs(start)) & (count < _SEARCHES)

    def refine(state: _Bracket) -> _Bracket:
        low, high, alpha, _, count = state
        slope, bend = slopes_along(problem, v, direction, alpha)
        low, high = jnp.where(slope < 0, alpha, low), jnp.where(slope < 0, high, alpha)
        newton = alpha - slope / bend
        middle = jnp.where(jnp.isinf(high), 2 * alpha, (low + high) / 2)
        inside = (newton > low) & (newton < high)
        done = jnp.abs(slope) <= _FLAT * jnp.abs(start)
        return low, high, jnp.where(done, alpha, jnp.where(inside, newton, middle)), slope, count + 1

    begin = (jnp.zeros(()), jnp.full((), jnp.inf), jnp.ones(()), start, jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(go_on, refine, begin)[2]
