"""Forces of many probes on one surface: wrenches, and how they fall with velocity.

Wrenches are about the world's origin. Both bodies feel the force at one and the same point, the probe's: with the
paper's two points (Eq. 21) a pair would turn itself. The sign of Eq. 21 is the other way round, too: with (J_i − J) a
point would be pulled into the surface that it penetrates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from tangens.contact.soft.candidates import LEAF, LOOKED_AT, left_out, uses_lists
from tangens.contact.soft.fields import Near, from_cloud, from_half_space, from_segment, plane_weights
from tangens.contact.soft.law import Law, PlaneForce, dot, later, point_plane

Array = jax.Array
Found = TypeVar("Found")

_BLOCK = 1 << 15
"""Probes times points that are in memory at once."""


class Surface(NamedTuple):
    """What probes are tested against; arrays that its kind does not have are None."""

    half_length: Array | None = None
    thickness: Array | None = None
    points: Array | None = None
    normals: Array | None = None
    bias: Array | None = None
    temperature: Array | None = None


class Pose(NamedTuple):
    """Of a frame in the world."""

    position: Array
    rotation: Array


class RowForce(NamedTuple):
    """All probes of a row together, each with its share in the pair."""

    wrench: Array
    """On the body of the probes [N m, N], (6,)."""
    rate: Array | None
    """How fast the wrench falls with the relative twist, (6, 6)."""


def probe(kind: str, probes: Array, radius: Array | None, seen: Pose, surface: Surface, on: Pose) -> Near:
    """Where the probes of one geom, `seen` from the surface of another, are in the world."""
    y = _turned(seen.rotation, probes) + seen.position[:, None]

    def near(y: Array) -> Near:
        thick = jnp.zeros((), y.dtype) if radius is None else radius
        match kind:
            case "plane":
                return from_half_space(y, thick)
            case "segment":
                return from_segment(y, thick, *surface[:2])  # type: ignore[arg-type]
            case _:
                return from_cloud(y, radius, *surface[2:], listed=listed)  # type: ignore[arg-type]

    count = 0 if surface.points is None else surface.points.shape[1]
    listed = uses_lists(y.shape[1], count)
    looked_at = LEAF * LOOKED_AT if listed else count
    found = in_blocks(near, y, _BLOCK // looked_at) if count else near(y)
    point = _turned(on.rotation, found.point) + on.position[:, None]
    return Near(found.distance, _turned(on.rotation, found.normal), point)


def _turned(turn: Array, p: Array) -> Array:
    """Points turned by a matrix, (3, P), written out: XLA makes one loop of this and what comes before and after."""
    return turn[:, :1] * p[0] + turn[:, 1:2] * p[1] + turn[:, 2:] * p[2]


def share_left_out(near: Near, surface: Surface, on: Pose) -> Array:
    """A bound on the share of weights that candidate lists leave out, of each probe of a row, (P,)."""
    y = _turned(on.rotation.T, near.point - on.position[:, None])
    points, bias, temperature = surface.points, surface.bias, surface.temperature
    assert points is not None
    assert bias is not None
    assert temperature is not None
    return in_blocks(lambda y: left_out(y, points, bias, temperature), y, _BLOCK // points.shape[1])


def depth_logits(near: Near, bias: Array, twist: Array, temperature: Array, ahead: Array | None) -> Array:
    """−Φ/ε₂ of each probe (Eq. 23), of where it is `ahead` of now if it moves on."""
    return -later(near.distance, dot(near.normal, _velocity(near, twist)), ahead) / temperature + bias


def row_force(
    near: Near,
    share: Array,
    twist: Array,
    law: Law,
    ahead: Array | None,
    is_first: Array | None,
    smooth: bool,
    with_rate: bool,
) -> RowForce:
    """Eq. 23 for one row; `twist` is that of the probes' body against the surface's."""
    velocity = _velocity(near, twist)
    forces = point_plane(law, near.distance, near.normal, velocity, ahead, is_first, smooth)
    return _together(near, share, forces, with_rate)


def row_force_of_planes(
    near: Near, share: Array, twist: Array, law: Law, surface: Surface, on: Pose, smooth: bool
) -> RowForce:
    """Eqs. 22 and 23 as they stand: the mean force of all planes of a cloud on each probe."""
    assert surface.points is not None

    def of_block(both: Array) -> PlaneForce:
        y, velocity = _turned(on.rotation.T, both[:3] - on.position[:, None]), both[3:]
        weights = plane_weights(y, surface.points, surface.bias, surface.temperature)  # type: ignore[arg-type]
        distance = y.T @ surface.normals - dot(surface.normals, surface.points)  # type: ignore[operator, arg-type]
        normal = _turned(on.rotation, surface.normals)[:, None]  # type: ignore[arg-type]
        each = point_plane(law, distance, normal, velocity[:, :, None], None, None, smooth)
        return PlaneForce(*(jnp.sum(weights * part, -1) for part in each))  # Eq. 22

    both = jnp.concatenate([near.point, _velocity(near, twist)])
    return _together(near, share, in_blocks(of_block, both, _BLOCK // surface.points.shape[1]), with_rate=False)


def _velocity(near: Near, twist: Array) -> Array:
    (a, b, c), (x, y, z) = twist[:3], near.point
    return twist[3:, None] + jnp.stack([b * z - c * y, c * x - a * z, a * y - b * x])


def _together(near: Near, share: Array, forces: PlaneForce, with_rate: bool) -> RowForce:
    at = jnp.concatenate([near.point, jnp.ones_like(share)[None]])
    moment = (share * forces.force) @ at.T  # f ⊗ (p, 1), summed
    (_, xy, xz, x), (yx, _, yz, y), (zx, zy, _, z) = moment
    return RowForce(jnp.stack([zy - yz, xz - zx, yx - xy, x, y, z]), _rate(near, share, forces) if with_rate else None)


def _rate(near: Near, share: Array, forces: PlaneForce) -> Array:
    """How fast the wrench falls with the relative twist, (6, 6)."""
    arm = _arms(near.point)
    along, across = (dot(x, arm) for x in (forces.slip, near.normal))
    grip, normal = share * forces.grip, share * (forces.normal_rate - forces.grip)
    left = [*(grip * arm), -grip * along, normal * across - share * forces.coupling * along]
    return jnp.concatenate(left, -1) @ jnp.concatenate([*arm, along, across], -1).T


def in_blocks(function: Callable[[Array], Found], y: Array, length: int) -> Found:
    """Block after block of columns of y; a derivative computes each of them again instead of keeping it."""
    columns = y.shape[1]
    if columns <= max(1, length):
        return function(y)
    count = -(-columns // max(1, length))
    length = -(-columns // count)
    filled = jnp.concatenate([y, jnp.repeat(y[:, -1:], count * length - columns, 1)], 1)
    blocks = jnp.swapaxes(filled.reshape(len(y), count, length), 0, 1)
    found = jax.lax.map(jax.checkpoint(function), blocks)
    return jax.tree.map(lambda a: jnp.moveaxis(a, 0, -2).reshape(*a.shape[1:-1], -1)[..., :columns], found)


def _arms(p: Array) -> Array:
    """Twist ↦ velocity of each point, (3, 6, P)."""
    (x, y, z), o, i = p, jnp.zeros_like(p[0]), jnp.ones_like(p[0])
    rows = [[o, z, -y, i, o, o], [-z, o, x, o, i, o], [y, -x, o, o, o, i]]
    return jnp.stack([jnp.stack(row) for row in rows])
