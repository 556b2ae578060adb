"""A contact model's step as a pure JAX function for users: jit it, map it, scan it, differentiate it.

Quaternions in q may have any length: they are normalised first, and derivatives are those of the whole function, in the
space of all numbers of q. Results have the precision of q.

An explicit model computes in that precision, and JAX differentiates it, more than once. Others solve equations: they
work in double precision, whatever JAX is set to, and have first derivatives, forward and reverse, by their own
`tangent`; a second derivative is refused. Their derivative is a matrix, made where the step is taken: what reverse mode
has to transpose are products with it, which keep their precision outside of here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tangens.contact.base import Point, PureStep
from tangens.contact.jax_derivatives import rows_of
from tangens.contact.jax_model import Inputs, PureModel
from tangens.dynamics.layout import JointLayout
from tangens.dynamics.tangent_jax import difference, integrate, normalised
from tangens.errors import NotDifferentiable, OptionError, StateError

Array = jax.Array
Named = dict[str, Any]
Taken = Callable[[Named], tuple[Array, Array]]
"""A step from q, v, u, tau and those parameters that are given, by name."""


def pure_step(
    model: PureModel, single: PureModel, own: Named, settings: Named, smooth: Named | None, nu: int
) -> PureStep:
    """(parameters, q, v, u, tau) -> (q⁺, v⁺), with `own` for the parameters that are not given.

    `single` is for explicit models where JAX is set to single precision: constants that it has traced in one precision
    are not to be seen in another. `smooth` are the settings of the equations that are differentiated, if not those of
    the step.
    """
    layout = model.layout
    sizes = (layout.nq, layout.nv, nu, layout.nv)
    taken = _explicit(model, single, own, settings) if model.is_explicit else _implicit(model, own, settings, smooth)

    def step(
        parameters: Mapping[str, Any] | None, q: Any, v: Any, u: Any = None, tau: Any = None
    ) -> tuple[Array, Array]:
        given = _admitted(own, parameters or {})
        for name, value, size in zip(Point._fields, (q, v, u, tau), sizes, strict=True):
            given[name] = jnp.zeros(size) if value is None else jnp.asarray(value)
            if given[name].shape != (size,):
                raise StateError(f"{name} has shape {given[name].shape}, this scene's has ({size},)")
        return taken(given)

    return step


def _explicit(model: PureModel, single: PureModel, own: Named, settings: Named) -> Taken:
    def step(given: Named) -> tuple[Array, Array]:
        dtype = _dtype(given)
        here, defaults = _cast(given, dtype), _cast(own, dtype)
        here["q"] = normalised(model.layout, here["q"])
        solution = (model if jnp.zeros(()).dtype == jnp.float64 else single).solve(
            _inputs(here, defaults, _cast_floats(settings, dtype))
        )
        return solution.q.astype(dtype), solution.v.astype(dtype)

    return step


def _implicit(model: PureModel, own: Named, settings: Named, smooth: Named | None) -> Taken:
    def solve(given: Named) -> Any:
        raw = _cast(given, jnp.float64)
        inputs = _inputs({**raw, "q": normalised(model.layout, raw["q"])}, own, settings)
        return raw, inputs, model.solve(inputs)

    @jax.custom_jvp
    def step(given: Named) -> tuple[Array, Array]:
        with jax.enable_x64(True):
            _, _, solution = solve(given)
            return solution.q.astype(_dtype(given)), solution.v.astype(_dtype(given))

    @step.defjvp
    def rule(primals: tuple[Named], tangents: tuple[Named]) -> Any:
        (given,), (change,) = primals, tangents
        with jax.enable_x64(True):
            raw, inputs, solution = solve(first_order_only(given))
            equations, memory = inputs, solution.memory
            if smooth is not None:
                equations = inputs._replace(settings=smooth)
                memory = model.solve(equations).memory
            rows = rows_of(model, tuple(given), equations, solution.v, memory)
            rows["q"] = rows["q"] @ _into_tangent(model.layout, raw["q"])
            dtype, rows = _dtype(given), _out_of_tangent(model.layout, solution.q, rows)
            rows, q, v = _cast((rows, solution.q, solution.v), dtype)
        ends = _product(rows, _cast(change, dtype))
        return (q, v), (ends[: len(q)], ends[len(q) :])

    return step


@jax.custom_jvp
def first_order_only(x: Any) -> Any:
    """The same, but a second derivative is refused."""
    return x


@first_order_only.defjvp
def _refuse(primals: Any, tangents: Any) -> Any:
    raise NotDifferentiable(
        "this contact model has first derivatives only: its step cannot be differentiated twice (take differences of "
        "its gradient, or an explicit model)"
    )


def _inputs(given: Named, own: Named, settings: Named) -> Inputs:
    parameters = {name: given.get(name, value) for name, value in own.items()}
    return Inputs(Point(*(given[name] for name in Point._fields)), parameters, settings)


def _product(rows: Named, change: Named) -> Array:
    """The rows of a derivative by each input times a change of the inputs."""
    blocks, changes = jax.tree.leaves(rows), jax.tree.leaves(change)
    return sum(jnp.tensordot(a, b, jnp.ndim(b)) for a, b in zip(blocks, changes, strict=True))  # type: ignore[return-value]


def _into_tangent(layout: JointLayout, q: Array) -> Array:
    """How the configuration moves with the plain numbers of q, which need not be normalised, (nv, nq)."""
    here = normalised(layout, q)
    return jax.jacfwd(lambda q: difference(layout, here, normalised(layout, q)))(q)


def _out_of_tangent(layout: JointLayout, q_next: Array, rows: Named) -> Named:
    """Rows of the plain numbers of q⁺, and of v⁺, from those in the tangent space: (nq + nv, ...)."""
    nv = layout.nv
    lift = jax.jacfwd(lambda d: integrate(layout, q_next, d))(jnp.zeros(nv))
    lifted: Named = jax.tree.map(lambda rows: jnp.concatenate([jnp.tensordot(lift, rows[:nv], 1), rows[nv:]]), rows)
    return lifted


def _dtype(given: Named) -> Any:
    return jnp.result_type(given["q"], jnp.float32)


def _cast(tree: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(dtype), tree)


def _cast_floats(settings: Named, dtype: Any) -> Named:
    return {
        name: value.astype(dtype) if jnp.issubdtype(value.dtype, jnp.floating) else value
        for name, value in settings.items()
    }


def _admitted(own: Named, given: Mapping[str, Any]) -> Named:
    """Parameters that are given, of the shapes that they have in the scene."""
    out: Named = {}
    for name, value in given.items():
        if name not in own:
            raise OptionError(f"no parameter {name!r}: choose from {', '.join(own)}")
        whole = {**own[name], **value} if isinstance(own[name], Mapping) else value  # some elements may be given
        out[name] = jax.tree.map(jnp.asarray, whole)
        ours, theirs = (_structure(tree) for tree in (own[name], out[name]))
        if ours != theirs:
            raise OptionError(f"{name} must have the shape of this scene's, {ours[1]}; got {theirs[1]}")
    return out


def _structure(tree: Any) -> tuple[Any, Sequence[tuple[int, ...]]]:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [jnp.shape(leaf) for leaf in leaves]
