"""Jacobians of a step of one stage: by state and controls in one compiled call, else put together from terms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.gradients.contact_forces import ContactForces
from tangens.contact.rigid.gradients.linearization import Linearization, differentiate, forward, through_B
from tangens.contact.rigid.gradients.linearizer import INPUTS, Linearizer
from tangens.contact.rigid.gradients.redundant_forces import RedundantForces
from tangens.contact.rigid.memory.tape import Solved
from tangens.contact.rigid.results import RigidTape
from tangens.contact.rules import GradientRule
from tangens.results import Jacobian

if TYPE_CHECKING:
    from tangens.contact.rigid.scratch import RigidScratch

Array = NDArray[np.float64]


def step_jacobian(
    linearizer: Linearizer, scratch: RigidScratch, tape: RigidTape, wrt: Sequence[str], rule: GradientRule
) -> Jacobian:
    """∂(q⁺, v⁺)/∂(state, controls, tau) at the step's modes."""
    memory, (_, nv, nu) = tape.memory, linearizer.sizes
    by_state, by_u = np.empty((3, 2, nv, nv)), np.empty((2, nv, nu if "u" in wrt else 0))
    responses = linearizer.responses(scratch, memory, rule)
    gravcomp = linearizer.gravity_compensation(scratch, memory)
    unknown, ambiguous = differentiate(scratch.addresses, memory, responses, gravcomp, by_state, by_u)
    while unknown >= 0:
        responses = linearizer.by_differences(scratch, memory, responses, unknown)
        unknown, ambiguous = differentiate(scratch.addresses, memory, responses, gravcomp, by_state, by_u)
    return Jacobian(_StateBlocks(by_state, by_u, wrt), None, not ambiguous, tape.report)


def jacobian_in_parts(
    linearizer: Linearizer, scratch: RigidScratch, tape: RigidTape, wrt: Sequence[str], with_force: bool,
    rule: GradientRule, shares_load: bool,
) -> Jacobian:  # fmt: skip
    """The same with parameters and contact forces.

    `shares_load`: the model has a rule for impulses that the laws leave open, so that they have a derivative.
    """
    memory, (_, nv, nu) = tape.memory, linearizer.sizes
    by_state, by_u = np.empty((3, 2, nv, nv)), np.empty((2, nv, nu if "u" in wrt else 0))
    lin, responses = linearizer.linearize(scratch, memory, rule, with_u=by_u.shape[2] > 0, with_turn=with_force)
    P, T = forward(scratch.addresses, memory, lin, by_state, by_u)
    blocks = dict(_StateBlocks(by_state, by_u, tuple(name for name in wrt if name in INPUTS)))
    force: dict[str, Array] = {}
    solved, integrate = linearizer.solved(memory), linearizer.integration(lin.v_next, memory)
    redundant = None
    if with_force and shares_load and len(lin.active):
        redundant = RedundantForces(scratch.addresses, memory, responses, lin, solved)
    for name, (R, C) in linearizer.terms(scratch, memory, responses, wrt, lin).items():
        shape, size = R.shape[1:], math.prod(R.shape[1:])
        by_force, by_law = R.reshape(nv, size), C.reshape(len(T.T), size)
        if name not in INPUTS:
            by_parameter = P @ by_force - T @ by_law
            blocks[name] = np.stack([integrate @ by_parameter, by_parameter]).reshape(2, nv, *shape)
        if with_force:
            change = _force_derivative(lin, solved, redundant, name, by_force, by_law)
            force[name] = change.reshape(len(solved.contacts), 3, *shape)
    chosen = {name: blocks[name] for name in wrt}
    return Jacobian(chosen, force if with_force else None, not lin.ambiguous, tape.report)


def _force_derivative(
    lin: Linearization, solved: Solved, redundant: RedundantForces | None, name: str, by_force: Array, by_law: Array
) -> Array:
    """∂(contact forces)/∂x, shape (nc, 3, n)."""
    d_impulse = -lin.A_inverse @ (through_B(lin, lin.Y @ by_force) + by_law)
    if redundant is not None:
        d_impulse = redundant.completed(d_impulse, redundant.by_configuration() if name == "q" else None)
    return ContactForces.of(solved).derivative(lin.active, d_impulse, lin.turn if name == "q" else None)


class _StateBlocks(Mapping[str, Array]):
    """Blocks by q, v, tau and u, cut out of the compiled function's arrays when somebody asks."""

    __slots__ = ("_by_state", "_by_u", "_names")

    def __init__(self, by_state: Array, by_u: Array, names: Sequence[str]) -> None:
        self._by_state, self._by_u, self._names = by_state, by_u, names

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(name)
        return self._by_u if name == "u" else self._by_state[("q", "v", "tau").index(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
