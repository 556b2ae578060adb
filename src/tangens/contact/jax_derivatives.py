"""Derivatives of a step as functions to compile, made of a model's tangent map.

Reverse mode transposes it. The Jacobian does, too, for all its rows at once: inputs outnumber outputs, and one function
serves whatever is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tangens.contact.jax_model import Change, Inputs, PureModel, displaced
from tangens.dynamics.tangent_jax import difference


def pullback_of(model: PureModel, names: Sequence[str]) -> Callable[..., Change]:
    """(inputs, v⁺, memory, cotangents of q⁺ and v⁺) -> cotangents of the inputs."""

    def run(inputs: Inputs, v_next: Any, memory: Any, cotangent: Any) -> Change:
        return _transpose(model, names, inputs, v_next, memory)(cotangent)[0]

    return run


def jacobian_of(model: PureModel, names: Sequence[str]) -> Callable[..., Change]:
    """(inputs, v⁺, memory) -> the blocks by all inputs, stacked over q⁺ and v⁺: (2, nv, ...)."""
    nv = model.layout.nv

    def run(inputs: Inputs, v_next: Any, memory: Any) -> Change:
        rows = rows_of(model, names, inputs, v_next, memory)
        return {name: block.reshape(2, nv, *block.shape[1:]) for name, block in rows.items()}

    return run


def rows_of(model: PureModel, names: Sequence[str], inputs: Inputs, v_next: Any, memory: Any) -> Change:
    """The rows of q⁺, then those of v⁺, of the derivative by each input, (2 nv, ...)."""
    nv, rows = model.layout.nv, jnp.eye(2 * model.layout.nv)
    found: Change = jax.vmap(_transpose(model, names, inputs, v_next, memory))((rows[:, :nv], rows[:, nv:]))[0]
    return found


def _transpose(model: PureModel, names: Sequence[str], inputs: Inputs, v_next: Any, memory: Any) -> Any:
    values = {**inputs.x._asdict(), "q": inputs.x.v, **inputs.parameters}  # changes of q are in the tangent space

    def tangent(change: Change) -> Any:
        return model.tangent(inputs, v_next, memory, change)

    return jax.linear_transpose(tangent, jax.tree.map(jnp.zeros_like, {name: values[name] for name in names}))


def weighted_ends(model: PureModel, inputs: Inputs, cotangent: Any) -> Callable[[Change], Any]:
    """Change ↦ cotangents·(q⁺, v⁺), of the inputs moved by a change; q⁺ counts in its tangent space."""

    def of(change: Change) -> Any:
        solution = model.solve(displaced(model.layout, inputs, change))
        end = jax.lax.stop_gradient(solution.q)
        return cotangent[0] @ difference(model.layout, end, solution.q) + cotangent[1] @ solution.v

    return of


def hessian_of(model: PureModel, names: Sequence[str]) -> Callable[..., Any]:
    """(inputs, cotangents of q⁺ and v⁺) -> second derivatives by each two inputs, nested by their names."""

    def run(inputs: Inputs, cotangent: Any) -> Any:
        return jax.hessian(weighted_ends(model, inputs, cotangent))(_nothing(inputs, names))

    return run


def hessian_product_of(model: PureModel) -> Callable[..., Change]:
    """(inputs, cotangents, direction) -> the second derivative times the direction."""

    def run(inputs: Inputs, cotangent: Any, direction: Change) -> Change:
        gradient = jax.grad(weighted_ends(model, inputs, cotangent))
        found: Change = jax.jvp(gradient, (_nothing(inputs, tuple(direction)),), (direction,))[1]
        return found

    return run


def _nothing(inputs: Inputs, names: Sequence[str]) -> Change:
    values = {**inputs.x._asdict(), "q": inputs.x.v, **inputs.parameters}  # changes of q are in the tangent space
    return {name: jnp.zeros_like(values[name]) for name in names}
