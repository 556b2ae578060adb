"""One pair of shapes: its collision detection and its contact laws, linearised together.

The unknowns of a pair are those of the growth problem (Eq. 14: contact point p, scale α, auxiliary ε, duals λ, slacks s)
and those of contact (Eqs. 9 to 11: normal force γ, friction b, and their slacks). Bodies enter by their frames and
twists only.

Newton's equations of a pair form a chain. The growth problem reacts to how the bodies move against each other; the
normal force reacts to the scale; friction to the normal force and the sliding; the wrenches to all of them. `respond`
walks along that chain. It is linear, so it serves as elimination (unit motions in), as back-substitution (the actual
motion in), and, transposed, for reverse mode.

Motions are counted in the frame of body 1: what moves with both bodies changes nothing but directions. Positions of p
are counted in the contact frame, along and across the normal: along a shared face, the growth problem alone holds p
with a force of order ρ, which would drown in the rounding of forces of order 1/ρ in any other frame.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

Array = jax.Array


class PairData(NamedTuple):
    """What does not change while a step is solved."""

    shape1: Any
    shape2: Any
    position1: Array
    """Where shape 1 sits on its body (3,)."""
    rotation1: Array
    position2: Array
    rotation2: Array
    body1: Array
    body2: Array
    friction: Array
    """Sliding friction μ."""
    torsion: Array
    """Torsional friction [m]."""
    length: Array
    """ℓ [m]: how far the surfaces move per unit of α."""
    spin: Array
    """1 where torsional friction acts: sizes the friction vector, so static; see `friction_size`."""


class Unknowns(NamedTuple):
    """One pair's part of an iterate. Names in brackets are the paper's."""

    point: Array
    """(p) [m], in the world."""
    scale: Array
    """(α)."""
    inner: Array
    """(ε) of both shapes."""
    slack: Array
    """(s) of the rows of both shapes, then of α ≥ 0 [m]."""
    dual: Array
    """(λ) [N], one for each row."""
    push: Array
    """(γ) normal force [N]."""
    gap: Array
    """(s_γ) [m]."""
    load: Array
    """Bound of friction: the normal force again, as a slack [N]."""
    grip: Array
    """(β/μ) friction force over μ [N], (k,); the last entry is the torsional moment, where that is on."""
    rate: Array
    """(ψ) [m/s]."""
    slip: Array
    """Sliding velocity times μ, as a slack [m/s], (k,)."""
    tangent: Array
    """First tangent, in the axes of body 1: a choice of coordinates, not an unknown."""


class Bodies(NamedTuple):
    """The two bodies of a pair."""

    position1: Array
    rotation1: Array
    position2: Array
    rotation2: Array
    twist1: Array
    twist2: Array


class Residual(NamedTuple):
    """What is left of a pair's equations; zero at the solution."""

    stationarity: Array
    rows: Array
    gap: Array
    load: Array
    slip: Array


class Linear(NamedTuple):
    """A pair, linearised at an iterate."""

    frame: Array
    """Contact frame: columns normal, tangents (3, d)."""
    residual: Residual
    wrench1: Array
    wrench2: Array
    factor: Array
    """Cholesky factor of the growth problem's matrix."""
    rows_y: Array
    rows_d: Array
    mixed: Array
    """How the stationarity turns with relative motion: matrix of the growth problem by δ."""
    normal1: tuple[Array, Array]
    """Derivative of n1 along y and δ, λ held."""
    normal2: tuple[Array, Array]
    contact: Any
    """Jacobian of `_contact` by its arguments."""


class Change(NamedTuple):
    """A direction: one Newton step of a pair."""

    point: Array
    scale: Array
    inner: Array
    slack: Array
    dual: Array
    push: Array
    gap: Array
    load: Array
    grip: Array
    rate: Array
    slip: Array


class Target(NamedTuple):
    """What the complementarity products should change by: λ∘s, γ·s_γ and friction's cone product."""

    rows: Array
    push: Array
    cone: Array


def contact_frame(normal: Array, tangent: Array) -> Array:
    """Return the frame (3, 3) of a normal, and the tangent nearest to the one given."""
    n = _unit(normal)
    t = _unit(tangent - n * (n @ tangent))
    return jnp.stack([n, t, jnp.cross(n, t)], axis=1)


def planar_frame(normal: Array) -> Array:
    """Return the frame (3, 2) of a normal in the plane x-z."""
    n = _unit(normal * jnp.array([1.0, 0.0, 1.0]))
    return jnp.stack([n, jnp.array([n[2], 0.0, -n[0]])], axis=1)


def _unit(x: Array) -> Array:
    return x / jnp.sqrt(x @ x + 1e-30)


