"""Signed distances of simple solids, in JAX: half-spaces, thick segments, boxes, cylinders.

A field tells how far a point is from a surface, negative inside, and which way is out. `tau` is the smoothing [m]; as
it falls, distances become those of the solid itself, true inside and outside. Points may be anywhere: at centres, on
edges and on axes of symmetry, distances and normals have finite derivatives of every order. Where a direction is
undefined (the centre of a ball), the normal is 0. Derivatives flow through points, sizes and `tau`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from tangens.geometry.smooth_operators import argmax, greater, length, maximum, relu, unit

Array = jax.Array

_BLUNT = 1e-3
"""Of its size, a solid is blunted where a distance has no derivative by itself: on axes and in middle planes, far from
the surface, which this moves by half its square, 5e-7."""
_FLAT = 1e-3
"""Normals this short, in the middle of a solid, have no direction any more; others are shorter than 1 by 5e-7."""


class Field(Protocol):
    """The signed distance of a solid in its own frame."""

    def evaluate(self, x: Array, tau: Any) -> tuple[Array, Array]:
        """φ(x) [m] and the outward normal, of length 1 or less, for one point (3,)."""
        ...


def evaluate_many(field: Any, x: Array, tau: Any) -> tuple[Array, Array]:
    """φ (n,) and normals (n, 3) of many points (n, 3), the quick way where a field has one."""
    if hasattr(field, "evaluate_many"):
        found: tuple[Array, Array] = field.evaluate_many(x, tau)
        return found
    return jax.vmap(lambda p: field.evaluate(p, tau))(x)


class PlaneField(NamedTuple):
    """Of the half-space z <= 0."""

    def evaluate(self, x: Array, tau: Any) -> tuple[Array, Array]:
        """Exact for any smoothing."""
        del tau
        return x[2], jnp.array([0.0, 0.0, 1.0], x.dtype)


class SegmentField(NamedTuple):
    """Of all points within a radius of a segment along z: a ball, or a capsule."""

    half_length: Array
    radius: Array

    def evaluate(self, x: Array, tau: Any) -> tuple[Array, Array]:
        """Exact but for the axis, for any smoothing."""
        del tau
        nearest = jnp.clip(x[2], -self.half_length, self.half_length)
        off = x - jnp.array([0.0, 0.0, 1.0], x.dtype) * nearest
        blunt = _BLUNT * self.radius
        return length(off, blunt) - self.radius, unit(off, blunt)


class BoxField(NamedTuple):
    """Of a box with these half sides (3,)."""

    half: Array

    def evaluate(self, x: Array, tau: Any) -> tuple[Array, Array]:
        """Faces are exact for any smoothing; edges are rounded off, by 0.57 tau."""
        away = jnp.sqrt(x**2 + jnp.square(_BLUNT * self.half))
        distance, by_side = beyond_sides(away - self.half, tau)
        return distance, unit(by_side * x / away, _FLAT)


class CylinderField(NamedTuple):
    """Of a cylinder along z."""

    radius: Array
    half_length: Array

    def evaluate(self, x: Array, tau: Any) -> tuple[Array, Array]:
        """Its side and its caps are exact for any smoothing; rims are rounded off."""
        around = length(x[:2], _BLUNT * self.radius)
        along = jnp.sqrt(x[2] ** 2 + jnp.square(_BLUNT * self.half_length))
        sides = jnp.stack([around - self.radius, along - self.half_length])
        distance, by_side = beyond_sides(sides, tau)
        normal = jnp.concatenate([by_side[0] * x[:2] / around, (by_side[1] * x[2] / along)[None]])
        return distance, unit(normal, _FLAT)


def beyond_sides(q: Array, tau: Any) -> tuple[Array, Array]:
    """The distance from where all q are negative, and its slope by each q: how far beyond each of several sides.

    Outside, it is the length of what sticks out; inside, the distance from the nearest side. Smooth ones of both parts
    add up to q itself where only one side counts: relu(q) − relu(−q) = q.
    """
    out = relu(q, tau)
    largest = maximum(q, tau)
    blunt = 1e-3 * tau if not isinstance(tau, int) else 0
    far = length(out, blunt)
    slope = jnp.where(far > 0, out / jnp.where(far > 0, far, 1.0), 0.0) * greater(q, 0.0, tau)
    slope += greater(-largest, 0.0, tau) * argmax(q, tau)
    return far - relu(-largest, tau), slope
