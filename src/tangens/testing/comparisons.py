"""Numbers to compare with: MuJoCo's for the physics, central differences for the derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import mujoco
import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from tangens.dynamics.exact import ExactDynamics, contact_free
from tangens.dynamics.force_model import effective_armature
from tangens.results import Jacobian
from tangens.scene import Scene
from tangens.simulate import Simulator
from tangens.state import State

Array = NDArray[np.float64]

# Fourth-order central differences: (8·(f₊₁ − f₋₁) − (f₊₂ − f₋₂)) / 12h. Their truncation error h⁴ and the rounding
# error 1e-16/h of a smooth double-precision function balance near this step.
STEP = 5e-4
_CLEAR = 1e-3  # a switch further away than this [m/s] is not met by differences
# Of one-sided differences. Where contacts barely slide, a derivative of 1e5 turns within 1e-8.
_LENGTHS = (1e-6, -1e-6, 1e-7, -1e-7, 1e-8, -1e-8, 1e-9, -1e-9)
_STENCIL = ((1, 8 / 12), (-1, -8 / 12), (2, -1 / 12), (-2, 1 / 12))


class Sample(NamedTuple):
    """A random situation of a scene."""

    state: State
    u: Array
    tau: Array


def random_sample(scene: Scene, rng: np.random.Generator) -> Sample:
    """A state around the reference pose, controls inside their ranges, small forces scaled to the inertia."""
    m = scene.shared_model
    q = scene.integrate(m.qpos0, rng.normal(scale=0.5, size=scene.nv))
    limited = m.actuator_ctrllimited.astype(bool)
    low, high = np.where(limited, m.actuator_ctrlrange[:, 0], -1.0), np.where(limited, m.actuator_ctrlrange[:, 1], 1.0)
    u = low + (high - low) * rng.uniform(0.05, 0.95, size=scene.nu)
    return Sample(State(q, rng.normal(size=scene.nv)), u, rng.normal(size=scene.nv) * m.dof_M0)


def relative_error(ours: Array, reference: Array) -> float:
    """Largest deviation, measured by the largest entry of the reference.

    Below 1e-6 a reference counts as that: differences carry rounding noise of 1e-12 even where the truth is zero.
    """
    if not ours.size:
        return 0.0
    error = float(np.abs(ours - reference).max() / max(np.abs(reference).max(), 1e-6))
    return np.inf if np.isnan(error) else error


def agreement_with_mujoco(scene: Scene, sample: Sample) -> dict[str, float]:
    """Relative errors of mass matrix, bias force, body poses and one step against MuJoCo's own."""
    m = contact_free(scene.shared_model)
    d = mujoco.MjData(m)
    d.qpos[:], d.qvel[:], d.ctrl[:], d.qfrc_applied[:] = *_arrays(sample.state), sample.u, sample.tau
    mujoco.mj_forward(m, d)
    M = np.zeros((m.nv, m.nv))
    mujoco.mj_fullM(m, d, M)

    tree = ExactDynamics(scene.shared_model).tree
    data = tree.model.createData()
    q_pin = sample.state.q[tree.q_order]
    ours = np.triu(pin.crba(tree.model, data, q_pin))
    ours = ours + np.triu(ours, 1).T
    ours[np.diag_indices(m.nv)] += effective_armature(m) - tree.model.armature
    bias = np.array(pin.nonLinearEffects(tree.model, data, q_pin, sample.state.v))
    pin.forwardKinematics(tree.model, data, q_pin)
    poses = [data.oMi[int(j)] * p for j, p in zip(tree.joint, tree.placement, strict=True)]

    errors = {
        "mass matrix": relative_error(ours, M),
        "bias force": relative_error(bias, np.array(d.qfrc_bias)),
        "body positions": relative_error(np.array([p.translation for p in poses]), np.array(d.xpos)),
        "body rotations": relative_error(np.array([p.rotation.flatten() for p in poses]), np.array(d.xmat)),
    }
    # Pinocchio's forward dynamics under our joint forces, against MuJoCo's step: two independent routes.
    dynamics = ExactDynamics(scene.shared_model)
    v_next = sample.state.v + scene.timestep * dynamics.acceleration(*_arrays(sample.state), sample.u, sample.tau)
    q_next = scene.integrate(sample.state.q, scene.timestep * v_next)
    mujoco.mj_step(m, d)
    errors["step"] = max(relative_error(v_next, np.array(d.qvel)), relative_error(q_next, np.array(d.qpos)))
    return errors


def central_differences(
    simulator: Simulator, sample: Sample, wrt: Sequence[str] = ("q", "v", "u", "tau"), step: float = STEP
) -> Jacobian:
    """The Jacobian of the simulator's very step by differences, perturbing q on its manifold."""
    scene = simulator.scene
    sizes = {"q": scene.nv, "v": scene.nv, "u": scene.nu, "tau": scene.nv}
    blocks = {}
    for name in wrt:
        block = np.zeros((2, scene.nv, sizes[name]))
        for k in range(sizes[name]):
            block[:, :, k] = central_column(simulator, sample, name, k, step)
        blocks[name] = block
    return Jacobian(blocks)


def central_column(simulator: Simulator, sample: Sample, name: str, k: int, step: float = STEP) -> Array:
    """Derivative of (q⁺, v⁺) by entry k of one input by differences, shape (2, nv)."""
    ends = [stepped(simulator, sample, name, k, multiple * step) for multiple, _ in _STENCIL]
    return _difference(simulator.scene, ends, step)


