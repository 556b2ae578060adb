"""Solids at their places, and contacts between them: what all parts of a manifold share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tangens.geometry.signed_distances import evaluate_many
from tangens.geometry.solids import Solid

Array = jax.Array


class Pose(NamedTuple):
    """Where a solid is."""

    position: Array
    """[m], (3,)."""
    rotation: Array
    """(3, 3)."""


class Smoothing(NamedTuple):
    """How much each of the choices is smoothed; all may be traced, and 0 is exact."""

    distance: Any
    """τ of distances: fields, penetration, nearest neighbours [m]."""
    angle: Any = 0.05
    """τ of cosines: edges that face each other."""
    along: Any = 0.02
    """τ in shares of an edge: where it ends."""
    regularization: Any = 1e-3
    """λ: how much edges prefer their middles."""
    margin: Any = 0.0
    """Contacts count from this distance on [m]."""
    ahead: Any = 0.0
    """Features that are each other's nearest count from this much farther away on [m]: what a step may lead to."""


class Manifold(NamedTuple):
    """Contacts of two solids: first vertices of solid 1, then of solid 2, then edges, or pairs of them."""

    point: Array
    """Half way between the surfaces [m], (n, 3)."""
    distance: Array
    """Negative where they overlap [m], (n,)."""
    normal: Array
    """From solid 1 to solid 2, (n, 3)."""
    activity: Array
    """(n,)."""


class Side(NamedTuple):
    """A solid somewhere, with its vertices in the world."""

    solid: Solid
    pose: Pose
    vertices: Array
    normals: Array
    """Outwards at the vertices, in the solid's frame, where they are the same for all poses of a batch, (V, 3)."""
    counts: Array | None = None
    """How much each vertex counts, (V,), beside points that slide; all of them if None."""


def placed_pair(solids: tuple[Solid, Solid], poses: tuple[Pose, Pose], tau: Any) -> list[Side]:
    """Two solids at their places, with the points that slide where the other one wants them."""
    (one, two), (pose1, pose2) = solids, poses
    return [_supported(one, pose1, two, pose2, tau), _supported(two, pose2, one, pose1, tau)]


def _supported(solid: Solid, pose: Pose, other: Solid, there: Pose, tau: Any) -> Side:
    if solid.support is None:
        return placed(solid, pose, tau)
    seats = solid.support.seats() @ pose.rotation.T + pose.position
    outwards = evaluate_many(other.field, (seats - there.position) @ there.rotation, tau)[1]
    towards = -outwards @ there.rotation.T @ pose.rotation
    points, first = solid.support.points(towards), len(solid.vertices)
    counts = solid.support.counts(solid.vertices, towards)
    vertices = jnp.concatenate([solid.vertices, points])
    between = tuple((first + k, first + k + 1) for k in range(len(points) - 1)) if solid.edges else ()
    whole = replace(solid, vertices=vertices, edges=solid.edges + between, normals=None, support=None)
    return placed(whole, pose, tau)._replace(counts=jnp.concatenate([counts, jnp.ones_like(points[:, 0])]))


def placed(solid: Solid, pose: Pose, tau: Any) -> Side:
    """A solid at its place, without points that slide."""
    if solid.normals is None:
        normals = evaluate_many(solid.field, solid.vertices, tau)[1]
    else:
        normals = _remembered(solid.normals, solid.field, solid.vertices, jnp.asarray(tau))
    return Side(solid, pose, solid.vertices @ pose.rotation.T + pose.position, normals)


@jax.custom_jvp
def _remembered(normals: Array, field: Any, vertices: Array, tau: Array) -> Array:
    """Normals of a field at vertices that are known already; derivatives are those of the field, if anyone asks."""
    del field, vertices, tau
    return normals


@_remembered.defjvp
def _remembered_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    _, moved = jax.jvp(lambda *of: evaluate_many(*of)[1], primals[1:], tangents[1:])
    return primals[0], moved


def evaluate(side: Side, x: Array, tau: Any) -> tuple[Array, Array]:
    """Signed distance and outward normal of points of the world, (n, 3)."""
    distance, normal = evaluate_many(side.solid.field, (x - side.pose.position) @ side.pose.rotation, tau)
    return distance, normal @ side.pose.rotation.T


def projected(side: Side, x: Array, s: Smoothing, times: int) -> Array:
    """Points (n, 3) moved onto the solid's own surface by sphere tracing (Supp. II-C)."""

    def step(x: Array, _: None) -> tuple[Array, None]:
        distance, normal = evaluate(side, x, s.distance)
        return x - distance[:, None] * normal, None

    return jax.lax.scan(step, x, None, length=times)[0] if times else x
