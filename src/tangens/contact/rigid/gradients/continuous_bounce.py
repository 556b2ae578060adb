"""Discrete bounces with the derivative of bounces in continuous time (paper 5, Sec. VI and Appendix E).

A ball that starts its step lower hits the floor sooner, and so ends it higher: ∂p⁺/∂p = −σ for its distance p and
restitution σ, where the discrete step says 1. Of all matrices X that do this for each bouncing contact by itself,
J_i·X·J_i⁺ = −σ_i, the one closest to the identity stands in for ∂q⁺/∂q, and h·X for ∂q⁺/∂v.

The paper leaves forces out. Under an acceleration a along the normal, a body that found itself at p ≤ 0 met the other
one at c = −p/v, with the velocity w = v + c·a. It leaves with −σ·w and is under way for h − c:

    p⁺ = −σ·w·(h − c) + a/2·(h − c)²,    v⁺ = −σ·w + a·(h − c)

The derivatives of these by p and v take the place of −σ and −σ·h; what v⁺ gains is added to its own derivative.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.memory.tape import Solved
from tangens.contact.rigid.problem.contact_problem import BREAKING
from tangens.results import Jacobian

Array = NDArray[np.float64]


class BounceMap(NamedTuple):
    """A step as if its bounces had happened at their own time."""

    q_by_q: Array
    q_by_v: Array
    more_v_by_q: Array
    more_v_by_v: Array


def bounce_map(solved: Solved, v: Array) -> BounceMap | None:
    """The derivative of a step that began with velocity v; None if nothing bounces."""
    blocks, contacts, h = solved.blocks, solved.contacts, solved.h
    bouncing = blocks[(blocks["source"] >= 0) & (blocks["mode"] != BREAKING)]
    bouncing = bouncing[contacts["bounces"][bouncing["source"]] == 1]
    if not len(bouncing):
        return None
    found = contacts[bouncing["source"]]
    rows, restitution = solved.J[bouncing["start"]], found["gain"]
    speed, change = rows @ v, rows @ (solved.v_free - v) / h
    change = np.where(np.abs(change) * h < -speed, change, 0.0)  # what a step's force stops does not bounce
    since = np.clip(-found["gap"] / speed, -h, 0.0)
    later = (1.0 + restitution) * change / (speed + since * change)  # of v⁺, by p
    away = h - since
    identity, nothing = np.eye(rows.shape[1]), np.zeros((rows.shape[1],) * 2)
    return BounceMap(
        nearest_matrix(identity, rows, later * away - restitution),
        nearest_matrix(h * identity, rows, later * away * since - restitution * h),
        nearest_matrix(nothing, rows, later),
        nearest_matrix(nothing, rows, later * since),
    )


def with_bounces(bounce: BounceMap, J: Jacobian, wrt: Sequence[str], with_force: bool) -> Jacobian:
    """The Jacobian by q and v with what bounces in continuous time would change."""
    inputs = {name: np.stack([J["q", name], J["v", name]]) for name in wrt}
    for name, position, more in (
        ("q", bounce.q_by_q, bounce.more_v_by_q),
        ("v", bounce.q_by_v, bounce.more_v_by_v),
    ):
        if name in inputs:
            inputs[name][0] = position
            inputs[name][1] += more
    force = {name: J["force", name] for name in wrt} if with_force else None
    return Jacobian(inputs, force, J.determinate, J.solver)


def nearest_matrix(start: Array, rows: Array, values: Array) -> Array:
    """The X with J_i·X·J_i⁺ = values_i, as nearly as possible, that is closest to another matrix (Eqs. 31 to 37)."""
    back = np.linalg.pinv(rows)  # its columns are the J_i⁺
    missing = values - np.einsum("ij,jk,ki->i", rows, start, back)
    gram = (rows @ rows.T) * (back.T @ back)
    weights = np.linalg.lstsq(gram, missing, rcond=None)[0]
    return np.asarray(start + np.einsum("i,ij,ki->jk", weights, rows, back))
