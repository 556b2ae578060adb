"""log(1 + exp(x)): accurate for any x, in both precisions, and so are its derivatives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tangens.contact.soft.softplus import softplus

X = np.concatenate([np.linspace(-80, 80, 2001), np.linspace(-2, 2, 2001), [0.0]])


@pytest.mark.parametrize(("dtype", "accuracy"), [(jnp.float32, 1e-6), (jnp.float64, 2e-15)])
def test_it_keeps_its_digits_where_it_is_tiny_too(dtype: Any, accuracy: float) -> None:
    x = jnp.asarray(X, dtype)
    np.testing.assert_allclose(softplus(x), np.logaddexp(0, np.asarray(x, float)), rtol=accuracy)


def test_first_and_second_derivative_are_those_of_the_sigmoid() -> None:
    x = jnp.asarray(X)
    s = jax.nn.sigmoid(x)
    np.testing.assert_allclose(jax.vmap(jax.grad(softplus))(x), s, rtol=1e-14)
    np.testing.assert_allclose(jax.vmap(jax.grad(jax.grad(softplus)))(x), s * (1 - s), rtol=1e-12)
