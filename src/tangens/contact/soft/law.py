"""The force between a point and a plane (paper 3, Eqs. 14 to 20), and how it falls with velocity.

All of it is smooth to any order where v_s > 0, but for the dissipation factor of the paper, which has one derivative
only. Derivatives flow through every argument.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tangens.contact.soft.softplus import softplus

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
    law: Law, distance: Array, normal: Array, velocity: Array, ahead: Array | None, is_first: Array | None, smooth: bool
) -> PlaneForce:
    """The force on a point that moves with `velocity` against a plane.

    Without `ahead`, this is the paper's law. With `ahead` = h, `velocity` is a guess of that at the end of the step,
    and so is the distance from there; where it `is_first`, friction is linearised about less slip, for from there
    Newton's method does not overshoot.
    """
    v_n = dot(normal, velocity)
    v_t = velocity - v_n * normal
    depth = -later(distance, v_n, ahead) / law.reach
    spring = law.stiffness * law.reach * softplus(depth)  # c(φ), Eq. 15
    factor, falls = dissipation_factor(v_n / law.dissipation, smooth)  # Eqs. 16, 17
    normal_force, normal_rate = spring * factor, spring * falls / law.dissipation  # Eq. 18
    if ahead is None or is_first is None:
        length = jnp.sqrt(law.stiction**2 + dot(v_t, v_t))
        grip, force = law.friction * normal_force / length, normal_force * normal
        return PlaneForce(force - grip * v_t, normal_rate, grip, v_t / length, law.friction * normal_rate)
    normal_rate += ahead * law.stiffness * jax.nn.sigmoid(depth) * factor
    about = v_t * _kept(law, normal_force, v_t, ahead, is_first)
    length = jnp.sqrt(law.stiction**2 + dot(about, about))
    grip, slip = law.friction * normal_force / length, about / length
    beyond = v_t - about
    beyond -= dot(slip, beyond) * slip
    force = normal_force * normal - grip * (about + beyond)  # Eqs. 19, 20
    # near edges and corners, normals are a little shorter than 1, and slip is not quite across them
    return PlaneForce(force, normal_rate, grip, slip, law.friction * normal_rate - grip * dot(slip, normal))


def later(distance: Array, speed: Array, ahead: Array | None) -> Array:
    """The distance of what moves on for a time."""
    return distance if ahead is None else distance + ahead * speed


def dot(a: Array, b: Array) -> Array:
    """Products of vectors (3, ...), written out: XLA makes one loop of this and what comes before and after."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _kept(law: Law, normal_force: Array, v_t: Array, ahead: Array, is_first: Array) -> Array:
    """The share of the slip about which friction is linearised."""
    lost = _SLOWED * ahead * law.friction * normal_force / law.mass
    square, ground = dot(v_t, v_t), lost**2 + law.stiction**2
    return jnp.where(is_first, square / (square + ground), 1.0)


def dissipation_factor(x: Array, smooth: bool) -> tuple[Array, Array]:
    """d(v_n / v_d), and how fast it falls, −d'.

    Both are 1 at rest, grow as 1 − x when the point comes closer, and vanish when it parts.
    """
    if smooth:
        one = _BEND * softplus(jnp.asarray(1 / _BEND, x.dtype))
        return _BEND * softplus((1 - x) / _BEND) / one, jax.nn.sigmoid((1 - x) / _BEND) / one
    parting = jnp.clip(2 - x, 0.0, 2.0)
    return jnp.where(x <= 0, 1 - x, parting**2 / 4), jnp.where(x <= 0, 1.0, parting / 2)
