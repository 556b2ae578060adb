"""An interior-point contact model at work on one scene: the door between JAX and the rest of the library."""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.contact.interior.function import Solution, StepFunction, warmed
from tangens.contact.interior.options import InteriorContact
from tangens.contact.interior.pair import length_of
from tangens.dynamics.tangent_jax import difference, integrate
from tangens.errors import NotDifferentiable, SceneError, SolverError, diverged
from tangens.geometry import kind
from tangens.results import NO_CONTACTS, Contacts, Jacobian, SolverReport, Step
from tangens.scene import Scene
from tangens.state import State

Array = NDArray[np.float64]

_NEAR = 1.05  # contacts are reported of shapes that touch when grown by this factor
_WARM = 1e-2  # how far a solution is moved into the interior before the next step starts there
_ROOM = 16  # pairs of a kind to make room for at first
_PARAMETER_FIELDS = (
    "body_mass", "body_ipos", "body_iquat", "body_inertia", "body_subtreemass", "body_invweight0", "dof_damping",
    "dof_armature", "dof_invweight0", "dof_M0", "geom_size", "geom_rbound", "geom_aabb", "bvh_aabb", "actuator_acc0",
    "actuator_length0", "tendon_invweight0",
)  # fmt: skip


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function of a thousand small operations: optimising each of them would take longer than it saves.

    Who sets XLA_FLAGS decides for themselves.
    """
    quick = {
        "xla_backend_optimization_level": 1,
        "xla_llvm_disable_expensive_passes": True,
        "xla_cpu_parallel_codegen_split_count": 1,
    }
    asked = jax.default_backend() == "cpu" and "XLA_FLAGS" not in os.environ
    return jax.jit(function, compiler_options=quick if asked else None)


class InteriorEngine:
    """Steps and derivatives of one scene."""

    def __init__(self, scene: Scene, options: InteriorContact) -> None:
        _refuse(scene, options.name)
        self._scene, self._options = scene, options
        self._guess: Any = None
        self._make_room(_ROOM)

    def _make_room(self, capacity: int) -> None:
        self.function, self._compiled = _shared(self._scene, self._options, capacity)
        self._guess = None
        own: dict[str, Any] = {name: self._scene.parameters[name] for name in self.function.parameters}
        with jax.enable_x64(True):
            reach = self.function.table.reach(self._scene.parameters["size"])
        self._fixed = own | {"timestep": np.float64(self._scene.timestep), "reach": reach}

    def step(self, q: Array, v: Array, u: Array, tau: Array) -> Step:
        """Advance by one time step."""
        with jax.enable_x64(True):
            solution = self._solve({"q": q, "v": v, "u": u, "tau": tau, **self._fixed})
            q_next, v_next = np.array(solution.q), np.array(solution.v)
        if not np.isfinite(v_next).all() or not np.isfinite(q_next).all():
            self._guess = None
            raise SolverError(diverged(self._scene.timestep))
        outcome = solution.outcome
        self._guess = outcome.x if self._options.warm_start and bool(outcome.converged) else None
        report = SolverReport(
            bool(outcome.converged), int(outcome.iterations), float(outcome.residual), method="interior-point"
        )
        return Step(State(q_next, v_next), lambda: self._contacts(solution), report)

    def _solve(self, inputs: dict[str, Any]) -> Solution:
        """Solve a step, from the last one's solution if there is one."""
        if self._guess is not None:
            solution: Solution = self._compile("warm", lambda f: lambda i, x: f.solve(i, guess=warmed(x, _WARM)))(
                inputs, self._guess
            )
            if not bool(solution.crowded):
                return solution
        return self._with_room("cold", lambda f: lambda i: _roomy(f.solve(i)), inputs)

    def _with_room(self, key: Any, make: Callable[[StepFunction], Callable[..., Any]], *arguments: Any) -> Any:
        """Call a compiled function that returns (result, crowded), with room for all pairs that are near."""
        while True:
            result, crowded = self._compile(key, make)(*arguments)
            if not bool(crowded):
                return result
            assert self.function.capacity is not None
            self._make_room(2 * self.function.capacity)

    def _compile(self, key: Any, make: Callable[[StepFunction], Callable[..., Any]]) -> Callable[..., Any]:
        if key not in self._compiled:
            self._compiled[key] = compiled(make(self.function))
        return self._compiled[key]

    def jacobian(self, q: Array, v: Array, u: Array, tau: Array, wrt: Sequence[str], with_force: bool) -> Jacobian:
        """Differentiate a step at the gradient's relaxation."""
        del with_force
        self._check(wrt)
        names = tuple(wrt)

        def make(function: StepFunction) -> Callable[..., Any]:
            def run(state: dict[str, Any]) -> Any:
                at = {name: _origin(name, state) for name in names}
                return jax.jacfwd(lambda x: _ends(function, state, x))(at), function.crowded(state)

            return run

        with jax.enable_x64(True):
            dq, dv = self._with_room(names, make, {"q": q, "v": v, "u": u, "tau": tau, **self._fixed})
        blocks = {name: np.stack([np.asarray(dq[name]), np.asarray(dv[name])]) for name in names}
        self._check_finite(blocks)
        return Jacobian(blocks)

    def pullback(
        self, q: Array, v: Array, u: Array, tau: Array, dq: Array, dv: Array, dforce: Array | None, wrt: Sequence[str]
    ) -> dict[str, Array]:
        """Differentiate a step in reverse."""
        del dforce
        self._check(wrt)
        names = tuple(dict.fromkeys(("q", "v", "u", "tau", *wrt)))

        def make(function: StepFunction) -> Callable[..., Any]:
            def run(state: dict[str, Any], dq: Any, dv: Any) -> Any:
                at = {name: _origin(name, state) for name in names}
                return jax.vjp(lambda x: _ends(function, state, x), at)[1]((dq, dv))[0], function.crowded(state)

            return run

        with jax.enable_x64(True):
            state = {"q": q, "v": v, "u": u, "tau": tau, **self._fixed}
            back = self._with_room(("pullback", names), make, state, dq, dv)
        blocks = {name: np.array(block) for name, block in back.items()}
        self._check_finite(blocks)
        return blocks

    def _check(self, wrt: Sequence[str]) -> None:
        if "size" in wrt:
            m = self._scene.shared_model
            for g, name in enumerate(self._scene.geom_names):
                if m.geom_type[g] == mujoco.mjtGeom.mjGEOM_MESH or name in self._scene.shapes:
                    raise NotDifferentiable(
                        f"{self._options.name!r} cannot be differentiated by size: the shape of geom {name!r} does not "
                        "come from its size"
                    )

    def _check_finite(self, blocks: dict[str, Array]) -> None:
        for name, block in blocks.items():
            if not np.isfinite(block).all():
                raise SolverError(
                    f"the derivative of this step by {name} is not finite: its equations have no regular solution "
                    "(choose a larger gradient_relaxation)"
                )

    def _contacts(self, solution: Solution) -> Contacts:
        """Contacts of shapes that nearly touch."""
        columns: list[list[Array]] = [[] for _ in range(6)]
        for group, u, linear in zip(
            solution.problem.groups, solution.outcome.x.pairs, solution.outcome.system.pairs, strict=True
        ):
            near = np.asarray(u.growth.scale) <= _NEAR
            with jax.enable_x64(True):
                length = np.asarray(jax.vmap(length_of)(group))
            normal = np.asarray(linear.growth.normal1 - linear.growth.normal2) / 2
            steep = np.linalg.norm(normal, axis=1) / np.asarray(group.sharpness)
            distance = (np.asarray(u.growth.scale) - 1) * length / np.maximum(steep, 1e-12)
            load = np.asarray(u.load)
            for column, values in zip(
                columns,
                (
                    np.asarray(u.growth.point),
                    np.asarray(linear.growth.frame)[:, :, 0],
                    distance,
                    np.asarray(linear.wrench2)[:, 3:],
                    np.asarray(group.geoms),
                    load / (load + np.sqrt(self._options.relaxation)),
                ),
                strict=True,
            ):
                column.append(values[near])
        if not columns[0]:
            return NO_CONTACTS._replace(activity=np.zeros(0))
        position, normals, distance, force, geom, activity = (np.concatenate(column) for column in columns)
        return Contacts(position, normals, distance, force, geom.astype(int), (), activity)


