"""The growth problem: the factor by which two convex shapes must grow, or shrink, until they just touch.

    minimise α   so that   g₁(p, α, ε₁) ≤ 0,   g₂(p, α, ε₂) ≤ 0,   α ≥ 0                           (paper 1, Eq. 14)

α > 1 means apart, α < 1 overlapping. At the solution, p is where the scaled shapes touch, and λᵀ∂g/∂p of either shape,
the sensitivity of α (Eq. 15), is the normal. Slacks s and duals λ follow λ∘s = ρ: a relaxation ρ rounds corners off and
makes everything smooth. The objective counts `weight` times.

The relaxed value is above the true α by at most (number of rows)·ρ/weight, the duality gap.

Here is all that solvers need: a start, the equations, and their linearisation. How shape 2 moves against shape 1 enters
as a displacement d = (rotation, translation at p), the rest is counted in the frame of shape 1: what moves with both
shapes changes nothing. Positions of p are counted along and across the normal. Along a shared face, only forces of
order ρ hold p, which would drown in the rounding of forces of order 1/ρ in any other frame.

Derivatives flow to poses and shapes. `contact frames` are coordinates, not functions.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from tangens.collision.central_path import (
    centring_target,
    largest_step,
    second_order_term,
    step_in_neighbourhood,
)
from tangens.dynamics.spatial import vector_product
from tangens.geometry import Shape

Array = jax.Array

_NO_NORMAL = 1e-9  # λᵀ∂g/∂p below this has no direction [N], or over the weight per length

_FRACTION = 0.9  # of the way to the boundary


class Place(NamedTuple):
    """Where a shape's frame is."""

    position: Array
    """In the world [m], (3,)."""
    rotation: Array
    """Columns: the frame's axes in the world, (3, 3)."""


class Growth(NamedTuple):
    """The unknowns."""

    point: Array
    """p [m], in the world, (3,)."""
    scale: Array
    """α."""
    inner: Array
    """ε of both shapes."""
    slack: Array
    """s [m]: of the rows of shape 1, of shape 2, and of α ≥ 0."""
    dual: Array
    """λ of the same rows."""


class Side(NamedTuple):
    """One shape at an iterate: its rows, and their derivatives by (α, p, ε), p in the shape's own frame."""

    rows: Array
    by: Array
    curvature: Array
    """Of λᵀg."""


class Seen(NamedTuple):
    """Both shapes at an iterate. All that depends on what shapes they are is in here."""

    side1: Side
    side2: Side
    axes1: Array
    """Columns: the axes of shape 1 in the world, (3, dim)."""
    axes2: Array


class Residual(NamedTuple):
    """The equations at an iterate."""

    stationarity: Array
    """∂(weight·α + λᵀg)/∂y, where y = (α, p in the contact frame, ε)."""
    rows: Array
    """s + g."""
    normal1: Array
    """λᵀ∂g₁/∂p in the contact frame."""
    normal2: Array


class Linear(NamedTuple):
    """The equations at an iterate, and their derivatives by y and by d."""

    frame: Array
    """Columns: normal and tangents, (3, dim)."""
    residual: Residual
    factor: Array
    """Inverse of the Cholesky factor of the matrix of y, slacks and duals eliminated."""
    rows_y: Array
    rows_d: Array
    mixed: Array
    """Derivative of the stationarity by d, slacks and duals eliminated."""
    bend1: Array
    """Derivative of normal 1 by y, duals held."""
    bend2: Array
    bend2_d: Array
    lean1: Array
    """Derivative of normal 1 by the duals of shape 1, (rows, dim)."""
    lean2: Array


class Change(NamedTuple):
    """A Newton step, and how the normals react to it."""

    y: Array
    slack: Array
    dual: Array
    normal1: Array
    normal2: Array


def embedding(dim: int) -> Array:
    """Return the columns that carry a shape's coordinates into space: all three, or x and z for planar shapes."""
    return jnp.eye(3)[:, [0, 2]] if dim == 2 else jnp.eye(3)


def local(place: Place, dim: int, point: Array) -> Array:
    """Return a point of the world in the coordinates of a shape."""
    axes = place.rotation[:, ::2] if dim == 2 else place.rotation
    return axes.T @ (point - place.position)


def unit(x: Array) -> Array:
    """Return the direction of x; of a vector of zeros, zeros."""
    return x / jnp.sqrt(x @ x + 1e-30)


