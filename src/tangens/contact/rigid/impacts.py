"""Bounces at the moment they happen, inside the time step.

A discrete step bounces a body where it finds it: the higher it started, the deeper it may be in the floor, and where it
ends jumps with the number of steps it took to get there. Here a step is cut at each impact:

    x_c = S(x, c)  with c such that  gap(q_c) = 0,      x_i = S(x_c, 0),      x⁺ = S(x_i, h − c)

S is the engine's own step with a duration of its own; the impact itself takes none, or as good as none. Derivatives are
those of this very map: when the start changes by dx, the impact comes later by dc = −n·S_x·dx / n·S_c, with the
normal's row n, and the first piece lasts longer, the last one shorter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.contact.rigid.engine import RigidEngine
from tangens.errors import NotDifferentiable
from tangens.results import Contacts, Jacobian, Step

if TYPE_CHECKING:
    from tangens.contact.rigid.model import RigidContact
    from tangens.scene import Scene

Array = NDArray[np.float64]

ARRIVED = 1e-10  # a gap this small has closed [m]
_IMPACTS = 20  # within one step; what follows is left to the last piece
_REFINEMENTS = 30
_EXACT = 1e-14  # [m]
_INSTANT = 1e-12  # the duration of an impact [s]


class Piece(NamedTuple):
    """A part of a time step. A flight has the row of the normal that meets at its end."""

    q: Array
    v: Array
    duration: float
    out: Step
    normal: Array | None = None
    gap_slopes: Mapping[str, Array] = MappingProxyType({})
    """Of that gap, by parameters that move it even where nothing else does."""
    is_impact: bool = False


class ResolvedImpacts:
    """A rigid engine that cuts its steps at impacts of bodies that bounce."""

    def __init__(self, scene: Scene, options: RigidContact) -> None:
        # However fast bodies come, their contacts must be known before they meet.
        self._engine = RigidEngine(scene, replace(options, margin=np.inf))
        self._h = scene.timestep

    def step(self, q: Array, v: Array, u: Array, tau: Array) -> Step:
        """Advance by one time step."""
        pieces = list(self._pieces(q, v, u, tau))
        last = pieces[-1].out
        if len(pieces) == 1:
            return last
        worst = max((piece.out.solver for piece in pieces), key=lambda report: report.residual)
        return Step(last.state, self._contacts(pieces), worst)

    def jacobian(self, q: Array, v: Array, u: Array, tau: Array, wrt: Sequence[str], with_force: bool) -> Jacobian:
        """Derivative of the whole step, impacts and their times included."""
        pieces = list(self._pieces(q, v, u, tau))
        if len(pieces) == 1:
            return self._engine.jacobian(q, v, u, tau, wrt, with_force)
        if with_force:
            raise NotDifferentiable("forces of a step with impacts inside have no derivative: their times do")
        nv = len(v)
        total = {name: np.zeros((2, nv, *shape)) for name, shape in self._shapes(wrt).items()}
        for k, name in enumerate(("q", "v")):
            if name in total:
                total[name][k] = np.eye(nv)
        elapsed: dict[str, Array] = {name: np.zeros(block.shape[2:]) for name, block in total.items()}
        unique = True
        for piece in pieces:
            self._engine.set_timestep(piece.duration, undo=not piece.is_impact)
            inputs = piece.q, piece.v, u, tau
            own = self._engine.jacobian(*inputs, tuple(dict.fromkeys(("q", "v", *wrt))), with_force=False)
            unique = unique and own.unique
            by_duration = self._engine.timestep_slope()
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
                    later = np.tensordot(piece.normal, after[0], axes=1)
                    later = later + piece.gap_slopes.get(name, 0.0)
                    change = -later / (piece.normal @ by_duration[0])
                    elapsed[name] = elapsed[name] + change
                total[name] = after + np.multiply.outer(by_duration, change)
        self._engine.set_timestep(self._h)
        return Jacobian(total, None, unique)

    def pullback(
        self, q: Array, v: Array, u: Array, tau: Array, dq: Array, dv: Array, dforce: Array | None, wrt: Sequence[str]
    ) -> dict[str, Array]:
        """Carry ∂L/∂(q⁺, v⁺) back through the whole step."""
        if len(list(self._pieces(q, v, u, tau))) == 1:
            return self._engine.pullback(q, v, u, tau, dq, dv, dforce, wrt)
        J = self.jacobian(q, v, u, tau, ("q", "v", "u", "tau", *wrt), with_force=dforce is not None)
        return {
            name: np.tensordot(dq, J["q", name], axes=1) + np.tensordot(dv, J["v", name], axes=1)
            for name in ("q", "v", "u", "tau", *wrt)
        }

    def _pieces(self, q: Array, v: Array, u: Array, tau: Array) -> Iterator[Piece]:
        """The step, cut at its impacts."""
        engine, left = self._engine, self._h
        for _ in range(_IMPACTS):
            engine.set_timestep(left)
            out = engine.step(q, v, u, tau)
            met = _first_met(engine.bouncing_normals(), out.state.v, left)
            if met is None:
                break
            duration, pair = met
            found = self._until_contact(q, v, u, tau, duration, pair, left)
            if found is None:
                break
            yield found
            q, v, left = found.out.state.q, found.out.state.v, left - found.duration
            engine.set_timestep(_INSTANT, undo=False)
            impact = engine.step(q, v, u, tau)
            yield Piece(q, v, _INSTANT, impact, is_impact=True)
            q, v = impact.state.q, impact.state.v
        engine.set_timestep(left)
        yield Piece(q, v, left, engine.step(q, v, u, tau))
        engine.set_timestep(self._h)

    def _until_contact(
        self, q: Array, v: Array, u: Array, tau: Array, duration: float, pair: tuple[int, int], left: float
    ) -> Piece | None:
        """The piece that ends where the pair meets; None if it does not within the time that is left."""
        engine = self._engine
        for _ in range(_REFINEMENTS):
            engine.set_timestep(duration)
            out = engine.step(q, v, u, tau)
            normals = [n for n in engine.bouncing_normals(out.state.q) if (int(n[2]), int(n[3])) == pair]
            if not normals:
                return None
            nearest = min(normals, key=lambda n: n[1])
            gap, row = nearest[1], nearest[4:]
            speed = row @ (2.0 * out.state.v - v)  # of the gap with the duration: v⁺ changes with it as well
            if abs(gap) <= _EXACT or speed >= 0.0:
                break
            longer = min(max(duration - gap / speed, 0.1 * duration), 0.5 * (duration + left))
            if longer == duration:
                break
            duration = longer
        if abs(gap) > ARRIVED:
            return None
        slopes = engine.gap_slopes(int(nearest[0]))
        engine.set_timestep(duration)
        return Piece(q, v, duration, engine.step(q, v, u, tau), row.copy(), slopes)

    def _contacts(self, pieces: Sequence[Piece]) -> Contacts:
        """Those of all pieces; forces are impulses over the whole step, so they add up."""
        parts = [piece.out.contacts for piece in pieces]
        shares = [piece.duration / self._h for piece in pieces]
        kept = ("position", "normal", "distance", "geom")
        position, normal, distance, geom = (np.concatenate([getattr(part, name) for part in parts]) for name in kept)
        force = np.concatenate([share * part.force for share, part in zip(shares, parts, strict=True)])
        return Contacts(position, normal, distance, force, geom, tuple(m for part in parts for m in part.mode), None)

    def _shapes(self, wrt: Sequence[str]) -> dict[str, tuple[int, ...]]:
        nv, nu = self._engine.sizes
        own = {"q": (nv,), "v": (nv,), "tau": (nv,), "u": (nu,)}
        return {name: own[name] if name in own else self._engine.parameter_shape(name) for name in wrt}


def _first_met(normals: Array, v: Array, left: float) -> tuple[float, tuple[int, int]] | None:
    """When the first of the open gaps closes at this velocity, and between which geoms."""
    first: tuple[float, tuple[int, int]] | None = None
    for n in normals:
        gap, speed = n[1], n[4:] @ v
        if gap > ARRIVED and gap + left * speed < 0.0 and (first is None or -gap / speed < first[0]):
            first = -gap / speed, (int(n[2]), int(n[3]))
    return first
