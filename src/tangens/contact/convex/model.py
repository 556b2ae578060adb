"""A convex step as a pure function of JAX, with its implicit derivative.

Derivatives are those of the balance of momentum at its solution (implicit function theorem), with the Hessian of the
objective as its matrix. They flow to q, v, u, tau, mass, com, inertia, damping, armature, gravity, friction, size, and
the numbers of solids given by `with_shapes`; contacts move with all of them, and so do their normals, distances and
activities, and the regularisation that is derived from masses and sizes. Frozen: which contacts are near enough to be
solved for, how far ahead they are seen, where geoms sit on their bodies, joint ranges, friction losses, equalities'
data.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve

from tangens.collision.pair_manifold import Manifold, Pose, Smoothing
from tangens.collision.scene_manifold import Choices, SceneManifold
from tangens.contact.constraint_functions import ConstraintFunctions
from tangens.contact.convex.cone import Cone
from tangens.contact.convex.constraints import constraint_rows
from tangens.contact.convex.newton import Outcome, minimize
from tangens.contact.convex.objective import Problem, stored_energy, value
from tangens.contact.geom_pairs import EARTH, pair_friction, touching_geoms, tree_masses
from tangens.contact.jax_model import Change, ContactArrays, Inputs, PureModel, Solution, displaced
from tangens.dynamics.smooth import SmoothDynamics
from tangens.dynamics.spatial import SpatialKinematics, vector_product
from tangens.dynamics.tangent_jax import integrate, integrate_jacobians
from tangens.geometry.smooth_operators import length, unit
from tangens.geometry.solids import Solid
from tangens.scene import Scene

Array = jax.Array

_SINK = 1e-3
"""Of a solid's size: its own weight on one contact presses it in by no more."""
_NEAR = 0.01
"""Of a solid's size: contacts nearer than this are solved for, besides those that velocities lead to."""
_COUNTS = 1e-9
"""Contacts with less activity are left out."""


class Found(NamedTuple):
    """Contacts that are solved for."""

    manifold: Manifold
    pair: Array
    """(n,)."""
    crowded: Array


