"""One pair of shapes: its collision detection and its contact laws, linearised together.

To the unknowns of the growth problem come those of contact (paper 1, Eqs. 9 to 11): the normal force γ, which is zero
unless the gap is, and the friction force, which lies in its cone and opposes sliding. With N the normal force, b the
friction force over μ, and v the sliding velocity,

    γ · gap = ρ,    gap = ℓ (α − 1)                            Signorini's law
    (N, b) ∘ (ψ, μ v) = (ρ, 0)                                 Coulomb's law and maximum dissipation

where ∘ is the product of second-order cones, see `cones`. Counting b over μ keeps the cone round and the equations
regular at μ = 0.
All products are powers or energies: ρ does not mean something else at another time step.

The normals come from the growth problem's duals, one for each body (Eq. 41), and keep their length: γ ℓ ∂α/∂x is the
force that does work against the gap.

Newton's equations of a pair form a chain. The growth problem reacts to how the bodies move against each other, the
normal force to the scale, friction to both, and the wrenches to all of them. `respond` walks along it. It is linear, so
it serves as elimination (unit motions in), as back-substitution (the actual motion in), and, transposed, in reverse.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tangens.collision import growth
from tangens.collision.growth import Growth, Place, Seen
from tangens.contact.geom_pairs import EARTH
from tangens.contact.interior import cones
from tangens.dynamics.spatial import vector_product
from tangens.geometry import Shape

Array = jax.Array

_FORCE, _SLIDING = 0.5, 30.0
"""Where a step starts: of an impact's force, and of the speed of sliding. Friction has to stay well inside its cone
until the normal force is known: at 1 instead of 30, one step in 400 of boxes thrown at 1 to 10 ms jams, at 10 to 1000
none in 700; at a force of 3 instead of 0.5, one in 25."""


class Pair(NamedTuple):
    """What does not change while a step is solved, but for the shapes themselves: see `groups`."""

    place1: Place
    """Of the shape on its body."""
    place2: Place
    body1: Array
    body2: Array
    geoms: Array
    """Which geoms the shapes belong to, (2,)."""
    reach: Array
    """Radii of balls around the shapes [m], (2,)."""
    sharpness: Array
    """Objective of the growth problem over its length [N]."""
    length: Array
    """About how far the two surfaces move per unit of α, ℓ [m]."""
    mass: Array
    """Of all that hangs together with the lighter one [kg]."""
    friction: Array
    """Of sliding, μ."""
    torsion: Array
    """Of spinning on the spot [m]: shape (1,), or (0,) where there is none."""
    restitution: Array
    apart: Array
    """How far apart a step has to leave the shapes: 0 unless they bounce [m]."""
    rows: Array
    """1 for rows of the growth problem, 0 for those that only fill up."""
    inner: Array
    """1 for entries of ε, 0 for those that only fill up."""
    positive: Array
    """Whether an entry of ε has to stay positive."""


class Unknowns(NamedTuple):
    """One pair's part of an iterate; Greek names are the paper's."""

    growth: Growth
    gamma: Array
    """γ [N]: the multiplier of the gap."""
    gap: Array
    """s_γ [m]."""
    normal_force: Array
    """N: γ times the length of the normal, as a slack: what bounds friction [N]."""
    friction_force: Array
    """β/μ, the friction force over μ [N], (k,); its last entry is the torsional one, where there is any."""
    psi: Array
    """ψ [m/s]: the speed of sliding, as friction's multiplier."""
    slip: Array
    """μ times the sliding velocity, as a slack [m/s], (k,)."""
    tangent: Array
    """The first tangent in the axes of body 1: a choice of coordinates, not an unknown."""


class Bodies(NamedTuple):
    """Frames and twists of a pair's two bodies."""

    place1: Place
    place2: Place
    twist1: Array
    twist2: Array


class PairResidual(NamedTuple):
    """The residual of a pair's equations."""

    stationarity: Array
    rows: Array
    gap: Array
    normal_force: Array
    slip: Array


class Products(NamedTuple):
    """Complementarity products: λ∘s, γ·s_γ, and that of friction's cones, scaled, (1 + k,)."""

    rows: Array
    gamma: Array
    cone: Array


class ContactOutputs(NamedTuple):
    """What follows from the laws of contact."""

    normal_force: Array
    slip: Array
    wrench1: Array
    """On body 1, about the contact point."""
    wrench2: Array


