"""Constraints besides contacts, as rows of the convex objective: limits, dry friction, equalities.

Derivatives flow through q, the inertia and all numbers of the kinematics. Ranges, friction losses and the data of
equalities are constants of the structure.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve

from tangens.contact.constraint_functions import ConstraintFunctions
from tangens.contact.convex.objective import Rows
from tangens.dynamics.spatial import SpatialKinematics

Array = jax.Array

_RIGID = 1e-3
"""Of the compliance, that of equalities and of joints with dry friction that stick: a frame welded 2 m from its anchor
moves 1,000 times as easily as its mass."""


def constraint_rows(
    of: ConstraintFunctions, q: Array, kin: SpatialKinematics, inertia: Array, settings: dict[str, Any]
) -> Rows:
    """All rows at q: R is the compliance over the mass that each of them moves, 1 / (J M⁻¹ Jᵀ)."""
    limits, equal, dry = of.limits(q), of.equalities(q, kin), jnp.asarray(of.dry)
    J = jnp.concatenate([limits.jacobian, equal.jacobian, dry])
    mobility = jnp.sum(J * cho_solve(cho_factor(inertia), J.T).T, 1) + 1e-12
    left, error, most = limits.value, equal.value, settings["timestep"] * jnp.asarray(of.losses)
    target = jnp.concatenate([-left, -error, jnp.zeros_like(most)]) / settings["ahead"]
    soft = jnp.concatenate([jnp.ones_like(left), jnp.full(len(error) + len(most), _RIGID)]) * settings["compliance"]
    low = jnp.concatenate([jnp.zeros_like(left), jnp.full_like(error, -jnp.inf), -most])
    high = jnp.concatenate([jnp.full(len(left) + len(error), jnp.inf), most])
    return Rows(J, target, soft * mobility, low, high)
