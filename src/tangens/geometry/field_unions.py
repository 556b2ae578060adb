"""Convex polyhedra, and solids put together or cut out of each other, nested as you like (paper 4, Sec. IV-B).

Unions are too small by tau log n where n surfaces meet, and differences too: log-sum-exp errs to one side. Where one
surface counts, values are those of that surface.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tangens.geometry.smooth_operators import argmax, argmin, maximum, minimum, unit

Array = jax.Array

_OPPOSED = 1e-3
"""Mean normals this short have no direction any more."""


class ConvexPolyhedra(NamedTuple):
    """The union of n convex polyhedra (Eqs. 4, 5), each by its faces; a shorter list repeats a face.

    The distance is that from the farthest plane: true inside and in front of faces, too small beyond edges.
    """

    normals: Array
    """Outwards, (n, f, 3)."""
    offsets: Array
    """Of the planes from the origin [m], (n, f)."""
    repeats: Array
    """Which faces are there twice, and so do not count, (n, f)."""

    def evaluate(self, x: Array, tau: Any) -> tuple[Array, Array]:
        """φ and normal of one point."""
        beyond = jnp.where(self.repeats, -1e9, self.normals @ x - self.offsets)
        each, weights = maximum(beyond, tau), argmax(beyond, tau)
        normals = jnp.einsum("nf,nfi->ni", weights, self.normals)
        if len(self.normals) == 1:
            return each[0], unit(normals[0], _OPPOSED)
        return minimum(each, tau), unit(argmin(each, tau) @ normals, _OPPOSED)


class Union(NamedTuple):
    """Points that are in one of several solids: φ = −LSE(−φ₁, ..., −φₙ)."""

    fields: tuple[Any, ...]

    def evaluate(self, x: Array, tau: Any) -> tuple[Array, Array]:
        """φ and normal of one point."""
        found = [field.evaluate(x, tau) for field in self.fields]
        distance, normal = jnp.stack([d for d, _ in found]), jnp.stack([n for _, n in found])
        return minimum(distance, tau), unit(argmin(distance, tau) @ normal, _OPPOSED)


class Difference(NamedTuple):
    """Points of one solid that are not in another: φ = LSE(φ₊, −φ₋)."""

    kept: Any
    removed: Any

    def evaluate(self, x: Array, tau: Any) -> tuple[Array, Array]:
        """φ and normal of one point."""
        (d1, n1), (d2, n2) = self.kept.evaluate(x, tau), self.removed.evaluate(x, tau)
        distance, normal = jnp.stack([d1, -d2]), jnp.stack([n1, -n2])
        return maximum(distance, tau), unit(argmax(distance, tau) @ normal, _OPPOSED)


class Moved(NamedTuple):
    """A solid somewhere else."""

    field: Any
    position: Array
    """[m], (3,)."""
    rotation: Array
    """(3, 3)."""

    def evaluate(self, x: Array, tau: Any) -> tuple[Array, Array]:
        """φ and normal of one point."""
        distance, normal = self.field.evaluate(self.rotation.T @ (x - self.position), tau)
        return distance, self.rotation @ normal
