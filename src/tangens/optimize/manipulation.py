"""Manipulation: where position-controlled fingers should move an object, and what one of their commands does to it.

Motion is quasi-dynamic: a step is long, dampers stop everything within it, and each command starts from rest. So a
configuration q is all there is to know, and near the command u₀ at which the fingers stay where they are,

    q⁺ ≈ q + B (u − u₀),        B = ∂q⁺/∂u from a contact model with smooth gradients.

Smooth gradients know of contacts that are close. Commands of length r reach an ellipsoid, and the number of commands
that an object needs to get somewhere is about its Mahalanobis distance there: a metric that knows of contact
(T. Pang et al., "Global planning for contact-rich manipulation via local smoothing of quasi-dynamic contact models").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.errors import OptionError
from tangens.optimize.control import control_limits
from tangens.optimize.monitor import check_count
from tangens.optimize.quasi_dynamic import stepper
from tangens.scene import Scene
from tangens.simulate import Simulator
from tangens.state import State

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Grasp = Callable[[np.random.Generator, Array], Array | None]
"""From random numbers and a configuration to positions of the fingers, shape (nu,), or None where it found none."""

# The object is taken to move by this many tolerances per command in directions where no finger can push it.
_DRIFT = 0.05


class Manipulation:
    """Move an object to a goal by commands to position servos.

    Args:
        simulator: steps are its own. All its actuators are position servos of slides and hinges, the *fingers*.
        start: the initial state; its velocity is ignored.
        body: name of the body that is the object; its own joints are the object's coordinates.
        goal: where they should be, in the layout of q.
        tolerance: how near is near enough [m, rad], a number or one for each degree of freedom of the object. These
            are also the units in which distances are counted.
        region: where else the object may go, as a pair of perturbations of the start, each a number or one for each
            degree of freedom.
        grasp: draws positions for the fingers near the object, to start anew from; `FingertipGrasps` does.
        reach: how far a command may be from where the fingers are, as the length of a vector [m, rad].
        hold: steps for which a command is held.
        lanes: configurations that are simulated at once, where the contact model can.
        lower: least commands, a number or one for each, besides the scene's control ranges.
        upper: largest ones, likewise.
        smooth: another simulator of the same scene to take the derivatives from, if `simulator` has none that are
            smooth.

    """

    def __init__(
        self,
        simulator: Simulator,
        start: State,
        body: str,
        goal: ArrayLike,
        *,
        tolerance: ArrayLike,
        region: tuple[ArrayLike, ArrayLike],
        grasp: Grasp | None = None,
        reach: float = 0.05,
        hold: int = 1,
        lanes: int = 16,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        smooth: Simulator | None = None,
    ) -> None:
        for given in (simulator,) if smooth is None else (simulator, smooth):
            if not isinstance(given, Simulator):
                raise OptionError(f"expected a tangens.Simulator; got {type(given).__name__}")
        scene = simulator.scene
        simulator.rollout(start, 0)  # complains of a start that is not of this scene
        if smooth is not None:
            smooth.rollout(start, 0)
        check_count("hold", hold, least=1)
        check_count("lanes", lanes, least=1)
        if not np.isfinite(reach) or reach <= 0:
            raise OptionError(f"reach={reach!r} must be a positive number")
        if grasp is not None and not callable(grasp):
            raise OptionError(f"grasp={grasp!r} must be a function of random numbers and q")
        self.simulator, self.grasp = simulator, grasp
        self.reach, self.hold, self.lanes = float(reach), int(hold), int(lanes)
        self.lower, self.upper = control_limits(simulator, lower, upper)
        self.fingers = _fingers(scene)
        """Addresses in q of the coordinates that are commanded."""
        coordinates, self.object = _joints_of(scene, body)
        self.tolerance = _numbers("tolerance", tolerance, len(self.object))
        if (self.tolerance <= 0).any():
            raise OptionError(f"tolerance={tolerance!r} must be positive")
        self.start = np.array(start.q)
        self.goal = self.start.copy()
        """The start, with the object where it should be."""
        self.goal[coordinates] = _numbers("goal", goal, len(coordinates))
        simulator.rollout(State(self.goal, np.zeros(scene.nv)), 0)  # complains of quaternions that are none
        if not isinstance(region, (tuple, list)) or len(region) != 2:
            raise OptionError(f"region={region!r} must be a pair of perturbations")
        self.region = _numbers("region", region[0], len(self.object)), _numbers("region", region[1], len(self.object))
        if (self.region[0] > self.region[1]).any():
            raise OptionError(f"region={region!r} must be a pair of perturbations, the lower ones first")
        self._plain = not scene.joint_layout.quat_q
        self._stepper = stepper(simulator, smooth or simulator, self.fingers, self.hold, self.lanes)

    # ------------------------------------------------------------------ distances

    def offsets(self, q: Array, target: Array) -> Array:
        """From the object in each row of q, shape (n, nq), to where it is in `target`, in tolerances: (n, dofs)."""
        if self._plain:
            return (target - q)[:, self.object] / self.tolerance
        difference = self.simulator.scene.difference
        return np.array([difference(row, target)[self.object] for row in q]) / self.tolerance

    def miss(self, q: Array) -> float:
        """How far the object is from its goal: the largest offset, in tolerances. At most 1 is near enough."""
        return float(np.abs(self.offsets(q[None], self.goal)).max())

    def sample(self, rng: np.random.Generator) -> Array:
        """A configuration with the object somewhere in its region."""
        delta = np.zeros(self.simulator.scene.nv)
        delta[self.object] = rng.uniform(*self.region)
        return self.simulator.scene.integrate(self.start, delta)

    # ------------------------------------------------------------------ motions

    def expand(self, q: Array, u: Array) -> list[tuple[Array, Local] | None]:
        """Where commands, shape (n, nu), lead from rest in configurations (n, nq), and their surroundings there.

        None where the simulator failed.
        """
        found = self._stepper.expand(q, u)
        ends = zip(found.q, found.by_u, strict=True)
        return [(end, self._local(by_u)) if np.isfinite(end).all() else None for end, by_u in ends]

    def command(self, q: Array, local: Local, target: Array) -> Array:
        """The command within reach that takes the object nearest to where it is in `target`, as far as B knows."""
        offset = self.offsets(q[None], target)[0]
        change = least_squares_within(local.B, offset, self.reach)
        return np.clip(q[self.fingers] + change, self.lower, self.upper)

    def _local(self, by_u: Array) -> Local:
        B = by_u[self.object] / self.tolerance[:, None]
        spread = self.reach**2 * B @ B.T + _DRIFT**2 * np.eye(len(B))
        return Local(B, np.linalg.inv(spread).astype(np.float64, copy=False))


class Local(NamedTuple):
    """A configuration's surroundings, to first order."""

    B: Array
    """∂(object)/∂u in tolerances, shape (dofs, nu)."""
    metric: Array
    """Inverse of the squared ellipsoid that one command reaches, shape (dofs, dofs)."""


