"""A step of relaxed contact as a pure function of JAX, with its implicit derivative.

Derivatives are those of the relaxed equations at their solution (implicit function theorem): one linear system, whose
factors all columns share, forward and reverse. They flow to q, v, u, tau, mass, com, inertia, damping, armature,
gravity, friction, restitution, frictionloss, size, and the numbers of shapes given by `with_shapes`. Frozen: which
pairs are near, which bounce, torsional friction coefficients, where geoms sit on their bodies, joint ranges, friction
losses of tendons, equalities' data.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tangens.contact.constraint_functions import ConstraintFunctions
from tangens.contact.geom_pairs import EARTH, tree_masses
from tangens.contact.interior import bilevel, constraints, method
from tangens.contact.interior.bounces import with_bounces
from tangens.contact.interior.constraints import constraints_at, products_by_losses, products_of
from tangens.contact.interior.directions import sensitivity
from tangens.contact.interior.equations import (
    Iterate,
    Kinematics,
    Problem,
    StepProducts,
    all_bodies,
    kinematics_at,
    step_residual,
)
from tangens.contact.interior.groups import Group, PairKind, by_kind, grouped, joined, widened
from tangens.contact.interior.pair import Bodies, Pair, Unknowns, ends_of, places, speed_of, start
from tangens.contact.interior.pairs import PairTable, distance_bound
from tangens.contact.interior.touching import touching
from tangens.contact.jax_model import Change, Inputs, PureModel, Solution, displaced
from tangens.dynamics.smooth import SmoothDynamics
from tangens.dynamics.spatial import vector_product
from tangens.dynamics.tangent_jax import integrate, integrate_jacobians
from tangens.scene import Scene

Array = jax.Array

_DETECTION = 1e-9  # relaxation of the growth problems of the bilevel method: as good as solved
_WARM = 1e-2  # how far a solution is moved into the interior before the next step starts there (paper 1, Sec. VII)


class Memory(NamedTuple):
    """What a solved step leaves behind."""

    x: Iterate
    relief: Array
    """By how much ρ was multiplied, as a last resort."""
    matrix: Array
    """Newton's, of the size of the velocities, (nv, nv)."""
    frames: tuple[Array, ...]
    """Contact frames in the axes of each pair's body 1."""
    converged: Array
    """Whether another step may start from here."""


