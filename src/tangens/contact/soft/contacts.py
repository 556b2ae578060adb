"""What a soft step tells of its contacts: one for each pair of geoms, where it presses most, with the whole force."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tangens.contact.jax_model import ContactArrays
from tangens.contact.soft.forces import NEAR, Contact, Probed, SoftForces

Array = jax.Array


def report(
    forces: SoftForces, settings: dict[str, Any], probed: Probed, contact: Contact, change: Array
) -> tuple[ContactArrays, ...]:
    """Contacts of a step whose velocity ended a change away from where these forces were computed."""
    pairs = forces.table.pairs
    if not len(pairs):
        return ()
    sign = jnp.asarray(np.where(forces.probe_geom == pairs[forces.pair, 1], 1.0, -1.0)[:, None])
    wrench = contact.rows.wrench
    if contact.rows.rate is not None:
        wrench -= jnp.einsum("rab,rbn,n->ra", contact.rows.rate, probed.jacobian, change)

    def total(x: Array) -> Array:
        return jax.ops.segment_sum(x, forces.pair, len(pairs))

    def mean(name: str) -> Array:
        """Over the probes of each row, by their shares."""
        parts = [jnp.einsum("rp,r...p->r...", g.share, getattr(g.near, name)) for g in probed.groups]
        return jnp.concatenate(parts)

    distance, normal = total(mean("distance")), total(sign * mean("normal"))
    normal /= jnp.sqrt(jnp.sum(normal**2, 1, keepdims=True) + 1e-30)
    activity = jax.nn.sigmoid(-distance / settings["reach"])
    force, position = total(sign * wrench[:, 3:]), total(mean("point"))
    # Bodies that meet within the step push, however far apart they were before it.
    least = jnp.exp(-NEAR) * settings["stiffness"] * settings["reach"]
    touches = (distance < NEAR * settings["reach"]) | (jnp.sum(force**2, 1) > least**2)
    return (ContactArrays(touches, position, normal, distance, force, jnp.asarray(pairs), activity),)
