"""Limits, dry friction and equalities as part of a step's equations, relaxed by the same ρ as contact.

    x · gap(q⁺) = ρ·F·L                                        limits: a force only where the range is used up
    (F − f) · a = (F + f) · b = ρ·F·V,   D v⁺ = b − a          dry friction f: at most F, and against the motion
    error(q⁺) + ρ·(L / F)·λ = 0                                equalities: as stiff as contact

All is judged at q⁺. The forces of equalities act along their Jacobian at q, as in SHAKE; those of limits at q⁺, for a
ball joint at zero has no direction yet. F, L and V are a force, a length and a
speed of the constraint's own: those of the weight of what it moves, so that ρ means the same as in contact. What is off
by more than V·h is brought back at the speed V.

A constraint's unknowns touch the rest by v⁺ alone, and are eliminated one by one.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.contact.constraint_functions import ConstraintFunctions
from tangens.contact.geom_pairs import EARTH, tree_lengths, tree_masses
from tangens.dynamics.spatial import SpatialKinematics

Array = jax.Array

_START = 0.3, 0.1, 0.5, 10.0
"""Where a step starts: force and gap of a limit, over F and L; of an impact's force; of the speed of dry joints."""


class Scale(NamedTuple):
    """What is neither much nor little for each row."""

    force: Array
    """F [N or N m]."""
    length: Array
    """L [m or rad]."""
    speed: Array
    """V [m/s or rad/s]."""


class Constraints(NamedTuple):
    """All constraints of a step but contact: n limits, m lines with dry friction, k rows of equalities."""

    functions: ConstraintFunctions
    floor: Array
    """What gaps may not fall below: zero, or less where they are far below it, (n,)."""
    limit_scale: Scale
    dry: Array
    """(m, nv)."""
    losses: Array
    """Most that dry friction is [N or N m], (m,)."""
    dry_scale: Scale
    equalities: Array
    """(k, nv)."""
    target: Array
    """What errors are to be: zero, or more where they are large, (k,)."""
    equality_scale: Scale

    @property
    def sizes(self) -> tuple[int, int, int]:
        """n, m, k."""
        return len(self.floor), len(self.dry), len(self.equalities)


class Bounds(NamedTuple):
    """Unknowns that stay positive, (n + 2m,): of limits, then F − f of dry friction, then F + f."""

    force: Array
    gap: Array
    """Of limits; then of dry friction a and b, how fast the joint moves back and forth."""


class AtEnd(NamedTuple):
    """Constraints where a step ends, and how they change with v⁺."""

    gap: Array
    push: Array
    """Directions of the forces of limits, (n, nv)."""
    gap_by: Array
    error: Array
    error_by: Array


def constraints_at(
    functions: ConstraintFunctions,
    m: mujoco.MjModel,
    q: Array,
    kin: SpatialKinematics,
    matrix: Array,
    mass: Array,
    inertia: Array,
    frictionloss: Array,
    timestep: Array,
) -> Constraints:
    """Those of a step from q, with this mass matrix, of bodies with these masses and inertias and dry joints."""
    masses, lengths, mobility = tree_masses(m, mass), tree_lengths(m, mass, inertia), 1 / jnp.diagonal(matrix)

    def scale(mass: Array, length: Array, arm: Array) -> Scale:
        """Of rows whose unit moves this mass by about `arm` metres."""
        return Scale(EARTH * mass * arm, length / arm, jnp.sqrt(EARTH * length) / arm)

    def of_lines(patterns: NDArray[np.float64]) -> Scale:
        first = m.dof_bodyid[np.argmax(patterns != 0, axis=1)] if len(patterns) else np.zeros(0, int)
        arm = jax.lax.rsqrt(jnp.asarray(patterns**2) @ mobility * masses[first])
        return scale(masses[first], lengths[first], arm)

    def of_ties(bodies: NDArray[np.int_], turns: bool) -> Scale:
        heavy = masses[bodies[:, 0]] > masses[bodies[:, 1]]
        mass, length = (jnp.where(heavy, x[bodies[:, 1]], x[bodies[:, 0]]) for x in (masses, lengths))
        return scale(mass, length, length if turns else jnp.ones_like(length))

    tied = of_ties(functions.tied_points, turns=False), of_ties(functions.tied_frames, turns=True)
    limit_scale, dry_scale = of_lines(functions.limit_patterns), of_lines(functions.dry)
    equality_scale = jax.tree.map(lambda *parts: jnp.concatenate(parts), *tied, of_lines(functions.equal_patterns))
    limits, equalities = functions.limits(q), functions.equalities(q, kin)
    way = timestep * equality_scale.speed
    return Constraints(
        functions,
        jnp.minimum(limits.value + timestep * limit_scale.speed, 0.0),
        limit_scale,
        jnp.asarray(functions.dry),
        jnp.where(functions.dry_owners >= 0, frictionloss[functions.dry_owners], functions.losses),
        dry_scale,
        equalities.jacobian,
        equalities.value - jnp.clip(equalities.value, -way, way),
        equality_scale,
    )


def evaluated(c: Constraints, q: Array, kin: SpatialKinematics, path: Array) -> AtEnd:
    """Constraints at q; `path` is how q changes with v⁺, in its tangent space."""
    limits, equalities = c.functions.limits(q), c.functions.equalities(q, kin)
    return AtEnd(limits.value, limits.jacobian, limits.jacobian @ path, equalities.value, equalities.jacobian @ path)


def products_of(c: Constraints, relaxation: Array) -> Array:
    """What products are to be, (n + 2m,) [J, then W]."""
    dry = relaxation * c.losses * c.dry_scale.speed
    return jnp.concatenate([relaxation * c.limit_scale.force * c.limit_scale.length, dry, dry])


