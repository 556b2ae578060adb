"""A contact model's step as a pure JAX function for users: jit it, map it, scan it, differentiate it.

Quaternions in q may have any length: they are normalised first, and derivatives are those of the whole function, in the
space of all numbers of q. The work is done in double precision, whatever the precision of q, which results have.

An explicit model is differentiated by JAX, to any order. Others have first derivatives, forward and reverse, by their
own `tangent`; a second derivative is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tangens.contact.base import Point, PureStep
from tangens.contact.jax_model import Inputs, PureModel
from tangens.dynamics.layout import JointLayout
from tangens.dynamics.tangent_jax import difference, integrate
from tangens.errors import NotDifferentiable, OptionError, StateError

Array = jax.Array
Named = dict[str, Any]


def pure_step(model: PureModel, own: Named, settings: Named, smooth: Named | None, nu: int) -> PureStep:
    """(parameters, q, v, u, tau) -> (q⁺, v⁺), with `own` for the parameters that are not given.

    `smooth` are the settings of the equations that are differentiated, if not those of the step.
    """
    layout = model.layout
    sizes = (layout.nq, layout.nv, nu, layout.nv)
    taken = _plain(model, own, settings) if model.is_explicit else _implicit(model, own, settings, smooth)

    def step(
        parameters: Mapping[str, Any] | None, q: Any, v: Any, u: Any = None, tau: Any = None
    ) -> tuple[Array, Array]:
        dtype = jnp.result_type(jnp.asarray(q), jnp.float32)
        with jax.enable_x64(True):
            given = _admitted(own, parameters or {})
            x = Point(*(_vector(*entry) for entry in zip(Point._fields, (q, v, u, tau), sizes, strict=True)))
            q_next, v_next = taken(x._replace(q=_normalised(layout, x.q)), given)
            return q_next.astype(dtype), v_next.astype(dtype)

    return step


def _plain(model: PureModel, own: Named, settings: Named) -> Any:
    def step(x: Point, given: Named) -> tuple[Array, Array]:
        solution = model.solve(Inputs(x, own | given, settings))
        return solution.q, solution.v

    return step


def _implicit(model: PureModel, own: Named, settings: Named, smooth: Named | None) -> Any:
    """The same with the model's own derivative."""

    @jax.custom_jvp
    def step(x: Point, given: Named) -> tuple[Array, Array]:
        solution = model.solve(Inputs(x, own | given, settings))
        return solution.q, solution.v

    @step.defjvp
    def rule(primals: tuple[Point, Named], tangents: tuple[Point, Named]) -> Any:
        with jax.enable_x64(True):
            x, given = _first_order_only(primals)
            inputs = Inputs(x, own | given, settings)
            solution = relaxed = model.solve(inputs)
            if smooth is not None:
                inputs = inputs._replace(settings=smooth)
                relaxed = model.solve(inputs)
            dx, dgiven = tangents
            _, dq = jax.jvp(lambda q: difference(model.layout, x.q, q), (x.q,), (dx.q,))
            change = {"q": dq, "v": dx.v, "u": dx.u, "tau": dx.tau, **dgiven}
            dq, dv = model.tangent(inputs, solution.v, relaxed.memory, change)
            _, dq = jax.jvp(lambda d: integrate(model.layout, solution.q, d), (jnp.zeros_like(dq),), (dq,))
            return (solution.q, solution.v), (dq, dv)

    return step


@jax.custom_jvp
def _first_order_only(x: Any) -> Any:
    return x


@_first_order_only.defjvp
def _refuse(primals: Any, tangents: Any) -> Any:
    raise NotDifferentiable(
        "this contact model has first derivatives only: its step cannot be differentiated twice (use forward "
        "differences of its gradient, or an explicit model)"
    )


def _admitted(own: Named, given: Mapping[str, Any]) -> Named:
    """Parameters as float64 arrays of the right shapes."""
    out: Named = {}
    for name, value in given.items():
        if name not in own:
            raise OptionError(f"no parameter {name!r}: choose from {', '.join(own)}")
        whole = {**own[name], **value} if isinstance(own[name], Mapping) else value  # some elements may be given
        out[name] = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), whole)
        ours, theirs = (_structure(tree) for tree in (own[name], out[name]))
        if ours != theirs:
            raise OptionError(f"{name} must have the shape of this scene's, {ours[1]}; got {theirs[1]}")
    return out


def _structure(tree: Any) -> tuple[Any, list[tuple[int, ...]]]:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [jnp.shape(leaf) for leaf in leaves]


def _vector(name: str, value: Any, size: int) -> Any:
    vector = jnp.asarray(np.zeros(size) if value is None else value).astype(jnp.float64)
    if vector.shape != (size,):
        raise StateError(f"{name} has shape {vector.shape}, this scene's has ({size},)")
    return vector


def _normalised(layout: JointLayout, q: Any) -> Any:
    at = np.array(layout.quat_q, int)[:, None] + np.arange(4)
    quaternions = q[at]
    return q.at[at].set(quaternions / jnp.sqrt(jnp.sum(quaternions**2, axis=1, keepdims=True)))
