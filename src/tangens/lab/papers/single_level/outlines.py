"""What shapes look like from the side: outlines by support points, the farthest ones in given directions."""

from __future__ import annotations

from functools import singledispatch

import jax
import numpy as np
from numpy.typing import NDArray

from tangens.contact.interior.pairs import geom_frame
from tangens.errors import OptionError
from tangens.geometry import (
    Capsule,
    Cone,
    Cylinder,
    Ellipsoid,
    MinkowskiSum,
    PaddedPolytope,
    Placed,
    Polytope,
    Shape,
    parts,
    shapes_of,
)
from tangens.geometry import corners as corners_of
from tangens.lab.papers.poses import placed
from tangens.scene import Scene

Array = NDArray[np.float64]

_SIDES = 240


def outlines(scene: Scene, q: Array) -> list[tuple[int, Array]]:
    """Outlines (x, z) of all parts of moving geoms, with the geom's index."""
    with jax.enable_x64(True):
        return _outlines(scene, q)


def _outlines(scene: Scene, q: Array) -> list[tuple[int, Array]]:
    m, d = scene.shared_model, placed(scene, q)
    angle = np.linspace(0, 2 * np.pi, _SIDES, endpoint=False)
    around = np.c_[np.cos(angle), np.zeros(_SIDES), np.sin(angle)]
    # Straight up and down are among the directions: lowest points are exact.
    found = []
    for g, default in enumerate(shapes_of(m)):
        shape = scene.shapes.get(scene.geom_names[g], default)
        if shape is None or not m.geom_bodyid[g]:
            continue
        position, turn = geom_frame(m, g, described=scene.geom_names[g] in scene.shapes)
        where, body = d.xpos[m.geom_bodyid[g]], d.xmat[m.geom_bodyid[g]].reshape(3, 3)
        axes = (body @ turn)[:, [0, 2] if shape.dim == 2 else [0, 1, 2]]
        for part in parts(shape):
            points = where + body @ position + support(part, around @ axes) @ axes.T
            found.append((g, points[:, [0, 2]]))
    return found


def lowest(scene: Scene, q: Array) -> float:
    """Height of the lowest point of all moving shapes [m]."""
    return min(float(points[:, 1].min()) for _, points in outlines(scene, q))


@singledispatch
def support(shape: Shape, d: Array) -> Array:
    """The farthest point of a shape in each direction, (n, dim); directions need not have unit length."""
    raise OptionError(f"cannot draw a {type(shape).__name__}: it has no support function")


@support.register
def _(shape: Polytope, d: Array) -> Array:
    corners = corners_of(shape.A, shape.b)
    return corners[np.argmax(d @ corners.T, axis=1)]


@support.register
def _(shape: PaddedPolytope, d: Array) -> Array:
    corners = corners_of(shape.A, shape.b)
    return corners[np.argmax(d @ corners.T, axis=1)] + float(shape.radius) * _unit(d)


@support.register
def _(shape: Ellipsoid, d: Array) -> Array:
    E = np.asarray(shape.E)
    spread = np.linalg.solve(E.T @ E, d.T).T
    return spread / np.sqrt(np.maximum(np.sum(d * spread, axis=1, keepdims=True), 1e-300))


@support.register
def _(shape: Capsule, d: Array) -> Array:
    return float(shape.half_length) * _along(d) + float(shape.radius) * _unit(d)


@support.register
def _(shape: Cylinder, d: Array) -> Array:
    return float(shape.half_length) * _along(d) + float(shape.radius) * _across(d)


@support.register
def _(shape: Cone, d: Array) -> Array:
    up = np.eye(shape.dim)[-1]
    apex = -float(shape.depth) * up
    rim = apex + float(shape.height) * up + float(shape.height * np.tan(shape.half_angle)) * _across(d)
    return np.where((np.sum(d * rim, axis=1) > d @ apex)[:, None], rim, apex)


@support.register
def _(shape: Placed, d: Array) -> Array:
    R = np.asarray(shape.rotation)
    return np.asarray(shape.position) + support(shape.shape, d @ R) @ R.T


@support.register
def _(shape: MinkowskiSum, d: Array) -> Array:
    return support(shape.first, d) + support(shape.second, d)


def _unit(d: Array) -> Array:
    return np.asarray(d / np.maximum(np.linalg.norm(d, axis=1, keepdims=True), 1e-300))


def _along(d: Array) -> Array:
    return np.sign(d[:, -1:]) * np.eye(d.shape[1])[-1]


def _across(d: Array) -> Array:
    return _unit(d * np.r_[np.ones(d.shape[1] - 1), 0.0])