def products_by_losses(c: Constraints, x: Bounds) -> Array:
    """What products change by with the losses, dry friction itself held: its two unknowns are F − f and F + f."""
    gap, way = _split(c, x.gap)
    return jnp.concatenate([jnp.zeros_like(gap), c.losses * way[0], c.losses * way[1]])


def compliance(c: Constraints, relaxation: Array) -> Array:
    """How far equalities give, over the force, (k,)."""
    return relaxation * c.equality_scale.length / c.equality_scale.force


def start(c: Constraints, q: Array, v: Array, inertia: Array, timestep: Array) -> Bounds:
    """A guess: of the force that an impact would take, and at speeds well above those at work."""
    force, gap, share, fast = _START
    left, speed = c.functions.limits(q).value, c.functions.limit_speeds(v)
    carried = 1 / (jnp.asarray(c.functions.limit_patterns**2) @ (1 / jnp.diagonal(inertia)))
    impact = jnp.where(left < 2 * timestep * speed, share * carried * speed / timestep, 0.0)
    way = fast * (jnp.abs(c.dry @ v) + c.dry_scale.speed * timestep)
    return Bounds(
        jnp.concatenate([jnp.maximum(force * c.limit_scale.force, impact), c.losses, c.losses]),
        jnp.concatenate([jnp.maximum(left, gap * c.limit_scale.length), way, way]),
    )


def joint_forces(c: Constraints, end: AtEnd, force: Array, ties: Array) -> Array:
    """What all constraints ask of the joints, (nv,); or a change of it, from a change of the unknowns."""
    limit, dry = _split(c, force)
    return end.push.T @ limit + c.dry.T @ ((dry[1] - dry[0]) / 2) + c.equalities.T @ ties


def residual(c: Constraints, x: Bounds, ties: Array, v: Array, end: AtEnd, relaxation: Array) -> Array:
    """Of gaps, of dry joints' motion and of equalities, (n + m + k,)."""
    gap, way = _split(c, x.gap)
    return jnp.concatenate(
        [
            gap - (end.gap - c.floor),
            way[1] - way[0] - c.dry @ v,
            end.error - c.target + compliance(c, relaxation) * ties,
        ]
    )


def misfit(c: Constraints, v: Array, residual: Array) -> Array:
    """The worst residual, relative."""
    units = c.limit_scale.length, c.dry_scale.speed + jnp.abs(c.dry @ v), c.equality_scale.length
    return jnp.max(jnp.abs(residual) / jnp.concatenate(units), initial=0.0)


def stiffness(c: Constraints, x: Bounds, end: AtEnd, q: Array, path: Array, relaxation: Array) -> Array:
    """How all forces fall with v⁺, the constraints' own unknowns eliminated, (nv, nv)."""
    (force, dry), (gap, way) = _split(c, x.force), _split(c, x.gap)
    total = end.push.T @ ((force / gap)[:, None] * end.gap_by) - c.functions.limit_curvature(q, force) @ path
    total += c.dry.T @ (c.dry / (way[0] / dry[0] + way[1] / dry[1])[:, None])
    return total + c.equalities.T @ (end.error_by / compliance(c, relaxation)[:, None])


def alone(c: Constraints, x: Bounds, residual: Array, target: Array, relaxation: Array) -> tuple[Bounds, Array]:
    """How the unknowns answer to a residual and a wanted change of products while v⁺ stays as it is."""
    n, m, _ = c.sizes
    r_gap, r_way, r_error = residual[:n], residual[n : n + m], residual[n + m :]
    (force, dry), (gap, way), (aim, aims) = (_split(c, y) for y in (x.force, x.gap, target))
    df = (aims[1] / dry[1] - aims[0] / dry[0] + r_way) / (way[0] / dry[0] + way[1] / dry[1])
    forces = jnp.concatenate([(aim + force * r_gap) / gap, -df, df])
    gaps = jnp.concatenate([-r_gap, (aims[0] + way[0] * df) / dry[0], (aims[1] - way[1] * df) / dry[1]])
    return Bounds(forces, gaps), -r_error / compliance(c, relaxation)


def following(
    c: Constraints, x: Bounds, end: AtEnd, change: tuple[Bounds, Array], dv: Array, relaxation: Array
) -> tuple[Bounds, Array]:
    """The change of the unknowns, plus what comes of a change dv of the velocities."""
    (force, dry), (gap, way) = _split(c, x.force), _split(c, x.gap)
    opened, (bounds, ties) = end.gap_by @ dv, change
    df = -(c.dry @ dv) / (way[0] / dry[0] + way[1] / dry[1])
    forces = jnp.concatenate([-force / gap * opened, -df, df])
    gaps = jnp.concatenate([opened, way[0] * df / dry[0], -way[1] * df / dry[1]])
    give = end.error_by @ dv / compliance(c, relaxation)
    return Bounds(bounds.force + forces, bounds.gap + gaps), ties - give


def warmed(c: Constraints, x: Bounds, shift: float) -> Bounds:
    """A solution moved into the interior; the two sides of dry friction still make up its bound."""
    inside = jnp.concatenate([x.force[: c.sizes[0]] + c.limit_scale.force, c.losses, c.losses])
    units = jnp.concatenate([c.limit_scale.length, c.dry_scale.speed, c.dry_scale.speed])
    return Bounds(x.force + shift * (inside - x.force), x.gap + shift * units)


def _split(c: Constraints, y: Array) -> tuple[Array, tuple[Array, Array]]:
    """Of limits, and of both sides of dry friction."""
    n, m, _ = c.sizes
    return y[:n], (y[n : n + m], y[n + m :])
