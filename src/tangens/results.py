"""What a simulator hands back: steps, trajectories and derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.errors import OptionError
from tangens.state import State

Array = NDArray[np.float64]


class Contacts(NamedTuple):
    """Where bodies touch, and the forces there. World frame, SI; n contacts."""

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
    activity: Array | None
    """How much each contact takes part, where the model has no modes, shape (n,)."""


NO_CONTACTS = Contacts(
    np.zeros((0, 3)), np.zeros((0, 3)), np.zeros(0), np.zeros((0, 3)), np.zeros((0, 2), dtype=np.int64), (), None
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


EXPLICIT = SolverReport(converged=True, iterations=0, residual=0.0)
"""The report of a step that needs no iterative solver."""


class Step:
    """The result of one time step."""

    __slots__ = ("_contacts", "_solver", "state")

    def __init__(
        self,
        state: State,
        contacts: Contacts | Callable[[], Contacts],
        solver: SolverReport | Callable[[], SolverReport],
    ) -> None:
        self.state = state
        """Where the scene is after the step."""
        self._contacts = contacts
        self._solver = solver

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

    def __repr__(self) -> str:
        return f"Step(state={self.state!r}, contacts={len(self.contacts.distance)}, solver={self.solver!r})"


class MissingBlock(OptionError, KeyError):  # noqa: N818  (a KeyError, so that `get` and `in` work as on any mapping)
    """A block that a Jacobian was not asked for."""

    __str__ = Exception.__str__  # KeyError would quote the message


class Jacobian(Mapping[tuple[str, str], Array]):
    """Derivatives of one step's outputs by its inputs: `J["v", "q"]` is ∂v⁺/∂q.

    Configurations count in the tangent space, so the q-blocks are nv wide and nv tall. A block by a parameter
    has the parameter's shape behind the nv rows: `J["v", "com"]` is (nv, nbody, 3). Contact forces, where they were
    asked for, are in the order of `Step.contacts`: `J["force", "q"]` is (n, 3, nv).
    """

    __slots__ = ("_force", "_inputs", "unique")

    def __init__(
        self, inputs: Mapping[str, Array], force: Mapping[str, Array] | None = None, unique: bool = True
    ) -> None:
        self._inputs = inputs  # per input: its blocks stacked over q and v, shape (2, nv, ...)
        self._force = force
        self.unique = unique
        """False where the contact laws leave v⁺ itself open (a box wedged in, a plate spinning on many points): then
        these are the derivatives of one answer among many."""

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


@dataclass(frozen=True)
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
    contacts: tuple[Contacts, ...]
    """Contacts of each step, T of them."""
    solver: tuple[SolverReport, ...]
    """Solver report of each step, T of them."""

    def __len__(self) -> int:
        return len(self.u)

    def state(self, t: int) -> State:
        """The state at time index t; -1 is the last."""
        return State(self.q[t], self.v[t])


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
