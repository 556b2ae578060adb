"""Shapes with flat faces, sharp or rounded, and the corners between faces."""

from __future__ import annotations

from itertools import combinations
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tangens.errors import OptionError
from tangens.geometry.checks import Numbers, array, dimension, known, positive
from tangens.geometry.shape import Shape, pytree, within

_MOST_SUBSETS = 5000  # sets of faces that are searched for corners while numbers are unknown


@pytree
class Polytope(Shape):
    """All points with A p <= α b: bounded, with the origin inside."""

    A: jax.Array  # outward unit normals, (n_rows, dim)
    b: jax.Array  # distances of the faces from the origin [m], (n_rows,)

    def __init__(self, A: Numbers, b: Numbers) -> None:
        A, b = _faces("Polytope", A, b)
        self._set(A=A, b=b)

    @property
    def dim(self) -> int:
        return self.A.shape[-1]

    @property
    def n_rows(self) -> int:
        return self.A.shape[-2]

    def rows(self, p: jax.Array, alpha: jax.Array, inner: jax.Array) -> jax.Array:
        return self.A @ p - alpha * self.b

    def _reach(self) -> jax.Array:
        return _farthest_corner(self.A, self.b)

    def _girth(self) -> jax.Array:
        return jnp.min(self.b)


@pytree
class PaddedPolytope(Shape):
    """All points within `radius` of a polytope: its faces move outwards, its edges and corners become round."""

    A: jax.Array  # outward unit normals, (faces, dim)
    b: jax.Array  # distances of the unpadded faces from the origin [m], (faces,)
    radius: jax.Array  # [m]

    def __init__(self, A: Numbers, b: Numbers, radius: Numbers) -> None:
        A, b = _faces("PaddedPolytope", A, b)
        self._set(A=A, b=b, radius=positive("PaddedPolytope radius", radius))

    @property
    def dim(self) -> int:
        return self.A.shape[-1]

    @property
    def n_inner(self) -> int:
        """The step from the polytope to p."""
        return self.dim

    @property
    def n_rows(self) -> int:
        return self.A.shape[-2] + 1

    def rows(self, p: jax.Array, alpha: jax.Array, inner: jax.Array) -> jax.Array:
        R = alpha * self.radius
        return jnp.append(self.A @ (p - inner) - alpha * self.b, jnp.vdot(inner, inner) / R - R)

    def inner_guess(self, p: jax.Array, alpha: jax.Array) -> jax.Array:
        return within(p, alpha * self.radius)

    def _reach(self) -> jax.Array:
        return _farthest_corner(self.A, self.b) + self.radius

    def _girth(self) -> jax.Array:
        return jnp.min(self.b) + self.radius


def box(half_sizes: Numbers) -> Polytope:
    """A box with its faces across the axes of the frame; two half sizes [m] make a rectangle."""
    half = positive("box half_sizes", half_sizes, 1)
    sides = np.eye(half.size)
    twice = np.tile(np.arange(half.size), 2)
    return Polytope(np.concatenate([sides, -sides]).astype(half.dtype), half[twice])


def corners(A: Numbers, b: Numbers) -> NDArray[np.float64]:
    """The corners of A p <= b [m], shape (n, dim), where b > 0. OptionError if there is no end to it.

    By polarity: the faces of the convex hull of all a/b are the corners, and the hull holds the origin if they are all.
    """
    from scipy.spatial import ConvexHull, QhullError

    A, b = np.asarray(A, np.float64), np.asarray(b, np.float64)
    unbounded = OptionError("a polytope must be bounded: its faces do not enclose the origin. Add the missing faces")
    try:
        planes = ConvexHull(A / b[:, None]).equations
    except (QhullError, ValueError) as error:
        raise unbounded from error
    normals, offsets = planes[:, :-1], planes[:, -1]
    if offsets.max() > -1e-9 * np.abs(offsets).max():
        raise unbounded
    return np.asarray(-normals / offsets[:, None])


def _faces(what: str, A: Numbers, b: Numbers) -> tuple[jax.Array, jax.Array]:
    """Unit normals and distances of the faces A p <= b, once they are known to enclose the origin."""
    normals, distances = array(f"{what} A", A, 2), positive(f"{what} b", b, 1)
    dimension(what, normals.shape[1])
    if len(normals) != len(distances):
        raise OptionError(f"{what} A and b must have a row for each face; got {len(normals)} and {len(distances)}")
    known_A, known_b = known(A), known(b)
    if known_A is not None and not known_A.any(axis=1).all():
        raise OptionError(f"{what} A must not have rows of zeros")
    if known_A is not None:
        # Whether faces enclose the origin does not depend on how far away they are.
        corners(known_A, np.ones(len(known_A)) if known_b is None else known_b)
    size = (normals**2).sum(axis=1) ** 0.5
    return normals / size[:, None], distances / size


def _farthest_corner(A: jax.Array, b: jax.Array) -> jax.Array:
    """The largest distance of a corner of A p <= b from the origin [m]; inf if it is unknown and too much to search."""
    known_A, known_b = known(A), known(b)
    if known_A is not None and known_b is not None:
        return jnp.asarray(np.linalg.norm(corners(known_A, known_b), axis=1).max(), jnp.result_type(A))
    n, dim = A.shape
    if comb(n, dim) > _MOST_SUBSETS:
        return jnp.full((), jnp.inf, jnp.result_type(A))
    subsets = np.array(list(combinations(range(n), dim)))
    N, c = A[subsets], b[subsets]
    meet = jnp.abs(jnp.linalg.det(N)) > 1e-6
    points = jnp.linalg.solve(jnp.where(meet[:, None, None], N, jnp.eye(dim, dtype=jnp.result_type(A))), c[..., None])[
        ..., 0
    ]
    inside = (points @ A.T <= b + 1e-4 * jnp.max(b)).all(axis=1)
    return jnp.sqrt(jnp.max(jnp.where(meet & inside, jnp.sum(points**2, axis=1), 0)))
