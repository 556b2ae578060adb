"""Optimal control: which controls make a motion cheap, subject to their limits.

    minimise  Σₜ running(t, xₜ, uₜ) + final(T, x_T)     with xₜ₊₁ = step(xₜ, uₜ),  lower ≤ u ≤ upper

A state x = (q, v) is a point of a manifold; its changes δx have 2·nv entries. Each control may be held for several
steps, which makes long motions problems of few unknowns. The methods see the motion in pieces of whole intervals:
`linearized` is how the end and the cost of a piece change with its start and its controls.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.errors import Error, OptionError, SolverError, StateError
from tangens.optimize.costs import Cost, Expansion
from tangens.results import Trajectory
from tangens.simulate import Simulator
from tangens.state import State

Array = NDArray[np.float64]


class ControlProblem:
    """Find controls u, shape (intervals, nu), of least cost.

    Args:
        simulator: any scene with actuators, any contact model.
        start: the initial state.
        horizon: number of steps T.
        running: terms of the cost of each step.
        final: terms of the cost of the last state.
        hold: number of steps for which each control is held; the last one may be held for fewer.
        lower: least controls, a number or one for each, besides the scene's control ranges, which always hold.
        upper: largest ones, likewise.

    """

    def __init__(
        self,
        simulator: Simulator,
        start: State,
        horizon: int,
        *,
        running: Cost | Iterable[Cost] = (),
        final: Cost | Iterable[Cost] = (),
        hold: int = 1,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
    ) -> None:
        if not isinstance(simulator, Simulator):
            raise OptionError(f"expected a tangens.Simulator; got {type(simulator).__name__}")
        if not simulator.scene.nu:
            raise OptionError("the scene has no actuators: load it with motors=True, or add some")
        simulator.rollout(start, 0)  # complains of a start that is not of this scene
        self.simulator, self.start = simulator, start
        self.horizon, self.hold = _count("horizon", horizon), _count("hold", hold)
        self.intervals = -(-self.horizon // self.hold)
        """Number of controls, one after the other."""
        self.lower, self.upper = control_limits(simulator, lower, upper)
        """Limits of the controls, shape (nu,); infinite where there are none."""
        self.nx, self.nu = 2 * simulator.scene.nv, simulator.scene.nu
        """Directions of a state, and of a control."""
        self._running = self._admit_terms("running", running, 0)
        self._final = self._admit_terms("final", final, self.horizon)

    # ------------------------------------------------------------------ controls

    def admit(self, controls: ArrayLike) -> Array:
        """`controls` as an array of shape (intervals, nu), moved to within the limits."""
        try:
            u = np.array(controls, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise StateError(f"controls is not an array of numbers ({error})") from None
        if u.shape != (self.intervals, self.nu):
            raise StateError(f"controls must have shape ({self.intervals}, {self.nu}), (intervals, nu); got {u.shape}")
        if not np.isfinite(u).all():
            raise StateError(f"controls[{', '.join(map(str, np.argwhere(~np.isfinite(u))[0]))}] is not finite")
        return self.clip(u)

    def clip(self, u: Array) -> Array:
        """`u`, shape (..., nu), moved to within the limits."""
        return np.clip(u, self.lower, self.upper)

    def projected(self, u: Array, gradient: Array) -> Array:
        """The gradient by u, shape (..., nu), without what the limits forbid to follow downhill."""
        blocked = ((u <= self.lower) & (gradient > 0)) | ((u >= self.upper) & (gradient < 0))
        return np.where(blocked, 0.0, gradient)

    def steps(self, first: int, last: int) -> range:
        """The steps of the intervals from `first` up to, but without, `last`."""
        return range(first * self.hold, min(last * self.hold, self.horizon))

    # ------------------------------------------------------------------ motions

    def rollout(self, controls: ArrayLike) -> Trajectory:
        """The motion under controls of shape (intervals, nu)."""
        return self.simulator.rollout(self.start, np.repeat(self.admit(controls), self.hold, axis=0)[: self.horizon])

    def cost(self, controls: ArrayLike) -> float:
        """The cost of controls of shape (intervals, nu); raises where they cannot be simulated."""
        return self.evaluate(self.admit(controls))

    def evaluate(self, u: Array) -> float:
        """The same, of controls known to be in order."""
        state, total = self.start, 0.0
        for k in range(self.intervals):
            states, cost = self.piece(state, u[k : k + 1], k)
            state, total = states[-1], total + cost
        return total + self.final_cost(state)

    def piece(self, start: State, u: Array, first: int) -> tuple[list[State], float]:
        """The states of the intervals from `first` on, one for each row of u, and their running cost."""
        states, cost, out = [start], 0.0, None
        for t in self.steps(first, first + len(u)):
            control = u[t // self.hold - first]
            cost += self._value(self._running, t, states[-1], control)
            out = self.simulator.step(states[-1], control, guess=out)
            states.append(out.state)
        return states, cost

    def final_cost(self, state: State) -> float:
        """The cost of the last state."""
        return self._value(self._final, self.horizon, state, np.zeros(self.nu))

    # ------------------------------------------------------------------ derivatives

    def linearized(self, states: Sequence[State], u: Array, first: int) -> Linearized:
        """How a piece changes to first order, its cost to second: `states` and `u` as for `piece`."""
        nx, nu, width = self.nx, self.nu, self.nx + u.size
        by = np.eye(nx, width)  # of the current state, by the start of the piece and all its controls
        gradient, hessian, out, links = np.zeros(width), np.zeros((width, width)), None, list[Link]()
        for t, state in zip(self.steps(first, first + len(u)), states, strict=False):
            row = t // self.hold - first
            own = slice(nx + row * nu, nx + (row + 1) * nu)
            out = self.simulator.step(state, u[row], guess=out)
            J = self.simulator.jacobian(out, wrt=_WRT)
            e = self._expansion(self._running, t, state, u[row])
            if self._running:
                gradient += by.T @ e.x
                gradient[own] += e.u
                cross = e.ux @ by
                hessian += by.T @ e.xx @ by
                hessian[own] += cross
                hessian[:, own] += cross.T
                hessian[own, own] += e.uu
            A = np.concatenate([np.hstack([J["q", "q"], J["q", "v"]]), np.hstack([J["v", "q"], J["v", "v"]])])
            links.append(Link(state, u[row], own, by, A, e.x))
            by = A @ by
            by[:, own] += np.concatenate([J["q", "u"], J["v", "u"]])
        for name, derivative in (("motion", by), ("cost", gradient), ("cost", hessian)):
            _check_finite(name, derivative, first * self.hold)
        return Linearized(by[:, :nx], by[:, nx:], gradient, hessian, tuple(links))

    def motion_hessian(self, piece: Linearized, costate: Array) -> Array:
        """What the bend of the motion adds to the Hessian of a piece; the cost after it changes by costate·δx_end.

        Only for simulators that have a Hessian.
        """
        nv, hessian = self.nx // 2, np.zeros_like(piece.hessian)
        for link in reversed(piece.links):
            blocks = self.simulator.hessian(link.state, link.u, dq=costate[:nv], dv=costate[nv:], wrt=_WRT)
            step = np.block([[blocks[a, b] for b in _WRT] for a in _WRT])
            inputs = np.concatenate([link.by, np.eye(len(hessian))[link.own]])
            hessian += inputs.T @ step @ inputs
            costate = link.cost_by_state + link.A.T @ costate
        return hessian

    def final_expansion(self, state: State) -> Expansion:
        """Gradient and Hessian of the cost of the last state."""
        expansion = self._expansion(self._final, self.horizon, state, np.zeros(self.nu))
        for derivative in (expansion.x, expansion.xx):
            _check_finite("cost", derivative, self.horizon)
        return expansion

    # ------------------------------------------------------------------ states

    def difference(self, a: State, b: State) -> Array:
        """The change δx that takes a to b."""
        return np.concatenate([self.simulator.scene.difference(a.q, b.q), b.v - a.v])

    def difference_jacobians(self, a: State, b: State) -> tuple[Array, Array]:
        """∂difference(a, b)/∂a and /∂b."""
        out = -np.eye(self.nx), np.eye(self.nx)
        nv = self.nx // 2
        for J, block in zip(out, self.simulator.scene.difference_jacobians(a.q, b.q), strict=True):
            J[:nv, :nv] = block
        return out

    def moved(self, state: State, dx: Array) -> State:
        """The state changed by δx."""
        nv = self.nx // 2
        return State(self.simulator.scene.integrate(state.q, dx[:nv]), state.v + dx[nv:])

    # ------------------------------------------------------------------ terms of the cost

    def _value(self, terms: tuple[Cost, ...], t: int, state: State, u: Array) -> float:
        total = 0.0
        for term in terms:
            total += term.value(t, state, u)
        if not math.isfinite(total):
            raise SolverError(f"the cost of step {t} is not finite")
        return total

    def _expansion(self, terms: tuple[Cost, ...], t: int, state: State, u: Array) -> Expansion:
        if not terms:
            return Expansion.zeros(self.nx, self.nu)
        total = terms[0].expansion(t, state, u)
        for term in terms[1:]:
            total = total + term.expansion(t, state, u)
        return total

    def _admit_terms(self, name: str, terms: Cost | Iterable[Cost], t: int) -> tuple[Cost, ...]:
        """The terms as a tuple, each tried at the start for answers of the right shapes."""
        out = (terms,) if isinstance(terms, Cost) else tuple(terms)
        expected = Expansion.zeros(self.nx, self.nu)
        for term in out:
            kind = type(term).__name__
            if not isinstance(term, Cost):
                raise OptionError(f"{name}: {kind} is no cost; it lacks value(t, state, u) or expansion(t, state, u)")
            for when in {t, self.horizon - 1} if name == "running" else {t}:
                try:
                    value = term.value(when, self.start, np.zeros(self.nu))
                    found = term.expansion(when, self.start, np.zeros(self.nu))
                except (ValueError, IndexError) as error:
                    raise OptionError(f"{name}: {kind} does not fit the sizes of this scene ({error})") from error
                if np.shape(value) != ():
                    raise OptionError(f"{name}: value(...) of {kind} must be a number")
                for part, zeros in vars(expected).items():
                    shape = np.shape(getattr(found, part, ()))
                    if shape != zeros.shape:
                        raise OptionError(
                            f"{name}: expansion(...).{part} of {kind} must be {zeros.shape}; it is {shape}"
                        )
        return out

    def __repr__(self) -> str:
        return (
            f"ControlProblem({self.horizon} steps, {self.intervals} intervals, nu={self.nu}, "
            f"contact={self.simulator.contact.name!r})"
        )


_WRT = ("q", "v", "u")


class Link(NamedTuple):
    """One step of a piece."""

    state: State
    u: Array
    own: slice
    """Where its control is among the inputs of the piece."""
    by: Array
    """∂state/∂(start and controls of the piece)."""
    A: Array
    """∂(next state)/∂state."""
    cost_by_state: Array


class Linearized(NamedTuple):
    """A piece of the motion: δx_end = A δx + B δu, its cost changes by gradient·δ + ½ δ·hessian·δ, δ = (δx, δu)."""

    A: Array
    B: Array
    gradient: Array
    hessian: Array
    links: tuple[Link, ...]


def cost_or_infinity(problem: ControlProblem, u: Array) -> float:
    """The cost of controls known to be in order, infinite where they cannot be simulated."""
    try:
        return problem.evaluate(u)
    except OptionError:
        raise
    except Error:
        return math.inf


def _check_finite(name: str, derivative: Array, step: int) -> None:
    if not np.isfinite(derivative).all():
        raise SolverError(f"the derivative of the {name} from step {step} on is not finite")


def _count(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise OptionError(f"{name}={value!r} must be a whole number of at least 1")
    return int(value)


def control_limits(simulator: Simulator, lower: ArrayLike | None, upper: ArrayLike | None) -> tuple[Array, Array]:
    """The scene's control ranges, narrowed by `lower` and `upper`; infinite where there are none."""
    m, nu = simulator.scene.shared_model, simulator.scene.nu
    out = []
    for name, given, none, side in (("lower", lower, -np.inf, 0), ("upper", upper, np.inf, 1)):
        try:
            limit = np.array(np.broadcast_to(np.asarray(none if given is None else given, dtype=np.float64), nu))
        except (TypeError, ValueError):
            raise OptionError(f"{name}={given!r} must be a number or {nu} of them") from None
        own = np.where(np.array(m.actuator_ctrllimited, dtype=bool), m.actuator_ctrlrange[:, side], none)
        out.append(np.maximum(limit, own) if side == 0 else np.minimum(limit, own))
    for i, actuator in enumerate(simulator.scene.actuator_names):
        if not out[0][i] < out[1][i]:
            raise OptionError(f"control {actuator or i}: lower {out[0][i]:g} must be less than upper {out[1][i]:g}")
    return out[0], out[1]
