"""Bounces at the moment they happen, inside the time step.

A discrete step bounces a body where it finds it: the higher it started, the deeper it may be in the floor, and where it
ends jumps with the number of steps it took to get there. Here a step is cut at each impact:

    x_c = S(x, c)  with c such that  gap(q_c) = 0,      x_i = S(x_c, 0),      x⁺ = S(x_i, h − c)

S is the engine's own step with a duration of its own; the impact itself takes none, or as good as none. Derivatives are
those of this very map: when the start changes by dx, the impact comes later by dc = −n·S_x·dx / n·S_c, with the
normal's row n, and the first piece lasts longer, the last one shorter. Bodies that meet at the very beginning of a step
have a first piece too, which takes no time: only its derivative counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.contact.base import Cotangent, Point
from tangens.contact.rigid.assembly.contacts import bouncing_normals
from tangens.contact.rigid.engine import RigidEngine, through_B
from tangens.contact.rigid.gradients.contact_parameters import gap_by_size, timestep_terms
from tangens.contact.rigid.gradients.placement import gap_by_placement
from tangens.contact.rigid.scratch import RigidScratch
from tangens.contact.rules import GradientRule
from tangens.errors import NotDifferentiable
from tangens.results import Contacts, Jacobian, Owner, SolverReport, Step, Switch

if TYPE_CHECKING:
    from tangens.contact.rigid.options import RigidContact
    from tangens.scene import Scene

Array = NDArray[np.float64]

ARRIVED = 1e-10  # a gap this small has closed [m]
_IMPACTS = 20  # within one step; what follows is left to the last piece
_REFINEMENTS = 30
_EXACT = 1e-14  # [m]
_INSTANT = 1e-12  # the duration of an impact [s]
_APPROACHES = 1e-6  # slower than this, bodies that touch do not meet [m/s]


class Piece(NamedTuple):
    """A part of a time step. A flight has the row of the normal that meets at its end, and an arrival its rates."""

    duration: float
    out: Step
    """Of an arrival, which leaves all as it is, the step after it."""
    normal: Array | None = None
    gap_slopes: Mapping[str, Array] = MappingProxyType({})
    """Of that gap, by parameters that move it even where nothing else does."""
    is_impact: bool = False
    rates: Array | None = None
    """Of an arrival: (v, acceleration), what a longer one would make of (q, v), shape (2, nv)."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Piece, (self.duration, self.out, self.normal, dict(self.gap_slopes), self.is_impact, self.rates)