class Linear(NamedTuple):
    """A pair's equations at an iterate, and their derivatives."""

    growth: growth.Linear
    residual: PairResidual
    wrench1: Array
    """On body 1, about the contact point."""
    wrench2: Array
    by: Array
    """Jacobian of `_contact`: all outputs by all arguments."""
    cone: cones.Scaling
    """How friction's cones are seen."""


class Response(NamedTuple):
    """How a pair answers to a residual or a motion of its bodies: changes of its unknowns and of its wrenches."""

    unknowns: Unknowns
    wrench1: Array
    wrench2: Array


def weight_of(pair: Pair) -> Array:
    """The weight of the growth problem's objective."""
    return pair.sharpness * pair.length


def speed_of(pair: Pair) -> Array:
    """What is neither slow nor fast for a pair's size [m/s]."""
    return jnp.sqrt(EARTH * pair.length)


def ends_of(pair: Pair, relaxation: Array, detection: Array) -> Products:
    """What the products of a pair are to be: ρ in units of its own weight, length and speed."""
    weight = EARTH * pair.mass
    energy = weight * pair.length
    return Products(detection * energy, relaxation * energy, relaxation * weight * speed_of(pair))


def places(pair: Pair, bodies: Bodies) -> tuple[Place, Place]:
    """Where the two shapes are in the world."""
    return compose(bodies.place1, pair.place1), compose(bodies.place2, pair.place2)


def compose(outer: Place, inner: Place) -> Place:
    """The place of a frame that is given in another frame."""
    return Place(outer.position + outer.rotation @ inner.position, outer.rotation @ inner.rotation)


def start(pair: Pair, shape1: Shape, shape2: Shape, bodies: Bodies, impact: Array, speed: Array) -> Unknowns:
    """A guess without friction: of the force that an impact would take, and at a speed that slides far more quickly."""
    place1, place2 = places(pair, bodies)
    x = growth.start(shape1, place1, shape2, place2, weight_of(pair))
    product = x.slack[0] * x.dual[0]
    gap = pair.length * jnp.maximum(x.scale - 1, 0.1)
    none = jnp.zeros(shape1.dim - 1 + len(pair.torsion))
    gamma = jnp.maximum(product / gap, _FORCE * impact)
    tangent = bodies.place1.rotation.T @ jnp.array([1.0, 0.0, 0.0])
    return Unknowns(x, gamma, gap, gamma, none, _SLIDING * speed, none, tangent)


def aligned(at: Seen, x: Unknowns, bodies: Bodies) -> tuple[Array, Unknowns]:
    """The contact frame at an iterate, and the iterate with its tangent brought into it."""
    n1, n2 = growth.normals(at, x.growth)
    rotation = bodies.place1.rotation
    frame = growth.frame_of(n1 - n2, rotation @ x.tangent, at.axes1.shape[1])
    return frame, x._replace(tangent=rotation.T @ frame[:, 1])


def products(cone: cones.Scaling, y: Unknowns) -> Products:
    """The complementarity products of an iterate, or those of a change of it, as the iterate's cones are seen."""
    scaled = cones.scaled_product(cone, *friction_cones(y))
    return Products(y.growth.slack * y.growth.dual, y.gamma * y.gap, scaled)


def no_products(x: Unknowns) -> Products:
    """Products that are to stay as they are."""
    return Products(jnp.zeros_like(x.growth.slack), jnp.zeros_like(x.gamma), jnp.zeros(1 + len(x.friction_force)))


def friction_cones(x: Unknowns) -> tuple[Array, Array]:
    """(N, b) and (ψ, μ v)."""
    return jnp.append(x.normal_force, x.friction_force), jnp.append(x.psi, x.slip)


def evaluate(
    pair: Pair, at: Seen, x: Unknowns, bodies: Bodies, frame: Array, shift: Array
) -> tuple[PairResidual, Array, Array]:
    """The residual of a pair's equations, and its wrenches about the contact point; no derivatives are prepared."""
    rest = growth.residual(at, x.growth, frame, weight_of(pair))
    contact = _contact(pair, frame, _arguments(rest, x, bodies))
    return _residual(pair, x, rest, contact, shift), contact.wrench1, contact.wrench2


def linearise(pair: Pair, at: Seen, x: Unknowns, bodies: Bodies, frame: Array, shift: Array) -> Linear:
    """Evaluate a pair's equations and their derivatives."""
    linear = growth.linearise(at, x.growth, frame, weight_of(pair), pair.inner)
    arguments = _arguments(linear.residual, x, bodies)
    contact = _contact(pair, frame, arguments)
    by = jax.jacfwd(lambda arguments: _packed(_contact(pair, frame, arguments)))(arguments)
    residual, cone = _residual(pair, x, linear.residual, contact, shift), cones.scaling(*friction_cones(x))
    return Linear(linear, residual, contact.wrench1, contact.wrench2, by, cone)


