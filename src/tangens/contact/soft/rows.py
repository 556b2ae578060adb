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
from tangens.contact.soft.law import Law, PlaneForce, point_plane
from tangens.dynamics.spatial import vector_product

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


def probe(kind: str, probes: Array, radius: Array | None, pose: Pose, surface: Surface, on: Pose) -> Near:
    """Where the probes of one geom are against the surface of another, in the world."""
    turn, moved = on.rotation.T @ pose.rotation, on.rotation.T @ (pose.position - on.position)
    y = _turned(turn, probes) + moved

    def near(y: Array) -> Near:
        thick = jnp.zeros((), y.dtype) if radius is None else radius
        match kind:
            case "plane":
                return from_half_space(y, thick)
            case "segment":
                return from_segment(y, thick, *surface[:2])  # type: ignore[arg-type]
            case _:
                return from_cloud(y, radius, *surface[2:], listed=listed)  # type: ignore[arg-type]

    count = 0 if surface.points is None else len(surface.points)
    listed = uses_lists(len(y), count)
    looked_at = LEAF * LOOKED_AT if listed else count
    found = in_blocks(near, y, _BLOCK // looked_at) if count else near(y)
    point = _turned(on.rotation, found.point) + on.position
    return Near(found.distance, _turned(on.rotation, found.normal), point)


def _turned(turn: Array, p: Array) -> Array:
    """Points turned by a matrix, (P, 3), written out: XLA makes one loop of this and what comes before and after."""
    return p[:, :1] * turn[:, 0] + p[:, 1:2] * turn[:, 1] + p[:, 2:] * turn[:, 2]


def share_left_out(near: Near, surface: Surface, on: Pose) -> Array:
    """A bound on the share of weights that candidate lists leave out, of each probe of a row, (P,)."""
    y = (near.point - on.position) @ on.rotation
    points, bias, temperature = surface.points, surface.bias, surface.temperature
    assert points is not None
    assert bias is not None
    assert temperature is not None
    return in_blocks(lambda y: left_out(y, points, bias, temperature), y, _BLOCK // len(points))


def depth_logits(near: Near, bias: Array, twist: Array, temperature: Array, ahead: Array) -> Array:
    """−Φ/ε₂ of each probe (Eq. 23), of where it is `ahead` of now if it moves on."""
    return -(near.distance + ahead * jnp.sum(near.normal * _velocity(near, twist), -1)) / temperature + bias


def row_force(
    near: Near, share: Array, twist: Array, law: Law, ahead: Array, is_first: Array, smooth: bool, with_rate: bool
) -> RowForce:
    """Eq. 23 for one row; `twist` is that of the probes' body against the surface's."""
    velocity = _velocity(near, twist)
    forces = point_plane(law, near.distance, near.normal, velocity, ahead, is_first, smooth)
    return _together(near, share, forces, with_rate)


def row_force_of_planes(
    near: Near, share: Array, twist: Array, law: Law, surface: Surface, on: Pose, smooth: bool
) -> RowForce:
    """Eqs. 22 and 23 as they stand: the mean force of all planes of a cloud on each probe."""
    nothing = jnp.zeros((), near.point.dtype)
    assert surface.points is not None

    def of_block(both: Array) -> PlaneForce:
        point, velocity = both[:, :3], both[:, 3:]
        y = (point - on.position) @ on.rotation
        weights = plane_weights(y, surface.points, surface.bias, surface.temperature)  # type: ignore[arg-type]
        distance = y @ surface.normals.T - jnp.sum(surface.normals * surface.points, -1)  # type: ignore[operator, union-attr]
        normal = jnp.broadcast_to(surface.normals @ on.rotation.T, (*distance.shape, 3))  # type: ignore[operator]
        moving = jnp.broadcast_to(velocity[:, None], normal.shape)
        each = point_plane(law, distance, normal, moving, nothing, jnp.array(False), smooth)
        return PlaneForce(*(jnp.einsum("pf,pf...->p...", weights, part) for part in each))  # Eq. 22

    both = jnp.concatenate([near.point, _velocity(near, twist)], -1)
    return _together(near, share, in_blocks(of_block, both, _BLOCK // len(surface.points)), with_rate=False)


def _velocity(near: Near, twist: Array) -> Array:
    return twist[3:] + vector_product(jnp.broadcast_to(twist[:3], near.point.shape), near.point)


def _together(near: Near, share: Array, forces: PlaneForce, with_rate: bool) -> RowForce:
    shared = share[:, None] * forces.force
    wrench = jnp.concatenate([jnp.sum(vector_product(near.point, shared), 0), jnp.sum(shared, 0)])
    return RowForce(wrench, _rate(near, share, forces) if with_rate else None)


def _rate(near: Near, share: Array, forces: PlaneForce) -> Array:
    """How fast the wrench falls with the relative twist, (6, 6)."""
    one = jnp.broadcast_to(jnp.eye(3, dtype=share.dtype), (len(share), 3, 3))
    arm = jnp.concatenate([_lever(near.point), one], -1)
    along, across = (jnp.einsum("pi,pia->pa", x, arm) for x in (forces.slip, near.normal))
    grip, normal = share * forces.grip, share * (forces.normal_rate - forces.grip)
    rate = jnp.einsum("p,pia,pib->ab", grip, arm, arm) - jnp.einsum("p,pa,pb->ab", grip, along, along)
    rate += jnp.einsum("p,pa,pb->ab", normal, across, across)
    rate -= jnp.einsum("p,pa,pb->ab", share * forces.coupling, along, across)
    return rate


def in_blocks(function: Callable[[Array], Found], y: Array, length: int) -> Found:
    """Block after block of rows of y; a derivative computes each of them again instead of keeping it."""
    if len(y) <= max(1, length):
        return function(y)
    count = -(-len(y) // max(1, length))
    length = -(-len(y) // count)
    rest = count * length - len(y)
    blocks = jnp.concatenate([y, jnp.broadcast_to(y[-1:], (rest, y.shape[1]))]).reshape(count, length, y.shape[1])
    found = jax.lax.map(jax.checkpoint(function), blocks)
    return jax.tree.map(lambda a: a.reshape(count * length, *a.shape[2:])[: len(y)], found)


def _lever(p: Array) -> Array:
    """ω ↦ ω × p as matrices, (P, 3, 3)."""
    x, y, z, o = p[:, 0], p[:, 1], p[:, 2], jnp.zeros_like(p[:, 0])
    return jnp.stack([jnp.stack([o, z, -y], -1), jnp.stack([-z, o, x], -1), jnp.stack([y, -x, o], -1)], -2)
