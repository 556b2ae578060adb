"""An interior-point contact model at work on one scene: the door between JAX and the rest of the library."""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

from tangens.contact.interior.function import Inputs, Solution, StepFunction, warmed
from tangens.contact.interior.options import InteriorContact
from tangens.contact.interior.touching import Touching, gathered, touching
from tangens.errors import NotDifferentiable, SceneError, SolverError, diverged
from tangens.geometry import kind
from tangens.results import Jacobian, SolverReport, Step
from tangens.scene import Scene
from tangens.state import State

Array = NDArray[np.float64]

_STATE = ("q", "v", "u", "tau")
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
        self._last: tuple[Inputs, Solution] | None = None
        self._make_room(_ROOM)

    def _make_room(self, capacity: int) -> None:
        self.function, self._compiled = _shared(self._scene, self._options, capacity)
        self._guess = self._last = None
        own: dict[str, Any] = {name: self._scene.parameters[name] for name in self.function.parameters}
        with jax.enable_x64(True):
            reach = self.function.table.reach(self._scene.parameters["size"])
        self._fixed = own | {"timestep": np.float64(self._scene.timestep), "reach": reach}

    def step(self, q: Array, v: Array, u: Array, tau: Array) -> Step:
        """Advance by one time step."""
        inputs = {"q": q, "v": v, "u": u, "tau": tau, **self._fixed}
        with jax.enable_x64(True):
            solution, kinds = self._solve(inputs, self._options.relaxation, self._guess)
            q_next, v_next = np.array(solution.q), np.array(solution.v)
        if not np.isfinite(v_next).all() or not np.isfinite(q_next).all():
            self._guess = self._last = None
            raise SolverError(diverged(self._scene.timestep))
        outcome = solution.outcome
        converged = bool(outcome.converged)
        self._last = {name: np.array(inputs[name]) for name in _STATE}, solution
        self._guess = outcome.x if self._options.warm_start and converged else None
        report = SolverReport(converged, int(outcome.iterations), float(outcome.residual), method="interior-point")
        return Step(State(q_next, v_next), lambda: gathered(kinds), report)

    def _solve(self, inputs: Inputs, relaxation: float, guess: Any = None) -> tuple[Solution, tuple[Touching, ...]]:
        """Solve a step, with room for all pairs that are near; from the last one's solution if there is one."""

        def make(function: StepFunction) -> Callable[..., Any]:
            def run(inputs: Inputs, rho: Any, *guess: Any) -> Any:
                solution = function.solve(inputs, rho, *(warmed(x, _WARM) for x in guess))
                return solution, touching(solution, rho)

            return run

        while True:
            given = () if guess is None else (guess,)
            result: tuple[Solution, tuple[Touching, ...]] = self._compile(len(given), make)(inputs, relaxation, *given)
            if not bool(result[0].crowded):
                return result
            assert self.function.capacity is not None
            if guess is None:
                self._make_room(2 * self.function.capacity)
            guess = None

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
            def run(solution: Solution, v: Any, inputs: Inputs) -> Any:
                nothing, unravel = ravel_pytree(_no_change(inputs, names))
                carried = partial(_carried, function, solution, v, inputs)
                columns = jax.vmap(lambda e: carried(unravel(e)))(jnp.eye(len(nothing)))
                return [jax.vmap(unravel)(column.T) for column in columns]

            return run

        inputs = {"q": q, "v": v, "u": u, "tau": tau, **self._fixed}
        with jax.enable_x64(True):
            solved = self._solved(inputs)
            dq, dv = self._compile(names, make)(*solved, inputs)
        blocks = {name: np.stack([np.asarray(dq[name]), np.asarray(dv[name])]) for name in names}
        self._check_finite(blocks)
        return Jacobian(blocks)

    def pullback(
        self, q: Array, v: Array, u: Array, tau: Array, dq: Array, dv: Array, dforce: Array | None, wrt: Sequence[str]
    ) -> dict[str, Array]:
        """Differentiate a step in reverse."""
        del dforce
        self._check(wrt)
        names = tuple(dict.fromkeys((*_STATE, *wrt)))

        def make(function: StepFunction) -> Callable[..., Any]:
            def run(solution: Solution, v: Any, inputs: Inputs, dq: Any, dv: Any) -> Any:
                carried = partial(_carried, function, solution, v, inputs)
                return jax.linear_transpose(carried, _no_change(inputs, names))((dq, dv))[0]

            return run

        inputs = {"q": q, "v": v, "u": u, "tau": tau, **self._fixed}
        with jax.enable_x64(True):
            solved = self._solved(inputs)
            back = self._compile(("pullback", names), make)(*solved, inputs, dq, dv)
        blocks = {name: np.array(block) for name, block in back.items()}
        self._check_finite(blocks)
        return blocks

    def _solved(self, inputs: Inputs) -> tuple[Solution, Any]:
        """The solution at the gradient's relaxation, and v⁺; what the last step found is not sought again."""
        if self._last is not None and all(np.array_equal(x, inputs[name]) for name, x in self._last[0].items()):
            taken = self._last[1]
        else:
            taken, _ = self._solve(inputs, self._options.relaxation)
        smooth = self._options.smooth
        return taken if smooth == self._options.relaxation else self._solve(inputs, smooth)[0], taken.v

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


def _no_change(inputs: Inputs, names: Sequence[str]) -> Inputs:
    """Zeros of the shapes of changes; those of q are in the tangent space."""
    return {name: jnp.zeros_like(inputs["v" if name == "q" else name]) for name in names}


def _carried(function: StepFunction, solution: Solution, v: Any, inputs: Inputs, change: Inputs) -> Any:
    """How a step's end changes along some of its inputs, the others being what they are."""
    return function.carried(solution, v, inputs, _no_change(inputs, tuple(inputs)) | change)


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
