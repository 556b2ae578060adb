"""Collision detection on its own, as a differentiable function: the factor by which two shapes grow until they touch.

The growth problem (see `growth`) solved to the end. Its solution is a smooth function of poses and shapes as long as it
is relaxed, and its derivatives are those of the relaxed equations, by the implicit function theorem: one linear system,
forward or reverse, of any order.

Lengths are counted in ℓ, about the sum of the shapes' inner radii, so a result does not depend on the unit of length.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tangens.collision import growth
from tangens.collision.growth import Growth, Place
from tangens.errors import OptionError
from tangens.geometry import HalfSpace, Shape, centred, kind, parts
from tangens.geometry.checks import Numbers, array, known

Array = jax.Array
Pose = tuple[Numbers, Numbers]

_TOLERANCE = 1e-9  # of the growth problem's equations, relative to ρ: Newton is quadratic, and derivatives profit
_ROUNDING = 1e-15  # over ρ: where p is at a corner, its equations hold it with a stiffness of 1/ρ
_ITERATIONS = 100
_NO_NORMAL = 1e-8  # |∂α/∂x| ℓ below which a normal is noise


class Detection(NamedTuple):
    """How two shapes are to each other. Vectors have the dimension of the shapes."""

    scale: Array
    """α: above 1 apart, below 1 overlapping."""
    point: Array
    """p [m], where the scaled shapes touch."""
    normal: Array
    """Unit vector from shape 1 to shape 2, along ∂α/∂(position of shape 2)."""
    frame: Array
    """Columns: the normal and its tangents, (dim, dim)."""
    distance: Array
    """About how far apart the shapes are [m], to first order: (α − 1)/|∂α/∂x|. Negative where they overlap."""
    iterations: Array
    converged: Array


def growth_distance(shape1: Shape, pose1: Pose, shape2: Shape, pose2: Pose, relaxation: Numbers = 1e-6) -> Detection:
    """Find out by which factor two shapes must grow, or shrink, until they just touch (paper 1, Eq. 14).

    A pose is (position [m], rotation): in space a matrix or a quaternion wxyz, in the plane an angle [rad] from the
    first axis to the second. `relaxation` is ρ over ℓ, where ℓ is the sum of the shapes' `girth`: the scale comes out
    too large by at most that times the number of rows, and corners look round, the more the larger it is.

    Differentiable by poses, by the numbers of the shapes and by the relaxation. Shapes grow about their middle, a
    half-space stays. Of a bundle, the part with the least scale counts. Where the middles of both shapes coincide, no
    direction leads out sooner than another, and the normal is the last axis.
    """
    for shape in (shape1, shape2):
        if not isinstance(shape, Shape):
            raise OptionError(f"growth_distance takes shapes of tangens.geometry; got {shape!r}")
    if shape1.dim != shape2.dim:
        raise OptionError(f"growth_distance takes shapes of one dimension; got {shape1.dim} and {shape2.dim}")
    arguments = (shape1, shape2, pose1, pose2, relaxation)
    traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(arguments))
    if traced and jnp.zeros(()).dtype != jnp.float64:
        raise OptionError('growth_distance needs double precision: jax.config.update("jax_enable_x64", True)')
    with jax.enable_x64(True):
        shape1, shape2 = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), (shape1, shape2))
        place1, place2 = (_place(which, pose, shape1.dim) for which, pose in (("first", pose1), ("second", pose2)))
        rho = array("relaxation", relaxation, 0)
        number = known(relaxation)
        if number is not None and not 0 < number < 1:
            raise OptionError(f"relaxation must be between 0 and 1; got {relaxation!r}")
        for shape, place in ((shape1, place1), (shape2, place2)):
            _check_finite(shape, place)
        return _detect(shape1, place1, shape2, place2, rho)


def _place(which: str, pose: Pose, dim: int) -> Place:
    """A pose as the place of a frame in space; of planar shapes, in the plane x-z."""
    if not isinstance(pose, tuple | list) or len(pose) != 2:
        raise OptionError(f"the {which} pose must be a pair (position, rotation); got {pose!r}")
    position = array(f"{which} position", pose[0], 1).astype(float)
    if position.shape != (dim,):
        raise OptionError(f"the {which} position must have {dim} entries, like its shape; got {position.shape[0]}")
    if dim == 2:
        angle = array(f"{which} angle", pose[1], 0).astype(float)
        c, s, o, one = jnp.cos(angle), jnp.sin(angle), jnp.zeros(()), jnp.ones(())
        rotation = jnp.stack([jnp.stack([c, o, -s]), jnp.stack([o, one, o]), jnp.stack([s, o, c])])
        return Place(growth.embedding(2) @ position, rotation)
    return Place(position, _rotation(which, pose[1]))


def _rotation(which: str, rotation: Numbers) -> Array:
    """A rotation matrix from itself or from a quaternion wxyz, which need not have unit length."""
    numbers, shape = known(rotation), np.shape(rotation)
    if shape not in ((4,), (3, 3)):
        raise OptionError(f"the {which} rotation must be a matrix (3, 3) or a quaternion wxyz (4,); got shape {shape}")
    given = array(f"{which} rotation", rotation, len(shape)).astype(float)
    if shape == (3, 3):
        if numbers is not None and not (
            np.allclose(numbers @ numbers.T, np.eye(3), atol=1e-4) and np.linalg.det(numbers) > 0
        ):
            raise OptionError(f"the {which} rotation must be a rotation matrix; got {numbers.tolist()}")
        return given
    if numbers is not None and not numbers.any():
        raise OptionError(f"the {which} quaternion must not be zero")
    w, x, y, z = given / jnp.sqrt(given @ given)
    return jnp.stack(
        [
            jnp.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]),
            jnp.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]),
            jnp.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]),
        ]
    )


def _check_finite(shape: Shape, place: Place) -> None:
    for leaf in jax.tree.leaves((shape, place)):
        numbers = known(leaf)
        if numbers is not None and not np.isfinite(numbers).all():
            raise OptionError(f"shapes and poses must be finite; got {numbers}")


@jax.jit
def _detect(shape1: Shape, place1: Place, shape2: Shape, place2: Place, relaxation: Array) -> Detection:
    """The nearest of all pairs of parts; those of one kind are solved at once."""
    groups: dict[Hashable, list[Any]] = defaultdict(list)  # arguments of `_pair`
    for one, two in itertools.product(_pieces(shape1, place1), _pieces(shape2, place2)):
        if not (isinstance(one[0], HalfSpace) and isinstance(two[0], HalfSpace)):
            groups[kind(one[0]), kind(two[0])].append((*one, *two, relaxation))
    if not groups:
        raise OptionError("two half-spaces do not grow, so they have no growth distance: one shape must be bounded")
    if sum(map(len, groups.values())) == 1:
        ((pair,),) = groups.values()
        return _pair(*pair)
    found = list[Detection]()
    for group in groups.values():
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *group)
        found.append(jax.vmap(_pair)(*stacked))
    every = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *found)
    nearest = jnp.argmin(every.scale)
    best: Detection = jax.tree.map(lambda leaf: leaf[nearest], every)
    return best._replace(iterations=jnp.max(every.iterations), converged=jnp.all(every.converged))


def _pieces(shape: Shape, place: Place) -> list[tuple[Shape, Place]]:
    """The convex parts of a shape, each seen from its own middle."""
    pieces, lift = list[tuple[Shape, Place]](), growth.embedding(shape.dim)
    for part in parts(shape):
        middle, centre = centred(part)
        pieces.append((middle, place._replace(position=place.position + place.rotation @ lift @ centre)))
    return pieces


def _pair(shape1: Shape, place1: Place, shape2: Shape, place2: Place, relaxation: Array) -> Detection:
    """The growth distance of two convex shapes."""
    # ℓ sets the unit of duals only: no result depends on it.
    length, lift = jax.lax.stop_gradient(growth.length_of(shape1, shape2)), growth.embedding(shape1.dim)
    # Counted from the middle of a shape, p is exact even where that shape shrinks to nothing.
    origin = (place1 if isinstance(shape2, HalfSpace) else place2).position
    place1, place2 = (place._replace(position=place.position - origin) for place in (place1, place2))
    x, iterations, residual = solved(shape1, place1, shape2, place2, relaxation)
    n1, n2 = growth.normals(growth.seen(shape1, place1, shape2, place2, x), x)
    mean = (n1 - n2) / 2
    # λ counts ℓ α, so its sensitivity is that of ℓ α.
    steep = jnp.sqrt(mean @ mean + 1e-30)
    defined = steep > _NO_NORMAL
    frame = growth.frame_of(jnp.where(defined, mean, 0.0), place1.rotation[:, 0], shape1.dim)
    distance = length * (x.scale - 1) / jnp.where(defined, steep, 1.0)
    frame = lift.T @ frame
    return Detection(
        x.scale,
        lift.T @ (origin + x.point),
        frame[:, 0],
        frame,
        distance,
        iterations.astype(jnp.int32),
        residual <= _enough(relaxation),
    )


def _enough(relaxation: Array) -> Array:
    return jnp.maximum(_TOLERANCE * relaxation, jnp.minimum(0.1 * relaxation, _ROUNDING / relaxation))


@jax.custom_jvp
def solved(
    shape1: Shape, place1: Place, shape2: Shape, place2: Place, relaxation: Array
) -> tuple[Growth, Array, Array]:
    """The solution of the relaxed growth problem, λ counting ℓ α; how many iterations it took, and the residual.

    Iterations are a float, which has a derivative: zero.
    """
    length = growth.length_of(shape1, shape2)
    tolerance = _enough(relaxation) / relaxation
    x, iterations, residual = growth.solve(
        shape1, place1, shape2, place2, length, relaxation * length, _ITERATIONS, tolerance
    )
    return x, iterations.astype(float), residual


@solved.defjvp
def _solved_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    shape1, place1, shape2, place2, _ = primals
    answer = solved(*primals)
    x, length = answer[0], growth.length_of(shape1, shape2)
    at = growth.seen(shape1, place1, shape2, place2, x)
    n1, n2 = growth.normals(at, x)
    frame = growth.frame_of(n1 - n2, place1.rotation[:, 0], shape1.dim)
    linear = growth.linearise(at, x, frame, length)

    def residual(shape1: Shape, place1: Place, shape2: Shape, place2: Place) -> tuple[Array, Array]:
        again = growth.residual(growth.seen(shape1, place1, shape2, place2, x), x, frame, length)
        return again.stationarity, again.rows

    _, (stationarity, rows) = jax.jvp(residual, primals[:-1], tangents[:-1])
    target = jnp.full_like(x.slack, length * tangents[-1])
    c = growth.respond(linear, x, stationarity, rows, target, jnp.zeros(6))
    n = slice(1, 1 + shape1.dim)
    change = Growth(frame @ c.y[n], c.y[0], c.y[n.stop :], c.slack, c.dual)
    return answer, (change, jnp.zeros(()), jnp.zeros(()))
