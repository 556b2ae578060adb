"""Procedural creatures of up to 18 superquadrics: non-convex bodies for tests, benches and experiments, without a mesh.

Torso, head, legs, arms, feet, hands, a tail and ears, in this order, so that the first n of them hang together.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tangens.geometry.collision_meshes import SurfaceMesh, evenly_meshed, solid, surface_mesh
from tangens.geometry.field_unions import Moved
from tangens.geometry.solids import Solid
from tangens.geometry.superquadric_fits import Parameters
from tangens.geometry.superquadrics import Superquadrics

Array = NDArray[np.float64]

MOST = 18
HEIGHT = 0.35
"""Of a whole creature [m]."""
SMOOTHING = 4e-4
"""τ [m] that surfaces are made with: 0.1 % of a creature."""

# Position and half axes [m]; a pair stands for both sides.
_Part = tuple[tuple[float, float, float], tuple[float, float, float]]
_MIDDLE: tuple[_Part, ...] = (((0, 0, 0.20), (0.05, 0.036, 0.06)), ((0, 0, 0.285), (0.03, 0.03, 0.034)))
_PAIRS: tuple[_Part, ...] = (
    ((0.03, 0, 0.12), (0.019, 0.02, 0.042)),
    ((0.075, 0, 0.23), (0.036, 0.017, 0.017)),
    ((0.032, 0, 0.055), (0.016, 0.017, 0.038)),
    ((0.13, 0, 0.23), (0.034, 0.014, 0.014)),
    ((0.034, -0.012, 0.024), (0.02, 0.036, 0.018)),
    ((0.175, 0, 0.23), (0.022, 0.02, 0.013)),
)
_TAIL: tuple[_Part, ...] = (((0, 0.055, 0.155), (0.016, 0.04, 0.016)), ((0, 0.115, 0.145), (0.012, 0.038, 0.012)))
_EARS: _Part = ((0.02, 0, 0.325), (0.011, 0.009, 0.022))


def creature(parts: int = MOST, seed: int = 0) -> Parameters:
    """The first `parts` superquadrics of a creature; each seed has its own proportions and roundness."""
    rows = list(_MIDDLE)
    for (x, y, z), axes in _PAIRS:
        rows += [((x, y, z), axes), ((-x, y, z), axes)]
    (x, y, z), axes = _EARS
    rows += [*_TAIL, ((x, y, z), axes), ((-x, y, z), axes)]
    rng = np.random.default_rng(seed)
    grow, turn = rng.uniform(0.9, 1.15, (MOST, 3)), rng.normal(0.0, 0.1, (MOST, 3))
    exponents = rng.uniform(0.45, 1.0, (MOST, 2))
    position, axes_ = (np.array([row[k] for row in rows], float) for k in (0, 1))
    whole = Parameters(axes_ * grow, exponents, position - [0, 0, HEIGHT / 2], np.stack([_rotation(r) for r in turn]))
    return whole.take(slice(parts))


class Body(NamedTuple):
    """A solid about its centre of mass, with mass and inertia of homogeneous matter."""

    solid: Solid
    surface: SurfaceMesh
    """A fine mesh, for pictures."""
    volume: float
    """[m³]."""
    inertia: Array
    """Over density [m⁵], (3, 3)."""


@cache
def creature_body(parts: int = MOST, seed: int = 0, vertices: int = 300) -> Body:
    """A creature that can fall."""
    p = creature(parts, seed)
    return body_of(p.field(), np.concatenate(p.corners()), SMOOTHING, vertices)


def body_of(field: Any, around: Array, tau: float, vertices: int) -> Body:
    """A body from a field whose surface is within the box around some points [m]."""
    import trimesh

    fine = surface_mesh(field, around.min(0), around.max(0), tau)
    mesh = trimesh.Trimesh(*fine)
    centre = np.asarray(mesh.center_mass)
    with jax.enable_x64(True):
        there = field
        if isinstance(field, Superquadrics):
            there = field._replace(position=field.position - centre)
        elif np.abs(centre).max() > 0:
            there = Moved(field, jnp.asarray(-centre), jnp.eye(3))
    fine = SurfaceMesh(fine.vertices - centre, fine.faces)
    even = evenly_meshed(fine, there, tau, vertices)
    return Body(solid(there, even, tau), fine, float(mesh.volume), np.asarray(mesh.moment_inertia))


@cache
def creature_solid(parts: int = MOST, seed: int = 0, vertices: int = 300) -> Solid:
    """A creature with a collision mesh of about so many vertices, all of them on its surface."""
    return creature_body(parts, seed, vertices).solid


def convex_parts(p: Parameters) -> list[Array]:
    """Each superquadric as a coarse convex mesh: 26 corners on its surface [m], (26, 3)."""
    return p.corners(8)


def _rotation(vector: Array) -> Array:
    import mujoco

    quaternion, matrix = np.zeros(4), np.zeros(9)
    angle = float(np.linalg.norm(vector))
    mujoco.mju_axisAngle2Quat(quaternion, vector / angle, angle)
    mujoco.mju_quat2Mat(matrix, quaternion)
    return matrix.reshape(3, 3)
