"""How well the equations of a step hold, in units of what is at work there: of any scale, body by body.

A force is judged by the weight of what it moves and by the momentum that it changes, a length by the size of the
shapes, a speed by √(g·length) and by the sliding itself. So a millimetre is much to a bolt and little to a ship.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tangens.contact.interior import constraints
from tangens.contact.interior.equations import Iterate, Problem, StepResidual
from tangens.contact.interior.pair import Pair, PairResidual, Unknowns, speed_of, weight_of

Array = jax.Array


def motion_misfit(problem: Problem, x: Iterate, residual: StepResidual) -> Array:
    """The worst of the equations of motion, relative."""
    change = jnp.abs(problem.inertia @ (x.v - problem.v)) / problem.timestep
    return jnp.max(jnp.abs(residual.motion) / (problem.weight + change), initial=0.0)


def misfit(problem: Problem, x: Iterate, residual: StepResidual) -> Array:
    """The worst of all equations, relative."""
    worst = jnp.maximum(
        motion_misfit(problem, x, residual), constraints.misfit(problem.constraints, x.v, residual.constraints)
    )
    for group, u, rest in zip(problem.groups, x.pairs, residual.pairs, strict=True):
        worst = jnp.maximum(worst, jnp.max(jax.vmap(_of_pair)(group.pairs, u, rest), initial=0.0))
    return worst


def _of_pair(pair: Pair, u: Unknowns, rest: PairResidual) -> Array:
    weight, length = weight_of(pair), pair.length
    parts = (
        rest.stationarity[:1] / weight,
        rest.stationarity[1:] * length / weight,
        rest.rows / length,
        rest.gap / length,
        rest.normal_force / (pair.sharpness + u.normal_force),
        rest.slip / (speed_of(pair) + u.psi),
    )
    return jnp.max(jnp.abs(jnp.concatenate([jnp.atleast_1d(part) for part in parts])))