def least_squares_within(B: Array, offset: Array, radius: float) -> Array:
    """The x of least |B x − offset| with |x| ≤ radius; the shortest one if there are many."""
    U, s, Vt = np.linalg.svd(B, full_matrices=False)
    s, along = np.maximum(s, 1e-12), U.T @ offset

    def length(damping: float) -> float:
        return float(np.linalg.norm(s * along / (s * s + damping)))

    # |x| falls as damping rises: from less than the radius at `high`, halve the interval until both ends agree.
    low, high = 0.0, float(np.linalg.norm(s * along)) / radius
    if length(low) <= radius:
        high = 0.0
    for _ in range(20 if high else 0):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if length(middle) <= radius else (middle, high)
    x: Array = Vt.T @ (s * along / (s * s + high))
    return x


# ---------------------------------------------------------------------- arguments


def _fingers(scene: Scene) -> Indices:
    """Addresses in q of what the scene's position servos drive, one for each control."""
    m = scene.shared_model
    if not scene.nu:
        raise OptionError("the scene has no actuators: fingers need position servos")
    out = []
    for i, name in enumerate(scene.actuator_names):
        joint = int(m.actuator_trnid[i, 0])
        on_joint = m.actuator_trntype[i] == int(mujoco.mjtTrn.mjTRN_JOINT)
        servo = m.actuator_gainprm[i, 0] > 0 and m.actuator_biasprm[i, 1] == -m.actuator_gainprm[i, 0]
        if not (on_joint and servo and m.actuator_gear[i, 0] == 1 and int(m.jnt_type[joint]) in _SCALAR):
            raise OptionError(f"actuator {name or i} is no position servo of a slide or a hinge with gear 1")
        out.append(int(m.jnt_qposadr[joint]))
    return np.array(out, dtype=np.int64)


def _joints_of(scene: Scene, body: str) -> tuple[Indices, Indices]:
    """Addresses of a body's own joints in q and in v."""
    if body not in scene.body_names[1:]:
        raise OptionError(f"there is no body {body!r}. Known: {', '.join(scene.body_names[1:])}")
    m = scene.shared_model
    q, v = list[int](), list[int]()
    for j in np.flatnonzero(m.jnt_bodyid == scene.body_names.index(body)):
        nq, nv = _SIZES.get(int(m.jnt_type[j]), (1, 1))
        q += range(m.jnt_qposadr[j], m.jnt_qposadr[j] + nq)
        v += range(m.jnt_dofadr[j], m.jnt_dofadr[j] + nv)
    if not q:
        raise OptionError(f"body {body!r} has no joints of its own: it cannot be moved")
    return np.array(q, dtype=np.int64), np.array(v, dtype=np.int64)


_SCALAR = int(mujoco.mjtJoint.mjJNT_SLIDE), int(mujoco.mjtJoint.mjJNT_HINGE)
_SIZES = {int(mujoco.mjtJoint.mjJNT_FREE): (7, 6), int(mujoco.mjtJoint.mjJNT_BALL): (4, 3)}


def _numbers(name: str, value: ArrayLike, size: int) -> Array:
    """`value` as finite numbers, one for each of `size` coordinates; a goal has to name them all."""
    try:
        array = np.asarray(value, dtype=np.float64)
        out = np.array(np.broadcast_to(array, size))
    except (TypeError, ValueError):
        raise OptionError(f"{name}={value!r} must be {size} numbers") from None
    if not np.isfinite(out).all() or (name == "goal" and array.shape != (size,)):
        raise OptionError(f"{name}={value!r} must be {size} finite numbers")
    return out
