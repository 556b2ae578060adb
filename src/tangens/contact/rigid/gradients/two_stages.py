"""The derivative of a step in two stages (see `overlaps`), put together from those of its stages.

The first stage obeys M̃·(v_c − v) = h·(forces) + Jᵀ·λ, the second adds M̃·(v⁺ − v_c) = Jᵀ·p. Each has left a tape, and
`linearization` says of the second one what dv⁺ is if R_θ is the change of all that is neither M̃ nor p:

    R_θ = R₂ − R₁ + M̃·dv_c + ∂(Jᵀ·λ)/∂θ

R₂ is that of the tape, which knows nothing of λ; R₁, which does, and dv_c are those of the first stage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.contact.base import Cotangent
from tangens.contact.rigid.gradients.contact_forces import ContactForces
from tangens.contact.rigid.gradients.linearization import Linearization, apply_B
from tangens.contact.rigid.gradients.linearizer import INPUTS, Linearizer
from tangens.contact.rigid.gradients.redundant_forces import force_derivative
from tangens.contact.rigid.memory.tape import Solved
from tangens.contact.rigid.results import RigidTape
from tangens.contact.rules import GradientRule
from tangens.dynamics.tangent import integrate_jacobians
from tangens.errors import NotDifferentiable
from tangens.results import Jacobian

if TYPE_CHECKING:
    from tangens.contact.rigid.scratch import RigidScratch

Array = NDArray[np.float64]
Term = tuple[Array, Array]
"""R (nv, n) and C (rows, n) of one input, see `linearization`."""

_ROUNDING = 1e-12  # of the largest singular value

_UNAFFECTED = ("friction", "frictionloss")  # what the second stage knows nothing of
UNKNOWN = frozenset(("placement",))
"""By these there is no derivative."""


def jacobian_of_two_stages(
    linearizer: Linearizer, scratch: RigidScratch, tape: RigidTape, wrt: Sequence[str], with_force: bool,
    rule: GradientRule,
) -> Jacobian:  # fmt: skip
    """∂(q⁺, v⁺, forces)/∂x of the step on a tape."""
    for name in wrt:
        if name in UNKNOWN:
            raise NotDifferentiable(
                f"overlaps that the laws of contact cannot undo were undone apart from them in this step, which "
                f"has no derivative by {name}: take the overlap out of the pose, or exclude the pair from collision"
            )
    assert tape.second is not None
    nv, h = linearizer.sizes[1], linearizer.solved(tape.memory).h
    stages, terms, forces = [], [], None
    for memory in (tape.memory, tape.second):
        lin, responses = linearizer.linearize(scratch, memory, rule, with_u="u" in wrt, with_turn=with_force)
        if memory is tape.second:
            lin = _to_the_last_digit(lin)
        stages.append(Stage(lin, linearizer.solved(memory)))
        terms.append(linearizer.terms(scratch, memory, responses, wrt, lin))
        if forces is None and "q" in wrt:
            forces = force_derivative(scratch.addresses, memory, responses, stages[0].solved.impulse)
    first, second = stages
    blocks: dict[str, Array] = {}
    force: dict[str, Array] = {}
    by_q, by_dv = integrate_jacobians(linearizer.layout, second.lin.v_next, h * second.lin.v_next)
    for name in wrt:
        shape = terms[0][name][0].shape[1:]
        size = math.prod(shape)
        one, two = ((R.reshape(nv, size), C.reshape(len(C), size)) for R, C in (term[name] for term in terms))
        if name in _UNAFFECTED:
            two = np.zeros_like(two[0]), np.zeros_like(two[1])
        moved = {"q": forces, "size": one[0]}.get(name)  # of R₁ by size, nothing is left but the motion of contacts
        dv, *d_impulses = _through_both(first, second, one, two, moved)
        dq = h * by_dv @ dv + (by_q if name == "q" else 0.0)
        blocks[name] = np.stack([dq, dv]).reshape(2, nv, *shape)
        if with_force:
            change = _force_derivative_of((first, second), (d_impulses[0], d_impulses[1]), name == "q")
            force[name] = change.reshape(-1, 3, *shape)
    determinate = not (first.lin.ambiguous or second.lin.ambiguous)
    return Jacobian(blocks, force if with_force else None, determinate, tape.report)


def carry_back_through_two_stages(
    linearizer: Linearizer, scratch: RigidScratch, tape: RigidTape, cotangent: Cotangent, wrt: Sequence[str],
    rule: GradientRule,
) -> tuple[dict[str, Array], bool]:  # fmt: skip
    """Reverse mode by the Jacobian: such steps are rare."""
    names, dforce = tuple(dict.fromkeys((*INPUTS, *wrt))), cotangent.force
    J = jacobian_of_two_stages(linearizer, scratch, tape, names, dforce is not None, rule)
    back: dict[str, Array] = {}
    for name in names:
        back[name] = np.tensordot(cotangent.q, J["q", name], 1) + np.tensordot(cotangent.v, J["v", name], 1)
        if dforce is not None:
            back[name] = back[name] + np.tensordot(dforce, J["force", name], 2)
    return back, J.determinate


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


def _to_the_last_digit(lin: Linearization) -> Linearization:
    """The second stage's factors: its redundant contacts share their load by the little that they yield.

    That is no noise, as it would be elsewhere, so that only what rounding leaves counts as singular.
    """
    if not len(lin.A):
        return lin
    scale = np.abs(lin.A).max(axis=1)
    scale[scale == 0.0] = 1.0
    inverse: Array = np.linalg.pinv(lin.A / scale[:, None], rcond=_ROUNDING) / scale
    return lin._replace(A_inverse=inverse)


def _through_both(first: Stage, second: Stage, one: Term, two: Term, moved: Array | None) -> tuple[Array, Array, Array]:
    """How v⁺ and the impulses of both stages change; `moved` is ∂(Jᵀ·λ)/∂θ, if the input moves contacts."""
    dv, d_first = first.response(*one)
    W = first.lin.W
    R = two[0] - one[0] + np.linalg.solve(W @ W.T, dv)
    if moved is not None:
        R = R + moved
    dv_next, d_second = second.response(R, two[1])
    return dv_next, d_first, d_second


def _force_derivative_of(stages: tuple[Stage, Stage], d_impulses: tuple[Array, Array], turns: bool) -> Array:
    """∂(contact forces)/∂θ, shape (nc, 3, n): those of both stages together."""
    total: Array | None = None
    for stage, d_impulse in zip(stages, d_impulses, strict=True):
        turn = stage.lin.turn if turns else None
        part = ContactForces.of(stage.solved).derivative(stage.lin.active, d_impulse, turn)
        total = part if total is None else total + part
    assert total is not None
    return total
