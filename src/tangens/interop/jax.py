"""A simulator's step as a pure JAX function.

>>> import jax, tangens as tg
>>> sim = tg.Simulator(tg.scenes.arm())
>>> f = tg.interop.jax.step(sim)
>>> state = sim.initial_state("home")
>>> q, v = f(None, state.q, state.v, None, None)
>>> q.shape, v.shape
((6,), (6,))
"""

from __future__ import annotations

from tangens.contact.base import PureStep
from tangens.contact.rules import GradientRule
from tangens.simulate import Simulator

__all__ = ["step"]


def step(simulator: Simulator, gradient: str | GradientRule | None = None) -> PureStep:
    """(parameters, q, v, u, tau) -> (q⁺, v⁺), for `jit`, `grad`, `jacfwd`, `jacrev`, `vmap` and `scan`.

    `parameters` maps names of scene parameters to arrays of their shape; None, or a name left out, is the scene's own
    value. u and tau may be None. Derivatives are by all numbers of q, quaternions included, which are normalised
    first; they follow the simulator's gradient rule unless another one is given.

    Models in JAX run natively, on whatever device JAX uses. `ncp`, `lcp` and motion without contact call back to the
    host, a whole batch at a time: a step that fails there raises an error. With JAX's default precision, results are
    rounded to single precision: `jax.config.update("jax_enable_x64", True)` keeps them whole.
    """
    return simulator.engine.function(simulator.rule(gradient))
