"""Least-squares problems about simulations: min ½|r(x)|², with ∂r/∂x from the simulator's own derivatives.

The derivative is that of the very steps taken, at their contact modes; where modes switch it jumps, and a method that
uses it has to expect that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.errors import OptionError, StateError
from tangens.results import Trajectory
from tangens.scene import Scene
from tangens.simulate import Simulator
from tangens.state import State, as_vector

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LeastSquares:
    """Minimise ½|r(x)|².

    Both functions may raise a `tangens.Error`: for `residual` this means that x is out of bounds, for `jacobian` that
    there is no derivative at x.
    """

    residual: Callable[[Array], Array]
    """r(x), shape (m,)."""
    jacobian: Callable[[Array], Array]
    """∂r/∂x, shape (m, n). A method asks for it where it has just asked for the residual."""
    size: int
    """n, the number of unknowns."""
    evaluations_per_jacobian: int = 0
    """Residuals that one Jacobian costs: none, unless it is made of differences."""


def by_differences(problem: LeastSquares, step: float = 1e-6, *, central: bool = True) -> LeastSquares:
    """The same problem, with its Jacobian by finite differences.

    Args:
        problem: its own Jacobian is not used.
        step: of the differences, in the units of x.
        central: central differences, two residuals per unknown; otherwise forward ones, which cost one.

    """
    if not np.isfinite(step) or step <= 0:
        raise OptionError(f"step={step!r} must be a positive number, such as 1e-6")

    def jacobian(x: Array) -> Array:
        units = step * np.eye(problem.size)
        if central:
            return np.stack([problem.residual(x + e) - problem.residual(x - e) for e in units], axis=1) / (2 * step)
        here = problem.residual(x)
        return np.stack([problem.residual(x + e) - here for e in units], axis=1) / step

    return LeastSquares(problem.residual, jacobian, problem.size, problem.size * 2 if central else problem.size + 1)


# ---------------------------------------------------------------------- initial conditions


def initial_condition(
    simulator: Simulator,
    start: State,
    target_q: ArrayLike,
    steps: int,
    by: str = "velocity",
    controls: ArrayLike | None = None,
) -> LeastSquares:
    """Find how to set off so that the motion ends in the configuration `target_q`.

    The residual is the tangent vector from `target_q` to q_T; its derivative is carried forward through all steps.

    Args:
        simulator: any scene and contact model.
        start: the initial state; what is searched for replaces its velocity, or acts on it.
        target_q: where the motion should end, of size nq.
        steps: number of steps T.
        by: "velocity" searches for the initial velocity, "impulse" for a generalised impulse [N·s, N·m·s] that acts
            during the first step.
        controls: u for each step, shape (T, nu); zero unless given.

    """
    scene, nv = simulator.scene, simulator.scene.nv
    if by not in ("velocity", "impulse"):
        raise OptionError(f"by={by!r} must be 'velocity' or 'impulse'")
    if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or steps < 1:
        raise OptionError(f"steps={steps!r} must be a whole number of at least 1")
    target = _configuration(simulator, target_q)
    simulator.rollout(start, 0)  # complains of a start that is not of this scene
    u = np.zeros((int(steps), scene.nu)) if controls is None else _controls(controls, int(steps), scene.nu)
    latest: list[tuple[Array, Trajectory]] = []

    def trajectory(x: Array) -> Trajectory:
        if not latest or not np.array_equal(latest[0][0], x):
            tau = np.zeros((len(u), nv))
            if by == "impulse":
                tau[0] = x / scene.timestep
            motion = simulator.rollout(start.replace(v=x) if by == "velocity" else start, u, tau)
            latest[:] = [(x.copy(), motion)]
        return latest[0][1]

    def residual(x: Array) -> Array:
        return scene.difference(target, trajectory(x).q[-1])

    def jacobian(x: Array) -> Array:
        motion = trajectory(x)
        dq, dv = np.zeros((nv, nv)), np.eye(nv) if by == "velocity" else np.zeros((nv, nv))
        for t in range(len(motion)):
            first = t == 0 and by == "impulse"
            J = simulator.jacobian(motion.steps[t], wrt=_WRT_FIRST if first else _WRT)
            dq, dv = J["q", "q"] @ dq + J["q", "v"] @ dv, J["v", "q"] @ dq + J["v", "v"] @ dv
            if first:
                dq, dv = dq + J["q", "tau"] / scene.timestep, dv + J["v", "tau"] / scene.timestep
        return scene.difference_jacobians(target, motion.q[-1])[1] @ dq

    return LeastSquares(residual, jacobian, nv)


def _controls(controls: ArrayLike, steps: int, nu: int) -> Array:
    try:
        u = np.array(controls, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise StateError(f"controls is not an array of numbers ({error})") from None
    if u.shape != (steps, nu):
        raise StateError(f"controls must have shape ({steps}, {nu}), one row for each step; got {u.shape}")
    if not np.isfinite(u).all():
        raise StateError("controls has entries that are not finite")
    return u


_WRT, _WRT_FIRST = ("q", "v"), ("q", "v", "tau")


# ---------------------------------------------------------------------- inverse dynamics


def inverse_dynamics(
    simulator: Simulator,
    state: State,
    target_v: ArrayLike | None = None,
    actuated: Sequence[str | int] | None = None,
    by: str = "tau",
) -> LeastSquares:
    """Find the joint torques, or controls, under which the next velocity is `target_v`.

    Args:
        simulator: any scene and contact model.
        state: where the robot is.
        target_v: v⁺ as it should be, of size nv; at rest unless given.
        actuated: joints by name, or degrees of freedom by index, whose torques are searched for; all but those of free
            joints unless given. Only with by="tau".
        by: "tau" searches for generalised forces at the actuated joints, "u" for the scene's controls.

    """
    scene = simulator.scene
    target = as_vector("target_v", np.zeros(scene.nv) if target_v is None else target_v, scene.nv)
    simulator.rollout(state, 0)  # complains of a state that is not of this scene
    if by not in ("tau", "u"):
        raise OptionError(f"by={by!r} must be 'tau' or 'u'")
    if by == "u":
        if actuated is not None:
            raise OptionError("actuated=... chooses torques; with by='u' the scene's actuators decide")
        if not scene.nu:
            raise OptionError("the scene has no actuators: use by='tau', or load it with motors=True")

        return LeastSquares(
            lambda x: simulator.step(state, x).state.v - target,
            lambda x: simulator.jacobian(state, x, wrt=("u",))["v", "u"],
            scene.nu,
        )
    dofs = _driven(scene) if actuated is None else _chosen(scene, actuated)
    if not len(dofs):
        raise OptionError("no degree of freedom is actuated: name joints in actuated=...")

    def tau(x: Array) -> Array:
        force = np.zeros(scene.nv)
        force[dofs] = x
        return force

    return LeastSquares(
        lambda x: simulator.step(state, tau=tau(x)).state.v - target,
        lambda x: simulator.jacobian(state, tau=tau(x), wrt=("tau",))["v", "tau"][:, dofs],
        len(dofs),
    )


_DOFS = {int(mujoco.mjtJoint.mjJNT_FREE): 6, int(mujoco.mjtJoint.mjJNT_BALL): 3}


def _joint_dofs(scene: Scene, joint: int) -> range:
    m = scene.shared_model
    first = int(m.jnt_dofadr[joint])
    return range(first, first + _DOFS.get(int(m.jnt_type[joint]), 1))


def _driven(scene: Scene) -> NDArray[np.int64]:
    """Degrees of freedom of all joints but the free ones."""
    kinds, free = scene.shared_model.jnt_type, int(mujoco.mjtJoint.mjJNT_FREE)
    dofs = [dof for j in range(len(kinds)) if kinds[j] != free for dof in _joint_dofs(scene, j)]
    return np.array(dofs, dtype=np.int64)


def _chosen(scene: Scene, actuated: Sequence[str | int]) -> NDArray[np.int64]:
    dofs: list[int] = []
    for entry in (actuated,) if isinstance(actuated, str) else actuated:
        if isinstance(entry, str):
            if entry not in scene.joint_names:
                raise OptionError(f"actuated: there is no joint {entry!r}. Known: {', '.join(scene.joint_names)}")
            dofs += _joint_dofs(scene, scene.joint_names.index(entry))
        elif isinstance(entry, (int, np.integer)) and not isinstance(entry, bool) and 0 <= entry < scene.nv:
            dofs.append(int(entry))
        else:
            raise OptionError(f"actuated: {entry!r} is neither a joint's name nor an index from 0 to {scene.nv - 1}")
    if len(set(dofs)) != len(dofs):
        raise OptionError("actuated names a degree of freedom twice")
    return np.array(dofs, dtype=np.int64)


def _configuration(simulator: Simulator, q: ArrayLike) -> Array:
    """The target as an array of this scene, its quaternions of unit length."""
    vector = as_vector("target_q", q, simulator.scene.nq)
    simulator.rollout(State(vector, np.zeros(simulator.scene.nv)), 0)
    return vector
