"""Mehrotra's predictor and corrector: the target of the second direction, and how much of it to take.

Both interior-point methods of tangens follow these rules, that of the growth problem alone and that of whole steps.
Three safeguards make them reliable on equations as nonlinear as contact between sharp shapes: the second-order term
counts only as much as the predictor could be trusted; no product may fall far behind the mean; and the last, full steps
are plain Newton steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array

_NEIGHBOURHOOD = 0.1
"""Least product allowed, over the mean. Without this and the next bound, half of the drops of Fig. 9 jam."""
_SECOND_ORDER = 0.5
"""Most that the second-order term may change a product by, over its target."""
_SHARES = 0.8 ** np.arange(16.0)
"""Of a step, tried in turn, down to 3.5 %."""


def centring_target(mean: Array, after: Array, relaxation: Array) -> Array:
    """What products should become: the closer to ρ, the closer the predictor would bring their mean (Mehrotra)."""
    excess = jnp.maximum(mean - relaxation, 0.0)
    return relaxation + excess * jnp.clip((after - relaxation) / jnp.maximum(excess, 1e-300), 0.0, 1.0) ** 3


def second_order_term(changes: Any, step: Array, target: Array, mean: Array) -> Any:
    """The predictor's products of changes that the corrector takes into account; `step` is how far it can go."""
    trust, most = step**2 * jnp.maximum(1 - target / mean, 0.0), _SECOND_ORDER * target
    return jax.tree.map(lambda products: jnp.clip(trust * products, -most, most), changes)


def largest_step(value: Array, change: Array) -> Array:
    """How far positive values can go before one of them is zero; inf if they can go anywhere."""
    falls = change < 0
    return jnp.min(jnp.where(falls, -value / jnp.where(falls, change, -1.0), jnp.inf), initial=jnp.inf)


def step_in_neighbourhood(balance: Callable[[Array], Array]) -> Array:
    """The largest share of a step that stays in the neighbourhood of the central path: no product is far behind.

    `balance` gives the least product over the mean after a share. Where no share is fine, the best one is taken.
    """
    shares = jnp.asarray(_SHARES)
    after = jax.vmap(balance)(shares)
    fine = after >= jnp.minimum(_NEIGHBOURHOOD, 0.9 * balance(jnp.zeros(())))
    allowed = jnp.where(jnp.any(fine), fine, after == jnp.max(after))
    return jnp.max(jnp.where(allowed, shares, shares[-1]))
