"""Quasi-dynamic motion, several configurations at once: each command starts from rest, and is held for some steps.

`expand` takes a command from each configuration, and tells what commands would do where it ends, near the one at which
the fingers stay there. `OneByOne` does so with any simulator; `Together` needs a contact model in JAX, where many
configurations take little longer than one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tangens.contact.base import Point
from tangens.contact.interior.options import InteriorContact
from tangens.contact.rules import Relaxed
from tangens.errors import SolverError
from tangens.simulate import Simulator
from tangens.state import State

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


class Expansions(NamedTuple):
    """Where n commands lead; NaN for those that could not be simulated."""

    q: Array
    """Configurations, shape (n, nq)."""
    by_u: Array
    """∂q⁺/∂u there, at the command to stay, in the tangent space: (n, nv, nu)."""


class Stepper(Protocol):
    """Takes commands from many configurations."""

    def expand(self, q: Array, u: Array) -> Expansions:
        """From configurations (n, nq) at rest under commands (n, nu)."""
        ...


def stepper(simulator: Simulator, smooth: Simulator, fingers: Indices, hold: int, lanes: int) -> Stepper:
    """The quickest one for a simulator, with derivatives from `smooth`."""
    if isinstance(simulator.contact, InteriorContact) and smooth is simulator:
        return Together(simulator, fingers, hold, lanes)
    return OneByOne(simulator, smooth, fingers, hold)


class OneByOne:
    """Any simulator."""

    def __init__(self, simulator: Simulator, smooth: Simulator, fingers: Indices, hold: int) -> None:
        self._simulator, self._smooth, self._fingers, self._hold = simulator, smooth, fingers, hold

    def expand(self, q: Array, u: Array) -> Expansions:
        """From configurations (n, nq) at rest under commands (n, nu)."""
        scene = self._simulator.scene
        out = Expansions(np.full(q.shape, np.nan), np.full((len(q), scene.nv, scene.nu), np.nan))
        for i in range(len(q)):
            try:
                out.q[i] = self._end(q[i], u[i])
                out.by_u[i] = self._slope(out.q[i])
            except SolverError:
                out.q[i] = np.nan
        return out

    def _end(self, q: Array, u: Array) -> Array:
        step = self._simulator.step(self._at_rest(q), u)
        for held in range(self._hold):
            step = self._simulator.step(step, u) if held else step
            if not step.solver.converged:
                raise SolverError("the contact solver did not converge")
        return step.state.q

    def _slope(self, q: Array) -> Array:
        u = q[self._fingers]
        step = self._smooth.step(self._at_rest(q), u)
        J = self._smooth.jacobian(step, wrt=("u",))
        dq, dv = J["q", "u"], J["v", "u"]
        for _ in range(self._hold - 1):
            step = self._smooth.step(step, u)
            J = self._smooth.jacobian(step, wrt=("q", "v", "u"))
            dq, dv = (J[out, "q"] @ dq + J[out, "v"] @ dv + J[out, "u"] for out in ("q", "v"))
        return dq

    def _at_rest(self, q: Array) -> State:
        return State(q, np.zeros(self._simulator.scene.nv))


class Together:
    """A contact model in JAX, `lanes` configurations at a time."""

    def __init__(self, simulator: Simulator, fingers: Indices, hold: int, lanes: int) -> None:
        from tangens.contact.interior.engine import InteriorEngine

        assert isinstance(simulator.engine, InteriorEngine)
        scene, rule, contact = simulator.scene, simulator.gradient, simulator.engine.contact
        rho = rule.relaxation if isinstance(rule, Relaxed) else contact.relaxation
        # Derivatives are those of relaxed steps all along. A relaxation of its own compiles nothing anew.
        self._engine, self._relaxed = simulator.engine, InteriorEngine(scene, replace(contact, relaxation=rho))
        self._scene, self._fingers, self._hold, self._lanes = scene, fingers, hold, lanes

    def expand(self, q: Array, u: Array) -> Expansions:
        """From configurations (n, nq) at rest under commands (n, nu)."""
        after, fine = self._end(q, u)
        by_u = self._slope_at(after)
        fine &= np.isfinite(by_u).all(axis=(1, 2))
        return Expansions(np.where(fine[:, None], after, np.nan), by_u)

    def _end(self, q: Array, u: Array) -> tuple[Array, NDArray[np.bool_]]:
        """Where commands lead that are held, and whether all steps converged."""
        rest, fine = np.zeros((len(q), self._scene.nv)), np.ones(len(q), bool)
        v = rest
        for _ in range(self._hold):
            out = self._engine.steps(Point(q, v, u, rest), lanes=self._lanes)
            q, v, fine = out.q, out.v, fine & out.converged
        return q, fine

    def _slope_at(self, q: Array) -> Array:
        """The derivative by the command to stay, in relaxed steps."""
        u, rest = q[:, self._fingers], np.zeros((len(q), self._scene.nv))
        v, slope = rest, np.zeros((len(q), 2, self._scene.nv, self._scene.nu))  # of q, then of v
        for _ in range(self._hold):
            out = self._relaxed.steps(Point(q, v, u, rest), lanes=self._lanes)
            by = self._relaxed.jacobians(out, ("q", "v", "u"))
            slope = by["q"] @ slope[:, :1] + by["v"] @ slope[:, 1:] + by["u"]
            q, v = out.q, out.v
        return slope[:, 0]