def _roomy(solution: Solution) -> tuple[Solution, Any]:
    return solution, solution.crowded


def _origin(name: str, state: dict[str, Any]) -> Any:
    """Where a derivative is taken: for q, at no displacement."""
    return jnp.zeros_like(state["v"]) if name == "q" else jnp.asarray(state[name])


def _ends(function: StepFunction, state: dict[str, Any], x: dict[str, Any]) -> tuple[Any, Any]:
    """Displacement from q⁺ and v⁺, as functions of displacements from q and of the other inputs."""
    layout, inputs = function.dynamics.layout, {**state, **x}
    if "q" in x:
        inputs["q"] = integrate(layout, state["q"], x["q"])
    known = {name: value for name, value in inputs.items() if name not in ("q", "v", "u", "tau")}
    q, v = function(inputs["q"], inputs["v"], inputs["u"], inputs["tau"], known)
    return difference(layout, jax.lax.stop_gradient(q), q), v


_SHARED: dict[Any, tuple[StepFunction, dict[Any, Callable[..., Any]]]] = {}
_KEPT = 32  # functions


def _shared(
    scene: Scene, options: InteriorContact, capacity: int
) -> tuple[StepFunction, dict[Any, Callable[..., Any]]]:
    """The function of a scene and what has been compiled of it: shared by all scenes that differ in parameters only."""
    shapes = tuple(
        (name, kind(s), *(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(s)))
        for name, s in scene.shapes.items()
    )
    key = (_structure(scene.shared_model), scene.geom_names, shapes, options, capacity)
    if key not in _SHARED:
        while len(_SHARED) >= _KEPT:
            del _SHARED[next(iter(_SHARED))]
        with jax.enable_x64(True):
            _SHARED[key] = StepFunction(scene, options, capacity), {}
    return _SHARED[key]