def frame_of(normal: Array, tangent: Array, dim: int) -> Array:
    """Return a contact frame (3, dim): the normal, and in space the tangent nearest to the one given.

    Shapes with one centre have no normal. A frame is needed all the same: theirs has the last axis of the world.
    """
    normal = jnp.where(normal @ normal > _NO_NORMAL**2, normal, jnp.array([0.0, 0.0, 1.0]))
    if dim == 2:
        n = unit(normal * jnp.array([1.0, 0.0, 1.0]))
        return jnp.stack([n, jnp.stack([n[2], jnp.zeros_like(n[1]), -n[0]])], axis=1)
    n = unit(normal)
    t = tangent - n * (n @ tangent)
    spare = _farthest_axis(n)  # where the tangent given is along the normal
    t = unit(jnp.where(t @ t > 1e-8, t, spare - n * (n @ spare)))
    return jnp.stack([n, t, vector_product(n, t)], axis=1)


def _farthest_axis(n: Array) -> Array:
    """The axis of the world that a unit vector is farthest from; without argmin, whose lowering forgets precision."""
    x, y, z = jnp.abs(n)
    first, second = (x <= y) & (x <= z), y <= z
    return jnp.where(first, jnp.eye(3)[0], jnp.where(second, jnp.eye(3)[1], jnp.eye(3)[2]))


def length_of(shape1: Shape, shape2: Shape) -> Array:
    """Return about how far the two surfaces move per unit of α [m]."""
    return shape1.girth + shape2.girth


def start(shape1: Shape, place1: Place, shape2: Shape, place2: Place, weight: Array) -> Growth:
    """Return a point inside both shapes, grown until it is, with all products λ·s alike."""
    dim, k = shape1.dim, shape1.n_inner
    E, g1, g2 = embedding(dim), shape1.girth, shape2.girth
    a1 = place1.position + place1.rotation @ E @ shape1.core(local(place1, dim, place2.position))
    a2 = place2.position + place2.rotation @ E @ shape2.core(local(place2, dim, place1.position))
    point = a1 + (a2 - a1) * g1 / (g1 + g2)
    p1, p2 = local(place1, dim, point), local(place2, dim, point)
    # A shape contains a ball of its girth, so growing that ball to p is enough.
    needed = [jnp.where(g > 0, jnp.sqrt(p @ p) / jnp.where(g > 0, g, 1.0), 0.0) for p, g in ((p1, g1), (p2, g2))]
    scale = 1.2 * jnp.maximum(1.0, jnp.maximum(*needed))
    inner = jnp.concatenate([shape1.inner_guess(p1, scale), shape2.inner_guess(p2, scale)])

    def rows(scale: Array) -> Array:
        return jnp.concatenate([shape1.rows(p1, scale, inner[:k]), shape2.rows(p2, scale, inner[k:]), -scale[None]])

    value, slope = jax.jvp(rows, (scale,), (jnp.ones_like(scale),))
    # No slack is tiny. But those of α ≥ 0 and of a cone's ε ≥ 0 must be what they stand for: then no step leads to
    # where the rows are not convex. Hence the floor, which a shape's own positive numbers exceed.
    length = length_of(shape1, shape2)
    floor = [jnp.full(s.n_rows, 0.1 * jnp.where(s.girth > 0, s.girth, length)) for s in (shape1, shape2)]
    slack = jnp.maximum(-value, jnp.concatenate([*floor, jnp.zeros(1)]))
    return Growth(point, scale, inner, slack, weight / jnp.sum(-slope / slack) / slack)


def side_at(shape: Shape, place: Place, point: Array, scale: Array, inner: Array, dual: Array) -> Side:
    """Return a shape's rows at a point of the world, with duals of their own."""
    dim = shape.dim

    def rows(z: Array) -> Array:
        return shape.rows(z[1 : 1 + dim], z[0], z[1 + dim :])

    z = jnp.concatenate([scale[None], local(place, dim, point), inner])
    return Side(rows(z), jax.jacfwd(rows)(z), jax.hessian(lambda z: dual @ rows(z))(z))


def seen(shape1: Shape, place1: Place, shape2: Shape, place2: Place, x: Growth) -> Seen:
    """Return both shapes at an iterate."""
    k, m, lift = shape1.n_inner, shape1.n_rows, embedding(shape1.dim)
    side1 = side_at(shape1, place1, x.point, x.scale, x.inner[:k], x.dual[:m])
    side2 = side_at(shape2, place2, x.point, x.scale, x.inner[k:], x.dual[m:-1])
    return Seen(side1, side2, place1.rotation @ lift, place2.rotation @ lift)