class ConvexModel(PureModel):
    """Steps of `convex` on scenes of one structure; `scene` is any one of them."""

    def __init__(self, scene: Scene, choices: Choices, room: int | None) -> None:
        m = self._model = scene.shared_model
        self.dynamics = SmoothDynamics(m)
        self.layout = self.dynamics.layout
        self._geoms = described_geoms(scene)
        solids = {g: scene.shapes[name] for g, name in self._geoms.items()}
        self.manifold = SceneManifold(m, touching_geoms(m), solids, choices)  # type: ignore[arg-type]
        self._constraints = ConstraintFunctions(m)
        self._room = room
        self._slippery = (np.maximum(*m.geom_condim[self.manifold.pairs].T) == 1) if len(self.manifold.pairs) else None

    # ------------------------------------------------------------------ what the engine calls

    def solve(self, inputs: Inputs, guess: Any = None) -> Solution:
        """Minimise the objective, from the velocity before."""
        del guess
        problem, found = self.problem(inputs)
        problem = jax.lax.optimization_barrier(problem)
        s = inputs.settings
        out = minimize(problem, inputs.x.v, s["tolerance"], jnp.where(found.crowded, 0, s["max_iterations"]))
        q = integrate(self.layout, inputs.x.q, s["timestep"] * out.v)
        done = (out.residual <= s["tolerance"]) | (out.stuck & (out.residual < 1e3 * s["tolerance"]))
        contacts = self._report(found, out, s["timestep"])
        return Solution(q, out.v, done, out.iterations, out.residual, contacts, (), found.crowded)

    def tangent(self, inputs: Inputs, v_next: Array, memory: Any, change: Change) -> tuple[Array, Array]:
        """By the implicit function theorem: H dv = −∂(∇ℓ)/∂inputs."""
        del memory

        def imbalance(change: Change) -> tuple[Array, Array]:
            problem, _ = self.problem(displaced(self.layout, inputs, change))
            at = value(problem, v_next)
            return at.gradient, jax.lax.stop_gradient(at.hessian)

        nothing = jax.tree.map(jnp.zeros_like, change)
        (_, hessian), (rest, _) = jax.jvp(imbalance, (nothing,), (change,))
        dv = -cho_solve(cho_factor(hessian), rest)
        h = inputs.settings["timestep"]
        by_q, by_v = integrate_jacobians(self.layout, inputs.x.q, h * v_next)
        dq = h * (by_v @ dv)
        return (dq + by_q @ change["q"] if "q" in change else dq), dv

    def inverse_dynamics(self, inputs: Inputs, acceleration: Array) -> Array:
        """The tau of a step that ends with (v⁺ − v) / h = acceleration; that of `inputs` is not looked at.

        Without it, momentum is out of balance at v⁺ by h tau.
        """
        h, v = inputs.settings["timestep"], inputs.x.v
        problem, _ = self.problem(inputs._replace(x=inputs.x._replace(tau=jnp.zeros_like(v))))
        return value(problem, v + h * acceleration).gradient / h

    def elastic_energy(self, inputs: Inputs) -> Array:
        """What springs hold [J] at q."""
        problem, _ = self.problem(inputs)
        return stored_energy(problem, inputs.settings["timestep"], inputs.settings["ahead"])

    # ------------------------------------------------------------------ the problem

    def problem(self, inputs: Inputs) -> tuple[Problem, Found]:
        """Everything that the objective is made of."""
        (q, v, u, tau), p, s = inputs
        smooth = {name: p[name] for name in self.dynamics.parameters}
        inertia, force = self.dynamics.equations(q, v, u, tau, smooth, s["timestep"])
        momentum = inertia @ v + s["timestep"] * force
        kin = self.dynamics.spatial_kinematics(q, smooth)
        found, size = self._contacts(kin, p, s, v, cho_solve(cho_factor(inertia), momentum))
        rows = constraint_rows(self._constraints, q, kin, inertia, s)
        jacobian = self._jacobian(kin, found)
        return Problem(inertia, momentum, jacobian, self._cone(found, size, p, s), rows), found

    def _contacts(
        self, kin: SpatialKinematics, p: dict[str, Any], s: dict[str, Any], v: Array, free: Array
    ) -> tuple[Found, Array]:
        """The contacts that are near, and the sizes of pairs."""
        if not len(self.manifold.pairs):
            nothing = Manifold(jnp.zeros((0, 3)), jnp.zeros(0), jnp.zeros((0, 3)), jnp.zeros(0))
            return Found(nothing, jnp.zeros(0, int), jnp.zeros((), bool)), jnp.zeros(0)
        solids = self.manifold.solids(p["size"], {g: p["shapes"][name] for g, name in self._geoms.items()})
        size = self.manifold.sizes(solids)
        each = jnp.ones_like(size)
        poses = self.manifold.poses(kin)
        # What is further away carries no force yet, since nothing comes faster.
        reach = 20 * s["smoothing"] * size + s["ahead"] * self._speed(kin, poses, size, v)
        smoothing = Smoothing(
            s["smoothing"] * size, 0.05 * each, 0.02 * each, 1e-3 * each, s["margin"] * size, reach
        )  # fmt: skip
        manifold, pair = self.manifold(solids, poses, smoothing), jnp.asarray(self.manifold.pair_of)
        if self._room is None or self._room >= len(pair):
            return Found(manifold, pair, jnp.zeros((), bool)), size
        approach = jnp.maximum(self._approach(kin, manifold, v), self._approach(kin, manifold, free))
        # An impact elsewhere turns bodies about, and other points come as fast as the pair moved before.
        reach = _NEAR * size[pair] + s["ahead"] * jnp.maximum(2 * approach, self._speed(kin, poses, size, v)[pair])
        counts = jax.lax.stop_gradient((manifold.distance < reach) & (manifold.activity > _COUNTS))
        order = jax.lax.stop_gradient(jnp.where(counts, -manifold.distance, -jnp.inf))
        kept = jax.lax.top_k(order, self._room)[1]
        fewer = jax.tree.map(lambda rows: rows[kept], manifold)
        fewer = fewer._replace(activity=jnp.where(counts[kept], fewer.activity, 0.0))
        return Found(fewer, pair[kept], jnp.sum(counts) > self._room), size

    def _bodies(self, pair: Any) -> tuple[Any, Any]:
        bodies = self._model.geom_bodyid[self.manifold.pairs]
        return jnp.asarray(bodies[:, 0])[pair], jnp.asarray(bodies[:, 1])[pair]

    def _speed(self, kin: SpatialKinematics, poses: Pose, size: Array, v: Array) -> Array:
        """How fast points of a pair's solids move relative to each other, at most [m/s], (n,)."""
        twist = jnp.asarray(self.dynamics.ancestry.bodies) @ (kin.axes * v[:, None])
        pairs, bodies = self.manifold.pairs, self._model.geom_bodyid[self.manifold.pairs]
        relative = twist[bodies[:, 1]] - twist[bodies[:, 0]]
        heavy = (self._model.geom_type[pairs] != mujoco.mjtGeom.mjGEOM_PLANE).astype(float)
        share = jnp.asarray(heavy / heavy.sum(1, keepdims=True))  # a plane is everywhere
        middle = jnp.einsum("pk,pki->pi", share, poses.position[pairs])
        velocity = relative[:, 3:] + vector_product(relative[:, :3], middle)
        return length(velocity, 1e-9) + size * length(relative[:, :3], 1e-9)

    def _approach(self, kin: SpatialKinematics, manifold: Manifold, v: Array) -> Array:
        """How fast the bodies of all contacts come closer [m/s], (n,)."""
        twist = jnp.asarray(self.dynamics.ancestry.bodies) @ (kin.axes * v[:, None])
        one, two = self._bodies(self.manifold.pair_of)
        relative = twist[two] - twist[one]
        velocity = relative[:, 3:] + vector_product(relative[:, :3], manifold.point)
        return jnp.maximum(-jnp.sum(manifold.normal * velocity, -1), 0.0)

    def _jacobian(self, kin: SpatialKinematics, found: Found) -> Array:
        """Velocities of body 2 relative to body 1 at contacts, (n, 3, nv)."""
        one, two = self._bodies(found.pair)
        carries = jnp.asarray(self.dynamics.ancestry.bodies)
        sign = carries[two] - carries[one]
        point = found.manifold.point[:, None, :]
        moved = kin.axes[None, :, 3:] + vector_product(kin.axes[None, :, :3], point)
        return jnp.swapaxes(sign[:, :, None] * moved, 1, 2)

    def _cone(self, found: Found, size: Array, p: dict[str, Any], s: dict[str, Any]) -> Cone:
        """Friction and regularisation of contacts: R_n = compliance / mass, or what carries the weight."""
        if not len(self.manifold.pairs):
            none = jnp.zeros(0)
            return Cone(jnp.zeros((0, 3)), none, none, none, none, none)
        m, (one, two) = self._model, self.manifold.pairs.T
        masses = tree_masses(m, p["mass"])
        mass = 1 / (1 / masses[m.geom_bodyid[one]] + 1 / masses[m.geom_bodyid[two]])
        h, ahead, manifold = s["timestep"], s["ahead"], found.manifold
        share = jnp.minimum(s["compliance"], _SINK * size / (EARTH * h * ahead))
        normal = jnp.where(s["stiffness"] > 0, 1 / (h * ahead * jnp.maximum(s["stiffness"], 1e-12)), share / mass)
        friction = jnp.where(jnp.asarray(self._slippery), 0.0, pair_friction(m, p["friction"], one, two))
        r_n = normal[found.pair]
        target = -manifold.distance / ahead
        # The cone takes its normal to have length 1; blunted ones are shorter, and would make the Hessian indefinite.
        normals = unit(manifold.normal, 1e-6)
        return Cone(normals, target, r_n, s["stick"] * r_n, friction[found.pair], manifold.activity)

    def _report(self, found: Found, out: Outcome, h: Array) -> tuple[ContactArrays, ...]:
        if not len(self.manifold.pairs):
            return ()
        contact, manifold = out.value.contact, found.manifold
        geoms = jnp.asarray(self.manifold.pairs)[found.pair]
        return (
            ContactArrays(
                contact.normal_impulse > 0,
                manifold.point,
                manifold.normal,
                manifold.distance,
                contact.impulse / h,
                geoms,
                manifold.activity,
            ),
        )


def described_geoms(scene: Scene) -> dict[int, str]:
    """Geoms that the user gave solids, by number."""
    return {g: name for g, name in enumerate(scene.geom_names) if isinstance(scene.shapes.get(name), Solid)}
