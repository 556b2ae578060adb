"""What a simulator hands back: steps, trajectories and derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.errors import OptionError
from tangens.state import State

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Contacts:
    """Where bodies touch, and the forces there. World frame, SI; `len(contacts)` is n."""

    position: Array
    """Contact points [m], shape (n, 3)."""
    normal: Array
    """Unit normals from geom 0 to geom 1, shape (n, 3)."""
    distance: Array
    """Gap [m], negative when overlapping, shape (n,)."""
    force: Array
    """What geom 0's body exerts on geom 1's [N], shape (n, 3)."""
    geom: NDArray[np.integer[Any]]
    """Indices of the two geoms, shape (n, 2)."""
    mode: tuple[str, ...]
    """"breaking", "sticking" or "sliding", where the model has modes."""
    activity: Array | None = None
    """How much each contact takes part, where the model has no modes, shape (n,)."""

    def __len__(self) -> int:
        return len(self.distance)

    def __repr__(self) -> str:
        if not len(self):
            return "Contacts(none)"
        carried = int(np.any(self.force != 0.0, axis=1).sum())
        return f"Contacts({len(self)}, {carried} with force, smallest gap {self.distance.min():.3g} m)"


NO_CONTACTS = Contacts(
    np.zeros((0, 3)), np.zeros((0, 3)), np.zeros(0), np.zeros((0, 3)), np.zeros((0, 2), dtype=np.int64), ()
)


class SolverReport(NamedTuple):
    """How well the step's equations were solved."""

    converged: bool
    iterations: int
    residual: float
    """The worst violation of the contact laws, as a velocity [m/s]."""
    signorini: float = 0.0
    """Of Signorini's law alone: bodies that approach or pull [m/s]."""
    cone: float = 0.0
    """Of the friction cones alone: impulse outside [N·s]."""
    dissipation: float = 0.0
    """Of maximum dissipation alone: energy that friction should have taken [J]."""
    method: str = ""
    """What found the impulses, if there were any: for `ncp` "newton" or "admm"; for `lcp` "guess" (all contacts did
    as in the step before), "pivoting" or, where that failed, "fallback"."""
    relaxed: float = 0.0
    """Where overlaps or errors of equalities cannot be undone under the laws of contact, since bodies or friction hold
    them, they are undone apart from these laws, as far as they can be: the largest velocity that was asked for [m/s].
    Else 0."""

    relaxation: float = 0.0
    """Where no solution was found at the relaxation asked for: the larger one at which the step was solved, as a last
    resort; `converged` is then false. Else 0."""

    @property
    def failed(self) -> bool:
        """Whether the step has no usable result: no solution, or numbers that are not finite or beyond reason."""
        return not math.isfinite(self.residual)

    @property
    def status(self) -> str:
        """What became of the step, in a sentence."""
        if self.failed:
            return (
                "the step ended in numbers that are not finite, or beyond reason, or found no solution at all: the "
                "forces or velocities are too large for its time step. Use a smaller timestep, more damping or "
                "armature, or smaller controls"
            )
        if self.relaxation > 0:
            return (
                f"no solution was found at the relaxation asked for: the result is one at relaxation="
                f"{self.relaxation:.2g}, after {self.iterations} iterations"
            )
        if not self.converged:
            return (
                f"the contact solver stopped after {self.iterations} iterations with a residual of "
                f"{self.residual:.2g}: the result is the best found, not the solution"
            )
        if self.relaxed:
            return (
                "converged; overlaps that the laws of contact cannot undo are relieved apart from them: up to "
                f"{self.relaxed:.2g} m/s were asked for"
            )
        return "converged"


class Switch(NamedTuple):
    """The nearest place where a law of contact switches, and with it the derivative."""

    distance: float
    """How far a velocity is from it [m/s, rad/s]: infinite where a model has no switches."""
    kind: str
    """"contact" (closes or opens), "friction" (begins or ceases to slide), "limit" or "dry friction"."""
    where: str
    """Whose law it is: the two geoms, or the joint or tendon."""
    step: int | None = None
    """Which step of a trajectory."""

    def __str__(self) -> str:
        if not math.isfinite(self.distance):
            return "no switch"
        step = "" if self.step is None else f" in step {self.step}"
        return f"{self.kind} of {self.where}{step}, {self.distance:.2g} m/s away"


NO_SWITCH = Switch(math.inf, "", "")

EXPLICIT = SolverReport(converged=True, iterations=0, residual=0.0)
"""The report of a step that needs no iterative solver."""
DIVERGED = SolverReport(converged=False, iterations=0, residual=math.inf)
"""The report of one that ended in numbers that are not finite."""