def embed(dim: int) -> Array:
    """Return the columns that carry a shape's coordinates into space: all, or x and z."""
    return jnp.eye(3)[:, [0, 2]] if dim == 2 else jnp.eye(3)


def _world(position: Array, rotation: Array, local_position: Array, local_rotation: Array) -> tuple[Array, Array]:
    return position + rotation @ local_position, rotation @ local_rotation


def _split(data: PairData, inner: Array) -> tuple[Array, Array]:
    return inner[: data.shape1.n_inner], inner[data.shape1.n_inner :]


def _normals(data: PairData, x: Unknowns, bodies: Bodies) -> tuple[Array, Array]:
    """∂(λᵀg)/∂p of both shapes, in the world."""
    place1, place2 = _places(data, bodies)
    one, two = data.shape1.n_rows, data.shape2.n_rows
    E, (e1, e2) = embed(data.shape1.dim), _split(data, x.inner)

    def lagrangian(shape: Any, place: tuple[Array, Array], inner: Array, dual: Array) -> Array:
        def value(p: Array) -> Array:
            return dual @ shape.rows(E.T @ place[1].T @ (p - place[0]), x.scale, inner)

        return jax.grad(value)(x.point)

    return (
        lagrangian(data.shape1, place1, e1, x.dual[:one]),
        lagrangian(data.shape2, place2, e2, x.dual[one : one + two]),
    )


def _places(data: PairData, bodies: Bodies) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    return (
        _world(bodies.position1, bodies.rotation1, data.position1, data.rotation1),
        _world(bodies.position2, bodies.rotation2, data.position2, data.rotation2),
    )


def aligned(data: PairData, x: Unknowns, bodies: Bodies) -> tuple[Array, Unknowns]:
    """Return the contact frame at an iterate, and the iterate with its tangent brought into it."""
    n1, n2 = _normals(data, x, bodies)
    if data.shape1.dim == 2:
        return planar_frame(n1 - n2), x
    frame = contact_frame(n1 - n2, bodies.rotation1 @ x.tangent)
    return frame, x._replace(tangent=bodies.rotation1.T @ frame[:, 1])


def linearise(data: PairData, x: Unknowns, bodies: Bodies, frame: Array, sharpness: Array, shift: Array) -> Linear:
    """Evaluate a pair's equations and their derivatives at an iterate."""
    dim, one, two = data.shape1.dim, data.shape1.n_rows, data.shape2.n_rows
    E, (place1, place2) = embed(dim), _places(data, bodies)
    k = data.shape1.n_inner
    dual1, dual2, dual3 = x.dual[:one], x.dual[one : one + two], x.dual[-1]

    def rows1(y: Array, d: Array) -> Array:
        del d
        r = frame @ y[1 : 1 + dim]
        return data.shape1.rows(E.T @ place1[1].T @ (x.point + r - place1[0]), x.scale + y[0], x.inner[:k] + y[1 + dim : 1 + dim + k])

    def rows2(y: Array, d: Array) -> Array:
        r = frame @ y[1 : 1 + dim]
        moved = x.point + r - place2[0] - d[3:] - jnp.cross(d[:3], r)
        return data.shape2.rows(E.T @ place2[1].T @ moved, x.scale + y[0], x.inner[k:] + y[1 + dim + k :])

    y, d = jnp.zeros(1 + dim + x.inner.shape[0]), jnp.zeros(6)
    grad1, grad2 = (jax.grad(lambda y, d, f=f, l=l: l @ f(y, d)) for f, l in ((rows1, dual1), (rows2, dual2)))
    g1, g2 = rows1(y, d), rows2(y, d)
    (jac1, _), (jac2, jac2d) = jax.jacfwd(rows1, (0, 1))(y, d), jax.jacfwd(rows2, (0, 1))(y, d)
    l1, l2 = grad1(y, d), grad2(y, d)
    h1, (h2, h2d) = jax.jacfwd(grad1)(y, d), jax.jacfwd(grad2, (0, 1))(y, d)
    first = jnp.zeros_like(y).at[0].set(1.0)
    g = jnp.concatenate([g1, g2, -x.scale[None]])
    rows_y = jnp.concatenate([jac1, jac2, -first[None]])
    rows_d = jnp.concatenate([jnp.zeros((one, 6)), jac2d, jnp.zeros((1, 6))])
    stiff = x.dual / x.slack
    matrix = h1 + h2 + rows_y.T @ (stiff[:, None] * rows_y)
    mixed = h2d + rows_y.T @ (stiff[:, None] * rows_d)
    factor = _cholesky(matrix)

    n = slice(1, 1 + dim)
    w = sharpness * data.length
    twist = bodies.twist2 - bodies.twist1
    at_point = twist.at[3:].add(jnp.cross(twist[:3], x.point))
    arguments = (jnp.zeros(dim), l1[n], l2[n], x.push, x.grip, at_point)
    contact = lambda *a: _contact(data, frame, sharpness, *a)
    (load, slip, wrench1, wrench2) = contact(*arguments)
    return Linear(
        frame,
        Residual(
            l1 + l2 + first * (w - dual3),
            x.slack + g,
            x.gap - data.length * (x.scale - 1) + shift,
            x.load - load,
            x.slip - slip,
        ),
        wrench1,
        wrench2,
        factor,
        rows_y,
        rows_d,
        mixed,
        (h1[n], jnp.zeros((dim, 6))),
        (h2[n], h2d[n]),
        jax.jacfwd(contact, tuple(range(6)))(*arguments),
    )


