"""Discrete bounces with the derivative of bounces in continuous time (paper 5, Sec. VI and Appendix E).

A ball that starts its step lower hits the floor sooner, and so ends it higher: ∂p⁺/∂p = −σ for its distance p and
restitution σ, where the discrete step says 1. Of all matrices X that do this for each bouncing contact by itself,
J_i·X·J_i⁺ = −σ_i, the one closest to the identity stands in for ∂q⁺/∂q, and h·X for ∂q⁺/∂v.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.engine import RigidEngine
from tangens.contact.rigid.laws import BREAKING
from tangens.results import Jacobian

Array = NDArray[np.float64]


class ContinuousBounces(RigidEngine):
    """A rigid engine whose q⁺ answers to q and v as if its bounces had happened at their own time."""

    def jacobian(self, q: Array, v: Array, u: Array, tau: Array, wrt: Sequence[str], with_force: bool) -> Jacobian:
        """Derivative of the step, with that of q⁺ by q and v replaced where bodies bounce."""
        J = super().jacobian(q, v, u, tau, wrt, with_force)
        X = self._bounce_map()
        if X is None:
            return J
        inputs = {name: np.stack([J["q", name], J["v", name]]) for name in wrt}
        for name, slope in (("q", X), ("v", self._h * X)):
            if name in inputs:
                inputs[name][0] = slope
        force = {name: J["force", name] for name in wrt} if with_force else None
        return Jacobian(inputs, force, J.unique)

    def pullback(
        self, q: Array, v: Array, u: Array, tau: Array, dq: Array, dv: Array, dforce: Array | None, wrt: Sequence[str]
    ) -> dict[str, Array]:
        """Carry back through the same derivative."""
        back = super().pullback(q, v, u, tau, dq, dv, dforce, wrt)
        X = self._bounce_map()
        if X is not None:
            by_velocity = super().pullback(q, v, u, tau, np.zeros_like(dq), dv, dforce, ())
            back["q"] = by_velocity["q"] + dq @ X
            back["v"] = by_velocity["v"] + self._h * (dq @ X)
        return back

    def _bounce_map(self) -> Array | None:
        """∂q⁺/∂q for the contacts that bounce in the step taken last; None if there are none."""
        w = self._workspace()
        blocks, contacts = w.blocks, w.contacts
        bouncing = blocks[(blocks["source"] >= 0) & (blocks["mode"] != BREAKING)]
        bouncing = bouncing[contacts["bounces"][bouncing["source"]] == 1]
        if not len(bouncing):
            return None
        return nearest_to_identity(w.J[bouncing["start"]], -contacts["gain"][bouncing["source"]])


def nearest_to_identity(rows: Array, values: Array) -> Array:
    """The X with J_i·X·J_i⁺ = values_i, as nearly as possible, that is closest to the identity (Eqs. 31 to 37)."""
    back = np.linalg.pinv(rows)  # its columns are the J_i⁺
    missing = values - np.einsum("ik,ki->i", rows, back)
    gram = (rows @ rows.T) * (back.T @ back)
    weights = np.linalg.lstsq(gram, missing, rcond=None)[0]
    return np.eye(rows.shape[1]) + np.einsum("i,ij,ki->jk", weights, rows, back)