def _arguments(rest: growth.Residual, x: Unknowns, bodies: Bodies) -> Array:
    """What the laws of contact depend on.

    How far the contact point has moved on and both normals, in the contact frame; γ and friction; the twist of body 2
    against body 1, at the contact point.
    """
    twist = bodies.twist2 - bodies.twist1
    at_point = twist.at[3:].add(vector_product(twist[:3], x.growth.point))
    none = jnp.zeros_like(rest.normal1)
    return jnp.concatenate([none, rest.normal1, rest.normal2, x.gamma[None], x.friction_force, at_point])


def _packed(contact: ContactOutputs) -> Array:
    return jnp.concatenate([contact.normal_force[None], *contact[1:]])


def _residual(pair: Pair, x: Unknowns, rest: growth.Residual, contact: ContactOutputs, shift: Array) -> PairResidual:
    gap = pair.length * (x.growth.scale - 1) - shift
    normal_force, slip = x.normal_force - contact.normal_force, x.slip - contact.slip
    return PairResidual(rest.stationarity, rest.rows, x.gap - gap, normal_force, slip)


def _contact(pair: Pair, frame: Array, arguments: Array) -> ContactOutputs:
    """The laws of contact, as far as they say what follows from what."""
    dim, slides = frame.shape[1], frame.shape[1] - 1
    c, normal1, normal2, rest = (
        arguments[:dim],
        arguments[dim : 2 * dim],
        arguments[2 * dim : 3 * dim],
        arguments[3 * dim :],
    )
    gamma, friction_force, twist = rest[0], rest[1:-6], rest[-6:]
    mean = (normal1 - normal2) / 2
    size = jnp.sqrt(mean @ mean + 1e-30)  # differentiable where there is no normal
    normal = frame @ (mean / size)
    tangents = growth.frame_of(normal, frame[:, 1], dim)[:, 1:]
    force, arm = gamma / pair.sharpness, frame @ c
    slip = pair.friction * (tangents.T @ (twist[3:] + vector_product(twist[:3], arm)))
    rub = pair.friction * (tangents @ friction_force[:slides])
    torque = normal * jnp.sum(pair.torsion * friction_force[slides:])
    f1, f2 = -force * (frame @ normal1) - rub, -force * (frame @ normal2) + rub
    return ContactOutputs(
        force * size,
        jnp.concatenate([slip, pair.torsion * (normal @ twist[:3])]),
        jnp.concatenate([vector_product(arm, f1) - torque, f1]),
        jnp.concatenate([vector_product(arm, f2) + torque, f2]),
    )


def respond(
    pair: Pair, x: Unknowns, linear: Linear, residual: PairResidual, target: Products, d: Array, nu: Array
) -> Response:
    """Solve a pair's linearised equations for a motion d of body 2 against body 1 and a change nu of their twist.

    Both are counted at the contact point. The point's change is in the contact frame's own motion, and all is seen from
    body 1.
    """
    dim, k, friction = linear.growth.frame.shape[1], len(x.friction_force), 3 * linear.growth.frame.shape[1] + 1
    g = growth.respond(linear.growth, x.growth, residual.stationarity, residual.rows, target.rows, d)
    c = g.y[1 : 1 + dim]
    gap = -residual.gap + pair.length * g.y[0]
    gamma = (target.gamma - x.gamma * gap) / x.gap
    # Friction follows from the normal force and from sliding, which do not depend on it.
    known = linear.by @ jnp.concatenate([c, g.normal1, g.normal2, gamma[None], jnp.zeros(k), nu])
    normal_force, slip = known[0] - residual.normal_force, known[1 : 1 + k] - residual.slip
    friction_force, psi = cones.completed(linear.cone, target.cone, normal_force, slip)
    wrenches = known[1 + k :] + linear.by[1 + k :, friction : friction + k] @ friction_force
    grown = Growth(linear.growth.frame @ c, g.y[0], g.y[1 + dim :], g.slack, g.dual)
    change = Unknowns(grown, gamma, gap, normal_force, friction_force, psi, slip, jnp.zeros(3))
    return Response(change, wrenches[:6], wrenches[6:])
