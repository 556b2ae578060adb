"""Discrete bounces with the derivative of bounces in continuous time (paper 5, Sec. VI and Appendix E).

A ball that starts its step lower hits the floor sooner, and so ends it higher: ∂p⁺/∂p = −σ for its distance p and
restitution σ, where the discrete step says 1. Of all matrices X that do this for each bouncing contact by itself,
J_i·X·J_i⁺ = −σ_i, the one closest to the identity stands in for ∂q⁺/∂q, and h·X for ∂q⁺/∂v.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.memory.tape import Solved
from tangens.contact.rigid.problem.contact_problem import BREAKING

Array = NDArray[np.float64]


def bounce_map(solved: Solved) -> Array | None:
    """∂q⁺/∂q of a step as if its bounces had happened at their own time; None if nothing bounces."""
    blocks, contacts = solved.blocks, solved.contacts
    bouncing = blocks[(blocks["source"] >= 0) & (blocks["mode"] != BREAKING)]
    bouncing = bouncing[contacts["bounces"][bouncing["source"]] == 1]
    if not len(bouncing):
        return None
    return nearest_to_identity(solved.J[bouncing["start"]], -contacts["gain"][bouncing["source"]])


def nearest_to_identity(rows: Array, values: Array) -> Array:
    """The X with J_i·X·J_i⁺ = values_i, as nearly as possible, that is closest to the identity (Eqs. 31 to 37)."""
    back = np.linalg.pinv(rows)  # its columns are the J_i⁺
    missing = values - np.einsum("ik,ki->i", rows, back)
    gram = (rows @ rows.T) * (back.T @ back)
    weights = np.linalg.lstsq(gram, missing, rcond=None)[0]
    return np.eye(rows.shape[1]) + np.einsum("i,ij,ki->jk", weights, rows, back)
