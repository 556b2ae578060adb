"""The force between a point and a plane (paper 3, Eqs. 14 to 20), and how it falls with velocity.

All of it is smooth to any order where v_s > 0, but for the dissipation factor of the paper, which has one derivative
only. Derivatives flow through every argument.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array

_BEND = 0.5
"""Of the smooth dissipation factor: it bends about as widely as the paper's, over 0 < v_n < 2 v_d."""
_SLOWED = 12.0
"""Friction is linearised about a slip that is shorter by so many times what it takes off a body's speed in a step.
Three would do for a point mass; a ball slows down 3.5 times as fast at its contact, and several contacts add up."""


class Law(NamedTuple):
    """The numbers of a pair."""

    stiffness: Array
    """k [N/m]."""
    dissipation: Array
    """v_d [m/s]."""
    stiction: Array
    """v_s [m/s]."""
    friction: Array
    """μ."""
    reach: Array
    """ε₃ [m]."""
    mass: Array
    """Of the lighter body [kg]."""


class PlaneForce(NamedTuple):
    """The force on a point, and how it falls with velocity: by normal_rate n nᵀ + grip (1 − n nᵀ − s sᵀ)."""

    force: Array
    """[N], (3, ...)."""
    normal_rate: Array
    """[N s/m], (...)."""
    grip: Array
    """[N s/m], (...)."""
    slip: Array
    """s, shorter than 1, (3, ...)."""
    coupling: Array
    """Friction falls with the normal force: −coupling s nᵀ [N s/m], (...)."""


def point_plane(
    law: Law, distance: Array, normal: Array, velocity: Array, ahead: Array, is_first: Array, smooth: bool
) -> PlaneForce:
    """The force on a point that moves with `velocity` against a plane.

    With `ahead` = 0, this is the paper's law. With `ahead` = h, `velocity` is a guess of that at the end of the step,
    and so is the distance from there; where it `is_first`, friction is linearised about less slip, for from there
    Newton's method does not overshoot.
    """
    v_n = jnp.sum(normal * velocity, 0)
    v_t = velocity - v_n * normal
    depth = -(distance + ahead * v_n) / law.reach
    spring = law.stiffness * law.reach * jax.nn.softplus(depth)  # c(φ), Eq. 15
    slope = law.stiffness * jax.nn.sigmoid(depth)
    factor, falls = dissipation_factor(v_n / law.dissipation, smooth)  # Eqs. 16, 17
    normal_force = spring * factor  # Eq. 18
    about = v_t * _kept(law, normal_force, v_t, ahead, is_first)
    length = jnp.sqrt(law.stiction**2 + jnp.sum(about**2, 0))
    grip, slip = law.friction * normal_force / length, about / length
    beyond = v_t - about
    beyond -= jnp.sum(slip * beyond, 0) * slip
    force = normal_force * normal - grip * (about + beyond)  # Eqs. 19, 20
    normal_rate = ahead * slope * factor + spring * falls / law.dissipation
    return PlaneForce(force, normal_rate, grip, slip, law.friction * normal_rate)


def _kept(law: Law, normal_force: Array, v_t: Array, ahead: Array, is_first: Array) -> Array:
    """The share of the slip about which friction is linearised."""
    lost = _SLOWED * ahead * law.friction * normal_force / law.mass
    square, ground = jnp.sum(v_t**2, 0), lost**2 + law.stiction**2
    return jnp.where(is_first, square / (square + ground), 1.0)


def dissipation_factor(x: Array, smooth: bool) -> tuple[Array, Array]:
    """d(v_n / v_d), and how fast it falls, −d'.

    Both are 1 at rest, grow as 1 − x when the point comes closer, and vanish when it parts.
    """
    if smooth:
        one = _BEND * jax.nn.softplus(jnp.asarray(1 / _BEND, x.dtype))
        return _BEND * jax.nn.softplus((1 - x) / _BEND) / one, jax.nn.sigmoid((1 - x) / _BEND) / one
    parting = jnp.clip(2 - x, 0.0, 2.0)
    return jnp.where(x <= 0, 1 - x, parting**2 / 4), jnp.where(x <= 0, 1.0, parting / 2)
