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
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.contact.base import ContactModel, Cotangent, Engine, Point, PureStep
from tangens.contact.rules import GradientRule
from tangens.dynamics.tangent import integrate, integrate_jacobians
from tangens.errors import OptionError
from tangens.results import DIVERGED, NO_CONTACTS, Contacts, Jacobian, SolverReport, Step
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
        object.__setattr__(self, "rules", self.model.rules)
        object.__setattr__(self, "takes", self.model.takes)

    def bind(self, scene: Scene) -> Engine:
        """An engine that averages the model's own."""
        return SmoothedEngine(scene, self)


class SmoothedTape(NamedTuple):
    """The samples' tapes, and where the mean step went from and to."""

    q: Array
    v_next: Array
    report: SolverReport
    samples: tuple[Any, ...]


class SmoothedEngine(Engine):
    """The mean of another engine's steps. As a guess, each sample has its own."""

    def __init__(self, scene: Scene, options: Smoothed) -> None:
        super().__init__(scene, options)
        self._engine, self._layout, self._h = options.model.bind(scene), scene.joint_layout, scene.timestep
        draws = np.random.default_rng(options.seed).normal(size=(2, options.samples // 2, scene.nv))
        q, v = options.scale_q * draws[0], options.scale_v * draws[1]
        self._scatter = list(zip(np.concatenate([q, -q]), np.concatenate([v, -v]), strict=True))

    def step(self, x: Point, guess: Any = None) -> Step:
        """The mean step, its contacts with their mean forces, and the report of the worst sample."""
        guesses = [None] * len(self._scatter) if guess is None else guess
        steps = [
            self._engine.step(x._replace(q=integrate(self._layout, x.q, dq), v=x.v + dv), own)
            for (dq, dv), own in zip(self._scatter, guesses, strict=True)
        ]
        if any(step.failed for step in steps):
            return Step(State(x.q, x.v), NO_CONTACTS, DIVERGED, None, None, self.owner, failed=True)
        v_next = np.mean([step.state.v for step in steps], axis=0)
        worst = max((step.solver for step in steps), key=lambda report: report.residual)
        converged, iterations = all(s.solver.converged for s in steps), sum(s.solver.iterations for s in steps)
        report = SolverReport(converged, iterations, *worst[2:])
        state = State(integrate(self._layout, x.q, self._h * v_next), v_next)
        tape = SmoothedTape(x.q.copy(), v_next, report, tuple(step.tape for step in steps))
        following = tuple(step.guess for step in steps)
        return Step(state, lambda: _mean_contacts([s.contacts for s in steps]), report, tape, following, self.owner)

    def jacobian(self, tape: SmoothedTape, wrt: Sequence[str], with_force: bool, rule: GradientRule) -> Jacobian:
        """The mean of the samples' derivatives."""
        del with_force
        q, total, determinate = tape.q, dict[str, Array](), True
        for (dq, _), sample in zip(self._scatter, tape.samples, strict=True):
            J = self._engine.jacobian(sample, wrt, False, rule)
            determinate = determinate and J.determinate
            for name in wrt:
                block = J["v", name]
                if name == "q":
                    block = block @ integrate_jacobians(self._layout, q, dq)[0]
                total[name] = total.get(name, 0.0) + block / len(self._scatter)
        by_q, by_dv = integrate_jacobians(self._layout, q, self._h * tape.v_next)
        blocks = {}
        for name, block in total.items():
            moved = self._h * np.tensordot(by_dv, block, axes=1)
            blocks[name] = np.stack([moved + by_q if name == "q" else moved, block])
        return Jacobian(blocks, None, determinate, tape.report)

    def pullback(
        self, tape: SmoothedTape, cotangent: Cotangent, wrt: Sequence[str], rule: GradientRule
    ) -> tuple[dict[str, Array], bool]:
        """The transpose of `jacobian`, sample by sample."""
        by_q, by_dv = integrate_jacobians(self._layout, tape.q, self._h * tape.v_next)
        at_v = cotangent.v + self._h * by_dv.T @ cotangent.q
        out, unique = dict[str, Array](), True
        for (shift, _), sample in zip(self._scatter, tape.samples, strict=True):
            back, certain = self._engine.pullback(sample, Cotangent(np.zeros(len(at_v)), at_v), wrt, rule)
            back["q"] = integrate_jacobians(self._layout, tape.q, shift)[0].T @ back["q"]
            unique = unique and certain
            for name, value in back.items():
                out[name] = out.get(name, 0.0) + value / len(self._scatter)
        out["q"] = out["q"] + by_q.T @ cotangent.q
        return out, unique

    def refused(self, tape: SmoothedTape) -> frozenset[str]:
        """Parameters by which some sample has no derivative."""
        return frozenset().union(*(self._engine.refused(sample) for sample in tape.samples))

    def function(self, rule: GradientRule) -> PureStep:
        """The mean of the model's own function over the scatter."""
        import jax

        from tangens.dynamics import tangent_jax

        own, layout = self._engine.function(rule), self._layout
        shifts, pushes = (np.stack(column) for column in zip(*self._scatter, strict=True))

        def step(parameters: Any, q: Any, v: Any, u: Any = None, tau: Any = None) -> tuple[Any, Any]:
            q = tangent_jax.normalised(layout, jax.numpy.asarray(q))

            def one(shift: Any, push: Any) -> Any:
                return own(parameters, tangent_jax.integrate(layout, q, shift), v + push, u, tau)[1]

            v_next = jax.vmap(one)(shifts.astype(q.dtype), pushes.astype(q.dtype)).mean(axis=0)
            return tangent_jax.integrate(layout, q, self._h * v_next), v_next

        return step


def _mean_contacts(samples: Sequence[Contacts]) -> Contacts:
    """One contact for each that some sample has, told apart by its geoms and its number among theirs.

    Forces are means over all samples, so that they add up to what moved the mean; places are means over those samples
    that have the contact, and `activity` is the share of these.
    """
    found: dict[tuple[int, int, int], list[tuple[Contacts, int]]] = {}
    for contacts in samples:
        count: dict[tuple[int, int], int] = {}
        for c, (one, two) in enumerate(contacts.geom.tolist()):
            number = count.get((one, two), 0)
            count[one, two] = number + 1
            found.setdefault((one, two, number), []).append((contacts, c))
    if not found:
        return NO_CONTACTS
    keys = sorted(found)

    def mean(field: str) -> Array:
        return np.array([np.mean([getattr(contacts, field)[c] for contacts, c in found[key]], axis=0) for key in keys])

    share = np.array([len(found[key]) / len(samples) for key in keys])
    normal = mean("normal")
    normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-12)
    geom = np.array([key[:2] for key in keys], dtype=np.int64)
    return Contacts(mean("position"), normal, mean("distance"), share[:, None] * mean("force"), geom, (), share)
