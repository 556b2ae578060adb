"""Half-spaces and round shapes. Axes of symmetry run along the last axis of the frame, as in MuJoCo."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tangens.errors import OptionError
from tangens.geometry.checks import Numbers, array, dimension, known, positive
from tangens.geometry.shape import Shape, pytree, static, within


@pytree
class HalfSpace(Shape):
    """All points below a plane through the origin: normal·p <= 0. It does not scale."""

    normal: jax.Array  # unit length, points out of the solid, (dim,)

    def __init__(self, normal: Numbers) -> None:
        a = array("HalfSpace normal", normal, 1)
        dimension("HalfSpace", a.size)
        numbers = known(normal)
        if numbers is not None and not numbers.any():
            raise OptionError("HalfSpace normal must not be zero")
        self._set(normal=a / (a * a).sum() ** 0.5)

    @property
    def dim(self) -> int:
        return self.normal.shape[-1]

    @property
    def n_rows(self) -> int:
        return 1

    def core(self, p: jax.Array) -> jax.Array:
        return p - 1.2 * self.normal * jnp.maximum(self.normal @ p, 0.0)

    def rows(self, p: jax.Array, alpha: jax.Array, inner: jax.Array) -> jax.Array:
        return jnp.vdot(self.normal, p)[None]

    def _reach(self) -> jax.Array:
        return jnp.full((), jnp.inf, jnp.result_type(self.normal))

    def _girth(self) -> jax.Array:
        return jnp.zeros((), jnp.result_type(self.normal))


@pytree
class Ellipsoid(Shape):
    """All points with |E p| <= α."""

    E: jax.Array  # [1/m], (dim, dim)

    def __init__(self, E: Numbers) -> None:
        matrix = array("Ellipsoid E", E, 2)
        if matrix.shape[0] != matrix.shape[1]:
            raise OptionError(f"Ellipsoid E must be square; got shape {matrix.shape}")
        dimension("Ellipsoid", len(matrix))
        numbers = known(E)
        if numbers is not None and np.linalg.cond(numbers) > 1e7:
            raise OptionError("Ellipsoid E must be invertible: without its inverse the ellipsoid is not bounded")
        self._set(E=matrix)

    @property
    def dim(self) -> int:
        return self.E.shape[-1]

    @property
    def n_rows(self) -> int:
        return 1

    def rows(self, p: jax.Array, alpha: jax.Array, inner: jax.Array) -> jax.Array:
        # A ball's radius, and at most √dim shortest semi-axes: no row is steeper than 2√dim.
        length = jnp.sqrt(self.dim / jnp.sum(self.E**2))
        return (length * (jnp.sum((self.E @ p) ** 2) / alpha - alpha))[None]

    def _reach(self) -> jax.Array:
        return 1 / jnp.linalg.svdvals(self.E)[-1]

    def _girth(self) -> jax.Array:
        return 1 / jnp.linalg.svdvals(self.E)[0]


def ellipsoid(semi_axes: Numbers) -> Ellipsoid:
    """An ellipsoid with its axes along those of the frame; two semi-axes [m] make an ellipse."""
    axes = positive("ellipsoid semi_axes", semi_axes, 1)
    return Ellipsoid(np.eye(axes.size, dtype=axes.dtype) / axes)


def sphere(radius: Numbers, dim: int = 3) -> Ellipsoid:
    """A ball, or a disc in the plane."""
    R = positive("sphere radius", radius)
    return Ellipsoid(np.eye(dimension("sphere", dim), dtype=R.dtype) / R)


@pytree
class Capsule(Shape):
    """All points within `radius` of a segment that reaches `half_length` up and down the last axis."""

    radius: jax.Array  # [m]
    half_length: jax.Array  # [m], without the round ends
    dim: int = static(3)

    def __init__(self, radius: Numbers, half_length: Numbers, dim: int = 3) -> None:
        self._set(
            radius=positive("Capsule radius", radius),
            half_length=positive("Capsule half_length", half_length),
            dim=dimension("Capsule", dim),
        )

    @property
    def n_inner(self) -> int:
        """The place along the segment that is nearest to p."""
        return 1

    @property
    def n_rows(self) -> int:
        return 3

    def rows(self, p: jax.Array, alpha: jax.Array, inner: jax.Array) -> jax.Array:
        along = inner[0]
        end = alpha * self.half_length
        return jnp.stack([_ball(jnp.append(p[:-1], p[-1] - along), alpha * self.radius), along - end, -along - end])

    def inner_guess(self, p: jax.Array, alpha: jax.Array) -> jax.Array:
        return within(p[-1:], alpha * self.half_length)

    def _reach(self) -> jax.Array:
        return self.half_length + self.radius

    def _girth(self) -> jax.Array:
        return self.radius


@pytree
class Cylinder(Shape):
    """A solid cylinder along the last axis; in the plane, a rectangle."""

    radius: jax.Array  # [m]
    half_length: jax.Array  # [m]
    dim: int = static(3)

    def __init__(self, radius: Numbers, half_length: Numbers, dim: int = 3) -> None:
        self._set(
            radius=positive("Cylinder radius", radius),
            half_length=positive("Cylinder half_length", half_length),
            dim=dimension("Cylinder", dim),
        )

    @property
    def n_rows(self) -> int:
        return 3

    def rows(self, p: jax.Array, alpha: jax.Array, inner: jax.Array) -> jax.Array:
        cap = alpha * self.half_length
        return jnp.stack([_ball(p[:-1], alpha * self.radius), p[-1] - cap, -p[-1] - cap])

    def _reach(self) -> jax.Array:
        return jnp.hypot(self.radius, self.half_length)

    def _girth(self) -> jax.Array:
        return jnp.minimum(self.radius, self.half_length)


@pytree
class Cone(Shape):
    """A solid cone along the last axis, apex down, its centroid at the origin; in the plane, an isosceles triangle.

    ε = t is a distance from the apex along the axis: the section at t must reach p's side, and t must not pass p.
    Without it, the cone's own row would have no derivative at the apex.
    """

    height: jax.Array  # [m]
    half_angle: jax.Array  # between axis and side [rad], in (0, π/2)
    dim: int = static(3)

    def __init__(self, height: Numbers, half_angle: Numbers, dim: int = 3) -> None:
        angle = positive("Cone half_angle", half_angle)
        numbers = known(half_angle)
        if numbers is not None and numbers >= np.pi / 2:
            raise OptionError(f"Cone half_angle must be below π/2 rad; got {numbers}")
        self._set(height=positive("Cone height", height), half_angle=angle, dim=dimension("Cone", dim))

    @property
    def depth(self) -> jax.Array:
        """How far below the centroid the apex is [m]."""
        return self.height * self.dim / (self.dim + 1)

    @property
    def n_inner(self) -> int:
        """The distance t from the apex."""
        return 1

    @property
    def positive_inner(self) -> tuple[bool, ...]:
        return (True,)

    @property
    def n_rows(self) -> int:
        return 4

    def rows(self, p: jax.Array, alpha: jax.Array, inner: jax.Array) -> jax.Array:
        t = inner[0]
        above_apex = p[-1] + alpha * self.depth
        section = _ball(p[:-1], t * jnp.tan(self.half_angle))
        return jnp.stack([section, t - above_apex, -t, above_apex - alpha * self.height])

    def inner_guess(self, p: jax.Array, alpha: jax.Array) -> jax.Array:
        """Between p's own height above the apex and that of the section whose rim p is on; but always positive."""
        small = 0.1 * alpha * self.height
        rim = jnp.sqrt(jnp.sum(p[:-1] ** 2) + small**2) / jnp.tan(self.half_angle)
        t = (p[-1] + alpha * self.depth + rim) / 2
        return (t + jnp.sqrt(t**2 + small**2))[None] / 2

    def _reach(self) -> jax.Array:
        rim = jnp.hypot(self.height - self.depth, self.height * jnp.tan(self.half_angle))
        return jnp.maximum(self.depth, rim)

    def _girth(self) -> jax.Array:
        return jnp.minimum(self.height - self.depth, self.depth * jnp.sin(self.half_angle))


def _ball(p: jax.Array, radius: jax.Array) -> jax.Array:
    """|p| <= radius as a row in metres that is smooth at p = 0."""
    return jnp.sum(p * p) / radius - radius
