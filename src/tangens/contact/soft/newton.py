"""Newton's method for the implicit step: the velocity at which momentum balances with the forces there.

The search for it is frozen to a derivative. Two last steps from where it ended are not: where momentum balances,
one step of Newton's method has the first derivative of the balance itself, and two have the second and the third.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve

Array = jax.Array

_LAST = 2
"""Steps that a derivative looks at."""
_ROUNDING = 100.0
"""Of relative changes, in units of the precision: nothing smaller is asked for."""
_LESS = 0.1
"""Of what a step promises to do for the balance, it has to do this share; else half of it is tried."""


class Balance(NamedTuple):
    """How momentum is out of balance at a velocity."""

    missing: Array
    """Forces less those that it takes [N, N m], (nv,)."""
    slope: Array
    """How fast they fall with velocity, (nv, nv)."""
    contact: Any
    """What makes these forces."""


Function = Callable[[Any, Array, Array], Balance]
"""(numbers, velocity, is_first) -> how momentum is out of balance there; the slope is exact but where `is_first`."""


class Ended(NamedTuple):
    """Where the method ended."""

    v: Array
    contact: Any
    """At the velocity before the last change."""
    change: Array
    """The last one."""
    residual: Array
    """The largest entry of that, over one plus that of v."""
    iterations: Array


def _relative(change: Array, v: Array) -> Array:
    """The largest entry of a change, over one plus that of v."""
    return jnp.max(jnp.abs(change), initial=0.0) / (1 + jnp.max(jnp.abs(v), initial=0.0))


class _Search(NamedTuple):
    at: Array
    """The last velocity that was accepted."""
    direction: Array
    """Newton's, from there."""
    share: Array
    """Of it, to try."""
    merit: Array
    """How far from balance it is there, squared."""
    iterations: Array

    def next(self) -> Array:
        """The velocity to try."""
        return self.at + self.share * self.direction

    def change(self) -> Array:
        """How far that is."""
        return _relative(self.share * self.direction, self.at)


def balanced(function: Function, numbers: Any, v: Array, weights: Array, tolerance: Array, most: Array) -> Ended:
    """The velocity near v at which nothing is missing; `weights` make one number of what is.

    It can be differentiated by `numbers`, three times.
    """
    found = _search(partial(function, jax.lax.stop_gradient(numbers)), v, weights, tolerance, most)

    def newton(w: Array, _: None) -> tuple[Array, tuple[Any, Array]]:
        here = function(numbers, w, jnp.array(False))
        change = solve(here.slope, here.missing)
        return w + change, (here.contact, change)

    # what an iteration computes of each probe is computed again by a derivative, not kept
    end, rounds = jax.lax.scan(jax.checkpoint(newton), found.next(), None, length=_LAST)
    contact, change = jax.tree.map(lambda leaf: leaf[-1], rounds)
    return Ended(end, contact, change, _relative(change, end), found.iterations + _LAST)


def _search(
    function: Callable[[Array, Array], Balance], v: Array, weights: Array, tolerance: Array, most: Array
) -> _Search:
    """Newton's steps, each of them halved until momentum is nearer to its balance."""
    v, weights = jax.lax.stop_gradient((v, weights))
    least = jnp.maximum(tolerance, _ROUNDING * jnp.finfo(v.dtype).eps)

    def go_on(s: _Search) -> Array:
        return (s.iterations == 0) | ((s.change() > least) & (s.iterations < most))

    def step(s: _Search) -> _Search:
        is_first = s.iterations == 0
        w = s.next()
        here = function(w, is_first)
        merit = jnp.sum(weights * here.missing**2)
        direction = solve(here.slope, here.missing)
        accepted = merit <= s.merit * (1 - _LESS * s.share)
        new = _Search(w, direction, jnp.ones_like(s.share), jnp.where(is_first, jnp.inf, merit), s.iterations + 1)
        other = s._replace(share=s.share / 2, iterations=s.iterations + 1)
        return jax.tree.map(lambda a, b: jnp.where(accepted, a, b), new, other)

    one = jnp.ones((), v.dtype)
    start = _Search(v, jnp.zeros_like(v), one, jnp.inf * one, jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(go_on, step, start)
