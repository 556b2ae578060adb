"""`ncp`: rigid contact with Coulomb friction, exactly: no relaxation, no compliance (paper 2).

Signorini's law, Coulomb's cone and maximum dissipation hold at the level of impulses to the solver's tolerance. Joint
limits, dry joint friction and joint equalities (mimic) are constraints of the same problem.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.collision.rows import tree_records
from tangens.contact.base import ContactModel, Engine
from tangens.contact.cones import MODE_NAMES
from tangens.contact.ncp_gradient import differentiate
from tangens.contact.ncp_step import step as compiled_step
from tangens.dynamics.exact import PARAMETERS, ExactDynamics
from tangens.errors import NotDifferentiable, OptionError, SceneError
from tangens.results import Contacts, Jacobian, SolverReport, Step
from tangens.scene.support import element_name
from tangens.state import State

if TYPE_CHECKING:
    from tangens.scene import Scene

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Ncp(ContactModel):
    """Exact frictional contact.

    Args:
        correction: share of an overlap that is undone within a step (1 − K_p of paper 2's Eq. 39). With less than 1,
            corrections are gentler, but the derivative by q jumps where bodies just touch.
        correction_speed: no overlap is undone faster than this [m/s].
        damping: share of the approach velocity that is fed back (K_d there).
        margin: contacts are looked for up to this distance [m], so that bodies stop before they overlap.
        tolerance: residual of the contact problem that counts as solved [m/s].
        max_iterations: sweeps and Newton steps before the solver gives up and says so.

    """

    name: ClassVar[str] = "ncp"
    parameters: ClassVar[tuple[str, ...]] = PARAMETERS

    correction: float = 1.0
    correction_speed: float = 1.0
    damping: float = 0.0
    margin: float = 0.01
    tolerance: float = 1e-10
    max_iterations: int = 500

    def __post_init__(self) -> None:
        for name, low, high in (
            ("correction", 0, 1),
            ("correction_speed", 0, np.inf),
            ("damping", 0, 1),
            ("margin", 0, np.inf),
            ("tolerance", 0, 1),
        ):
            if not low <= getattr(self, name) <= high:
                raise OptionError(f"Ncp({name}={getattr(self, name)!r}) must lie between {low} and {high}")

    def bind(self, scene: Scene) -> Engine:
        """Prepare MuJoCo's collision detection and the compiled step for the scene."""
        return NcpEngine(scene, self)


class _Solution(NamedTuple):
    """A solved step and what its derivative needs, in the order in which the compiled step returns it."""

    v_next: Array
    force: Array
    impulse: Array
    sigma: Array
    mode: IntArray
    kind: IntArray
    bound: Array
    value: Array
    J: Array
    G: Array
    iterations: int
    error: float
    position: Array
    frame: Array
    gap: Array
    geom: NDArray[np.int32]


class NcpEngine:
    """`ncp` at work on one scene."""

    def __init__(self, scene: Scene, options: Ncp) -> None:
        self._dynamics = ExactDynamics(scene.shared_model)
        self._tolerance = options.tolerance
        m = self._m = _with_contacts(self._dynamics.model, options.margin)
        _refuse_unsupported(m)
        d = self._d = mujoco.MjData(m)
        self._qpos, self._qvel, self._ctrl = d.qpos, d.qvel, d.ctrl
        self._smooth = d.M, d.cdof, d.subtree_com
        self._forces = d.qfrc_passive, d.qfrc_actuator, d.qfrc_bias
        self._poses = d.geom_xpos, d.geom_xmat
        self._records = tree_records(m, self._dynamics.dampers, scene.parameters["restitution"])
        self._column = m.M_colind
        self._h = float(m.opt.timestep)
        self._settings = np.array([
            self._h, options.correction, options.correction_speed, options.damping, options.tolerance,
            options.max_iterations,
        ])  # fmt: skip
        self._previous: tuple[NDArray[np.int32], Array] = np.zeros((0, 2), dtype=np.int32), np.zeros(0)

    def step(self, q: Array, v: Array, u: Array, tau: Array) -> Step:
        """Advance by one time step."""
        s = self._solve(q, v, u, tau)
        q_next = q.copy()
        mujoco.mj_integratePos(self._m, q_next, s.v_next, self._h)
        modes = tuple([MODE_NAMES[i] for i in s.mode[: len(s.gap)].tolist()])
        contacts = Contacts(s.position, s.frame[:, :3], s.gap, s.force, s.geom, modes, None)
        report = SolverReport(s.error <= self._tolerance, s.iterations, s.error)
        return Step(State.trusted(q_next, s.v_next), contacts, report)

    def jacobian(self, q: Array, v: Array, u: Array, tau: Array, wrt: Sequence[str]) -> Jacobian:
        """Derivative of the step at its modes."""
        by_state, by_u = self._linearize(q, v, u, tau, "u" in wrt)
        return Jacobian(self._dynamics.blocks(q, v, by_state, by_u, wrt))

    def pullback(
        self, q: Array, v: Array, u: Array, tau: Array, dq: Array, dv: Array, wrt: Sequence[str]
    ) -> dict[str, Array]:
        """Carry ∂L/∂(q⁺, v⁺) back through the step."""
        by_state, by_u = self._linearize(q, v, u, tau, with_u=True)
        return self._dynamics.carry_back(q, v, by_state, by_u, dq, dv, wrt)

    def _solve(self, q: Array, v: Array, u: Array, tau: Array) -> _Solution:
        """Find contacts and solve for their impulses."""
        m, d = self._m, self._d
        self._qpos[:] = q
        self._qvel[:] = v
        self._ctrl[:] = u
        mujoco.mj_fwdPosition(m, d)
        mujoco.mj_fwdVelocity(m, d)
        mujoco.mj_fwdActuation(m, d)
        found = d.contact
        # Copies: MuJoCo's arrays are views of memory that the next step writes over.
        where = found.pos.copy(), found.frame.copy(), found.dist.copy(), found.geom.copy()
        result = compiled_step(
            *self._records, self._column, self._settings, *self._smooth, q, v, *self._forces, tau,
            self._dynamics.implicit_h, *where, found.friction, *self._previous,
        )  # fmt: skip
        self._previous = where[3], result[2]
        return _Solution._make((*result, *where))

    def _linearize(self, q: Array, v: Array, u: Array, tau: Array, with_u: bool) -> tuple[Array, Array]:
        s = self._solve(q, v, u, tau)
        by_state, by_u = self._dynamics.velocity_blocks(q, v, u, tau + (s.impulse @ s.J) / self._h, with_u)
        if len(s.impulse):
            _, cdof, com = self._smooth
            unknown, _, _ = differentiate(
                *self._records, self._settings, cdof, com, *self._poses, s.position, s.frame, s.gap, s.geom,
                v, s.v_next, s.impulse, s.sigma, s.mode, s.kind, s.bound, s.value, s.J, s.G, by_state, by_u,
            )  # fmt: skip
            if unknown >= 0:
                self._refuse(s.geom[unknown])
        self._dynamics.integrate_blocks(v, by_state, by_u)
        return by_state, by_u

    def _refuse(self, geom: NDArray[np.int32]) -> None:
        one, two = (element_name(self._m, mujoco.mjtObj.mjOBJ_GEOM, int(g)) for g in geom)
        raise NotDifferentiable(
            f"ncp does not know how the contact between {one} and {two} moves with the bodies: so far, one of the "
            "touching features must be a face and the other a point, or both be points or lines"
        )


def _with_contacts(model: mujoco.MjModel, margin: float) -> mujoco.MjModel:
    """A copy that finds contacts up to `margin` apart, and leaves all other constraints to us."""
    m = copy.copy(model)
    off = mujoco.mjtDisableBit
    m.opt.disableflags &= ~(int(off.mjDSBL_CONSTRAINT) | int(off.mjDSBL_CONTACT))
    m.opt.disableflags |= off.mjDSBL_EQUALITY | off.mjDSBL_LIMIT | off.mjDSBL_FRICTIONLOSS
    m.geom_gap[:] = margin
    m.geom_margin[:] = 0.0
    return m


def _refuse_unsupported(m: mujoco.MjModel) -> None:
    """Constraints that the contact problem does not hold yet; silence would let them pass."""
    obj, scalar = mujoco.mjtObj, (int(mujoco.mjtJoint.mjJNT_SLIDE), int(mujoco.mjtJoint.mjJNT_HINGE))
    found = [(obj.mjOBJ_EQUALITY, i, "equalities") for i in range(m.neq) if m.eq_active0[i]]
    found += [
        (obj.mjOBJ_TENDON, i, "limits and dry friction of tendons")
        for i in range(m.ntendon)
        if m.tendon_limited[i] or m.tendon_frictionloss[i] > 0
    ]
    found += [
        (obj.mjOBJ_JOINT, j, "limits of ball joints")
        for j in range(m.njnt)
        if m.jnt_limited[j] and m.jnt_type[j] not in scalar
    ]
    for kind, index, what in found:
        raise SceneError(
            f"ncp does not simulate {what} yet",
            element=element_name(m, kind, index),
            remedy="take it out of the model, or use contact=None",
        )
