"""Randomised smoothing of a whole step, for any contact model.

Where a contact switches its mode, the exact derivative sees one side only. The smoothed step is the mean of the model's
steps from states scattered around the given one,

    v̄⁺(q, v) = mean of v⁺(q ⊕ ξᵢ, v + ηᵢ),        q⁺ = q ⊕ h·v̄⁺,

and its derivative is the mean of theirs: it sees both sides in proportion. The scatter is drawn once, in opposite
pairs, so the smoothed step is a function like any other, and what is differentiated is what `step` returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from tangens.contact.base import ContactModel, Engine
from tangens.dynamics.layout import JointLayout
from tangens.dynamics.tangent import integrate, integrate_jacobians
from tangens.errors import OptionError
from tangens.results import Jacobian, SolverReport, Step
from tangens.state import State

if TYPE_CHECKING:
    from tangens.scene import Scene

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Smoothed(ContactModel):
    """The mean of a contact model's steps around a state: `Smoothed(Ncp())`.

    Args:
        model: the contact model that is smoothed.
        scale_q: deviation of configurations, in the tangent space [m, rad].
        scale_v: deviation of velocities [m/s, rad/s].
        samples: number of states, in opposite pairs.
        seed: of the scatter.

    """

    name: ClassVar[str] = "smoothed"
    parameters: ClassVar[tuple[str, ...]] = ()

    model: ContactModel
    scale_q: float = 1e-4
    scale_v: float = 1e-2
    samples: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.model, ContactModel):
            raise OptionError(f"Smoothed takes a contact model such as Ncp(); got {self.model!r}")
        if self.samples < 2 or self.samples % 2:
            raise OptionError(f"Smoothed(samples={self.samples!r}) must be an even number: samples come in pairs")
        for name in ("scale_q", "scale_v"):
            if not 0 <= getattr(self, name) < np.inf:
                raise OptionError(f"Smoothed({name}={getattr(self, name)!r}) must be a finite number, at least 0")
        object.__setattr__(self, "parameters", self.model.parameters)

    def bind(self, scene: Scene) -> Engine:
        """An engine that averages the model's own."""
        return _SmoothedEngine(self, self.model.bind(scene), scene.joint_layout, scene.timestep)


class _SmoothedEngine:
    def __init__(self, options: Smoothed, engine: Engine, layout: JointLayout, timestep: float) -> None:
        self._engine, self._layout, self._h = engine, layout, timestep
        draws = np.random.default_rng(options.seed).normal(size=(2, options.samples // 2, layout.nv))
        q, v = options.scale_q * draws[0], options.scale_v * draws[1]
        self._scatter = list(zip(np.concatenate([q, -q]), np.concatenate([v, -v]), strict=True))

    def step(self, q: Array, v: Array, u: Array, tau: Array) -> Step:
        """The mean step; contacts are those of the state itself, the report that of the worst sample."""
        own = self._engine.step(q, v, u, tau)
        contacts = own.contacts
        steps = [self._engine.step(integrate(self._layout, q, dq), v + dv, u, tau) for dq, dv in self._scatter]
        v_next = np.mean([step.state.v for step in steps], axis=0)
        worst = max((step.solver for step in steps), key=lambda report: report.residual)
        report = SolverReport(
            all(step.solver.converged for step in steps), sum(step.solver.iterations for step in steps), *worst[2:]
        )
        return Step(State(integrate(self._layout, q, self._h * v_next), v_next), contacts, report)

    def jacobian(self, q: Array, v: Array, u: Array, tau: Array, wrt: Sequence[str], with_force: bool) -> Jacobian:
        """The mean of the samples' derivatives."""
        del with_force
        total: dict[str, Array] = {}
        v_next = np.zeros(len(v))
        unique = True
        for dq, dv in self._scatter:
            moved = integrate(self._layout, q, dq)
            v_next += self._engine.step(moved, v + dv, u, tau).state.v / len(self._scatter)
            J = self._engine.jacobian(moved, v + dv, u, tau, wrt, False)
            unique = unique and J.unique
            for name in wrt:
                block = J["v", name]
                if name == "q":
                    block = block @ integrate_jacobians(self._layout, q, dq)[0]
                total[name] = total.get(name, 0.0) + block / len(self._scatter)
        by_q, by_dv = integrate_jacobians(self._layout, q, self._h * v_next)
        blocks = {}
        for name, block in total.items():
            moved = self._h * np.tensordot(by_dv, block, axes=1)
            blocks[name] = np.stack([moved + by_q if name == "q" else moved, block])
        return Jacobian(blocks, unique=unique)

    def pullback(
        self, q: Array, v: Array, u: Array, tau: Array, dq: Array, dv: Array, dforce: Array | None, wrt: Sequence[str]
    ) -> dict[str, Array]:
        """The transpose of `jacobian`, sample by sample."""
        del dforce
        v_next = self.step(q, v, u, tau).state.v
        by_q, by_dv = integrate_jacobians(self._layout, q, self._h * v_next)
        at_v = dv + self._h * by_dv.T @ dq
        out: dict[str, Array] = {}
        for shift, push in self._scatter:
            moved = integrate(self._layout, q, shift)
            back = self._engine.pullback(moved, v + push, u, tau, np.zeros(len(v)), at_v, None, wrt)
            back["q"] = integrate_jacobians(self._layout, q, shift)[0].T @ back["q"]
            for name, value in back.items():
                out[name] = out.get(name, 0.0) + value / len(self._scatter)
        out["q"] = out["q"] + by_q.T @ dq
        return out