def normals(at: Seen, x: Growth) -> tuple[Array, Array]:
    """Return λᵀ∂g/∂p of both shapes, in the world: opposite to each other at the solution."""
    m, n = len(at.side1.rows), slice(1, 1 + at.axes1.shape[1])
    return at.axes1 @ (x.dual[:m] @ at.side1.by[:, n]), at.axes2 @ (x.dual[m:-1] @ at.side2.by[:, n])


def residual(at: Seen, x: Growth, frame: Array, weight: Array) -> Residual:
    """Evaluate the equations; no derivatives of them are prepared."""
    into1, into2 = _coordinates(at, frame)
    m = len(at.side1.rows)
    slope1, slope2 = x.dual[:m] @ at.side1.by @ into1, x.dual[m:-1] @ at.side2.by @ into2
    stationarity = (slope1 + slope2).at[0].add(weight - x.dual[-1])
    n = slice(1, 1 + frame.shape[1])
    rows = x.slack + jnp.concatenate([at.side1.rows, at.side2.rows, -x.scale[None]])
    return Residual(stationarity, rows, slope1[n], slope2[n])


def linearise(at: Seen, x: Growth, frame: Array, weight: Array, used: Array | float = 1.0) -> Linear:
    """Evaluate the equations and their derivatives; `used` is 0 for entries of ε that only fill up."""
    into1, into2 = _coordinates(at, frame)
    (m, n), y = (len(at.side1.rows), slice(1, 1 + frame.shape[1])), into1.shape[1]
    rows_y = jnp.concatenate([at.side1.by @ into1, at.side2.by @ into2, -jnp.eye(1, y)])
    h1, h2 = into1.T @ at.side1.curvature @ into1, into2.T @ at.side2.curvature @ into2
    # Body 2 moves by d, so p moves by −d₂ − d₁ × r against it, r being how far p has moved on itself.
    by_point = at.side2.by[:, n] @ at.axes2.T
    rows_d = jnp.pad(-by_point, ((m, 1), (3, 0)))
    turned = frame.T @ vector_product(jnp.eye(3), x.dual[m:-1] @ by_point).T
    h2_d = jnp.concatenate(
        [jnp.pad(turned, ((1, y - n.stop), (0, 0))), -into2.T @ at.side2.curvature[:, n] @ at.axes2.T], axis=1
    )
    stiff = (x.dual / x.slack)[:, None]
    spare = jnp.concatenate([jnp.zeros(n.stop), jnp.broadcast_to(1.0 - used, (y - n.stop,))])
    factor = _inverse_factor(h1 + h2 + jnp.diag(spare) + rows_y.T @ (stiff * rows_y))
    mixed = h2_d + rows_y.T @ (stiff * rows_d)
    lean1, lean2 = rows_y[:m, n], rows_y[m:-1, n]
    rest = residual(at, x, frame, weight)
    return Linear(frame, rest, factor, rows_y, rows_d, mixed, h1[n], h2[n], h2_d[n], lean1, lean2)


def _coordinates(at: Seen, frame: Array) -> tuple[Array, Array]:
    """Return how (α, p, ε) of each shape, in its own frame, follow from y."""
    dim = frame.shape[1]
    k1, k2 = (side.by.shape[1] - 1 - dim for side in (at.side1, at.side2))
    one, none = jnp.eye(1 + dim + k1 + k2), jnp.zeros((1 + dim, 1 + dim)).at[0, 0].set(1.0)

    def of(axes: Array, k: int, first: int) -> Array:
        top = jnp.pad(none.at[1:, 1:].set(axes.T @ frame), ((0, 0), (0, k1 + k2)))
        return jnp.concatenate([top, one[1 + dim + first :][:k]])

    return of(at.axes1, k1, 0), of(at.axes2, k2, k1)


def respond(linear: Linear, x: Growth, stationarity: Array, rows: Array, target: Array, d: Array) -> Change:
    """Solve the linearised equations, their residual given, for a change of λ∘s by `target` and a motion d."""
    m = len(linear.lean1)
    pull = (target + x.dual * rows) / x.slack
    y = linear.factor.T @ (linear.factor @ (-(stationarity + linear.rows_y.T @ pull) - linear.mixed @ d))
    moved = linear.rows_y @ y + linear.rows_d @ d
    dual = pull + x.dual / x.slack * moved
    n1 = linear.bend1 @ y + dual[:m] @ linear.lean1
    n2 = linear.bend2 @ y + linear.bend2_d @ d + dual[m:-1] @ linear.lean2
    return Change(y, -rows - moved, dual, n1, n2)


