"""What a convex shape is: a set that scales, written as inequalities.

A point p [m], in the shape's own frame, lies in the shape scaled by α about the frame's origin if auxiliary numbers ε
exist with g(p, α, ε) <= 0. Every row of g is in metres, smooth and jointly convex where α > 0, and homogeneous of
degree one: g(k·p, k·α, k·ε) = k·g(p, α, ε). Hence a ball is p·p/(α·R) - α·R rather than |p| - α·R, which has no
derivative at the centre.

Shapes are pytrees: their arrays are leaves that one may map over and differentiate by. Derivatives of every order flow
through `rows`, by p, α, ε and every leaf. `reach` decides what is near; no derivative flows through it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
from jax import lax

Shaped = TypeVar("Shaped", bound="type[Shape]")


class Shape(ABC):
    """A convex set that scales with α about the origin of its own frame."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """2 in the plane, 3 in space."""

    @property
    def n_inner(self) -> int:
        """Number of auxiliary variables ε."""
        return 0

    @property
    def positive_inner(self) -> tuple[bool, ...]:
        """Of which ε the rows are convex only where it is positive."""
        return (False,) * self.n_inner

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Number of inequalities."""

    @abstractmethod
    def rows(self, p: jax.Array, alpha: jax.Array, inner: jax.Array) -> jax.Array:
        """g(p, α, ε) [m], shape (n_rows,): for some ε, none is positive if p is in the shape scaled by α > 0."""

    def inner_guess(self, p: jax.Array, alpha: jax.Array) -> jax.Array:
        """An ε to start a solver from, shape (n_inner,)."""
        return jnp.zeros(0, jnp.result_type(p, alpha))

    @property
    def centre(self) -> jax.Array:
        """A point in the middle of the shape [m], shape (dim,)."""
        return jnp.zeros(self.dim, jnp.result_type(*jax.tree.leaves(self)))

    def core(self, p: jax.Array) -> jax.Array:
        """Return a point in the middle of the shape, as near to p as that can be [m], shape (dim,)."""
        del p
        return self.centre

    @property
    def reach(self) -> jax.Array:
        """Radius [m] of a ball about the origin that contains the shape; no derivative flows."""
        return _frozen(self)._reach()

    @property
    def girth(self) -> jax.Array:
        """About the radius [m] of the largest ball inside the shape."""
        return self._girth()

    @abstractmethod
    def _reach(self) -> jax.Array: ...

    @abstractmethod
    def _girth(self) -> jax.Array: ...

    def _set(self, **values: Any) -> None:
        """Fill in the fields: what a constructor does last."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


def kind(shape: Shape) -> Hashable:
    """What two shapes share if one function, compiled once, serves both."""
    leaves, structure = jax.tree.flatten(shape)
    return structure, tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)


def static(default: Any) -> Any:
    """A field that belongs to the structure of a shape and not to its numbers."""
    return field(default=default, metadata={"static": True})


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(static,))
def pytree(cls: Shaped) -> Shaped:
    """Make a frozen dataclass of a shape, and a pytree.

    `jax.tree_util.register_dataclass` would rebuild shapes through their constructor. But the constructor checks and
    normalises, and what a tree is rebuilt from may be a batch, a derivative or a placeholder.
    """
    dataclass(frozen=True, eq=False, init=False)(cls)
    constant = tuple(f.name for f in fields(cls) if f.metadata.get("static"))  # type: ignore[arg-type]
    data = tuple(f.name for f in fields(cls) if f.name not in constant)  # type: ignore[arg-type]

    def flatten(shape: Shape) -> tuple[list[Any], tuple[Any, ...]]:
        return [getattr(shape, name) for name in data], tuple(getattr(shape, name) for name in constant)

    def flatten_with_keys(shape: Shape) -> tuple[list[Any], tuple[Any, ...]]:
        return [(jax.tree_util.GetAttrKey(name), getattr(shape, name)) for name in data], flatten(shape)[1]

    def unflatten(constants: Iterable[Any], leaves: Iterable[Any]) -> Shape:
        shape = object.__new__(cls)
        shape._set(**dict(zip(constant, constants, strict=True)), **dict(zip(data, leaves, strict=True)))
        return shape

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def within(x: jax.Array, radius: jax.Array) -> jax.Array:
    """`x`, drawn smoothly into half the radius: strictly inside, and never near the border."""
    return x / jnp.sqrt(1 + 4 * jnp.sum(x * x) / radius**2)


def _frozen(shape: Shape) -> Shape:
    # Known numbers are left alone: inside jit, everything that passes through an operation becomes unknown.
    return jax.tree.map(lambda leaf: lax.stop_gradient(leaf) if isinstance(leaf, jax.core.Tracer) else leaf, shape)
