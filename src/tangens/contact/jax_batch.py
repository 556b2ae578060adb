"""Steps of many states at once, for models in JAX: in portions, since each size of a portion is compiled for itself.

A portion is done when its slowest step is, so slow steps pause and are taken again, together, if the model can. Steps
that turn out to be crowded are taken again with more room. What becomes of one state does not depend on the others
beyond rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from tangens.contact.base import Point
from tangens.contact.batch import Steps
from tangens.contact.jax_derivatives import jacobian_of
from tangens.contact.jax_model import ContactArrays, Inputs, PureModel, Solution
from tangens.contact.rules import GradientRule
from tangens.errors import OptionError
from tangens.results import NO_CONTACTS, Contacts

if TYPE_CHECKING:
    from tangens.contact.jax_engine import JaxEngine

Array = NDArray[np.float64]

LANES = 32
"""Steps in a portion, unless told otherwise: batches of cubes are quickest, per step, in portions of 16 to 64."""

_BEYOND_REASON = 1e10
"""Residuals are relative to the forces at work, or in metres. Solvers that stop early leave 1 or less; those that keep
their last finite numbers under forces of 1e300 N leave this and more."""


class Portion(NamedTuple):
    """Some steps of a batch, and what their derivatives need."""

    rows: NDArray[np.intp]
    """Which steps of the batch; the lanes that follow repeat the last one."""
    inputs: Inputs
    solution: Solution
    room: int


def take_steps(engine: JaxEngine, x: Point, parameters: Mapping[str, Any] | None, lanes: int) -> Steps:
    """Take a step from each state."""
    given, portions = _admitted(engine, x, parameters or {}, lanes), list[Portion]()
    with jax.enable_x64(True):
        hurried = engine.hurried() if len(x.q) > lanes else None
        waiting = [(np.arange(len(x.q)), engine.first_room, engine.settings if hurried is None else hurried)]
        while waiting:
            rows, room, settings = waiting.pop(0)
            crowded, unfinished = list[NDArray[np.intp]](), list[NDArray[np.intp]]()
            for first in range(0, len(rows), lanes):
                portion = _portion(engine, x, given, rows[first : first + lanes], room, lanes, settings)
                portions.append(portion)
                crowded.append(_marked(portion, portion.solution.crowded))
                unfinished.append(np.setdiff1d(_marked(portion, portion.solution.unfinished), crowded[-1]))
            if any(map(len, crowded)):
                waiting.append((np.concatenate(crowded), 2 * room, settings))
            if any(map(len, unfinished)):
                waiting.append((np.concatenate(unfinished), room, engine.settings))
    return _joined(len(x.q), portions)


def _marked(portion: Portion, flags: Any) -> NDArray[np.intp]:
    """Which steps of the batch a portion marks."""
    return portion.rows[np.broadcast_to(flags, len(portion.inputs.x.q))[: len(portion.rows)]]


def take_jacobians(engine: JaxEngine, steps: Steps, wrt: Sequence[str], rule: GradientRule) -> dict[str, Array]:
    """Blocks by each input, stacked over q⁺ and v⁺: (n, 2, nv, ...)."""
    blocks: dict[str, Array] = {}
    smooth = engine.smooth_settings(rule)
    with jax.enable_x64(True):
        for portion in steps.tape:
            inputs, solution = portion.inputs, portion.solution
            if smooth is not None:
                inputs = inputs._replace(settings=smooth)
                solution = _solve(engine, inputs, portion)
            run = _mapped(engine, "jacobian", portion, lambda model: jacobian_of(model, engine.known), 2)
            found = run(inputs, portion.solution.v, solution.memory)
            for name in wrt:
                block = np.asarray(found[name])
                out = blocks.setdefault(name, np.full((len(steps), *block.shape[1:]), np.nan))
                # A step that was crowded comes once more, in a later portion.
                out[portion.rows] = block[: len(portion.rows)]
    return blocks


def is_usable(q: Array, v: Array, residual: Array) -> NDArray[np.bool_]:
    """Whether a step has a result: it is finite, and what is left of its equations is not beyond reason."""
    usable: NDArray[np.bool_] = np.isfinite(q).all(-1) & np.isfinite(v).all(-1) & (residual < _BEYOND_REASON)
    return usable


def gathered(kinds: tuple[ContactArrays, ...]) -> Contacts:
    """The contacts that touch, one after the other."""
    rows = [[column[kind.touches] for column in kind[1:]] for kind in kinds]
    if not rows:
        return NO_CONTACTS
    position, normal, distance, force, geom, activity = (np.concatenate(column) for column in zip(*rows, strict=True))
    return Contacts(position, normal, distance, force, geom.astype(np.int64), (), activity)


def _admitted(engine: JaxEngine, x: Point, parameters: Mapping[str, Any], lanes: int) -> dict[str, Array]:
    if lanes < 1:
        raise OptionError(f"lanes={lanes!r} must be a positive number of steps")
    for name, value in parameters.items():
        own = engine.parameters.get(name)
        if not isinstance(own, jax.Array):
            raise OptionError(f"a batch has no parameter {name!r}: choose from {', '.join(engine.contact.parameters)}")
        if np.shape(value) != (len(x.q), *own.shape):
            raise OptionError(f"{name} must have shape {(len(x.q), *own.shape)}; got {np.shape(value)}")
    return {name: np.asarray(value, np.float64) for name, value in parameters.items()}


def _portion(
    engine: JaxEngine,
    x: Point,
    given: dict[str, Array],
    rows: NDArray[np.intp],
    room: int,
    lanes: int,
    settings: dict[str, Any],
) -> Portion:
    chosen = rows[np.minimum(np.arange(lanes), len(rows) - 1)]
    own = {name: value[chosen] for name, value in given.items()}
    inputs = Inputs(Point(*(a[chosen] for a in x)), engine.parameters | own, settings)
    empty = Portion(rows, inputs, None, room)  # type: ignore[arg-type]
    return empty._replace(solution=_solve(engine, inputs, empty))


def _solve(engine: JaxEngine, inputs: Inputs, portion: Portion) -> Solution:
    solution: Solution = _mapped(engine, "solve", portion, lambda model: model.solve, 0)(inputs)
    return solution


def _mapped(
    engine: JaxEngine, what: str, portion: Portion, make: Callable[[PureModel], Callable[..., Any]], more: int
) -> Callable[..., Any]:
    """A compiled function over all lanes; parameters that the whole batch shares are not repeated."""
    own = engine.parameters
    mapped = tuple(name for name, value in portion.inputs.parameters.items() if value is not own[name])
    axes = Inputs(Point(0, 0, 0, 0), {name: 0 if name in mapped else None for name in own}, None)  # type: ignore[arg-type]
    lanes = len(portion.inputs.x.q)
    return engine.compiled(
        what, portion.room, lambda model: jax.vmap(make(model), (axes, *[0] * more)), "batch", lanes, mapped
    )


def _joined(n: int, portions: list[Portion]) -> Steps:
    out: dict[str, Any] = {}
    for portion in portions:
        for name in ("q", "v", "converged", "iterations", "residual"):
            column = np.asarray(getattr(portion.solution, name))
            out.setdefault(name, np.zeros((n, *column.shape[1:]), column.dtype))[portion.rows] = column[
                : len(portion.rows)
            ]
    failed = ~is_usable(out["q"], out["v"], out["residual"])
    out["converged"] &= ~failed
    out["residual"][failed] = np.inf
    return Steps(failed=failed, tape=tuple(portions), find_contacts=partial(_contacts, portions, failed), **out)


def _contacts(portions: list[Portion], failed: NDArray[np.bool_], i: int) -> Contacts:
    if failed[i]:
        return NO_CONTACTS
    portion = next(portion for portion in reversed(portions) if i in portion.rows)  # what was crowded came once more
    lane = int(np.flatnonzero(portion.rows == i)[0])
    return gathered(jax.tree.map(lambda leaf: np.asarray(leaf)[lane], portion.solution.contacts))
