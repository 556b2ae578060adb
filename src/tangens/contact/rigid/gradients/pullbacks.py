"""Reverse mode through a step of one stage: one linear solve, whatever is asked for. And rules that look at a loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tangens.contact.base import Cotangent
from tangens.contact.rigid.gradients.complementarity_aware import with_touching_contacts, with_wanted_modes
from tangens.contact.rigid.gradients.contact_forces import ContactForces
from tangens.contact.rigid.gradients.continuous_bounce import bounce_map
from tangens.contact.rigid.gradients.linearization import Linearization, reverse
from tangens.contact.rigid.gradients.linearizer import Linearizer
from tangens.contact.rules import ComplementarityAware, ContinuousBounce, GradientRule

if TYPE_CHECKING:
    from tangens.contact.rigid.scratch import RigidScratch

Array = NDArray[np.float64]


def carry_back(
    linearizer: Linearizer, scratch: RigidScratch, memory: Array, cotangent: Cotangent, wrt: Sequence[str],
    rule: GradientRule,
) -> tuple[dict[str, Array], bool]:  # fmt: skip
    """∂L/∂(inputs) from ∂L/∂(q⁺, v⁺, forces), and whether v⁺ is determinate."""
    back, lin = _carry_back(linearizer, scratch, memory, cotangent, wrt, rule)
    if isinstance(rule, ComplementarityAware):
        back = _aware_of_other_modes(linearizer, scratch, memory, cotangent, wrt, rule, lin, back)
    elif isinstance(rule, ContinuousBounce):
        bounce = bounce_map(linearizer.solved(memory), linearizer.inputs(memory).v)
        if bounce is not None:
            still = cotangent._replace(q=np.zeros_like(cotangent.q))
            by_velocity, _ = _carry_back(linearizer, scratch, memory, still, (), rule)
            back["q"] = by_velocity["q"] + cotangent.q @ bounce.q_by_q + cotangent.v @ bounce.more_v_by_q
            back["v"] = by_velocity["v"] + cotangent.q @ bounce.q_by_v + cotangent.v @ bounce.more_v_by_v
    return back, not lin.ambiguous


def _carry_back(
    linearizer: Linearizer, scratch: RigidScratch, memory: Array, cotangent: Cotangent, wrt: Sequence[str],
    rule: GradientRule,
) -> tuple[dict[str, Array], Linearization]:  # fmt: skip
    dforce = cotangent.force
    lin, responses = linearizer.linearize(scratch, memory, rule, with_u=True, with_turn=dforce is not None)
    d_impulse = np.zeros(len(lin.active))
    if dforce is not None:
        forces = ContactForces.of(linearizer.solved(memory))
        d_impulse = forces.cotangent(lin.active, dforce)
    by_q, by_v, by_tau, by_u, z, s = reverse(scratch.addresses, memory, lin, cotangent.q, cotangent.v, d_impulse)
    if dforce is not None:
        by_q = by_q + np.einsum("ci,cij->j", np.cross(forces.values(), dforce), lin.turn)
    by_parameter = linearizer.carried_back(scratch, memory, responses, wrt, lin, z, s)
    return {"q": by_q, "v": by_v, "tau": by_tau, "u": by_u, **by_parameter}, lin


def _aware_of_other_modes(
    linearizer: Linearizer, scratch: RigidScratch, memory: Array, cotangent: Cotangent, wrt: Sequence[str],
    rule: GradientRule, lin: Linearization, back: dict[str, Array],
) -> dict[str, Array]:  # fmt: skip
    """The gradient at the modes that the loss asks for, if it moves more (paper 5, Sec. IV-D)."""
    dv = cotangent.v + linearizer.integration(lin.v_next, memory).T @ cotangent.q
    everyone = with_touching_contacts(scratch.addresses, memory)
    wanted = with_wanted_modes(everyone, linearizer.sizes[1], linearizer.entries, lin, dv)
    if wanted is None:
        return back
    other, _ = _carry_back(linearizer, scratch, wanted, cotangent, wrt, rule)
    h = linearizer.solved(memory).h
    return other if _drive(other, h) > _drive(back, h) else back


def _drive(back: Mapping[str, Array], h: float) -> float:
    """How much a gradient would move the motion (paper 5, Sec. IV-D)."""
    return float(back["v"] @ back["v"] + back["tau"] @ back["tau"] / h)
