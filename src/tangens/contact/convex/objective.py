"""The convex function of v⁺ whose minimum is the step: kinetic energy, contacts, and rows for all other constraints.

    ℓ(v) = ½ (v − v*)ᵀ M (v − v*) + Σ ℓ_contact(J v) + Σ ℓ_row(J v)

Its gradient is the balance of momentum, M (v − v*) = Σ Jᵀ γ. A row pushes with γ = (v̂ − Jv) / R within bounds: none
below 0 for a limit, any for an equality, ±h·f for dry friction.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tangens.contact.convex.cone import Cone, Impulse, impulses

Array = jax.Array


class Rows(NamedTuple):
    """Constraints of one direction each, (m, ...)."""

    jacobian: Array
    """(m, nv)."""
    target: Array
    """v̂."""
    regularization: Array
    """R."""
    low: Array
    """Bounds of the impulse."""
    high: Array


class Problem(NamedTuple):
    """All numbers of a step."""

    inertia: Array
    """M with implicit damping, (nv, nv)."""
    momentum: Array
    """M v* = M v + h f, (nv,)."""
    jacobian: Array
    """Of the contacts: velocities of body 2 relative to body 1, in world axes, (n, 3, nv)."""
    cone: Cone
    rows: Rows


class Value(NamedTuple):
    """The objective around some velocities."""

    gradient: Array
    hessian: Array
    contact: Impulse
    scale: Array
    """How large the momenta are that balance, for the stopping rule."""


def value(problem: Problem, v: Array) -> Value:
    """Gradient and Hessian at v."""
    J, rows = problem.jacobian, problem.rows
    contact = impulses(problem.cone, J @ v)
    pushed, stiff = row_impulses(rows, rows.jacobian @ v)
    by_contacts = jnp.einsum("cin,ci->n", J, contact.impulse) + rows.jacobian.T @ pushed
    moving = problem.inertia @ v
    gradient = moving - problem.momentum - by_contacts
    hessian = problem.inertia + jnp.einsum("cin,cij,cjm->nm", J, contact.curvature, J)
    hessian += rows.jacobian.T @ (stiff[:, None] * rows.jacobian)
    weigh = 1 / jnp.sqrt(jnp.diag(problem.inertia))
    scale = jnp.max(jnp.stack([jnp.linalg.norm(weigh * x) for x in (moving, problem.momentum, by_contacts)]))
    return Value(gradient, hessian, contact, scale)


def row_impulses(rows: Rows, speed: Array) -> tuple[Array, Array]:
    """γ of each row, and −∂γ/∂(Jv)."""
    y = (rows.target - speed) / rows.regularization
    inside = (y >= rows.low) & (y <= rows.high)
    return jnp.where(inside, y, jnp.where(y > rows.high, rows.high, rows.low)), inside / rows.regularization


def stored_energy(problem: Problem, h: Array, ahead: Array) -> Array:
    """½ k x² of all springs that push [J], with k = 1 / (h (h + τ_d) R) and x = v̂ (h + τ_d)."""
    cone, rows = problem.cone, problem.rows
    pushes = ((rows.target > 0) & (rows.high > 0)) | ((rows.target < 0) & (rows.low < 0))
    contacts = cone.activity * jnp.maximum(cone.target, 0.0) ** 2 / cone.normal_regularization
    return ahead / (2 * h) * (jnp.sum(contacts) + jnp.sum(jnp.where(pushes, rows.target**2 / rows.regularization, 0.0)))


def slopes_along(problem: Problem, v: Array, direction: Array, alpha: Array) -> tuple[Array, Array]:
    """ℓ' and ℓ'' at v + α d along d."""
    at, J, rows = v + alpha * direction, problem.jacobian, problem.rows
    moved, turned = J @ direction, rows.jacobian @ direction
    contact = impulses(problem.cone, J @ at)
    pushed, stiff = row_impulses(rows, rows.jacobian @ at)
    heavy = problem.inertia @ direction
    first = heavy @ at - direction @ problem.momentum - jnp.sum(contact.impulse * moved) - pushed @ turned
    second = heavy @ direction + jnp.einsum("ci,cij,cj->", moved, contact.curvature, moved) + stiff @ turned**2
    return first, second
