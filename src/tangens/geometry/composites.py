"""Shapes made of shapes: moved, added, united."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from tangens.errors import OptionError
from tangens.geometry.checks import Numbers, array, known
from tangens.geometry.shape import Shape, pytree


@pytree
class Placed(Shape):
    """A shape seen from another frame. It scales about the origin of the new frame, and so does its position.

    Where the new origin is outside the shape, some points are in none of the scaled shapes: see `centred`.
    """

    shape: Shape
    position: jax.Array  # of the shape's origin in the new frame [m], (dim,)
    rotation: jax.Array  # columns: the shape's axes in the new frame, (dim, dim)

    def __init__(self, shape: Shape, position: Numbers, rotation: Numbers | None = None) -> None:
        dim = _is_shape("Placed", shape).dim
        x = array("Placed position", position, 1)
        R = array("Placed rotation", np.eye(dim, dtype=x.dtype) if rotation is None else rotation, 2)
        if x.shape != (dim,) or R.shape != (dim, dim):
            raise OptionError(
                f"Placed needs a position ({dim},) and a rotation ({dim}, {dim}) for a shape of dimension {dim}; "
                f"got {x.shape} and {R.shape}"
            )
        numbers = known(rotation) if rotation is not None else None
        if numbers is not None and not _is_rotation(numbers):
            raise OptionError(f"Placed rotation must be a rotation matrix; got {numbers.tolist()}")
        self._set(shape=shape, position=x, rotation=R)

    @property
    def dim(self) -> int:
        return self.shape.dim

    @property
    def n_inner(self) -> int:
        return self.shape.n_inner

    @property
    def positive_inner(self) -> tuple[bool, ...]:
        return self.shape.positive_inner

    @property
    def n_rows(self) -> int:
        return self.shape.n_rows

    def rows(self, p: jax.Array, alpha: jax.Array, inner: jax.Array) -> jax.Array:
        return self.shape.rows(self._local(p, alpha), alpha, inner)

    def inner_guess(self, p: jax.Array, alpha: jax.Array) -> jax.Array:
        return self.shape.inner_guess(self._local(p, alpha), alpha)

    @property
    def centre(self) -> jax.Array:
        return self.position + self.rotation @ self.shape.centre

    def _local(self, p: jax.Array, alpha: jax.Array) -> jax.Array:
        return self.rotation.T @ (p - alpha * self.position)

    def _reach(self) -> jax.Array:
        return jnp.linalg.norm(self.position) + self.shape.reach

    def _girth(self) -> jax.Array:
        return self.shape.girth


@pytree
class MinkowskiSum(Shape):
    """All sums of a point of the first shape and a point of the second: ε = [ε of the first, ε of the second, p₁]."""

    first: Shape
    second: Shape

    def __init__(self, first: Shape, second: Shape) -> None:
        _same_dim("MinkowskiSum", (first, second))
        self._set(first=first, second=second)

    @property
    def dim(self) -> int:
        return self.first.dim

    @property
    def n_inner(self) -> int:
        """Those of both shapes, and the point p₁ of the first."""
        return self.first.n_inner + self.second.n_inner + self.dim

    @property
    def positive_inner(self) -> tuple[bool, ...]:
        return (*self.first.positive_inner, *self.second.positive_inner, *(False,) * self.dim)

    @property
    def n_rows(self) -> int:
        return self.first.n_rows + self.second.n_rows

    def rows(self, p: jax.Array, alpha: jax.Array, inner: jax.Array) -> jax.Array:
        inner1, inner2, p1 = jnp.split(inner, [self.first.n_inner, self.first.n_inner + self.second.n_inner])
        return jnp.concatenate([self.first.rows(p1, alpha, inner1), self.second.rows(p - p1, alpha, inner2)])

    def inner_guess(self, p: jax.Array, alpha: jax.Array) -> jax.Array:
        """What lies between p and the centre is shared as the shapes are thick."""
        thick1, thick2 = self.first.girth, self.second.girth
        share = jnp.where(thick1 + thick2 > 0, thick1 / jnp.maximum(thick1 + thick2, 1e-30), 0.5)
        p1 = alpha * self.first.centre + share * (p - alpha * self.centre)
        return jnp.concatenate([self.first.inner_guess(p1, alpha), self.second.inner_guess(p - p1, alpha), p1])

    @property
    def centre(self) -> jax.Array:
        return self.first.centre + self.second.centre

    def _reach(self) -> jax.Array:
        return self.first.reach + self.second.reach

    def _girth(self) -> jax.Array:
        return self.first.girth + self.second.girth


@pytree
class Bundle(Shape):
    """The union of convex shapes. It need not be convex, so it has no rows: `parts` gives those who do."""

    parts: tuple[Shape, ...]

    def __init__(self, parts: Iterable[Shape]) -> None:
        parts = tuple(parts)
        if not parts:
            raise OptionError("Bundle needs at least one part")
        _same_dim("Bundle", parts)
        self._set(parts=parts)

    @property
    def dim(self) -> int:
        return self.parts[0].dim

    @property
    def n_inner(self) -> int:
        """Refused."""
        self._refuse()

    @property
    def n_rows(self) -> int:
        """Refused."""
        self._refuse()

    def rows(self, p: jax.Array, alpha: jax.Array, inner: jax.Array) -> jax.Array:
        """Refused."""
        self._refuse()

    def inner_guess(self, p: jax.Array, alpha: jax.Array) -> jax.Array:
        """Refused."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise OptionError("a bundle is not convex and has no rows: take each of tangens.geometry.parts(shape)")

    def _reach(self) -> jax.Array:
        return reduce(jnp.maximum, (part.reach for part in self.parts))

    def _girth(self) -> jax.Array:
        return reduce(jnp.maximum, (part.girth for part in self.parts))


def parts(shape: Shape) -> tuple[Shape, ...]:
    """The convex shapes whose union is `shape`: itself, unless there is a bundle in it."""
    match shape:
        case Bundle():
            return tuple(piece for part in shape.parts for piece in parts(part))
        case Placed():
            return tuple(Placed(part, shape.position, shape.rotation) for part in parts(shape.shape))
        case MinkowskiSum():
            return tuple(MinkowskiSum(a, b) for a in parts(shape.first) for b in parts(shape.second))
        case _:
            return (_is_shape("parts", shape),)


def centred(shape: Shape) -> tuple[Shape, jax.Array]:
    """The shape as seen from its centre, about which it can grow to reach any point, and the centre [m], (dim,)."""
    centre = shape.centre
    return (Placed(shape, -centre) if isinstance(shape, Placed | MinkowskiSum) else shape), centre


def _is_shape(what: str, shape: object) -> Shape:
    if not isinstance(shape, Shape):
        raise OptionError(f"{what} takes shapes of tangens.geometry; got {shape!r}")
    return shape


def _same_dim(what: str, shapes: tuple[Shape, ...]) -> None:
    dims = {_is_shape(what, shape).dim for shape in shapes}
    if len(dims) > 1:
        raise OptionError(f"{what} takes shapes of one dimension; got some in the plane and some in space")


def _is_rotation(R: np.ndarray) -> bool:
    return np.allclose(R @ R.T, np.eye(len(R)), atol=1e-4) and np.linalg.det(R) > 0
