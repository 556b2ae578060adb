"""Many steps at once: their results, and how engines take them that know single steps only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tangens.errors import OptionError
from tangens.results import Contacts, Step

if TYPE_CHECKING:
    from tangens.contact.base import Engine, Point
    from tangens.contact.rules import GradientRule

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Steps:
    """The results of n steps: arrays with a leading axis. Failure is data here; nothing raises."""

    q: Array
    v: Array
    converged: NDArray[np.bool_]
    failed: NDArray[np.bool_]
    """Where there is no usable result: numbers that are not finite."""
    iterations: NDArray[np.int32]
    residual: Array
    tape: Any
    """What derivatives need; for the engine that made it."""
    find_contacts: Callable[[int], Contacts]

    def contacts(self, i: int) -> Contacts:
        """Contacts of step i."""
        if not 0 <= i < len(self):
            raise IndexError(f"there are {len(self)} steps, none with the number {i}")
        return self.find_contacts(i)

    def __len__(self) -> int:
        return len(self.q)


Each = Callable[[Callable[[int], Any], int], list[Any]]
"""(task, n) -> [task(0), ..., task(n − 1)], one after the other or shared between threads."""


def take_one_by_one(engine: Engine, x: Point, parameters: Mapping[str, Any], each: Each) -> Steps:
    """A step from each row of a batch."""
    n, x = len(x.q), type(x)(*(np.ascontiguousarray(array, np.float64) for array in x))
    given = _admitted(engine, parameters, n)

    def one(i: int) -> tuple[Engine, Step]:
        own = engine.with_parameters({name: value[i] for name, value in given.items()})
        return own, own.step(type(x)(*(array[i] for array in x)))

    found = each(one, n)
    out = [step for _, step in found]
    reports = [step.solver for step in out]
    return Steps(
        q=np.array([step.state.q for step in out]).reshape(n, engine.scene.nq),
        v=np.array([step.state.v for step in out]).reshape(n, engine.scene.nv),
        converged=np.array([report.converged for report in reports], dtype=bool),
        failed=np.array([step.failed for step in out], dtype=bool),
        iterations=np.array([report.iterations for report in reports], dtype=np.int32),
        residual=np.array([report.residual for report in reports]),
        tape=found,
        find_contacts=lambda i: out[i].contacts,
    )


def differentiate_one_by_one(
    engine: Engine, steps: Steps, wrt: Sequence[str], rule: GradientRule, each: Each
) -> dict[str, Array]:
    """Blocks by each input, stacked over q⁺ and v⁺: (n, 2, nv, ...)."""

    def one(i: int) -> dict[str, Array] | None:
        own, step = steps.tape[i]
        if step.failed:
            return None
        J = own.jacobian(step.tape, wrt, False, rule)
        return {name: np.stack([J["q", name], J["v", name]]) for name in wrt}

    found = each(one, len(steps))
    out = {}
    for name in wrt:
        out[name] = np.full((len(steps), 2, *engine.derivative_shape(name)), np.nan)
        for i, blocks in enumerate(found):
            if blocks is not None:
                out[name][i] = blocks[name]
    return out


def _admitted(engine: Engine, parameters: Mapping[str, Any], n: int) -> dict[str, Array]:
    known = engine.scene.parameters
    for name, value in parameters.items():
        if name not in engine.contact.parameters:
            raise OptionError(f"a batch has no parameter {name!r}: choose from {', '.join(engine.contact.parameters)}")
        if np.shape(value) != (n, *known[name].shape):
            raise OptionError(f"{name} must have shape {(n, *known[name].shape)}; got {np.shape(value)}")
    return {name: np.asarray(value, np.float64) for name, value in parameters.items()}