class Step:
    """The result of one time step. `Simulator.jacobian(step)` differentiates it without solving again."""

    __slots__ = ("_contacts", "_solver", "failed", "guess", "owner", "state", "tape")

    def __init__(
        self,
        state: State,
        contacts: Contacts | Callable[[], Contacts],
        solver: SolverReport | Callable[[], SolverReport],
        tape: Any = None,
        guess: Any = None,
        owner: Owner | None = None,
        failed: bool = False,
    ) -> None:
        self.state = state
        """Where the scene is after the step."""
        self._contacts = contacts
        self._solver = solver
        self.tape = tape
        """What the derivative of this step needs; for the engine that made it."""
        self.guess = guess
        """What the step after this one may start its solver from."""
        self.owner = owner
        """Which scene and model it is a step of."""
        self.failed = failed
        """Whether it has no usable result; `solver.status` says why."""

    @property
    def solver(self) -> SolverReport:
        """How well the contact problem was solved."""
        if not isinstance(self._solver, SolverReport):
            self._solver = self._solver()
        return self._solver

    @property
    def contacts(self) -> Contacts:
        """Where bodies touch, and the forces there; put together when first asked for."""
        if not isinstance(self._contacts, Contacts):
            self._contacts = self._contacts()
        return self._contacts

    def without_tape(self) -> Step:
        """The same step, to be differentiated only after it has been taken again."""
        return Step(self.state, self._contacts, self._solver, None, self.guess, self.owner, self.failed)

    def __reduce__(self) -> tuple[type[Step], tuple[Any, ...]]:
        return Step, (self.state, self.contacts, self.solver, self.tape, self.guess, self.owner, self.failed)

    def __repr__(self) -> str:
        return f"Step(state={self.state!r}, contacts={len(self.contacts)}, solver={self.solver!r})"


class Owner:
    """A scene and a contact model, as what a tape belongs to. Equal in another process, too."""

    __slots__ = ("_fingerprint", "contact")

    def __init__(self, contact: Any, fingerprint: str | Callable[[], str]) -> None:
        self.contact = contact
        self._fingerprint = fingerprint

    @property
    def fingerprint(self) -> str:
        """Of the scene; computed when two owners are first compared."""
        if not isinstance(self._fingerprint, str):
            self._fingerprint = self._fingerprint()
        return self._fingerprint

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Owner) and self.contact == other.contact and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.contact)

    def __reduce__(self) -> tuple[type[Owner], tuple[Any, str]]:
        return Owner, (self.contact, self.fingerprint)


class MissingBlock(OptionError, KeyError):  # noqa: N818  (a KeyError, so that `get` and `in` work as on any mapping)
    """A block that a Jacobian was not asked for."""

    __str__ = Exception.__str__  # KeyError would quote the message


def _none() -> bool:
    return False


class Jacobian(Mapping[tuple[str, str], Array]):
    """Derivatives of one step's outputs by its inputs: `J["v", "q"]` is ∂v⁺/∂q.

    Configurations count in the tangent space, so the q-blocks are nv wide and nv tall. A block by a parameter
    has the parameter's shape behind the nv rows: `J["v", "com"]` is (nv, nbody, 3). Contact forces, where they were
    asked for, are in the order of `Step.contacts`: `J["force", "q"]` is (n, 3, nv).
    """

    __slots__ = ("_find_others", "_force", "_inputs", "_others", "_solver", "_switch", "determinate")

    def __init__(
        self,
        inputs: Mapping[str, Array],
        force: Mapping[str, Array] | None = None,
        determinate: bool = True,
        solver: SolverReport | Callable[[], SolverReport] = EXPLICIT,
    ) -> None:
        self._inputs = inputs  # per input: its blocks stacked over q and v, shape (2, nv, ...)
        self._force = force
        self.determinate = determinate
        """Whether the laws determine v⁺ at the modes that the step has."""
        self._solver = solver
        self._switch: Switch | Callable[[], Switch] = NO_SWITCH
        self._find_others: Callable[[], bool] = _none
        self._others: bool | None = None

    def with_doubts(self, switch: Callable[[], Switch], others: Callable[[], bool]) -> Jacobian:
        """The same, with the ways to find the nearest switch and other answers when somebody asks."""
        self._switch, self._find_others = switch, others
        return self

    @property
    def unique(self) -> bool:
        """False where the contact laws leave v⁺ open: then these are the derivatives of one answer among many.

        Either the modes of the step do not determine it (a plate spinning on many points), or a search from other
        impulses finds another answer, with other modes (a box wedged in, two feet that stick or slide).
        """
        if self.determinate and self._others is None:
            self._others = self._find_others()
        return self.determinate and not self._others

    @property
    def switch(self) -> Switch:
        """The nearest switch of a contact law: closer to it than changes of interest, this is one side of the truth."""
        if not isinstance(self._switch, Switch):
            self._switch = self._switch()
        return self._switch

    @property
    def converged(self) -> bool:
        """Whether the step did, see `solver`."""
        return self.solver.converged

    @property
    def solver(self) -> SolverReport:
        """The report of the step that is differentiated: where it did not converge, neither did this."""
        if not isinstance(self._solver, SolverReport):
            self._solver = self._solver()
        return self._solver

    @property
    def outputs(self) -> tuple[str, ...]:
        """What is differentiated."""
        return ("q", "v") if self._force is None else ("q", "v", "force")

    def __getitem__(self, key: tuple[str, str]) -> Array:
        try:
            output, name = key
            if output == "force" and self._force is not None:
                return self._force[name]
            return self._inputs[name][("q", "v").index(output)]
        except (KeyError, ValueError, TypeError):
            raise MissingBlock(
                f"this Jacobian has no block {key!r}: outputs are {self.outputs}, inputs {tuple(self._inputs)} "
                "(ask for others with wrt=..., and for contact forces with outputs=('q', 'v', 'force'))"
            ) from None

    def __contains__(self, key: object) -> bool:
        return key in tuple(self)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((output, name) for output in self.outputs for name in self._inputs)

    def __len__(self) -> int:
        return len(self.outputs) * len(self._inputs)

    def __repr__(self) -> str:
        blocks = ", ".join(f"{key}: {block.shape}" for key, block in self.items())
        return f"Jacobian({blocks})"


