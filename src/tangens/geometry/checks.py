"""Numbers at the door: as floating-point arrays of the right shape, or an error that says what is wrong.

Values can be judged only while they are known; inside `jit`, `vmap` and `grad`, their shapes are. Known values stay
with NumPy: JAX would round them to single precision unless the user has switched to double before making a shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from tangens.errors import OptionError

Numbers = ArrayLike | Sequence[Any]  # what a user may write for an array


def known(value: Any) -> NDArray[np.floating[Any]] | None:
    """The numbers behind `value`, or None while JAX traces them."""
    traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value))
    return None if traced else np.asarray(value)


def array(what: str, value: Numbers, ndim: int) -> jax.Array:
    """`value` as a finite floating-point array with `ndim` axes. `what` names it in errors."""
    wanted = ("a number", "a vector", "a matrix")[ndim]
    try:
        numbers = known(value)
        out = jnp.asarray(value if numbers is None else numbers)
    except (TypeError, ValueError) as error:
        raise OptionError(f"{what} must be {wanted}; got {value!r}") from error
    if numbers is not None and not np.isfinite(numbers).all():
        raise OptionError(f"{what} must be finite; got {numbers}")
    if out.ndim != ndim:
        raise OptionError(f"{what} must be {wanted}; got shape {out.shape}. For a batch of shapes, use jax.vmap")
    if numbers is None:
        return out.astype(jnp.result_type(out, float))
    return cast("jax.Array", numbers if numbers.dtype.kind == "f" else numbers.astype(np.float64))


def positive(what: str, value: Numbers, ndim: int = 0) -> jax.Array:
    """The same, with all entries above 0."""
    out = array(what, value, ndim)
    numbers = known(value)
    if numbers is not None and not (numbers > 0).all():
        raise OptionError(f"{what} must be positive; got {numbers}")
    return out


def dimension(what: str, dim: int) -> int:
    """`dim`, if it is 2 or 3."""
    if dim not in {2, 3}:
        raise OptionError(f"{what} lives in the plane (2) or in space (3); got dimension {dim!r}")
    return int(dim)