def contact_agreement(
    simulator: Simulator, sample: Sample, rng: np.random.Generator, directions: int = 4, tolerance: float = 1e-5
) -> tuple[int, int]:
    """How many random directions were compared with differences to one side, and how many agree.

    None is compared where the Jacobian itself says that it may not hold: on a switch, where the step did not converge
    or v⁺ is not unique.
    """
    scene, out = simulator.scene, simulator.step(*sample)
    J, agree = simulator.jacobian(out, wrt=("q", "v")), 0
    if not (J.converged and J.unique and J.switch.distance > _CLEAR):
        return 0, 0
    for _ in range(directions):
        dq, dv = rng.normal(size=(2, scene.nv)) / np.sqrt(scene.nv)
        ours, misses = J["v", "q"] @ dq + J["v", "v"] @ dv, []
        for length in _LENGTHS:
            ends = []
            for multiple in (1, 2):
                moved = State(
                    scene.integrate(sample.state.q, multiple * length * dq), sample.state.v + multiple * length * dv
                )
                ends.append(simulator.step(moved, sample.u, sample.tau).state.v)
            slope = (4 * ends[0] - ends[1] - 3 * out.state.v) / (2 * length)
            misses.append(relative_error(ours, slope))
        agree += min(misses) <= tolerance
    return directions, agree


def stepped(simulator: Simulator, sample: Sample, name: str, k: int, length: float) -> State:
    """The state after a step with entry k of one input moved by a length, q along its manifold."""
    state, u, tau = sample
    delta = np.zeros(len(u) if name == "u" else simulator.scene.nv)
    delta[k] = length
    if name == "q":
        state = state.replace(q=simulator.scene.integrate(state.q, delta))
    elif name == "v":
        state = state.replace(v=state.v + delta)
    elif name == "u":
        u = u + delta
    else:
        tau = tau + delta
    return simulator.step(state, u, tau).state


def _difference(scene: Scene, ends: Sequence[State], step: float) -> Array:
    """Derivative of (q⁺, v⁺) from the states at the stencil's points; q⁺ is measured from the first one's."""
    dq = sum(weight * scene.difference(ends[0].q, end.q) for (_, weight), end in zip(_STENCIL, ends, strict=True))
    dv = sum(weight * end.v for (_, weight), end in zip(_STENCIL, ends, strict=True))
    return np.stack([dq, dv]) / step


def gradient_errors(
    simulator: Simulator, sample: Sample, wrt: Sequence[str] = ("q", "v", "u", "tau"), step: float = STEP
) -> dict[str, float]:
    """Relative error of each block of the simulator's Jacobian, keyed "v/q" for ∂v⁺/∂q."""
    ours = simulator.jacobian(*sample, wrt=wrt)
    reference = central_differences(simulator, sample, wrt, step)
    return {f"{output}/{name}": relative_error(ours[output, name], reference[output, name]) for output, name in ours}


def parameter_errors(
    simulator: Simulator, sample: Sample, wrt: Sequence[str], rng: np.random.Generator, directions: int = 2,
    step: float = STEP,
) -> dict[str, float]:  # fmt: skip
    """Relative error of the derivatives by parameters, along random directions.

    They are judged on a variation of the scene with a little more damping and armature and rounder inertias: there
    every parameter can move both ways, while at zero damping or at A + B = C one way leads out of the physical.
    """
    scene, errors = _with_room(simulator.scene), dict[str, float]()
    J = Simulator(scene, simulator.contact).jacobian(*sample, wrt=wrt)
    for name in wrt:
        value = scene.parameters[name]
        for _ in range(directions):
            direction = _parameter_direction(scene, name, rng)
            ends = []
            for multiple, _ in _STENCIL:
                changed: dict[str, Any] = {name: value + multiple * step * direction}
                ends.append(Simulator(scene.replace(**changed), simulator.contact).step(*sample).state)
            reference = _difference(scene, ends, step)
            for row, output in enumerate(("q", "v")):
                ours = np.tensordot(J[output, name], direction, axes=value.ndim)
                key = f"{output}/{name}"
                errors[key] = max(errors.get(key, 0.0), relative_error(ours, reference[row]))
    return errors


def _with_room(scene: Scene) -> Scene:
    extra, inertia = 0.1 * scene.shared_model.dof_M0, scene.parameters["inertia"].copy()
    inertia[:, :3] += 0.1 * inertia[:, :3].mean(axis=1, keepdims=True)
    return scene.replace(
        damping=scene.parameters["damping"] + extra, armature=scene.parameters["armature"] + extra, inertia=inertia
    )


def _parameter_direction(scene: Scene, name: str, rng: np.random.Generator) -> Array:
    """A random change of a parameter, of the size of what it stands for."""
    value = scene.parameters[name]
    noise = rng.normal(size=value.shape)
    if name == "size":  # that of planes is drawn only, that of meshes comes from their data
        fixed = np.isin(
            scene.shared_model.geom_type, (int(mujoco.mjtGeom.mjGEOM_PLANE), int(mujoco.mjtGeom.mjGEOM_MESH))
        )
        return value * noise * ~fixed[:, None]
    if name in ("mass", "damping", "armature", "friction", "restitution", "frictionloss"):
        return value * noise  # what weighs nothing goes on weighing nothing
    if name in ("com", "placement"):
        return 0.02 * noise  # links are centimetres to decimetres long
    if name == "inertia":
        return value[:, :3].min(axis=1, keepdims=True) * noise
    return noise


def _arrays(state: State) -> tuple[Array, Array]:
    return state.q, state.v
