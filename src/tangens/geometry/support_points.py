"""Points of round solids that slide along their surface, so that they roll: those farthest towards another solid.

Fixed vertices make a cylinder a prism: it rolls from edge to edge. A *support* asks the other solid, at some points of
its own (its `seats`), which way it is, and answers with the points of its surface that are farthest that way. Fixed
vertices beside such a point stand for the same piece of surface. Rolling, they come down to the ground on a curve; a
contact, which looks ahead along a straight line, would see them hit it. They do not count there.

All are smooth: derivatives of every order flow through directions and sizes.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from tangens.geometry.smooth_operators import greater, length, unit

Array = jax.Array

_BESIDE = 0.7
"""Cosine: vertices within 45° of a support point are beside it."""
_SOFT = 0.05
"""τ of cosines."""
_UPRIGHT = 0.1
"""Sine of a cylinder's tilt, below which it stands on its whole rim: 6°."""
_BLUNT = 0.02
"""Sine of the tilt at which a support point leaves the middle of a cap, where it is in an upright cylinder."""


class Support(Protocol):
    """Which points of a solid slide."""

    def seats(self) -> Array:
        """Where to ask the other solid, in the solid's frame [m], (k, 3)."""
        ...

    def points(self, towards: Array) -> Array:
        """Points of the surface [m], (k, 3), for directions (k, 3) of length 1 or less."""
        ...

    def counts(self, vertices: Array, towards: Array) -> Array:
        """How much fixed vertices (V, 3) count beside them, (V,)."""
        ...


class RimSupport(NamedTuple):
    """Of a cylinder along z: one point on each rim."""

    radius: Array
    half_length: Array

    def seats(self) -> Array:
        """The middles of both caps."""
        return jnp.array([[0.0, 0.0, -1.0], [0.0, 0.0, 1.0]], self.radius.dtype) * self.half_length

    def points(self, towards: Array) -> Array:
        """On the rims, or between them and the middles of the caps."""
        return self.seats().at[:, :2].add(self.radius * unit(towards[:, :2], _BLUNT))

    def counts(self, vertices: Array, towards: Array) -> Array:
        """All of them in an upright cylinder; else those that are not beside the point on their rim."""
        below, above = (greater(z, 0.0, 0) for z in (-vertices[:, 2], vertices[:, 2]))
        off = below[:, None] * towards[0, :2] + above[:, None] * towards[1, :2]
        cosine = jnp.sum(unit(off, _BLUNT) * vertices[:, :2], -1) / self.radius
        return 1 - greater(length(off, _BLUNT), _UPRIGHT, 0.2 * _UPRIGHT) * greater(cosine, _BESIDE, _SOFT)


class EllipsoidSupport(NamedTuple):
    """Of an ellipsoid with these half axes (3,)."""

    axes: Array

    def seats(self) -> Array:
        """Its centre."""
        return jnp.zeros((1, 3), self.axes.dtype)

    def points(self, towards: Array) -> Array:
        """Where the surface is perpendicular to the direction."""
        return self.axes * unit(self.axes * towards, 1e-3 * jnp.min(self.axes))

    def counts(self, vertices: Array, towards: Array) -> Array:
        """Those whose normals point elsewhere."""
        normals = unit(vertices / self.axes**2, 0)
        return 1 - greater(normals @ towards[0], _BESIDE, _SOFT)