def _cholesky(matrix: Array) -> Array:
    scale = jax.lax.rsqrt(jnp.diagonal(matrix) + 1e-300)
    n = matrix.shape[0]
    lower = jnp.linalg.cholesky(matrix * scale[:, None] * scale + 1e-14 * jnp.eye(n))
    return lower / scale[:, None]


def _contact(data: PairData, frame: Array, sharpness: Array, c: Array, n1: Array, n2: Array, push: Array, grip: Array, twist: Array):
    """Load, sliding, and the wrenches on both bodies about the contact point before it moved by c."""
    dim = frame.shape[1]
    mean = (n1 - n2) / 2
    size = jnp.sqrt(mean @ mean + 1e-30)
    normal = frame @ (mean / size)
    if dim == 2:
        tangents = jnp.array([normal[2], 0.0, -normal[0]])[:, None]
    else:
        tangents = contact_frame(normal, frame[:, 1])[:, 1:]
    force = push / sharpness
    arm = frame @ c
    velocity = twist[3:] + jnp.cross(twist[:3], arm)
    slides = dim - 1
    slip = data.friction * tangents.T @ velocity
    rub = data.friction * tangents @ grip[:slides]
    torque = jnp.zeros(3)
    if grip.shape[0] > slides:
        slip = jnp.append(slip, data.torsion * normal @ twist[:3])
        torque = data.torsion * grip[slides] * normal
    f1, f2 = -force * (frame @ n1) - rub, -force * (frame @ n2) + rub
    return (
        force * size,
        slip,
        jnp.concatenate([jnp.cross(arm, f1) - torque, f1]),
        jnp.concatenate([jnp.cross(arm, f2) + torque, f2]),
    )


def respond(data: PairData, x: Unknowns, linear: Linear, residual: Residual, target: Target, d: Array, nu: Array):
    """Solve the pair's equations for a given relative motion d and change nu of the relative twist, both at p.

    Returns the change of the unknowns, and of the wrenches at p, seen from body 1.
    """
    dim, one, two = linear.frame.shape[1], data.shape1.n_rows, data.shape2.n_rows
    n = slice(1, 1 + dim)
    stiff = x.dual / x.slack
    pull = (target.rows + x.dual * residual.rows) / x.slack
    right = -(residual.stationarity + linear.rows_y.T @ pull) - linear.mixed @ d
    y = cho_solve((linear.factor, True), right)
    moved = linear.rows_y @ y + linear.rows_d @ d
    slack, dual = -residual.rows - moved, pull + stiff * moved
    n1 = linear.normal1[0] @ y + linear.rows_y[:one, n].T @ dual[:one]
    n2 = linear.normal2[0] @ y + linear.normal2[1] @ d + linear.rows_y[one : one + two, n].T @ dual[one : one + two]
    gap = -residual.gap + data.length * y[0]
    push = (target.push - x.push * gap) / x.gap

    def along(which: int, grip: Array) -> Array:
        j = linear.contact[which]
        return j[0] @ y[n] + j[1] @ n1 + j[2] @ n2 + j[3] * push + j[4] @ grip + j[5] @ nu

    none = jnp.zeros_like(x.grip)
    load, slip = -residual.load + along(0, none), -residual.slip + along(1, none)
    # The cone product (Jordan's), linearised, solved for ψ and then for b.
    head, tail = target.cone[0], target.cone[1:]
    rate = (
        head - x.grip @ slip - x.rate * load - x.slip @ (tail - x.load * slip - x.slip * load) / x.rate
    ) / (x.load - x.slip @ x.grip / x.rate)
    grip = (tail - x.load * slip - x.grip * rate - x.slip * load) / x.rate
    change = Change(linear.frame @ y[n], y[0], y[1 + dim :], slack, dual, push, gap, load, grip, rate, slip)
    return change, along(2, grip), along(3, grip)
