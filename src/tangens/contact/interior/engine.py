"""An interior-point contact model at work on one scene: the door between JAX and the rest of the library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.contact.interior.function import Settings, Solution, StepFunction, warmed
from tangens.dynamics.tangent_jax import difference, integrate
from tangens.errors import NotDifferentiable, SceneError, SolverError, diverged
from tangens.results import Contacts, Jacobian, SolverReport, Step
from tangens.scene import Scene
from tangens.state import State

Array = NDArray[np.float64]

_NEAR = 1.05  # contacts are reported of shapes that touch when grown by this factor
_WARM = 1e-2  # how far a solution is moved into the interior before the next step starts there
_ROOM = 16  # pairs of a kind to make room for at first


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """jit. A step is a thousand small operations: on a CPU, what optimising each costs to compile never comes back."""
    quick = {
        "xla_cpu_use_fusion_emitters": False,
        "xla_llvm_disable_expensive_passes": True,
        "xla_cpu_parallel_codegen_split_count": 1,
    }
    return jax.jit(function, compiler_options=quick if jax.default_backend() == "cpu" else None)


class InteriorEngine:
    """Steps and derivatives of one scene."""

    def __init__(self, scene: Scene, settings: Settings, warm_start: bool, name: str) -> None:
        _refuse(scene, name)
        self._scene, self._settings, self._warm_start, self._name = scene, settings, warm_start, name
        self._guess: Any = None
        self._make_room(_ROOM)

    def _make_room(self, capacity: int) -> None:
        with jax.enable_x64(True):
            self.function = StepFunction(self._scene, self._settings, capacity)
        self._guess = None
        self._compiled: dict[Any, Callable[..., Any]] = {}

    def step(self, q: Array, v: Array, u: Array, tau: Array) -> Step:
        with jax.enable_x64(True):
            solution = self._solve({"q": q, "v": v, "u": u, "tau": tau})
            q_next, v_next = np.array(solution.q), np.array(solution.v)
        if not np.isfinite(v_next).all() or not np.isfinite(q_next).all():
            self._guess = None
            raise SolverError(diverged(self._scene.timestep))
        outcome = solution.outcome
        self._guess = outcome.x if self._warm_start and bool(outcome.converged) else None
        report = SolverReport(
            bool(outcome.converged), int(outcome.iterations), float(outcome.residual), method="interior-point"
        )
        return Step(State(q_next, v_next), lambda: self._contacts(solution), report)

    def _solve(self, inputs: dict[str, Array]) -> Solution:
        """Solve a step, with room for all pairs that are near."""
        while True:
            solution = self._run("step", inputs, self._guess) if self._guess is not None else self._run("cold", inputs)
            if not bool(solution.crowded):
                return solution
            assert self.function.capacity is not None
            self._make_room(2 * self.function.capacity)

    def _run(self, what: str, *arguments: Any) -> Any:
        function = self.function
        makers: dict[str, Callable[..., Any]] = {
            "cold": lambda inputs: function.solve(inputs),
            "step": lambda inputs, guess: function.solve(inputs, guess=warmed(guess, _WARM)),
        }
        if what not in self._compiled:
            self._compiled[what] = compiled(makers[what])
        return self._compiled[what](*arguments)

    def jacobian(self, q: Array, v: Array, u: Array, tau: Array, wrt: Sequence[str], with_force: bool) -> Jacobian:
        del with_force
        self._check(wrt)
        names = tuple(wrt)
        if names not in self._compiled:

            def run(state: dict[str, Any]) -> Any:
                at = {name: self._origin(name, state) for name in names}
                return jax.jacfwd(lambda x: self._ends(state, x))(at)

            self._compiled[names] = compiled(run)
        with jax.enable_x64(True):
            dq, dv = self._compiled[names]({"q": q, "v": v, "u": u, "tau": tau})
        blocks = {name: np.stack([np.asarray(dq[name]), np.asarray(dv[name])]) for name in names}
        self._check_finite(blocks)
        return Jacobian(blocks)

    def pullback(
        self, q: Array, v: Array, u: Array, tau: Array, dq: Array, dv: Array, dforce: Array | None, wrt: Sequence[str]
    ) -> dict[str, Array]:
        del dforce
        self._check(wrt)
        names = tuple(dict.fromkeys(("q", "v", "u", "tau", *wrt)))
        key = ("pullback", names)
        if key not in self._compiled:

            def run(state: dict[str, Any], dq: Any, dv: Any) -> Any:
                at = {name: self._origin(name, state) for name in names}
                return jax.vjp(lambda x: self._ends(state, x), at)[1]((dq, dv))[0]

            self._compiled[key] = compiled(run)
        with jax.enable_x64(True):
            back = self._compiled[key]({"q": q, "v": v, "u": u, "tau": tau}, dq, dv)
        blocks = {name: np.array(block) for name, block in back.items()}
        self._check_finite(blocks)
        return blocks

    def _origin(self, name: str, state: dict[str, Any]) -> Any:
        """Where a derivative is taken: for q, at no displacement."""
        if name == "q":
            return jnp.zeros_like(state["v"])
        return state[name] if name in state else jnp.asarray(self.function.parameters[name])

    def _ends(self, state: dict[str, Any], x: dict[str, Any]) -> tuple[Any, Any]:
        """Displacement from q⁺ and v⁺, as functions of displacements from q and of the other inputs."""
        layout = self.function.dynamics.layout
        inputs = {**state, **x}
        if "q" in x:
            inputs["q"] = integrate(layout, state["q"], x["q"])
        known = {name: value for name, value in inputs.items() if name not in ("q", "v", "u", "tau")}
        q, v = self.function(inputs["q"], inputs["v"], inputs["u"], inputs["tau"], known)
        return difference(layout, jax.lax.stop_gradient(q), q), v

    def _check(self, wrt: Sequence[str]) -> None:
        if "size" in wrt:
            m = self._scene.shared_model
            for g, name in enumerate(self._scene.geom_names):
                if m.geom_type[g] == mujoco.mjtGeom.mjGEOM_MESH or name in self._scene.shapes:
                    raise NotDifferentiable(
                        f"{self._name!r} cannot be differentiated by size: the shape of geom {name!r} does not come "
                        "from its size"
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
        sharpness = self._settings.sharpness
        for group, u, linear in zip(
            solution.problem.groups, solution.outcome.x.pairs, solution.outcome.system.pairs, strict=True
        ):
            near = np.asarray(u.growth.scale) <= _NEAR
            normal = np.asarray(linear.growth.normal1 - linear.growth.normal2) / 2
            steep = np.linalg.norm(normal, axis=1) / sharpness
            distance = (np.asarray(u.growth.scale) - 1) * _lengths(group) / np.maximum(steep, 1e-12)
            load = np.asarray(u.load)
            for column, values in zip(
                columns,
                (
                    np.asarray(u.growth.point),
                    np.asarray(linear.growth.frame)[:, :, 0],
                    distance,
                    np.asarray(linear.wrench2)[:, 3:],
                    np.asarray(group.geoms),
                    load / (load + np.sqrt(self._settings.relaxation)),
                ),
                strict=True,
            ):
                column.append(values[near])
        if not columns[0]:
            return Contacts(
                np.zeros((0, 3)), np.zeros((0, 3)), np.zeros(0), np.zeros((0, 3)), np.zeros((0, 2), int), (), np.zeros(0)
            )
        position, normals, distance, force, geom, activity = (np.concatenate(column) for column in columns)
        return Contacts(position, normals, distance, force, geom, (), activity)


def _lengths(group: Any) -> Array:
    from tangens.contact.interior.pair import sum_of_scales

    with jax.enable_x64(True):
        return np.asarray(jax.vmap(sum_of_scales)(group))


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
