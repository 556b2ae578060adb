"""Quasi-dynamic motion, several configurations at once: each command starts from rest, and is held for some steps.

`expand` takes a command from each configuration, and tells what commands would do where it ends, near the one at which
the fingers stay there. `OneByOne` does so with any simulator; `Together` needs a contact model in JAX, where many
configurations take little longer than one.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tangens.contact.interior.options import InteriorContact
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
        state = self._at_rest(q)
        for _ in range(self._hold):
            step = self._simulator.step(state, u)
            if not step.solver.converged:
                raise SolverError("the contact solver did not converge")
            state = step.state
        return state.q

    def _slope(self, q: Array) -> Array:
        state, u = self._at_rest(q), q[self._fingers]
        J = self._smooth.jacobian(state, u, wrt=("u",))
        dq, dv = J["q", "u"], J["v", "u"]
        for _ in range(self._hold - 1):
            state = self._smooth.step(state, u).state
            J = self._smooth.jacobian(state, u, wrt=("q", "v", "u"))
            dq, dv = (J[out, "q"] @ dq + J[out, "v"] @ dv + J[out, "u"] for out in ("q", "v"))
        return dq

    def _at_rest(self, q: Array) -> State:
        return State(q, np.zeros(self._simulator.scene.nv))


class Together:
    """A contact model in JAX, vectorised over `lanes` configurations and compiled once for all of them."""

    def __init__(self, simulator: Simulator, fingers: Indices, hold: int, lanes: int) -> None:
        import jax
        import jax.numpy as jnp

        from tangens.contact.interior.engine import compiled
        from tangens.contact.interior.function import Inputs, Solution, StepFunction

        assert isinstance(simulator.contact, InteriorContact)
        scene, options = simulator.scene, simulator.contact
        with jax.enable_x64(True):
            step = StepFunction(scene, options)

        def slope(solution: Solution, inputs: Inputs, dq: Any, dv: Any) -> tuple[Any, Any]:
            def column(dq: Any, dv: Any, du: Any) -> tuple[Any, Any]:
                return step.carried(solution, solution.v, inputs, {"q": dq, "v": dv, "u": du})

            return jax.vmap(column, 1, 1)(dq, dv, jnp.eye(scene.nu))

        # One function takes steps at either relaxation: compiling it takes long.
        self._solve, self._slope = compiled(jax.vmap(step.solve, (0, None))), compiled(jax.vmap(slope))
        self._scene, self._options = scene, options
        self._fingers, self._hold, self._lanes, self._jax = fingers, hold, lanes, jax

    def expand(self, q: Array, u: Array) -> Expansions:
        """From configurations (n, nq) at rest under commands (n, nu)."""
        parts = []
        for first in range(0, len(q), self._lanes):
            chosen = np.minimum(np.arange(first, first + self._lanes), len(q) - 1)  # another size would compile anew
            with self._jax.enable_x64(True):
                after, fine = self._end(q[chosen], u[chosen])
                by_u = self._slope_at(after)
            fine &= np.isfinite(by_u).all(axis=(1, 2))
            parts.append([part[: len(q) - first] for part in (np.where(fine[:, None], after, np.nan), by_u)])
        return Expansions(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def _end(self, q: Array, u: Array) -> tuple[Array, NDArray[np.bool_]]:
        """Where commands lead that are held, and whether all steps converged."""
        v, fine = np.zeros((len(q), self._scene.nv)), np.ones(len(q), bool)
        for _ in range(self._hold):
            solution = self._solve({"q": q, "v": v, "u": u}, self._options.relaxation)
            q, v, fine = solution.q, solution.v, fine & np.asarray(solution.outcome.converged)
        return np.array(q), fine

    def _slope_at(self, q: Array) -> Array:
        """The derivative by the command to stay, in relaxed steps."""
        inputs: dict[str, Any] = {"q": q, "v": np.zeros((len(q), self._scene.nv)), "u": q[:, self._fingers]}
        dq = dv = np.zeros((len(q), self._scene.nv, self._scene.nu))
        for _ in range(self._hold):
            solution = self._solve(inputs, self._options.smooth)
            dq, dv = self._slope(solution, inputs, dq, dv)
            inputs = {**inputs, "q": solution.q, "v": solution.v}
        return np.array(dq)