@dataclass(frozen=True, eq=False)
class Trajectory:
    """T steps from one state, with what drove them."""

    q: Array
    """Configurations, shape (T+1, nq)."""
    v: Array
    """Velocities, shape (T+1, nv)."""
    u: Array
    """Controls, shape (T, nu)."""
    tau: Array
    """Generalised forces added on top, shape (T, nv)."""
    steps: tuple[Step, ...]
    """The result of each step, T of them."""
    checkpoint: int | None = None
    """How many steps are taken again at a time, if their tapes were not kept."""

    @cached_property
    def contacts(self) -> tuple[Contacts, ...]:
        """Contacts of each step, T of them."""
        return tuple(step.contacts for step in self.steps)

    @cached_property
    def solver(self) -> tuple[SolverReport, ...]:
        """Solver report of each step, T of them."""
        return tuple(step.solver for step in self.steps)

    def __len__(self) -> int:
        return len(self.u)

    def state(self, t: int) -> State:
        """The state at time index t; -1 is the last."""
        return State(self.q[t], self.v[t])

    def __reduce__(self) -> tuple[Any, ...]:
        # Tapes are many times larger than what they are computed from.
        steps = tuple(step.without_tape() for step in self.steps)
        return Trajectory, (self.q, self.v, self.u, self.tau, steps, self.checkpoint)

    def __repr__(self) -> str:
        unsolved = sum(not report.converged for report in self.solver)
        most = max((len(contacts) for contacts in self.contacts), default=0)
        end = f", {unsolved} not converged" if unsolved else ""
        return f"Trajectory({len(self)} steps of {self.q.shape[1]} coordinates, at most {most} contacts{end})"


@dataclass(frozen=True)
class StateGradient:
    """Derivative of a scalar by a state, in the tangent space of q."""

    q: Array
    v: Array


@dataclass(frozen=True)
class Gradients:
    """Derivative of a scalar loss by everything that shaped a trajectory."""

    state: StateGradient
    """By the initial state."""
    controls: Array
    """By u, shape (T, nu)."""
    tau: Array
    """By the added generalised forces, shape (T, nv)."""
    parameters: dict[str, Array]
    """By each parameter asked for, in the parameter's own shape."""
    converged: bool = True
    """Whether every step on the way did: `trajectory.solver` says which did not."""
    determinate: bool = True
    """Whether the laws determine every v⁺ on the way at the modes of its step."""
    find_switch: Callable[[], Switch] = field(default=lambda: NO_SWITCH, repr=False)
    """How `switch` is found when somebody asks."""
    find_others: Callable[[], bool] = field(default=_none, repr=False)
    """How other answers are, likewise."""

    @cached_property
    def unique(self) -> bool:
        """Whether every v⁺ on the way was, see `Jacobian.unique`."""
        return self.determinate and not self.find_others()

    @cached_property
    def switch(self) -> Switch:
        """The nearest switch of a contact law on the way, see `Jacobian.switch`, and the step that has it."""
        return self.find_switch()
