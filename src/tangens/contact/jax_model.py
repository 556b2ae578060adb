"""What the author of a contact model in JAX writes: one step as a pure function of arrays, and its derivative.

A `PureModel` holds the structure of a scene alone; all numbers come in as arguments. So one object, and all that is
compiled of it, serves every scene that differs in numbers only. `JaxEngine` makes an engine of it: single steps,
batches, tapes, Jacobians, reverse mode and the pure function for users of JAX.

Functions see float64 arrays of one step. They are compiled, mapped and differentiated by the engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tangens.contact.base import Point
from tangens.dynamics.layout import JointLayout
from tangens.dynamics.tangent_jax import difference, integrate

Array = jax.Array
Change = dict[str, Any]
"""A change of inputs by their names: "q" (in the tangent space), "v", "u", "tau" and parameters. What is not named does
not change."""


class Inputs(NamedTuple):
    """All numbers that a step depends on."""

    x: Any
    """A `Point` of JAX arrays: q, v, u, tau."""
    parameters: dict[str, Any]
    """What a derivative may be taken by, besides the state, controls and forces: arrays, or trees of them."""
    settings: dict[str, Any]
    """Numbers that nobody differentiates by: time step, tolerances and the like."""


class ContactArrays(NamedTuple):
    """Contacts as arrays of fixed size; rows that `touches` does not mark are none. The rest is as in `Contacts`."""

    touches: Array
    position: Array
    normal: Array
    distance: Array
    force: Array
    geom: Array
    activity: Array


class Solution(NamedTuple):
    """A step that has been taken."""

    q: Array
    v: Array
    converged: Array
    iterations: Array
    residual: Array
    contacts: tuple[ContactArrays, ...] = ()
    """One entry for each kind of contact, or what else suits the model."""
    memory: Any = ()
    """What `tangent` needs besides the inputs, and what the next step may start its solver from: a tree of arrays. It
    is kept in tapes, so the smaller, the better."""
    crowded: Array | bool = False
    """Whether the model had too little room for this step, see `JaxEngine.model`. The rest is then of no use."""
    unfinished: Array | bool = False
    """Whether the solver was told to pause before its end, see `JaxEngine.hurried`. The rest is then of no use."""
    relaxation: Array | float = 0.0
    """Where they had to be solved at a larger relaxation than was asked for: that one; else 0."""


class PureModel(ABC):
    """One contact model on scenes of one structure."""

    layout: JointLayout

    @abstractmethod
    def solve(self, inputs: Inputs, guess: Any = None) -> Solution:
        """Take a step, from the memory of another one if that is given."""

    def no_guess(self, inputs: Inputs) -> Any:
        """A memory that says that there is none to start from; of models that start from others. Only shapes count."""
        raise NotImplementedError

    def tangent(self, inputs: Inputs, v_next: Array, memory: Any, change: Change) -> tuple[Array, Array]:
        """How q⁺, in its tangent space, and v⁺ change along a change of the inputs: a linear function of it.

        Here, JAX differentiates `solve`. A model that iterates does better with the implicit function theorem; `memory`
        is then that of the equations to differentiate, and `v_next` the velocity that the step itself ended with.
        """
        del v_next, memory

        def moved(change: Change) -> tuple[Array, Array]:
            solution = self.solve(displaced(self.layout, inputs, change))
            end = jax.lax.stop_gradient(solution.q)
            return difference(self.layout, end, solution.q), solution.v

        nothing = jax.tree.map(jnp.zeros_like, change)
        result: tuple[Array, Array] = jax.jvp(moved, (nothing,), (change,))[1]
        return result

    def inverse_dynamics(self, inputs: Inputs, acceleration: Array) -> Array:
        """The tau of a step that ends with (v⁺ − v) / h = acceleration, where forces are a function of the motion."""
        raise NotImplementedError

    @property
    def is_explicit(self) -> bool:
        """Whether JAX can differentiate `solve` itself, more than once."""
        return type(self).tangent is PureModel.tangent


def displaced(layout: JointLayout, inputs: Inputs, change: Change) -> Inputs:
    """The inputs, moved by a change; differentiable by the change."""
    values, rest = inputs.x._asdict(), dict(change)
    for name in Point._fields:
        if name in rest:
            d = rest.pop(name)
            values[name] = integrate(layout, values[name], d) if name == "q" else values[name] + d
    moved = {name: jax.tree.map(jnp.add, inputs.parameters[name], d) for name, d in rest.items()}
    return inputs._replace(x=Point(**values), parameters=inputs.parameters | moved)