class InteriorModel(PureModel):
    """Steps of `single-level` and `bilevel` on scenes of one structure; `scene` is any one of them."""

    def __init__(
        self, scene: Scene, is_bilevel: bool, torsional_friction: bool, bounces: bool, capacity: int | None
    ) -> None:
        self.dynamics = SmoothDynamics(scene.shared_model)
        self.layout = self.dynamics.layout
        self.table = PairTable(scene, torsional_friction)
        self.capacity = capacity
        """Most pairs of a kind that are solved for; the nearest ones are. None: all."""
        self._is_bilevel, self._bounces, self._model = is_bilevel, bounces, scene.shared_model
        self._constraints = ConstraintFunctions(scene.shared_model)

    def solve(self, inputs: Inputs, guess: Array | None = None) -> Solution:
        """Solve a step; from a guess if one is given, and from scratch where that fails."""
        problem, crowded = jax.lax.optimization_barrier(self.problem(inputs))
        before = None if guess is None else self._memory(problem, guess)
        run = partial(
            method.solve,
            self.dynamics,
            problem,
            tolerance=inputs.settings["tolerance"],
            pause=inputs.settings["pause"],
            detection=partial(bilevel.solve_detection, self.dynamics) if self._is_bilevel else None,
        )
        # Without room for all pairs that are near, the step has to be taken again: there is nothing to solve.
        most = jnp.where(crowded, 0, inputs.settings["max_iterations"])
        resorts = not self._is_bilevel  # the baseline stays what the paper has
        warm = None if before is None else (warmed(problem, before.x, _WARM), before.converged)
        outcome = run(self.start(problem), most, resorts=resorts, warm=warm)
        v = outcome.x.v
        q = integrate(self.layout, problem.q, problem.timestep * v)
        residual = jnp.maximum(outcome.residual, outcome.complementarity)
        resort = outcome.converged & (outcome.relief > 1)
        relaxation = jnp.where(resort, outcome.relief * problem.relaxation, 0.0)
        sound = jnp.ones((), bool)
        if self._is_bilevel:
            sound = ~bilevel.creates_energy(problem, outcome.system, v)
        else:
            # What solves no equations at all, not even relaxed ones, is no result.
            residual = jnp.where(outcome.converged | crowded, residual, jnp.inf)
        frames = tuple(group.frame for group in outcome.system.groups)
        solved, contacts = outcome.converged & ~resort & sound, touching(problem, outcome)
        # Where a guess led nowhere, the next step does not try one: on some robots (go1 in flight) none does.
        took_long = outcome.iterations > method.WARM_PATIENCE
        misled = jnp.zeros((), bool) if before is None else before.converged & took_long
        memory = _flat(Memory(outcome.x, outcome.relief, outcome.system.matrix, frames, solved & ~misled))
        unfinished = ~outcome.converged & (outcome.iterations >= inputs.settings["pause"])
        return Solution(q, v, solved, outcome.iterations, residual, contacts, memory, crowded, unfinished, relaxation)

    def no_guess(self, inputs: Inputs) -> Array:
        """A memory that nothing starts from."""
        return _flat(self._no_memory(self.problem(inputs)[0]))

    def _no_memory(self, problem: Problem) -> Memory:
        frames = tuple(jnp.zeros((len(group.pairs.friction), 3, group.dim)) for group in problem.groups)
        return Memory(self.start(problem), jnp.ones(()), jnp.zeros_like(problem.inertia), frames, jnp.zeros((), bool))

    def _memory(self, problem: Problem, flat: Array) -> Memory:
        """A memory from its numbers in one array: to hand over 30 arrays takes as long as an iteration."""
        leaves, tree = jax.tree.flatten(jax.eval_shape(self._no_memory, problem))
        parts = jnp.split(flat, np.cumsum([leaf.size for leaf in leaves])[:-1])
        shaped = [part.reshape(leaf.shape).astype(leaf.dtype) for part, leaf in zip(parts, leaves, strict=True)]
        memory: Memory = jax.tree.unflatten(tree, shaped)
        return memory

    def tangent(self, inputs: Inputs, v_next: Array, memory: Array, change: Change) -> tuple[Array, Array]:
        """By the implicit function theorem at a solution of the equations."""
        problem = self.problem(inputs)[0]
        x, relief, matrix, frames, _ = self._memory(problem, memory)
        problem = method.relieved(problem, relief)

        def residual(change: Change) -> Any:
            moved = method.relieved(self.problem(displaced(self.layout, inputs, change))[0], relief)
            bounds = moved.ends.bounds - products_by_losses(moved.constraints, x.bounds)
            return step_residual(self.dynamics, moved, x, frames), moved.ends._replace(bounds=bounds)

        nothing = jax.tree.map(jnp.zeros_like, change)
        _, (rest, ends) = jax.jvp(residual, (nothing,), (change,))
        dv = sensitivity(self.dynamics, problem, x, matrix, frames, rest, ends)
        by_q, by_v = integrate_jacobians(self.layout, inputs.x.q, problem.timestep * v_next)
        dq = problem.timestep * (by_v @ dv)
        return (dq + by_q @ change["q"] if "q" in change else dq), dv

    def problem(self, inputs: Inputs) -> tuple[Problem, Array]:
        """The equations of a step, with the pairs that are near."""
        (q, v, u, tau), p, settings = inputs
        timestep, relaxation = settings["timestep"], settings["relaxation"]
        smooth = {name: p[name] for name in self.dynamics.parameters}
        inertia, force = self.dynamics.equations(q, v, u, tau, smooth, timestep)
        start = kinematics_at(self.dynamics, q, v)
        kinds = self.table.pairs(p, settings["reach"], settings["sharpness"])
        near, crowded = self._near(kinds, start, timestep)
        groups = grouped(near)
        others = constraints_at(
            self._constraints,
            self._model,
            q,
            start.spatial,
            inertia,
            p["mass"],
            p["inertia"],
            p["frictionloss"],
            timestep,
        )
        detection = jnp.full_like(relaxation, _DETECTION) if self._is_bilevel else relaxation
        ends = tuple(ends_of(group.pairs, relaxation, detection) for group in groups)
        if self._bounces:
            groups = tuple(with_bounces(*both, start, timestep) for both in zip(groups, ends, strict=True))
        problem = Problem(
            q,
            v,
            inertia,
            force,
            groups,
            others,
            timestep,
            relaxation,
            StepProducts(ends, products_of(others, relaxation)),
            self._weights(inertia, p["mass"]),
            start,
            settings["explicit"],
        )
        return problem, crowded

    def _near(self, kinds: tuple[PairKind, ...], at: Kinematics, timestep: Array) -> tuple[tuple[PairKind, ...], Array]:
        """Keep the nearest pairs of each kind, as many as there is room for."""
        crowded = jnp.zeros((), bool)
        kept = list[PairKind]()
        for kind in kinds:
            if self.capacity is None or len(kind.pairs.friction) <= self.capacity:
                kept.append(kind)
                continue
            bodies = all_bodies(kind.pairs, at.spatial, at.twist)
            bound = jax.lax.stop_gradient(_bounds(kind, bodies))
            # In order, so that the guess of the step before is of the same pairs.
            near = jnp.sort(jax.lax.top_k(-bound, self.capacity)[1])
            kept.append(jax.tree.map(lambda leaf, near=near: leaf[near], kind))
            crowded |= jnp.sum(bound < _margin(timestep, kind.pairs, bodies)) > self.capacity
        return tuple(kept), crowded

    def _weights(self, inertia: Array, mass: Array) -> Array:
        """g·√(M_ii·m): of a degree of freedom that slides, the weight; of one that turns, weight times radius."""
        moved = tree_masses(self._model, mass)[self._model.dof_bodyid]
        return jax.lax.stop_gradient(EARTH * jnp.sqrt(jnp.diagonal(inertia) * moved + 1e-300))

    def start(self, problem: Problem) -> Iterate:
        """A guess from scratch: the scene at rest, where its bodies do not overlap."""
        v, kin = jnp.zeros_like(problem.v), problem.start

        def begin(group: Group) -> Unknowns:
            found = list[Unknowns]()
            for shape1, shape2, which in by_kind(group):
                pairs = jax.tree.map(lambda leaf, which=which: leaf[which], group.pairs)
                bodies = all_bodies(pairs, kin.spatial, kin.twist)
                near = _bounds(PairKind(shape1, shape2, pairs), bodies) < _margin(problem.timestep, pairs, bodies)
                speed = _speed(bodies) + EARTH * problem.timestep
                impact = jnp.where(near, pairs.mass * speed / problem.timestep, 0.0)
                found.append(jax.vmap(start)(pairs, shape1, shape2, bodies, impact, speed))
            wide = widened(group, [u.growth for u in found])
            return joined([u._replace(growth=grown) for u, grown in zip(found, wide, strict=True)])

        pairs = tuple(begin(g) for g in problem.groups)
        c = problem.constraints
        bounds = constraints.start(c, problem.q, problem.v, problem.inertia, problem.timestep)
        return Iterate(v, pairs, bounds, jnp.zeros(c.sizes[2]))


