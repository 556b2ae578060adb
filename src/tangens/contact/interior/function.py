"""A step as a pure function of JAX, with its implicit derivative.

`StepFunction(scene, ...)` maps arrays to arrays: jit it, vmap it over states, parameters and shapes, differentiate it.
Derivatives are those of the equations relaxed by `gradient_relaxation` (implicit function theorem): one more solve if
that differs from `relaxation`, then one linear system, whose factors all columns share. Forward and reverse mode work.

Derivatives flow to q, v, u, tau, mass, com, inertia, damping, armature, gravity, friction, size, and the numbers of
shapes given by `with_shapes`. Frozen: which pairs are near, torsional friction coefficients, where geoms sit on their
bodies, joint ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.scipy.linalg import lu_factor
from jax.typing import ArrayLike

from tangens.contact.interior import bilevel, method
from tangens.contact.interior.options import InteriorContact
from tangens.contact.interior.pair import Bodies, Pair, Unknowns, places, start
from tangens.contact.interior.pairs import EARTH, PairTable, distance_bound, tree_masses
from tangens.contact.interior.system import (
    Iterate,
    Limits,
    Problem,
    Stop,
    all_bodies,
    direction,
    frames,
    goals,
    kinematics,
    left_of,
)
from tangens.dynamics.smooth import SmoothDynamics
from tangens.dynamics.spatial import vector_product
from tangens.dynamics.tangent_jax import integrate, integrate_jacobians
from tangens.errors import OptionError
from tangens.scene import Scene

Array = jax.Array
Inputs = dict[str, Any]

_BESIDES = ("shapes", "timestep", "reach")  # what a step takes besides the scene's parameters
_DETECTION = 1e-9  # relaxation of the growth problems of the bilevel method: as good as solved


class Solution(NamedTuple):
    """A solved step, with all that solved it."""

    q: Array
    v: Array
    problem: Problem
    outcome: method.Outcome
    crowded: Array
    """Whether more pairs were near than there was room for."""


class StepFunction:
    """(q, v, u, tau, parameters) -> (q⁺, v⁺) of one scene."""

    def __init__(self, scene: Scene, options: InteriorContact, capacity: int | None = None) -> None:
        self.options = options
        self.dynamics = SmoothDynamics(scene.shared_model)
        self.table = PairTable(scene, options.torsional_friction, options.sharpness)
        self.capacity = capacity
        """Most pairs of a kind that are solved for; the nearest ones are. None: all."""
        self._limits = _limits(scene.shared_model)
        own = {name: scene.parameters[name] for name in ("friction", "size")}
        self.parameters: dict[str, Any] = self.dynamics.parameters | own
        self.reach = self.table.reach(scene.parameters["size"])
        """Radii of balls around the shapes: parameters that nobody differentiates by."""
        self.timestep = scene.timestep

    def __call__(
        self,
        q: ArrayLike,
        v: ArrayLike,
        u: ArrayLike | None = None,
        tau: ArrayLike | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> tuple[Array, Array]:
        """Take a step; differentiable by every argument.

        Besides the scene's parameters there are `shapes`, which replace those of `scene.with_shapes` by others of their
        kind, and two that are frozen: `timestep`, and `reach`, the radii of balls around all shapes.
        """
        inputs: Inputs = {"q": jnp.asarray(q), "v": jnp.asarray(v), **(parameters or {})}
        for name in inputs.keys() - {"q", "v", *_BESIDES} - self.parameters.keys():
            raise OptionError(f"no parameter {name!r}: choose from {', '.join((*self.parameters, *_BESIDES))}")
        if u is not None:
            inputs["u"] = jnp.asarray(u)
        if tau is not None:
            inputs["tau"] = jnp.asarray(tau)
        return _step(self, inputs)

    def solve(
        self,
        inputs: Inputs,
        relaxation: Array | float | None = None,
        guess: Iterate | None = None,
    ) -> Solution:
        """Solve a step; from a guess if one is given, and from scratch where that fails."""
        rho = self.options.relaxation if relaxation is None else relaxation
        problem, crowded = jax.lax.optimization_barrier(self.problem(inputs, jnp.asarray(rho)))
        run = partial(
            method.solve,
            self.dynamics,
            problem,
            tolerance=self.options.tolerance,
            settle=partial(bilevel.settle, self.dynamics) if self.options.bilevel else None,
        )
        most = self.options.max_iterations
        if guess is None:
            outcome = run(self.start(problem), most)
        else:
            # A warm start that does not lead anywhere soon is given up, so it cannot cost a solution.
            warm = run(guess, most // 3)
            cold = jax.lax.cond(warm.converged, lambda: warm, lambda: run(self.start(problem), most))
            spent = jnp.where(warm.converged, 0, warm.iterations)
            outcome = cold._replace(iterations=cold.iterations + spent)
        v = outcome.x.v
        return Solution(integrate(self.dynamics.layout, problem.q, problem.timestep * v), v, problem, outcome, crowded)

    def carried(self, solution: Solution, v: Array, inputs: Inputs, change: Inputs) -> tuple[Array, Array]:
        """How q⁺ and v⁺ change along a change of the inputs, linear in it, by a solution at the gradient's relaxation.

        Changes of q and q⁺ are in the tangent space. `v` is that after the step itself, at its own relaxation.
        """
        layout, h, q = self.dynamics.layout, solution.problem.timestep, inputs["q"]
        by_q, by_v = integrate_jacobians(layout, q, h * v)
        _, dq = jax.jvp(lambda x: integrate(layout, q, x), (jnp.zeros_like(v),), (change["q"],))
        dv = implicit(self, solution, inputs, {**change, "q": dq})
        return by_q @ change["q"] + h * (by_v @ dv), dv

    def problem(self, inputs: Inputs, relaxation: Array) -> tuple[Problem, Array]:
        """The equations of a step, with the pairs that are near."""
        timestep = jax.lax.stop_gradient(jnp.asarray(inputs.get("timestep", self.timestep)))
        values = {name: inputs.get(name, default) for name, default in self.parameters.items()}
        values["shapes"] = inputs.get("shapes", {})
        values["reach"] = jax.lax.stop_gradient(jnp.asarray(inputs.get("reach", self.reach)))
        smooth = {name: value for name, value in values.items() if name in self.dynamics.parameters}
        q, v = inputs["q"], inputs["v"]
        inertia, force = self.dynamics.equations(q, v, inputs.get("u"), inputs.get("tau"), smooth, timestep)
        detection = jnp.full_like(relaxation, _DETECTION) if self.options.bilevel else relaxation
        problem = Problem(
            q,
            v,
            inertia,
            force,
            self.table.pairs(values),
            self._limits,
            timestep,
            relaxation,
            detection,
        )
        return self._near(problem)

    def _near(self, problem: Problem) -> tuple[Problem, Array]:
        """Keep the nearest pairs of each kind, as many as there is room for."""
        crowded = jnp.zeros((), bool)
        if self.capacity is None or all(len(g.index1) <= self.capacity for g in self.table.groups):
            return problem, crowded
        spatial, _, twist = kinematics(self.dynamics, problem, problem.v)
        kept = list[Pair]()
        for group in problem.groups:
            if len(group.friction) <= self.capacity:
                kept.append(group)
                continue
            bodies = all_bodies(group, spatial, twist)
            bound = jax.lax.stop_gradient(jax.vmap(distance_bound)(group, *jax.vmap(places)(group, bodies)))
            near = jax.lax.top_k(-bound, self.capacity)[1]
            kept.append(jax.tree.map(lambda leaf, near=near: leaf[near], group))
            crowded |= jnp.sum(bound < _margin(problem, group, bodies)) > self.capacity
        return problem._replace(groups=tuple(kept)), crowded

    def start(self, problem: Problem) -> Iterate:
        """A guess from scratch: the scene at rest, where its bodies do not overlap."""
        v = jnp.zeros_like(problem.v)
        spatial, jacobian, twist = kinematics(self.dynamics, problem, v)
        moving = jnp.einsum("bid,bd->bi", jacobian, problem.v[self.dynamics.ancestry.dofs])

        def begin(group: Pair) -> Unknowns:
            bodies = all_bodies(group, spatial, moving)
            bound = jax.vmap(distance_bound)(group, *jax.vmap(places)(group, bodies))
            near = bound < _margin(problem, group, bodies)
            impact = jnp.where(near, group.mass * _speed(bodies) / problem.timestep, 0.0)
            return jax.vmap(start)(group, all_bodies(group, spatial, twist), impact)

        pairs = tuple(begin(g) for g in problem.groups)
        gap = self._limits.sign * (problem.q[self._limits.q] - self._limits.bound)
        return Iterate(v, pairs, Stop(problem.limits.force / 3, jnp.maximum(gap, 0.1)))


def _margin(problem: Problem, group: Pair, bodies: Bodies) -> Array:
    """Farther apart than this, pairs of a group do not meet in this step [m].

    Twice the way they go at their speed; and a tenth of the smaller one's size, for forces change speeds.
    """
    return 2 * problem.timestep * _speed(bodies) + 0.1 * jnp.min(group.reach, axis=1)


def _speed(bodies: Bodies) -> Array:
    """How fast the bodies of pairs move against each other, halfway between them [m/s]."""
    relative = bodies.twist2 - bodies.twist1
    middle = (bodies.place1.position + bodies.place2.position) / 2
    return jnp.linalg.norm(relative[:, 3:] + vector_product(relative[:, :3], middle), axis=1)


def warmed(x: Iterate, push: float) -> Iterate:
    """A solution moved into the interior, as a guess for the step after it (paper 1, Sec. VII)."""

    def of(u: Unknowns) -> Unknowns:
        grown = u.growth._replace(slack=u.growth.slack + push, dual=u.growth.dual + push)
        return u._replace(growth=grown, push=u.push + push, gap=u.gap + push, load=u.load + push, rate=u.rate + push)

    return Iterate(x.v, tuple(of(u) for u in x.pairs), Stop(x.limits.push + push, x.limits.gap + push))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _step(function: StepFunction, inputs: Inputs) -> tuple[Array, Array]:
    solution = function.solve(inputs)
    return solution.q, solution.v


@_step.defjvp
def _step_jvp(
    function: StepFunction, primals: tuple[Inputs], tangents: tuple[Inputs]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    (inputs,), (changes,) = primals, tangents
    taken = function.solve(inputs)
    rho = function.options.smooth
    solution = taken if rho == function.options.relaxation else function.solve(inputs, rho)
    dv = implicit(function, solution, inputs, changes)
    h = solution.problem.timestep

    def end(q: Array, v: Array) -> Array:
        return integrate(function.dynamics.layout, q, h * v)

    _, dq = jax.jvp(end, (inputs["q"], taken.v), (changes["q"], dv))
    return (taken.q, taken.v), (dq, dv)


def implicit(function: StepFunction, solution: Solution, inputs: Inputs, changes: Inputs) -> Array:
    """∂v⁺ along a change of the inputs, by the implicit function theorem at a solution."""
    solution = jax.lax.stop_gradient(solution)
    problem, x = solution.problem, solution.outcome.x
    inside, x = frames(function.dynamics, problem, x)

    def left(inputs: Inputs) -> Any:
        again, _ = function.problem(inputs, problem.relaxation)
        return left_of(function.dynamics, again, x, inside)

    _, change = jax.jvp(left, (inputs,), (changes,))
    system = solution.outcome.system
    nothing = jax.tree.map(jnp.zeros_like, goals(x, x))
    return direction(problem, x, system, lu_factor(system.matrix), change, nothing).v


def _limits(m: mujoco.MjModel) -> Limits:
    """Bounds of hinges and slides."""
    plain = np.isin(m.jnt_type, (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE)))
    on = not m.opt.disableflags & (mujoco.mjtDisableBit.mjDSBL_LIMIT | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
    joints = np.flatnonzero(plain & m.jnt_limited.astype(bool) & on)
    both = np.repeat(joints, 2)
    side = np.tile([0, 1], len(joints))
    return Limits(
        jnp.asarray(m.jnt_qposadr[both]),
        jnp.asarray(m.jnt_dofadr[both]),
        jnp.asarray(1.0 - 2.0 * side),
        jnp.asarray(m.jnt_range[both, side]),
        EARTH * tree_masses(m, jnp.asarray(m.body_mass))[m.jnt_bodyid[both]],
    )
