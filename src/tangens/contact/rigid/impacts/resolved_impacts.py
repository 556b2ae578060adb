"""Bounces at the moment they happen, inside the time step.

A discrete step bounces a body where it finds it: the higher it started, the deeper it may be in the floor, and where it
ends jumps with the number of steps it took to get there. Here a step is cut at each impact, see `pieces`; the impact
itself takes no time. `impact_derivatives` has the derivative of this very map.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tangens.contact.base import Cotangent, Point
from tangens.contact.rigid.assembly.contacts import bouncing_normals
from tangens.contact.rigid.assembly.targets import APPROACHES
from tangens.contact.rigid.engine import RigidEngine
from tangens.contact.rigid.gradients.contact_parameters import gap_by_size
from tangens.contact.rigid.gradients.placement import gap_by_placement
from tangens.contact.rigid.impacts.impact_derivatives import input_shapes, total_derivative
from tangens.contact.rigid.impacts.meetings import ARRIVED, already_there, first_met
from tangens.contact.rigid.impacts.pieces import CutStep, Drift, Piece
from tangens.contact.rigid.memory.settings import ARRIVAL, HORIZON
from tangens.contact.rigid.memory.tape import Solved
from tangens.contact.rigid.problem.contact_problem import BREAKING
from tangens.contact.rigid.results import geom_names
from tangens.contact.rigid.scratch import RigidScratch
from tangens.contact.rules import GradientRule, OtherSide
from tangens.dynamics.tangent import integrate
from tangens.errors import NotDifferentiable
from tangens.results import Contacts, Jacobian, Owner, SolverReport, Step, Switch
from tangens.state import State

if TYPE_CHECKING:
    from tangens.contact.rigid.options import RigidContact
    from tangens.scene import Scene

Array = NDArray[np.float64]

_IMPACTS = 20  # within one step; what follows is left to the last piece
_REFINEMENTS = 30
_EXACT = 1e-14  # [m]
_INSTANT = 1e-12  # the duration of an impact: forces and open gaps do not count [s]
_AT_ONCE = -1.0  # the horizon of an impact: only those take part that touch
_SHORT = 0.1  # of a time step, to tell an acceleration: bounces that last no longer than this are over
_SHORTER = 1e-5  # of a time step: as short as differences of velocities can tell an acceleration


class ResolvedImpacts(RigidEngine):
    """A rigid engine that cuts its steps at impacts of bodies that bounce. Its tapes are `CutStep`s."""

    def __init__(self, scene: Scene, options: RigidContact) -> None:
        # However fast bodies come, their contacts must be known before they meet.
        super().__init__(scene, replace(options, margin=np.inf))
        self.contact, self.owner = options, Owner(options, lambda: scene.fingerprint)

    # ------------------------------------------------------------------ the step

    def solve(self, scratch: RigidScratch, x: Point, guess: Array | None) -> Step:
        """Advance by one time step."""
        out = self.solve_for(scratch, x, guess, self._h, self._options.correction)
        normals = self._normals(scratch)
        still = np.zeros_like(x.v)
        if out.failed or (
            already_there(normals, x.v) is None and first_met(normals, x.v, still, out.state.v, self._h) is None
        ):
            tape = CutStep((Piece("rest", self._h, out),), None)
            return Step(out.state, out._contacts, out._solver, tape, out.guess, self.owner, out.failed)
        drift = self._drift(scratch, x)
        pieces, state = self._pieces(scratch, x, guess, drift)
        failed = any(piece.out.failed for piece in pieces)
        tape = CutStep(tuple(pieces), drift)
        return Step(state, self._contacts(pieces), _worst(pieces), tape, pieces[-1].out.guess, self.owner, failed)

    def _drift(self, scratch: RigidScratch, x: Point, arrival: float = -ARRIVED) -> Drift:
        """The acceleration without impacts."""
        short = _SHORT * self._h
        with scratch.changed(ARRIVAL, arrival):
            first = self._solve_piece(scratch, x, None, short)
            second = self._solve_piece(scratch, x._replace(v=first.state.v), None, short)
        return Drift(first, second, short, (second.state.v - first.state.v) / short)

    def _pieces(self, scratch: RigidScratch, x: Point, guess: Array | None, drift: Drift) -> tuple[list[Piece], State]:
        """The step, cut at its impacts, and where it ends."""
        left, half, pieces = self._h, 0.5 * self._h, list[Piece]()
        for _ in range(_IMPACTS):
            a, shift = drift.acceleration, half - 0.5 * left
            out = self._solve_piece(scratch, x, guess, left)
            normals, w = self._normals(scratch), x.v + half * a
            if out.failed:
                break
            if (there := already_there(normals, w)) is not None:
                pieces.append(self._arrival(scratch, x, w, there))
            else:
                met = first_met(normals, w, a, out.state.v + shift * a, left)
                flight = met and self._until_contact(scratch, x, guess, a, *met, left)
                if flight is None:
                    break
                pieces.append(flight)
                x, guess = self._after(x, flight, a), flight.out.guess
                left = max(left - flight.duration, _INSTANT)  # an impact may fall on the end of the step
            with scratch.changed(HORIZON, _AT_ONCE):
                impact = self.solve_for(scratch, x._replace(v=x.v + half * a), guess, _INSTANT, 0.0)
            drift, guess = self._drift(scratch, x._replace(v=impact.state.v)), impact.guess
            pieces.append(Piece("impact", _INSTANT, impact, drift=drift))
            x = x._replace(v=impact.state.v - half * drift.acceleration)
        else:  # what has bounced so often lies still
            w = x.v + half * drift.acceleration
            drift = self._drift(scratch, x._replace(v=w), math.inf)
            pieces[-1] = pieces[-1]._replace(drift=drift)
            with scratch.changed(ARRIVAL, math.inf):
                out = self._solve_piece(scratch, x._replace(v=w - half * drift.acceleration), guess, left)
        pieces.append(rest := Piece("rest", left, out, half - 0.5 * left))
        end = self._after(x, rest, drift.acceleration)
        return pieces, State.trusted(end.q, end.v)

    def _solve_piece(self, scratch: RigidScratch, x: Point, guess: Array | None, duration: float) -> Step:
        """Gaps close and overlaps are undone at the rate of a whole step, however short a piece is."""
        with scratch.changed(HORIZON, self._h):
            return self.solve_for(scratch, x, guess, duration, self._options.correction)

    def _after(self, x: Point, piece: Piece, a: Array) -> Point:
        """Where a piece ends."""
        v = piece.out.state.v
        if piece.shift == 0.0:
            return x._replace(q=piece.out.state.q, v=v)
        return x._replace(q=integrate(self._layout, x.q, piece.duration * (v + piece.shift * a)), v=v)

    def _arrival(self, scratch: RigidScratch, x: Point, w: Array, there: Array) -> Piece:
        """The flight to a contact that has closed already."""
        slopes = self._gap_slopes(scratch, int(there[0]))
        short = _SHORTER * self._h
        with scratch.changed(ARRIVAL, -ARRIVED):
            caught_up = self._solve_piece(scratch, x, None, short)
            on = self._solve_piece(scratch, x._replace(v=caught_up.state.v), None, short)
        rates = np.stack([w, (on.state.v - caught_up.state.v) / short])
        return Piece("arrival", 0.0, on, normal=there[4:].copy(), gap_slopes=slopes, rates=rates)

    def _until_contact(
        self, scratch: RigidScratch, x: Point, guess: Array | None, a: Array, duration: float, pair: tuple[int, int],
        left: float,
    ) -> Piece | None:  # fmt: skip
        """The piece that ends where the pair meets; None if it does not within the time that is left."""
        for _ in range(_REFINEMENTS):
            out = self._solve_piece(scratch, x, guess, duration)
            flight = Piece("flight", duration, out, 0.5 * (self._h - duration))
            end = self._after(x, flight, a)
            found = self._normals(scratch, end.q, end.v, duration)
            normals = [n for n in found if (int(n[2]), int(n[3])) == pair]
            if not normals:
                return None
            nearest = min(normals, key=lambda n: n[1])
            gap, row = nearest[1], nearest[4:]
            # of the gap with the duration: v⁺ changes with it as well
            speed = row @ (2.0 * end.v - x.v + (0.5 * self._h - duration) * a)
            if abs(gap) <= _EXACT or speed >= 0.0:
                break
            longer = min(max(duration - gap / speed, 0.1 * duration), 0.5 * (duration + left))
            if longer == duration:
                break
            duration = longer
        if abs(gap) > ARRIVED:
            return None
        return flight._replace(normal=row.copy(), gap_slopes=self._gap_slopes(scratch, int(nearest[0])))

    def _normals(
        self, scratch: RigidScratch, q: Array | None = None, v: Array | None = None, duration: float = 0.0
    ) -> Array:
        """Contacts with restitution, see `bouncing_normals`: of the step taken last, or at another configuration."""
        if q is not None and v is not None:
            scratch.place(q, v, duration)
        return bouncing_normals(scratch.addresses, scratch.contacts)

    def _gap_slopes(self, scratch: RigidScratch, contact: int) -> dict[str, Array]:
        """∂gap/∂size and ∂gap/∂placement of a contact that was found last."""
        found, table = scratch.data.contact, scratch.addresses
        (one, two), p, frame = found.geom[contact].tolist(), found.pos[contact], found.frame[contact]
        return {
            "size": gap_by_size(table, one, two, p, frame, float(found.dist[contact])),
            "placement": gap_by_placement(table, one, two, p, frame, self.linearizer.long_tree),
        }

    def _contacts(self, pieces: Sequence[Piece]) -> Contacts:
        """Those of all pieces; forces are impulses over the whole step, so they add up."""
        pieces = [piece for piece in pieces if piece.kind != "arrival"]
        parts = [piece.out.contacts for piece in pieces]
        shares = [piece.duration / self._h for piece in pieces]
        kept = ("position", "normal", "distance", "geom")
        position, normal, distance, geom = (np.concatenate([getattr(part, name) for part in parts]) for name in kept)
        force = np.concatenate([share * part.force for share, part in zip(shares, parts, strict=True)])
        return Contacts(position, normal, distance, force, geom, tuple(m for part in parts for m in part.mode), None)

    # ------------------------------------------------------------------ derivatives

    def differentiate(
        self, scratch: RigidScratch, tape: Any, wrt: Sequence[str], with_force: bool, rule: GradientRule
    ) -> Jacobian:
        """Derivative of the whole step, impacts and their times included."""
        if tape.drift is None:
            return super().differentiate(scratch, tape.pieces[0].out.tape, wrt, with_force, rule)
        if isinstance(rule, OtherSide):
            raise NotDifferentiable("a step with impacts inside has no derivative by the rule 'other-side'")
        if with_force:
            raise NotDifferentiable("forces of a step with impacts inside have no derivative: their times do")
        shapes = input_shapes(self._sizes, self.linearizer.shapes, wrt)
        blocks, determinate = total_derivative(
            self.linearizer, super().differentiate, scratch, tape, shapes, self._h, rule
        )
        return Jacobian(blocks, None, determinate, _worst(tape.pieces))

    def refused(self, tape: Any) -> frozenset[str]:
        """Parameters by which some piece has no derivative."""
        own = super().refused
        return frozenset().union(*(own(piece.out.tape) for piece in tape.pieces))

    def switch(self, tape: Any) -> Switch:
        """The nearest switch of any piece. An impact of several contacts is on one: any of them may come later."""
        own = super().switch
        near = min((own(piece.out.tape) for piece in tape.pieces), key=lambda near: near.distance)
        for piece in tape.pieces:
            if piece.kind == "impact" and len(pushing := np.flatnonzero(piece.out.contacts.force.any(axis=1))) > 1:
                geoms = piece.out.contacts.geom[pushing[-1]]
                return Switch(0.0, "contact", geom_names(self.scene.shared_model, geoms))
        return near

    def _bouncing_jumps(self, solved: Solved) -> Array:
        """Only what rests is on a switch: what meets does so at its own time."""
        out = np.full(len(solved.contacts), np.inf)
        blocks = solved.blocks[(solved.blocks["source"] >= 0) & (solved.blocks["mode"] != BREAKING)]
        contacts = solved.contacts[blocks["source"]]
        resting = blocks["source"][(contacts["bounces"] == 0) | (np.abs(contacts["target"]) <= APPROACHES)]
        out[resting] = super()._bouncing_jumps(solved)[resting]
        return out

    def has_other_answers(self, tape: Any) -> bool:
        """Whether the laws allow another v⁺ in any piece."""
        own = super().has_other_answers
        return any(own(piece.out.tape) for piece in tape.pieces)

    def carry_back(
        self, scratch: RigidScratch, tape: Any, cotangent: Cotangent, wrt: Sequence[str], rule: GradientRule
    ) -> tuple[dict[str, Array], bool]:
        """Carry ∂L/∂(q⁺, v⁺) back through the whole step."""
        if tape.drift is None:
            return super().carry_back(scratch, tape.pieces[0].out.tape, cotangent, wrt, rule)
        names = ("q", "v", "u", "tau", *wrt)
        J = self.differentiate(scratch, tape, names, cotangent.force is not None, rule)
        return {
            name: np.tensordot(cotangent.q, J["q", name], axes=1) + np.tensordot(cotangent.v, J["v", name], axes=1)
            for name in names
        }, J.determinate


def _worst(pieces: Sequence[Piece]) -> SolverReport:
    """The report of the piece that was solved worst, with the largest velocity that any asked for in vain."""
    reports = [piece.out.solver for piece in pieces]
    relaxed = max(report.relaxed for report in reports)
    return max(reports, key=lambda report: report.residual)._replace(relaxed=relaxed)
