"""How far two convex solids are apart along the normals of their contacts: which of these can be contacts at all.

Along any direction n, the gap between the shadows of two convex solids, σ(n) = min over 2 of n·x − max over 1 of n·x,
is no larger than their distance; where they overlap, the largest σ is how deep they do (separating axis theorem). A
pair of edges that overlaps along a direction of its own, while another axis says that the solids hardly touch, is no
contact, however near its edges are: a spring there would come from nothing. Derivatives flow through vertices and
normals.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tangens.collision.sides import Manifold, Side
from tangens.geometry.smooth_operators import argmax, greater, is_exact, length, sum_of

Array = jax.Array

_SAME = 0.01
"""1 − cosine of the angle between axes of which one says nothing about the other, 8°: those of one face."""
_FINE = 0.02
"""Smoothing of the choice between axes, over that of distances: contacts overlap by less than that."""
_IDLE = 1e-3
"""Activity below which the distance of a contact is left as it is."""
_AXIS = 0.3
"""Activity of a pair of edges from which on its perpendicular is an axis."""
_TIES, _SHARP = 3.0, 2.0
"""Contacts along the best axis count 0.998, those that claim to be deeper than that by 6 tau 0.002."""


def on_best_axes(sides: list[Side], contacts: Manifold, axes: Array, tau: Any) -> Manifold:
    """Contacts no deeper than the solids themselves, and only along axes that tell how deep that is.

    `axes` (k, 3) are directions that compete with the normals of those contacts that count.
    """
    normals = jnp.concatenate([contacts.normal, axes])
    fine = tau if is_exact(tau) else _FINE * tau
    everything = sum_of(jnp.sum(jnp.ptp(side.vertices, 0)) for side in sides)
    count = jnp.concatenate([greater(contacts.activity, _AXIS, 0.02), jnp.ones_like(axes[:, 0])])
    # Blunted normals, shorter than 1, are no axes, nor are those of parallel edges, which turn with every breath.
    gaps = shadow_gaps(sides, normals, fine) - (2 - count - jnp.sum(normals**2, -1)) * everything
    if not is_exact(tau):  # the deeper solids overlap, the less sharp
        fine = _FINE * length(_largest(gaps, tau)[None], tau)
    other = -jnp.expm1(-(((1 - contacts.normal @ normals.T) / _SAME) ** 2))
    ahead = other * (gaps - contacts.distance[:, None])
    lag = _largest(jnp.concatenate([ahead, jnp.zeros_like(ahead[:, :1])], 1), fine)
    counts = jnp.where(lag <= 0, 1.0, 0.0) if is_exact(tau) else jax.nn.sigmoid(_SHARP * (_TIES - lag / tau))
    matters = contacts.activity**2 / (contacts.activity**2 + _IDLE**2)
    return contacts._replace(distance=contacts.distance + matters * lag, activity=contacts.activity * counts)


def shadow_gaps(sides: list[Side], normals: Array, tau: Any) -> Array:
    """σ [m] along directions (k, 3) from solid 1 to solid 2, for hulls of vertices with a radius."""
    about = sides[0].pose.position
    one, two = (side.vertices - about for side in sides)
    gap = -_largest(normals @ one.T, tau) - _largest(-normals @ two.T, tau)
    return gap - sides[0].solid.radius - sides[1].solid.radius


def _largest(x: Array, tau: Any) -> Array:
    """The largest entry of each row, by a weighted mean: that of several that are the same, too."""
    return jnp.sum(argmax(x, tau) * x, -1)
