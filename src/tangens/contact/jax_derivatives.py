"""Derivatives of a step as functions to compile, made of a model's tangent map.

Reverse mode transposes it. The Jacobian does, too, for all its rows at once: inputs outnumber outputs, and one function
serves whatever is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tangens.contact.jax_model import Change, Inputs, PureModel


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
