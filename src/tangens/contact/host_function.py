"""A host engine's step as a pure JAX function: a callback, with a derivative rule of its own.

The function takes (parameters, q, v, u, tau) and works under jit, grad, jacfwd, jacrev, vmap and scan. Forward and
reverse mode share one rule: the callback returns the Jacobian by those inputs that have a tangent, from the same solve
as the step itself, and products with it are JAX's to transpose. Batches (vmap) reach the engine as batches.

Quaternions in q may have any length: they are normalised first, so that derivatives in the space of all numbers of q
agree with differences. The host computes in double precision; results have the precision of q. There is no second
derivative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from numpy.typing import NDArray

from tangens.contact.base import Engine, Point, PureStep
from tangens.contact.host_engine import HostEngine
from tangens.contact.jax_function import first_order_only
from tangens.contact.rules import GradientRule
from tangens.dynamics.layout import JointLayout
from tangens.dynamics.tangent_jax import difference, integrate, normalised
from tangens.errors import NotDifferentiable, OptionError, SolverError, StateError
from tangens.results import Step

Array = NDArray[np.float64]
Named = dict[str, Any]


def host_function(engine: HostEngine, rule: GradientRule) -> PureStep:
    """(parameters, q, v, u, tau) -> (q⁺, v⁺)."""
    scene = engine.scene
    layout, sizes = scene.joint_layout, (scene.nq, scene.nv, scene.nu, scene.nv)
    if rule.reverse_only:
        raise NotDifferentiable(f"the gradient rule {rule.name!r} looks at a loss, so it has no JAX function")
    taken = _differentiable(_Lanes(engine, rule), layout)

    def step(parameters: Mapping[str, Any] | None, q: Any, v: Any, u: Any = None, tau: Any = None) -> tuple[Any, Any]:
        dtype = jnp.result_type(q, jnp.float32)
        given = _admitted(engine, parameters or {})
        for name, value, size in zip(Point._fields, (q, v, u, tau), sizes, strict=True):
            given[name] = jnp.zeros(size, dtype) if value is None else jnp.asarray(value, dtype)
            if given[name].shape != (size,):
                raise StateError(f"{name} has shape {given[name].shape}, this scene's has ({size},)")
        given["q"] = normalised(layout, given["q"])
        return taken(given)

    return step


def _admitted(engine: HostEngine, given: Mapping[str, Any]) -> Named:
    known = engine.scene.parameters
    for name, value in given.items():
        if name not in engine.contact.parameters:
            choice = ", ".join(engine.contact.parameters)
            raise OptionError(f"contact model {engine.contact.name!r} has no parameter {name!r}: choose from {choice}")
        if jnp.shape(value) != known[name].shape:
            raise OptionError(
                f"{name} must have the shape of this scene's, {known[name].shape}; got {jnp.shape(value)}"
            )
    return {name: jnp.asarray(value) for name, value in given.items()}


def _differentiable(lanes: _Lanes, layout: JointLayout) -> Callable[[Named], tuple[Any, Any]]:
    """The callback with its derivative rule, of inputs by name."""

    @jax.custom_jvp
    def step(given: Named) -> tuple[Any, Any]:
        q, v = given["q"], given["v"]
        like = (jax.ShapeDtypeStruct(q.shape, q.dtype), jax.ShapeDtypeStruct(v.shape, q.dtype))
        return jax.pure_callback(lanes.step, like, given, vmap_method="expand_dims")

    def step_jvp(primals: tuple[Named], tangents: tuple[Named]) -> Any:
        (given,), (changes,) = primals, tangents
        given = first_order_only(given)
        wrt = tuple(name for name, change in changes.items() if not isinstance(change, SymbolicZero))
        q, nv = given["q"], layout.nv
        like: Named = {"q": jax.ShapeDtypeStruct(q.shape, q.dtype), "v": jax.ShapeDtypeStruct((nv,), q.dtype)}
        for name in wrt:
            shape = (nv,) if name == "q" else given[name].shape
            like[f"by {name}"] = jax.ShapeDtypeStruct((2, nv, *shape), q.dtype)
        found = jax.pure_callback(lambda given: lanes.linearise(wrt, given), like, given, vmap_method="expand_dims")
        dq, dv = jnp.zeros(nv, q.dtype), jnp.zeros(nv, q.dtype)
        for name in wrt:
            change = changes[name].astype(q.dtype)
            if name == "q":  # q is normalised already
                change = jax.jvp(lambda moved: difference(layout, q, moved), (q,), (change,))[1]
            moved = jnp.tensordot(found[f"by {name}"], change, axes=change.ndim)
            dq, dv = dq + moved[0], dv + moved[1]
        lifted = jax.jvp(lambda d: integrate(layout, found["q"], d), (jnp.zeros_like(dq),), (dq,))[1]
        return (found["q"], found["v"]), (lifted, dv)

    step.defjvp(step_jvp, symbolic_zeros=True)
    return step


class _Lanes:
    """The host's side: arrays with any number of leading axes, one step for each place in them."""

    def __init__(self, engine: HostEngine, rule: GradientRule) -> None:
        self._engine, self._rule = engine, rule

    def step(self, given: Named) -> tuple[Array, Array]:
        """q⁺ and v⁺."""
        return self._gathered(given, lambda _, step: (step.state.q, step.state.v))

    def linearise(self, wrt: Sequence[str], given: Named) -> Named:
        """q⁺, v⁺ and the derivatives by some inputs, stacked over q⁺ and v⁺."""

        def derivatives(engine: Engine, step: Step) -> tuple[Array, ...]:
            J = engine.jacobian(step.tape, wrt, False, self._rule)
            return step.state.q, step.state.v, *(np.stack([J["q", name], J["v", name]]) for name in wrt)

        names = ("q", "v", *(f"by {name}" for name in wrt))
        return dict(zip(names, self._gathered(given, derivatives), strict=True))

    def _gathered(self, given: Named, result: Callable[[Engine, Step], tuple[Array, ...]]) -> Any:
        """The results of all lanes, in arrays of the precision of q."""
        axes, dtype = np.ndim(given["q"]) - 1, np.asarray(given["q"]).dtype
        # An input that is not batched has axes of length 1.
        shape = np.broadcast_shapes(*(np.shape(value)[:axes] for value in given.values()))
        count = math.prod(shape)
        flat: Named = {}
        for name, value in given.items():
            own = np.shape(value)[axes:]
            lanes = np.broadcast_to(np.asarray(value, dtype=np.float64), (*shape, *own))
            flat[name] = np.ascontiguousarray(lanes).reshape(count, *own)  # there may be no controls at all

        def one(i: int) -> tuple[Array, ...]:
            engine = self._engine.with_parameters(
                {name: value[i] for name, value in flat.items() if name not in Point._fields}
            )
            step = engine.step(Point(*(flat[name][i] for name in Point._fields)))
            if step.failed:
                raise SolverError(step.solver.status)
            return result(engine, step)

        rows = zip(*self._engine.each(one, count), strict=True)
        return tuple(np.stack(column).reshape(*shape, *column[0].shape).astype(dtype) for column in rows)