class ResolvedImpacts(RigidEngine):
    """A rigid engine that cuts its steps at impacts of bodies that bounce. Its tapes are tuples of pieces."""

    def __init__(self, scene: Scene, options: RigidContact) -> None:
        # However fast bodies come, their contacts must be known before they meet.
        super().__init__(scene, replace(options, margin=np.inf))
        self.contact, self.owner = options, Owner(options, lambda: scene.fingerprint)

    def solve(self, scratch: RigidScratch, x: Point, guess: Array | None) -> Step:
        """Advance by one time step."""
        pieces = self._pieces(scratch, x, guess)
        last = pieces[-1].out
        if len(pieces) == 1:
            return Step(last.state, last._contacts, last._solver, pieces, last.guess, self.owner, last.failed)
        failed = any(piece.out.failed for piece in pieces)
        return Step(last.state, self._contacts(pieces), _worst(pieces), pieces, last.guess, self.owner, failed)

    def differentiate(
        self, scratch: RigidScratch, tape: Any, wrt: Sequence[str], with_force: bool, rule: GradientRule
    ) -> Jacobian:
        """Derivative of the whole step, impacts and their times included."""
        if len(tape) == 1:
            return super().differentiate(scratch, tape[0].out.tape, wrt, with_force, rule)
        if with_force:
            raise NotDifferentiable("forces of a step with impacts inside have no derivative: their times do")
        nv = self._sizes[1]
        total = {name: np.zeros((2, nv, *shape)) for name, shape in self._input_shapes(wrt).items()}
        for k, name in enumerate(("q", "v")):
            if name in total:
                total[name][k] = np.eye(nv)
        elapsed: dict[str, Array] = {name: np.zeros(block.shape[2:]) for name, block in total.items()}
        determinate = True
        for piece in tape:
            if piece.rates is not None:
                for name, before in total.items():
                    change = -_meets_later(piece, name, before) / (piece.normal @ piece.rates[0])
                    elapsed[name] = elapsed[name] + change
                    total[name] = before + np.multiply.outer(piece.rates, change)
                continue
            own = super().differentiate(scratch, piece.out.tape, tuple(dict.fromkeys(("q", "v", *wrt))), False, rule)
            determinate = determinate and own.determinate
            by_duration = self._by_duration(scratch, piece, rule)
            for name, before in total.items():
                after = np.stack([
                    np.tensordot(own[x, "q"], before[0], axes=1) + np.tensordot(own[x, "v"], before[1], axes=1)
                    + (own[x, name] if name not in ("q", "v") else 0.0)
                    for x in ("q", "v")
                ])  # fmt: skip
                if piece.is_impact:
                    change = np.zeros_like(elapsed[name])
                elif piece.normal is None:
                    change = -elapsed[name]
                else:
                    change = -_meets_later(piece, name, after) / (piece.normal @ by_duration[0])
                    elapsed[name] = elapsed[name] + change
                total[name] = after + np.multiply.outer(by_duration, change)
        return Jacobian(total, None, determinate, _worst(tape))

    def switch(self, tape: Any) -> Switch:
        """The nearest switch of any piece."""
        return min(
            (super(ResolvedImpacts, self).switch(piece.out.tape) for piece in tape), key=lambda near: near.distance
        )

    def has_other_answers(self, tape: Any) -> bool:
        """Whether the laws allow another v⁺ in any piece."""
        return any(super(ResolvedImpacts, self).has_other_answers(piece.out.tape) for piece in tape)

    def carry_back(
        self, scratch: RigidScratch, tape: Any, cotangent: Cotangent, wrt: Sequence[str], rule: GradientRule
    ) -> tuple[dict[str, Array], bool]:
        """Carry ∂L/∂(q⁺, v⁺) back through the whole step."""
        if len(tape) == 1:
            return super().carry_back(scratch, tape[0].out.tape, cotangent, wrt, rule)
        names = ("q", "v", "u", "tau", *wrt)
        J = self.differentiate(scratch, tape, names, cotangent.force is not None, rule)
        return {
            name: np.tensordot(cotangent.q, J["q", name], axes=1) + np.tensordot(cotangent.v, J["v", name], axes=1)
            for name in names
        }, J.determinate

    def _by_duration(self, scratch: RigidScratch, piece: Piece, rule: GradientRule) -> Array:
        """∂(q⁺, v⁺)/∂h of a piece, shape (2, nv)."""
        memory = piece.out.tape.memory
        lin, _ = self.linearize(scratch, memory, rule, with_u=False, with_turn=False)
        by_force, by_law = timestep_terms(scratch.addresses, memory, len(lin.active))
        by_law = through_B(lin, by_law[:, None])[:, 0]
        z = lin.W @ (lin.W.T @ by_force)
        dv = z - lin.Y.T @ (lin.A_inverse @ (through_B(lin, (lin.Y @ by_force)[:, None])[:, 0] + by_law))
        return np.stack([self.integration(lin.v_next, memory) @ dv + lin.v_next, dv])

    def _pieces(self, scratch: RigidScratch, x: Point, guess: Array | None) -> tuple[Piece, ...]:
        """The step, cut at its impacts."""
        left, undo, pieces = self._h, self._options.correction, list[Piece]()
        for _ in range(_IMPACTS):
            out = self.solve_for(scratch, x, guess, left, undo)
            normals = self._normals(scratch)
            if not out.failed and (there := _already_there(normals, x.v)) is not None:
                rates = np.stack([x.v, _acceleration(scratch)])
                slopes = self._gap_slopes(scratch, int(there[0]))
                impact = self.solve_for(scratch, x, guess, _INSTANT, 0.0)
                pieces += [Piece(0.0, impact, there[4:].copy(), slopes, rates=rates)]
                pieces += [Piece(_INSTANT, impact, is_impact=True)]
                x, guess = x._replace(q=impact.state.q, v=impact.state.v), impact.guess
                continue
            met = None if out.failed else _first_met(normals, out.state.v, left)
            flight = None if met is None else self._until_contact(scratch, x, guess, *met, left)
            if flight is None:
                pieces.append(Piece(left, out))
                return tuple(pieces)
            x, left = x._replace(q=flight.out.state.q, v=flight.out.state.v), left - flight.duration
            impact = self.solve_for(scratch, x, flight.out.guess, _INSTANT, 0.0)
            pieces += [flight, Piece(_INSTANT, impact, is_impact=True)]
            x, guess = x._replace(q=impact.state.q, v=impact.state.v), impact.guess
        pieces.append(Piece(left, self.solve_for(scratch, x, guess, left, undo)))
        return tuple(pieces)

    def _until_contact(
        self, scratch: RigidScratch, x: Point, guess: Array | None, duration: float, pair: tuple[int, int], left: float
    ) -> Piece | None:
        """The piece that ends where the pair meets; None if it does not within the time that is left."""
        undo = self._options.correction
        for _ in range(_REFINEMENTS):
            out = self.solve_for(scratch, x, guess, duration, undo)
            found = self._normals(scratch, out.state.q, out.state.v, duration)
            normals = [n for n in found if (int(n[2]), int(n[3])) == pair]
            if not normals:
                return None
            nearest = min(normals, key=lambda n: n[1])
            gap, row = nearest[1], nearest[4:]
            speed = row @ (2.0 * out.state.v - x.v)  # of the gap with the duration: v⁺ changes with it as well
            if abs(gap) <= _EXACT or speed >= 0.0:
                break
            longer = min(max(duration - gap / speed, 0.1 * duration), 0.5 * (duration + left))
            if longer == duration:
                break
            duration = longer
        if abs(gap) > ARRIVED:
            return None
        slopes = self._gap_slopes(scratch, int(nearest[0]))
        return Piece(duration, self.solve_for(scratch, x, guess, duration, undo), row.copy(), slopes)

    def _normals(
        self, scratch: RigidScratch, q: Array | None = None, v: Array | None = None, duration: float = 0.0
    ) -> Array:
        """Contacts with restitution, see `bouncing_normals`: of the step taken last, or at another configuration."""
        if q is not None and v is not None:
            scratch.place(q, v, duration)
        return bouncing_normals(scratch.addresses, int(scratch.data.ncon))

    def _gap_slopes(self, scratch: RigidScratch, contact: int) -> dict[str, Array]:
        """∂gap/∂size and ∂gap/∂placement of a contact that was found last."""
        found, table = scratch.data.contact, scratch.addresses
        (one, two), p, frame = found.geom[contact].tolist(), found.pos[contact], found.frame[contact]
        return {
            "size": gap_by_size(table, one, two, p, frame, float(found.dist[contact])),
            "placement": gap_by_placement(table, one, two, p, frame, self.long_tree),
        }

    def _contacts(self, pieces: Sequence[Piece]) -> Contacts:
        """Those of all pieces; forces are impulses over the whole step, so they add up."""
        pieces = [piece for piece in pieces if piece.rates is None]
        parts = [piece.out.contacts for piece in pieces]
        shares = [piece.duration / self._h for piece in pieces]
        kept = ("position", "normal", "distance", "geom")
        position, normal, distance, geom = (np.concatenate([getattr(part, name) for part in parts]) for name in kept)
        force = np.concatenate([share * part.force for share, part in zip(shares, parts, strict=True)])
        return Contacts(position, normal, distance, force, geom, tuple(m for part in parts for m in part.mode), None)

    def _input_shapes(self, wrt: Sequence[str]) -> dict[str, tuple[int, ...]]:
        _, nv, nu = self._sizes
        own = {"q": (nv,), "v": (nv,), "tau": (nv,), "u": (nu,)}
        return {name: own[name] if name in own else self._shapes[name] for name in wrt}


