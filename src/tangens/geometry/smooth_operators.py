"""Smooth stand-ins for operators that jump or bend (paper 4, Sec. III), each with its exact limit.

`tau` is the smoothing, in the units of what is compared. A plain 0 asks for the exact operator. Smooth ones have
derivatives of every order in all arguments, and never overflow; exact ones have those that JAX gives them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

Array = jax.Array


def is_exact(tau: Any) -> bool:
    """Whether the exact operator is asked for: with the plain number 0, since what is traced cannot be looked at."""
    return isinstance(tau, int | float) and tau == 0


def greater(x: ArrayLike, than: ArrayLike, tau: Any) -> Array:
    """[x > than]: between 0 and 1."""
    x, than = jnp.asarray(x), jnp.asarray(than)
    return (x > than).astype(x.dtype) if is_exact(tau) else jax.nn.sigmoid((x - than) / tau)


def within(x: ArrayLike, low: ArrayLike, high: ArrayLike, tau: Any) -> Array:
    """[low < x < high]; the exact one holds on the bounds, too."""
    x = jnp.asarray(x)
    if is_exact(tau):
        return ((x >= low) & (x <= high)).astype(x.dtype)
    return greater(x, low, tau) * greater(high, x, tau)


def sign(x: ArrayLike, tau: Any) -> Array:
    """The sign of x, by tanh(x) = 2 σ(2x) − 1."""
    return jnp.sign(jnp.asarray(x)) if is_exact(tau) else jnp.tanh(jnp.asarray(x) / tau)


def relu(x: ArrayLike, tau: Any) -> Array:
    """max(x, 0), from above."""
    x = jnp.asarray(x)
    return jnp.maximum(x, 0.0) if is_exact(tau) else tau * jax.nn.softplus(x / tau)


def clip(x: Any, low: Any, high: Any, tau: Any) -> Array:
    """The number between `low` and `high` that is nearest to x."""
    x = jnp.asarray(x)
    if is_exact(tau):
        return jnp.clip(x, low, high)
    return low + relu(x - low, tau) - relu(x - high, tau)


def maximum(x: ArrayLike, tau: Any, axis: int = -1) -> Array:
    """The largest entry, from above: log-sum-exp. It is too large by tau log n where all n are the same."""
    x = jnp.asarray(x)
    return jnp.max(x, axis) if is_exact(tau) else tau * jax.nn.logsumexp(x / tau, axis=axis)


def minimum(x: ArrayLike, tau: Any, axis: int = -1) -> Array:
    """The smallest entry, from below."""
    return -maximum(-jnp.asarray(x), tau, axis)


def argmax(x: ArrayLike, tau: Any, axis: int = -1) -> Array:
    """Weights that sum to 1, most of it on the largest entry; the exact one shares between those that are the same."""
    x = jnp.asarray(x)
    if is_exact(tau):
        hit = (x == jnp.max(x, axis, keepdims=True)).astype(x.dtype)
        return hit / jnp.sum(hit, axis, keepdims=True)
    return jax.nn.softmax(x / tau, axis)


def argmin(x: ArrayLike, tau: Any, axis: int = -1) -> Array:
    """Weights that sum to 1, most of it on the smallest entry."""
    return argmax(-jnp.asarray(x), tau, axis)


def sum_of(terms: Iterable[Array]) -> Array:
    """A sum of few arrays."""
    return reduce(add, terms)


def argmin_of(x: Sequence[Array], tau: Any) -> list[Array]:
    """`argmin` over a few arrays instead of an axis, entry by entry: one loop, where sums over an axis are more."""
    least = reduce(jnp.minimum, x)
    if is_exact(tau):
        hits = [(each == least).astype(least.dtype) for each in x]
    else:
        hits = [jnp.exp((jax.lax.stop_gradient(least) - each) / tau) for each in x]
    per = 1 / sum_of(hits)
    return [hit * per for hit in hits]


def top_k(x: ArrayLike, k: int, tau: Any) -> Array:
    """Γ: which entries of x (n,) are its k largest, the largest first, (k, n); Γ x are their values.

    SoftSort: row j weighs entries by how near they are to the j-th largest. Where entries are the same, its rows mix
    them evenly; the exact rows name one each.
    """
    x = jnp.asarray(x)
    largest, at = jax.lax.top_k(x, k)
    if is_exact(tau):
        return jax.nn.one_hot(at, x.shape[-1], dtype=x.dtype)
    return jax.nn.softmax(-jnp.abs(largest[:, None] - x) / tau, -1)


def length(x: ArrayLike, tau: Any) -> Array:
    """The length of vectors (..., n), smooth at 0: from above, by no more than tau."""
    x = jnp.asarray(x)
    if is_exact(tau):
        return jnp.linalg.norm(x, axis=-1)
    return jnp.sqrt(jnp.sum(x**2, -1) + jnp.square(tau))


def unit(x: ArrayLike, tau: Any) -> Array:
    """The direction of vectors (..., n): shorter than 1 where they are not much longer than tau, 0 at 0."""
    x = jnp.asarray(x)
    if is_exact(tau):
        size = jnp.linalg.norm(x, axis=-1, keepdims=True)
        return x / jnp.where(size > 0, size, 1.0)
    return x / length(x, tau)[..., None]
