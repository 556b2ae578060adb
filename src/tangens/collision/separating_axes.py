"""How far two convex solids are apart along the normals of their contacts: which of these can be contacts at all.

Along any direction n, the gap between the shadows of two convex solids, σ(n) = min over 2 of n·x − max over 1 of n·x, is no
larger than their distance; where they overlap, the largest σ is how deep they do (separating axis theorem). A pair of
edges that overlaps along a direction of its own, while another axis says that the solids hardly touch, is no contact,
however near its edges are: a spring there would come from nothing.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tangens.collision.sides import Manifold, Side
from tangens.geometry.smooth_operators import argmax, is_exact, unit

Array = jax.Array

_SAME = 0.01
"""1 − cosine of the angle between axes of which one says nothing about the other, 8°: those of one face."""
_FINE = 0.02
"""Smoothing of the choice between axes, over that of distances: contacts overlap by less than that."""
_TIES = 3.0
"""Axes that are the best count 0.95, those whose gap is smaller by 6 tau 0.05."""


def on_best_axes(sides: list[Side], contacts: Manifold, axes: Array, tau: Any) -> Manifold:
    """Contacts no deeper than the solids themselves, and only along axes that tell how deep that is.

    `axes` (k, 3) are directions that compete with the contacts' own normals.
    """
    normals = unit(jnp.concatenate([contacts.normal, axes]), 1e-6)
    fine = tau if is_exact(tau) else tau * _FINE
    gaps = shadow_gaps(sides, normals, fine)
    own = len(contacts.distance)
    turned = 1 - normals[:own] @ normals.T
    lag = _largest((gaps[None] - contacts.distance[:, None]) * -jnp.expm1(-((turned / _SAME) ** 2)), fine)
    best = jnp.where(lag <= 0, 1.0, 0.0) if is_exact(tau) else jax.nn.sigmoid(_TIES - lag / tau)
    return contacts._replace(distance=contacts.distance + lag, activity=contacts.activity * best)


def shadow_gaps(sides: list[Side], normals: Array, tau: Any) -> Array:
    """σ [m] along directions (k, 3) from solid 1 to solid 2, for hulls of vertices with a radius."""
    n = unit(normals, 1e-6)
    about = sides[0].pose.position
    one, two = (side.vertices - about for side in sides)
    gap = -_largest(n @ one.T, tau) - _largest(-n @ two.T, tau) - sides[0].solid.radius - sides[1].solid.radius
    everything = jnp.sum(jnp.ptp(one, 0)) + jnp.sum(jnp.ptp(two, 0))  # a normal of length 0 is no axis
    return gap - (1 - jnp.sum(n * n, -1)) * everything


def _largest(x: Array, tau: Any) -> Array:
    """The largest entry of each row, by a weighted mean: that of several that are the same, too."""
    return jnp.sum(argmax(x, tau) * x, -1)