def _inverse_factor(matrix: Array) -> Array:
    """L⁻¹ of a matrix LLᵀ whose scales differ by 1/ρ²: scaled first, and kept from singular by a hair.

    Many right-hand sides follow, so that multiplying by the inverse is quicker than solving.
    """
    one = jnp.eye(len(matrix))
    scale = jax.lax.rsqrt(jnp.diagonal(matrix) + 1e-300)
    lower = jnp.linalg.cholesky(matrix * scale[:, None] * scale + 1e-14 * one)
    return solve_triangular(lower, jnp.diag(scale), lower=True)


class Solved(NamedTuple):
    """The solution of a growth problem."""

    growth: Growth
    iterations: Array
    residual: Array
    """The worst of all equations, as a change of α."""


def solve(
    shape1: Shape,
    place1: Place,
    shape2: Shape,
    place2: Place,
    weight: Array,
    relaxation: Array,
    most: Array | int = 50,
    tolerance: Array | float = 0.1,
) -> Solved:
    """Solve the growth problem alone, by predictor and corrector, to `tolerance` times ρ."""
    dim, length = shape1.dim, length_of(shape1, shape2)
    enough = tolerance * relaxation / weight

    def look(x: Growth) -> tuple[Linear, Array]:
        at = seen(shape1, place1, shape2, place2, x)
        n1, n2 = normals(at, x)
        linear = linearise(at, x, frame_of(n1 - n2, place1.rotation[:, 0], dim), weight)
        stationarity = jnp.abs(linear.residual.stationarity)
        per_length = jnp.maximum(stationarity[0], length * jnp.max(stationarity[1:]))
        worst = jnp.maximum(per_length / weight, jnp.max(jnp.abs(linear.residual.rows)) / length)
        return linear, jnp.maximum(worst, jnp.max(jnp.abs(x.slack * x.dual - relaxation)) / weight)

    def step(x: Growth, linear: Linear, target: Array) -> Growth:
        rest = linear.residual
        c = respond(linear, x, rest.stationarity, rest.rows, target, jnp.zeros(6))
        return Growth(linear.frame @ c.y[1 : 1 + dim], c.y[0], c.y[1 + dim :], c.slack, c.dual)

    def room(x: Growth, change: Growth) -> Array:
        return jnp.minimum(largest_step(x.slack, change.slack), largest_step(x.dual, change.dual))

    def after(x: Growth, change: Growth, share: Array) -> Array:
        return (x.slack + share * change.slack) * (x.dual + share * change.dual)

    def advanced(x: Growth, linear: Linear) -> Growth:
        now = x.slack * x.dual
        mean = jnp.mean(now)
        first = step(x, linear, relaxation - now)
        reach = jnp.minimum(1.0, room(x, first))
        target = centring_target(mean, jnp.mean(after(x, first, reach)), relaxation)
        second = step(x, linear, target - now - second_order_term(first.slack * first.dual, reach, target, mean))
        length = jnp.minimum(1.0, _FRACTION * room(x, second))

        def balance(share: Array) -> Array:
            products = after(x, second, share * length)
            return jnp.min(products) / jnp.mean(products)

        length *= step_in_neighbourhood(balance)
        return jax.tree.map(lambda a, b: a + length * b, x, second)

    def iterate(carry: tuple[Solved, Array]) -> tuple[Solved, Array]:
        # The equations are evaluated here and nowhere else: that is most of what there is to compile.
        (x, k, _), _ = carry
        linear, worst = look(x)
        ends = (worst <= enough) | (k >= most)
        x = jax.tree.map(lambda old, new: jnp.where(ends, old, new), x, advanced(x, linear))
        return Solved(x, jnp.where(ends, k, k + 1), worst), ends

    x = start(shape1, place1, shape2, place2, weight)
    begin = Solved(x, jnp.zeros((), jnp.int32), jnp.full_like(x.scale, jnp.inf)), jnp.zeros((), bool)
    return jax.lax.while_loop(lambda carry: ~carry[1], iterate, begin)[0]