def _worst(pieces: Sequence[Piece]) -> SolverReport:
    return max((piece.out.solver for piece in pieces), key=lambda report: report.residual)


def _meets_later(piece: Piece, name: str, moved: Array) -> Array:
    """How much more is left of the gap that closes at the end of a piece, given how q is moved by an input."""
    assert piece.normal is not None
    return np.asarray(np.tensordot(piece.normal, moved[0], axes=1) + piece.gap_slopes.get(name, 0.0))


def _acceleration(scratch: RigidScratch) -> Array:
    """Under the forces that MuJoCo computed last, without contact."""
    m, d = scratch.model, scratch.data
    M = np.zeros((m.nv, m.nv))
    mujoco.mj_fullM(m, d, M)
    force = d.qfrc_passive + d.qfrc_actuator - d.qfrc_bias + d.qfrc_applied
    return np.asarray(np.linalg.solve(M, force), dtype=np.float64)


def _already_there(normals: Array, v: Array) -> Array | None:
    """The gap that has closed and closes fastest at the velocity that the step starts with."""
    there = [n for n in normals if abs(n[1]) <= ARRIVED and n[4:] @ v < -_APPROACHES]
    return min(there, key=lambda n: n[4:] @ v) if there else None


def _first_met(normals: Array, v: Array, left: float) -> tuple[float, tuple[int, int]] | None:
    """When the first of the open gaps closes at this velocity, and between which geoms."""
    first: tuple[float, tuple[int, int]] | None = None
    for n in normals:
        gap, speed = n[1], n[4:] @ v
        if gap > ARRIVED and gap + left * speed < 0.0 and (first is None or -gap / speed < first[0]):
            first = -gap / speed, (int(n[2]), int(n[3]))
    return first
