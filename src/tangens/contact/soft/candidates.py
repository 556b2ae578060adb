"""Which points of a large cloud count for a probe: a list of fixed length, compiled once for any pose.

Weights fall off as exp(−d²/ε₁), so all but the nearest points may be left out. Points are kept in leaves, each some
neighbours within a ball; a probe looks at the leaves whose balls are nearest. What is left out is then at least as
far as the nearest ball that was not looked at, which bounds its share of the weights: `left_out`.

Lists are chosen anew at each pose and are constants to a derivative: where a list changes, what enters and leaves has
a share of the weights within that bound.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

Array = jax.Array

LEAF = 32
"""Points in a leaf."""
LOOKED_AT = 12
"""Leaves that a probe looks at: on a closed surface, a leaf has some six neighbours, and near an edge or a thin part
there is another side."""
MANY = 1024
"""Points of a cloud, up to which all of them are looked at; and at least so many planes are looked at in all."""
NO_POINT = -1e30
"""Bias of the logit of a copy that does not count."""


class Candidates(NamedTuple):
    """For each of P probes, n points of a cloud."""

    points: Array
    """(3, P, n)."""
    normals: Array
    bias: Array
    """(P, n)."""


def in_leaves(points: NDArray[np.float64], count: int) -> tuple[NDArray[np.int_], NDArray[np.float64]]:
    """An order of points by leaves of neighbours, `count` entries long, and biases by which repeated ones do not count.

    Halves or thirds along the longest side, again and again.
    """
    parts, leaves = [np.arange(len(points))], count // LEAF
    while leaves > 1:
        ways = 3 if leaves % 3 == 0 else 2
        leaves //= ways
        parts = [share for part in parts for share in np.array_split(_along(points, part), ways)]
    order = np.concatenate([np.resize(part, LEAF) for part in parts])
    bias = np.concatenate([np.where(np.arange(LEAF) < len(part), 0.0, NO_POINT) for part in parts])
    return order, bias


def _along(points: NDArray[np.float64], part: NDArray[np.int_]) -> NDArray[np.int_]:
    """Some of the points in their order along the longest side of the box around them."""
    axis = int(np.ptp(points[part], axis=0).argmax())
    return part[np.argsort(points[part, axis], kind="stable")]


def uses_lists(probes: int, points: int) -> bool:
    """Whether so many probes look at lists of so many points, rather than at all of them."""
    return points > MANY and probes > LEAF


def candidates(y: Array, points: Array, normals: Array, bias: Array) -> Candidates:
    """The points in the leaves nearest to each of P probes."""
    _, nearest = jax.lax.top_k(-_balls(y, points, bias), LOOKED_AT)
    leaves = (a.reshape(*a.shape[:-1], -1, LEAF)[..., nearest, :] for a in (points, normals, bias))
    return Candidates(*(a.reshape(*a.shape[:-2], LOOKED_AT * LEAF) for a in leaves))


def left_out(y: Array, points: Array, bias: Array, temperature: Array) -> Array:
    """A bound on the share of the weights that the points have which a probe does not look at, (P,)."""
    ball = -jax.lax.top_k(-_balls(y, points, bias), LOOKED_AT + 1)[0][:, -1]
    square = jnp.sum((y[:, :, None] - points[:, None]) ** 2, 0)
    nearest = jnp.min(jnp.where(bias < 0, jnp.inf, square), 1)
    logit = (jnp.maximum(ball, 0.0) ** 2 - nearest) / temperature
    return jnp.minimum(points.shape[1] * jnp.exp(-jnp.maximum(logit, 0.0)), 1.0)


def _balls(y: Array, points: Array, bias: Array) -> Array:
    """How far each leaf's ball is from each probe [m], (P, leaves); a leaf without points is nowhere near."""
    y, points, bias = jax.lax.stop_gradient((y, points, bias))
    leaves = points.reshape(3, -1, LEAF)
    middle = jnp.mean(leaves, 2)
    radius = jnp.sqrt(jnp.max(jnp.sum((leaves - middle[:, :, None]) ** 2, 0), 1))
    radius = jnp.where(jnp.max(bias.reshape(-1, LEAF), 1) < 0, -jnp.inf, radius)
    away = jnp.sqrt(jnp.sum((y[:, :, None] - middle[:, None]) ** 2, 0))
    return away - radius
