"""A step of soft contact as a pure function of JAX, with first, second and third derivatives.

Those of explicit integrators are JAX's own, to any order; the implicit step has them by its last two Newton steps.

They flow to q, v, u, tau, mass, com, inertia, damping, armature, gravity, friction, size, and the points of clouds.
Frozen: what is derived from the scene (stiffness, damping, smoothing), where geoms sit on their bodies, joint ranges.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve

from tangens.contact.jax_model import Change, Inputs, PureModel, Solution, displaced
from tangens.contact.soft.contacts import report
from tangens.contact.soft.forces import Contact, Probed, SoftForces
from tangens.contact.soft.newton import Balance, balanced
from tangens.contact.soft.options import Soft
from tangens.contact.soft.table import SoftTable
from tangens.dynamics.smooth import SmoothDynamics
from tangens.dynamics.tangent_jax import integrate, integrate_jacobians
from tangens.scene import Scene

Array = jax.Array

_FARTHEST = 1e6
"""A step longer than this [m, rad] is beyond reason."""


class Taken(NamedTuple):
    """A step."""

    q: Array
    v: Array
    probed: Probed
    contact: Contact
    change: Array
    """Of the velocity since the one that `contact` is of."""
    residual: Array
    """How far from balance momentum is at the end, as a relative change of the velocity; 0 of explicit steps."""
    iterations: Array


class Numbers(NamedTuple):
    """Of an implicit step: what does not depend on the velocity at its end."""

    inputs: Inputs
    inertia: Array
    force: Array
    """Without contact."""
    probed: Probed


class SoftModel(PureModel):
    """Steps of `soft` on scenes of one structure; `scene` is any one of them."""

    def __init__(self, scene: Scene, contact: Soft, table: SoftTable) -> None:
        self.dynamics = SmoothDynamics(scene.shared_model)
        self.layout = self.dynamics.layout
        self.forces = SoftForces(scene.shared_model, self.dynamics.ancestry, contact, table)
        self._integrator = contact.integrator

    def solve(self, inputs: Inputs, guess: Any = None) -> Solution:
        """Take a step."""
        del guess
        taken = {"implicit": self._implicit, "euler": self._euler, "rk4": self._runge_kutta}[self._integrator](inputs)
        reasonable = jnp.max(jnp.abs(taken.v), initial=0.0) * inputs.settings["timestep"] < _FARTHEST
        residual = jnp.where(reasonable, taken.residual, jnp.inf).astype(taken.v.dtype)
        contacts = report(self.forces, inputs.settings, taken.probed, taken.contact, taken.change)
        converged = residual <= inputs.settings["tolerance"]
        return Solution(taken.q, taken.v, converged, taken.iterations, residual, contacts)

    def tangent(self, inputs: Inputs, v_next: Array, memory: Any, change: Change) -> tuple[Array, Array]:
        """Of an implicit step by the implicit function theorem; JAX differentiates the others."""
        if self._integrator != "implicit":
            return super().tangent(inputs, v_next, memory, change)

        def balance(change: Change) -> tuple[Array, Array]:
            here = self._balance(self._numbers(displaced(self.layout, inputs, change)), v_next, jnp.array(False))
            return here.missing, jax.lax.stop_gradient(here.slope)

        nothing = jax.tree.map(jnp.zeros_like, change)
        (_, slope), (missing, _) = jax.jvp(balance, (nothing,), (change,))
        dv, h = solve(slope, missing), inputs.settings["timestep"]
        by_q, by_v = integrate_jacobians(self.layout, inputs.x.q, h * v_next)
        dq = h * (by_v @ dv)
        return (dq + by_q @ change["q"] if "q" in change else dq), dv

    @property
    def is_explicit(self) -> bool:
        """Whether JAX can differentiate `solve` itself, more than once."""
        return True

    def _implicit(self, inputs: Inputs) -> Taken:
        """Forces at the end of the step, by Newton's method on M (w − v) / h = f + Λ(q, w) for the velocity w there."""
        (q, v, _, _), s, numbers = inputs.x, inputs.settings, self._numbers(inputs)
        weights = 1 / jnp.diag(numbers.inertia)
        end, *rest = balanced(self._balance, numbers, v, weights, s["tolerance"], s["max_iterations"])
        return Taken(integrate(self.layout, q, s["timestep"] * end), end, numbers.probed, *rest)

    def _numbers(self, inputs: Inputs) -> Numbers:
        h = inputs.settings["timestep"]
        return Numbers(inputs, *self._stages(inputs, h, h))

    def _balance(self, numbers: Numbers, w: Array, is_first: Array) -> Balance:
        inputs, inertia, force, probed = numbers
        h = inputs.settings["timestep"]
        contact = self.forces(probed, w, inputs, h, is_first)
        missing = force + contact.force - inertia @ (w - inputs.x.v) / h
        return Balance(missing, inertia / h + contact.rate, contact)

    def _euler(self, inputs: Inputs) -> Taken:
        """Forces at the start of the step; implicit in joint damping alone."""
        h, (q, v, _, _) = inputs.settings["timestep"], inputs.x
        inertia, force, probed = self._stages(inputs, h, None)
        contact = self.forces(probed, v, inputs)
        end = v + h * solve(inertia, force + contact.force, assume_a="pos")  # Eq. 25
        return _explicit(integrate(self.layout, q, h * end), end, probed, contact)

    def _runge_kutta(self, inputs: Inputs) -> Taken:
        """The classical method of fourth order, on the manifold as MuJoCo does it."""
        h, (q, v, u, tau) = inputs.settings["timestep"], inputs.x
        still = jnp.zeros_like(h)

        def stage(carry: tuple[Array, Array], share: Array) -> tuple[tuple[Array, Array], tuple[Array, Array, Any]]:
            moved, gained = carry  # velocity and acceleration of the stage before
            here = type(inputs.x)(integrate(self.layout, q, share * h * moved), v + share * h * gained, u, tau)
            at = inputs._replace(x=here)
            inertia, force, probed = self._stages(at, still, None)
            contact = self.forces(probed, here.v, at)
            acceleration = solve(inertia, force + contact.force, assume_a="pos")
            return (here.v, acceleration), (here.v, acceleration, (probed, contact))

        nothing = jnp.zeros_like(v)
        shares = jnp.array([0.0, 0.5, 0.5, 1.0], v.dtype)
        _, (moved, gained, contacts) = jax.lax.scan(stage, (nothing, nothing), shares)
        weights = jnp.array([1.0, 2.0, 2.0, 1.0], v.dtype) / 6
        probed, contact = jax.tree.map(lambda leaf: leaf[0], contacts)  # reported are the forces at the start
        end = v + h * (weights @ gained)
        return _explicit(integrate(self.layout, q, h * (weights @ moved)), end, probed, contact)

    def _stages(self, inputs: Inputs, implicit: Array, ahead: Array | None) -> tuple[Array, Array, Probed]:
        """Mass matrix, forces without contact, and where surfaces are; joint damping is implicit over a time."""
        (q, v, u, tau), p, _ = inputs
        smooth = {name: p[name] for name in self.dynamics.parameters}
        inertia, force = self.dynamics.equations(q, v, u, tau, smooth, implicit)
        return inertia, force, self.forces.probe(self.dynamics.spatial_kinematics(q, smooth), inputs, ahead)

    def left_out(self, inputs: Inputs) -> Array:
        """How much candidate lists leave out, see `SoftForces.left_out`."""
        still = jnp.zeros_like(inputs.settings["timestep"])
        return self.forces.left_out(self._stages(inputs, still, None)[2], inputs.settings)

    def inverse_dynamics(self, inputs: Inputs, acceleration: Array) -> Array:
        """The tau of a step that ends with (v⁺ − v) / h = acceleration (Eq. 24); that of `inputs` is not looked at.

        It is analytical for the implicit step, too. A step with `rk4` has its first stage's acceleration in mind.
        """
        h, v = inputs.settings["timestep"], inputs.x.v
        inputs = inputs._replace(x=inputs.x._replace(tau=jnp.zeros_like(v)))
        if self._integrator == "implicit":
            inertia, force, probed = self._stages(inputs, h, h)
            contact = self.forces(probed, v + h * acceleration, inputs, h, jnp.array(False))
        else:
            inertia, force, probed = self._stages(inputs, jnp.zeros_like(h) if self._integrator == "rk4" else h, None)
            contact = self.forces(probed, v, inputs)
        return inertia @ acceleration - force - contact.force


def _explicit(q: Array, v: Array, probed: Probed, contact: Contact) -> Taken:
    """A step for which nothing is solved."""
    return Taken(q, v, probed, contact, jnp.zeros_like(v), jnp.zeros((), v.dtype), jnp.zeros((), jnp.int32))
