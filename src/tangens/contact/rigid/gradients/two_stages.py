"""The derivative of a step in two stages (see `overlaps`), put together from those of its stages.

The first stage obeys M̃·(v_c − v) = h·(forces) + Jᵀ·λ, the second adds M̃·(v⁺ − v_c) = Jᵀ·p. Each has left a tape, and
`linearization` says of the second one what dv⁺ is if R_θ is the change of all that is neither M̃ nor p:

    R_θ = R₂ − R₁ + M̃·dv_c + ∂(Jᵀ·λ)/∂θ

R₂ is that of the tape, which knows nothing of λ; R₁, which does, and dv_c are those of the first stage.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.gradients.contact_forces import ContactForces
from tangens.contact.rigid.gradients.linearization import Linearization, apply_B
from tangens.contact.rigid.memory.tape import Solved

Array = NDArray[np.float64]
Term = tuple[Array, Array]
"""R (nv, n) and C (rows, n) of one input, see `linearization`."""

_ROUNDING = 1e-12  # of the largest singular value

UNAFFECTED = ("friction", "frictionloss")
"""What the second stage knows nothing of."""


class Stage(NamedTuple):
    """One stage, linearised."""

    lin: Linearization
    solved: Solved

    def response(self, R: Array, C: Array) -> tuple[Array, Array]:
        """What an input makes of the velocity and of the impulses: dv and dλ."""
        lin = self.lin
        rows = lin.Y @ R
        apply_B(lin.slide, rows)
        d_impulse = -lin.A_inverse @ (rows + C)
        return lin.W @ (lin.W.T @ R) + lin.W @ (lin.W.T @ (self.solved.J[lin.active].T @ d_impulse)), d_impulse


def to_the_last_digit(lin: Linearization) -> Linearization:
    """The second stage's factors: its redundant contacts share their load by the little that they yield.

    That is no noise, as it would be elsewhere, so that only what rounding leaves counts as singular.
    """
    if not len(lin.A):
        return lin
    scale = np.abs(lin.A).max(axis=1)
    scale[scale == 0.0] = 1.0
    inverse: Array = np.linalg.pinv(lin.A / scale[:, None], rcond=_ROUNDING) / scale
    return lin._replace(A_inverse=inverse)


def through_both(first: Stage, second: Stage, one: Term, two: Term, moved: Array | None) -> tuple[Array, Array, Array]:
    """How v⁺ and the impulses of both stages change; `moved` is ∂(Jᵀ·λ)/∂θ, if the input moves contacts."""
    dv, d_first = first.response(*one)
    W = first.lin.W
    R = two[0] - one[0] + np.linalg.solve(W @ W.T, dv)
    if moved is not None:
        R = R + moved
    dv_next, d_second = second.response(R, two[1])
    return dv_next, d_first, d_second


def force_derivative_of(stages: tuple[Stage, Stage], d_impulses: tuple[Array, Array], turns: bool) -> Array:
    """∂(contact forces)/∂θ, shape (nc, 3, n): those of both stages together."""
    total: Array | None = None
    for stage, d_impulse in zip(stages, d_impulses, strict=True):
        turn = stage.lin.turn if turns else None
        part = ContactForces.of(stage.solved).derivative(stage.lin.active, d_impulse, turn)
        total = part if total is None else total + part
    assert total is not None
    return total