def _structure(model: mujoco.MjModel) -> bytes:
    """All of a model but its parameters, and what MuJoCo derives of them."""
    m = copy.copy(model)
    m.opt.gravity[:] = m.opt.timestep = 0
    for field in _PARAMETER_FIELDS:
        getattr(m, field)[:] = 0
    m.geom_friction[:, 0] = 0
    buffer = np.zeros(mujoco.mj_sizeModel(m), np.uint8)
    mujoco.mj_saveModel(m, None, buffer)
    return hashlib.sha256(buffer.tobytes()).digest()


def _refuse(scene: Scene, name: str) -> None:
    """Refuse scenes with constraints that the model does not know."""
    m = scene.shared_model
    if scene.parameters["restitution"].any():
        raise SceneError(
            f"{name!r} knows inelastic contact only, and geoms of this scene have restitution",
            file=scene.source,
            remedy='scene.replace(restitution=0), or contact="lcp"',
        )
    balls = (m.jnt_type == mujoco.mjtJoint.mjJNT_BALL) & m.jnt_limited.astype(bool)
    for what, present in (
        ("equality constraints", m.neq > 0),
        ("dry friction of joints or tendons", bool(m.dof_frictionloss.any() or m.tendon_frictionloss.any())),
        ("limits of ball joints or tendons", bool(balls.any() or m.tendon_limited.any())),
    ):
        if present:
            raise SceneError(
                f"{name!r} does not know {what}",
                file=scene.source,
                remedy='take them out of the scene, or choose contact="ncp" or "lcp"',
            )
