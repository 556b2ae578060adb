"""Derivative of a step that was cut at impacts: the chain of its pieces, with the times at which they are cut.

When the start changes by dx, the gap at the end of a flight of duration d changes by n·q_x·dx, so that the impact comes
later by dd = −n·q_x·dx / n·q_d; the last piece is shorter by what the others are longer. Accelerations change too.
Derivatives flow to state, forces and parameters; contact forces have none, for their times do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.gradients.contact_parameters import timestep_force
from tangens.contact.rigid.gradients.linearization import through_B
from tangens.contact.rigid.gradients.linearizer import Linearizer
from tangens.contact.rigid.impacts.pieces import CutStep, Drift, Piece
from tangens.contact.rules import GradientRule
from tangens.dynamics.tangent import integrate_jacobians
from tangens.errors import NotDifferentiable
from tangens.results import Jacobian

if TYPE_CHECKING:
    from tangens.contact.rigid.scratch import RigidScratch

Array = NDArray[np.float64]
Own = Callable[..., Jacobian]
"""Derivative of one step of the engine."""


def input_shapes(
    sizes: tuple[int, int, int], parameters: Mapping[str, tuple[int, ...]], wrt: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """Shapes of inputs and parameters in the tangent space."""
    _, nv, nu = sizes
    own: dict[str, tuple[int, ...]] = {"q": (nv,), "v": (nv,), "tau": (nv,), "u": (nu,)}
    return {name: own[name] if name in own else parameters[name] for name in wrt}


def total_derivative(
    linearizer: Linearizer, own: Own, scratch: RigidScratch, tape: CutStep, shapes: Mapping[str, tuple[int, ...]],
    h: float, rule: GradientRule,
) -> tuple[dict[str, Array], bool]:  # fmt: skip
    """∂(q⁺, v⁺)/∂x of each input, shape (2, nv, ...), and whether v⁺ is determinate in all pieces."""
    assert tape.drift is not None
    nv, names = len(tape.drift.acceleration), tuple(dict.fromkeys(("q", "v", *shapes)))
    total = {name: np.zeros((2, nv, *shape)) for name, shape in shapes.items()}
    for k, name in enumerate(("q", "v")):
        if name in total:
            total[name][k] = np.eye(nv)
    later = {name: np.zeros(shape) for name, shape in shapes.items()}  # by how much pieces so far last longer
    a, da = tape.drift.acceleration, _drift_derivative(own, scratch, tape.drift, total, names, rule)
    determinate = True
    for piece in tape.pieces:
        if piece.rates is not None:
            for name, before in total.items():
                longer = _meets_later(piece, name, before[0], piece.rates)
                later[name] = later[name] + longer
                total[name] = before + np.multiply.outer(piece.rates, longer)
            continue
        J = own(scratch, piece.out.tape, names, False, rule)
        determinate = determinate and J.determinate
        if piece.drift is not None:
            for name, (dq, dv) in total.items():
                total[name] = np.stack([dq, _through(J, name, dq, dv + 0.5 * h * da[name])])
            a, da = piece.drift.acceleration, _drift_derivative(own, scratch, piece.drift, total, names, rule)
            for name, change in da.items():
                total[name][1] -= 0.5 * h * change
            continue
        w = piece.out.state.v + piece.shift * a
        by_q, by_dv = integrate_jacobians(linearizer.layout, w, piece.duration * w)
        by_w, by_duration = piece.duration * by_dv, _by_duration(linearizer, scratch, piece, rule)
        rates = np.stack([w + by_w @ (by_duration - 0.5 * a), by_duration])  # the shift is (h − duration)/2
        for name, (dq, dv) in total.items():
            dv_next = _through(J, name, dq, dv)
            dw = dv_next + piece.shift * da[name]
            dq_next = np.tensordot(by_q, dq, axes=1) + np.tensordot(by_w, dw, axes=1)
            longer = -later[name] if piece.kind == "rest" else _meets_later(piece, name, dq_next, rates)
            later[name] = later[name] + longer
            total[name] = np.stack([dq_next, dv_next]) + np.multiply.outer(rates, longer)
    return total, determinate


def _drift_derivative(
    own: Own, scratch: RigidScratch, drift: Drift, start: Mapping[str, Array], names: Sequence[str], rule: GradientRule
) -> dict[str, Array]:
    """∂a/∂x of each input, shape (nv, ...)."""
    first, second = (own(scratch, step.tape, names, False, rule) for step in (drift.first, drift.second))
    out = {}
    for name, (dq, dv) in start.items():
        dv_first = _through(first, name, dq, dv)
        out[name] = (_through(second, name, dq, dv_first) - dv_first) / drift.duration
    return out


def _through(J: Jacobian, name: str, dq: Array, dv: Array) -> Array:
    """How v⁺ changes with an input that changes q and v as well."""
    out = np.tensordot(J["v", "q"], dq, axes=1) + np.tensordot(J["v", "v"], dv, axes=1)
    return np.asarray(out if name in ("q", "v") else out + J["v", name])


def _meets_later(piece: Piece, name: str, dq: Array, rates: Any) -> Array:
    """How much longer a flight lasts, given how its end changes with an input and with its duration."""
    assert piece.normal is not None
    wider = np.tensordot(piece.normal, dq, axes=1) + piece.gap_slopes.get(name, 0.0)
    return np.asarray(-wider / (piece.normal @ rates[0]))


def _by_duration(linearizer: Linearizer, scratch: RigidScratch, piece: Piece, rule: GradientRule) -> Array:
    """∂v⁺/∂h of a piece."""
    if piece.out.tape.second is not None:
        raise NotDifferentiable(
            "overlaps that the laws of contact cannot undo were undone apart from them in a step that was cut at an "
            "impact, which has no derivative: take the overlap out of the pose, or exclude the pair from collision"
        )
    memory = piece.out.tape.memory
    lin, _ = linearizer.linearize(scratch, memory, rule, with_u=False, with_turn=False)
    by_force = timestep_force(scratch.addresses, memory)
    d_impulse = -lin.A_inverse @ through_B(lin, (lin.Y @ by_force)[:, None])[:, 0]
    return np.asarray(lin.W @ (lin.W.T @ by_force) + lin.Y.T @ d_impulse)