def _flat(memory: Memory) -> Array:
    return jnp.concatenate([jnp.ravel(leaf).astype(float) for leaf in jax.tree.leaves(memory)])


def _bounds(kind: PairKind, bodies: Bodies) -> Array:
    """Less than the distances of pairs of a kind [m]."""
    return jax.vmap(distance_bound)(*kind, *jax.vmap(places)(kind.pairs, bodies))


def _margin(timestep: Array, pairs: Pair, bodies: Bodies) -> Array:
    """Farther apart than this, pairs do not meet in this step [m].

    Twice the way they go at their speed; and a tenth of the smaller one's size, for forces change speeds.
    """
    return 2 * timestep * _speed(bodies) + 0.1 * jnp.min(pairs.reach, axis=1)


def _speed(bodies: Bodies) -> Array:
    """How fast the bodies of pairs move against each other, halfway between them [m/s]."""
    relative = bodies.twist2 - bodies.twist1
    middle = (bodies.place1.position + bodies.place2.position) / 2
    return jnp.linalg.norm(relative[:, 3:] + vector_product(relative[:, :3], middle), axis=1)


def warmed(problem: Problem, x: Iterate, shift: float) -> Iterate:
    """A solution moved into the interior, in the pairs' own units: a guess for the step after (paper 1, Sec. VII)."""

    def of(pair: Pair, u: Unknowns) -> Unknowns:
        length, force, speed = shift * pair.length, shift * EARTH * pair.mass, shift * speed_of(pair)
        slack, dual = u.growth.slack + length[:, None], u.growth.dual + force[:, None]
        grown = u.growth._replace(slack=slack, dual=dual)
        normal_force, psi = u.normal_force + force, u.psi + speed
        return u._replace(growth=grown, gamma=u.gamma + force, gap=u.gap + length, normal_force=normal_force, psi=psi)

    bounds = constraints.warmed(problem.constraints, x.bounds, shift)
    pairs = (group.pairs for group in problem.groups)
    return Iterate(x.v, tuple(map(of, pairs, x.pairs)), bounds, x.ties)
