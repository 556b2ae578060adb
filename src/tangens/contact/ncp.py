"""`ncp`: rigid contact with Coulomb friction, exactly: no relaxation, no compliance (paper 2).

Signorini's law, Coulomb's cone and maximum dissipation hold at the level of impulses to the solver's tolerance. Limits,
dry friction and equalities are constraints of the same problem.

Derivatives flow to q, v, u, tau, friction, restitution, frictionloss, size, mass, com, inertia, damping, armature and
gravity, at the modes of the step: nothing is smoothed unless `collision_gradient="randomized"` asks for it.
"""

from __future__ import annotations

import copy
import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, ClassVar

import mujoco
import numba
import numpy as np
from numpy.typing import NDArray

from tangens.collision.accuracy import sharpen
from tangens.collision.rows import geom_records
from tangens.collision.shapes import hull_tables
from tangens.contact import workspace
from tangens.contact.base import ContactModel, Engine
from tangens.contact.bundle import Bundle
from tangens.contact.cones import MODE_NAMES
from tangens.contact.constraints import Constraints
from tangens.contact.ncp_gradient import differentiate, linearize, reverse
from tangens.contact.ncp_step import set_margins
from tangens.contact.ncp_step import step as compiled_step
from tangens.contact.solvers import SOLVERS
from tangens.dynamics.chains import pack_tree
from tangens.dynamics.exact import ExactDynamics
from tangens.dynamics.parameter_forces import PARAMETERS
from tangens.errors import NotDifferentiable, OptionError, SolverError, diverged
from tangens.results import NO_CONTACTS, Contacts, Jacobian, SolverReport, Step
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
        margin: contacts are looked for as far as geoms come within a step, and no further than this [m], so that bodies
            stop before they overlap.
        solver: "newton" (semi-smooth Newton, with Gauss-Seidel sweeps where it stalls) or "admm".
        tolerance: residual of the contact problem that counts as solved [m/s].
        max_iterations: sweeps and Newton steps before the solver gives up and says so.

    """

    name: ClassVar[str] = "ncp"
    parameters: ClassVar[tuple[str, ...]] = PARAMETERS

    correction: float = 1.0
    correction_speed: float = 1.0
    damping: float = 0.0
    margin: float = 0.01
    solver: str = "newton"
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
        if self.solver not in SOLVERS:
            raise OptionError(f"Ncp(solver={self.solver!r}) must be one of {', '.join(map(repr, SOLVERS))}")

    def bind(self, scene: Scene) -> Engine:
        """Prepare MuJoCo's collision detection and the compiled step for the scene."""
        return NcpEngine(scene, self)


class NcpEngine:
    """`ncp` at work on one scene."""

    def __init__(self, scene: Scene, options: Ncp) -> None:
        self._dynamics = ExactDynamics(scene.shared_model)
        self._tolerance = options.tolerance
        m = self._m = _with_contacts(self._dynamics.model, options.margin)
        d = self._d = mujoco.MjData(m)
        self._inputs = d.qpos, d.qvel, d.ctrl, d.qfrc_applied
        self._sizes = m.nq, m.nv
        self._h = float(m.opt.timestep)

        constraints = Constraints(scene.shared_model)
        self._rows = constraints.rows
        layout = scene.joint_layout
        plain = [(q, v, 0) for q, v in zip(layout.euclid_q, layout.euclid_v, strict=True)]
        normals, faces, corners = hull_tables(m)
        bundle = Bundle(d, {
            "tree": pack_tree(m, self._dynamics.dampers),
            "geoms": geom_records(m, scene.parameters["restitution"]),
            "face_normals": normals, "faces": faces, "corners": corners,
            "constraints": constraints.packed,
            "options": np.array([
                self._h, self._dynamics.implicit_h, options.correction, options.correction_speed, options.damping,
                options.tolerance, options.max_iterations, SOLVERS.index(options.solver),
            ]),
            "quats": np.array([*plain, *((q, v, 1) for q, v in zip(layout.quat_q, layout.quat_v, strict=True))]),
            "gravity": m.opt.gravity * (not m.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_GRAVITY),
            "arena_layout": np.array(_contact_layout()),
        })  # fmt: skip
        self._bundle = bundle.numbers, bundle.live, bundle.table
        self._elements = self._dynamics.packed_elements
        self._arena = _NO_ARENA
        self._margins = m.geom_gap, options.margin
        self._warm = np.zeros(1 + 6 * int(constraints.packed[0]))
        self._memory, self._capacity, self._nc = np.zeros(0), -1, 0
        self._solved = False

    def step(self, q: Array, v: Array, u: Array, tau: Array) -> Step:
        """Advance by one time step."""
        m, d = self._m, self._d
        self._solved = False
        _write(*self._inputs, q, v, u, tau)
        mujoco.mj_kinematics(m, d)
        mujoco.mj_comPos(m, d)
        set_margins(*self._bundle, *self._margins)
        mujoco.mj_collision(m, d)
        mujoco.mj_makeM(m, d)
        if m.ntendon:
            mujoco.mj_tendon(m, d)
        mujoco.mj_transmission(m, d)
        mujoco.mj_fwdVelocity(m, d)
        mujoco.mj_fwdActuation(m, d)
        nc = self._nc = d.ncon
        if nc > self._capacity:
            self._grow(nc)
        if nc and self._arena is _NO_ARENA:
            self._arena = _contact_memory(d)
        nq, nv = self._sizes
        out = np.empty(nq + nv + 13 * nc)
        result = compiled_step(*self._bundle, self._rows, nc, *self._arena, self._warm, self._memory, out)
        self._solved = True
        error = result[1]
        if error == math.inf:
            raise SolverError(diverged(self._h))
        report = SolverReport(error <= self._tolerance, *result)
        state = State.trusted(out[:nq], out[nq : nq + nv])
        return Step(state, partial(_contacts, out[nq + nv :], nc) if nc else NO_CONTACTS, report)

    def jacobian(
        self, q: Array, v: Array, u: Array, tau: Array, wrt: Sequence[str], outputs: Sequence[str] = ("q", "v")
    ) -> Jacobian:
        """Derivative of the step at its modes; uses the step taken last if its inputs were these."""
        self._ensure_solved(q, v, u, tau)
        nv, nu = len(v), len(u) if "u" in wrt else 0
        by_state, by_u = np.empty((3, 2, nv, nv)), np.empty((2, nv, nu))
        gravcomp = self._dynamics.gravity_compensation(q)
        unknown, ambiguous = differentiate(
            *self._bundle, self._rows, self._nc, self._elements, *gravcomp, self._memory, self._frozen(), by_state, by_u
        )  # fmt: skip
        if unknown >= 0:
            self._refuse(unknown)
        inputs = {"q": by_state[0], "v": by_state[1], "tau": by_state[2], "u": by_u}
        return Jacobian({name: inputs[name] for name in wrt})

    def _ensure_solved(self, q: Array, v: Array, u: Array, tau: Array) -> None:
        if not (self._solved and _same(*self._inputs, q, v, u, tau)):
            self.step(q, v, u, tau)

    def _frozen(self) -> Array:
        return _EXACT

    def _grow(self, contacts: int) -> None:
        """More memory, for more contacts than ever before."""
        self._capacity = capacity = max(2 * contacts, 8)
        self._memory = np.zeros(workspace.size(self._m.nv, self._m.nM, capacity, self._rows))
        warm = np.zeros(len(self._warm) + 5 * capacity)
        warm[: len(self._warm)] = self._warm
        self._warm = warm

    def _refuse(self, contact: int) -> None:
        geom = self._d.contact.geom[contact]
        one, two = (element_name(self._m, mujoco.mjtObj.mjOBJ_GEOM, int(g)) for g in geom)
        raise NotDifferentiable(f"ncp does not know how the contact between {one} and {two} moves with the bodies")


_EXACT = np.zeros((0, 7, 6))


def _contacts(found: Array, n: int) -> Contacts:
    """The compiled step's report of its contacts, made readable when somebody asks."""
    modes = tuple([MODE_NAMES[int(i)] for i in found[10 * n : 11 * n]])
    geom = found[11 * n : 13 * n].reshape(n, 2).astype(np.int64)
    position, normal, force = (found[a * n : (a + 3) * n].reshape(n, 3) for a in (0, 3, 7))
    return Contacts(position, normal, found[6 * n : 7 * n], force, geom, modes, None)


_CONTACT_FIELDS = ("pos", "frame", "dist", "friction", "geom")


@cache
def _contact_layout() -> tuple[int, ...]:
    """Where the fields of a contact stand in MuJoCo's memory, in doubles; geoms, and the size of it all, in int32."""
    m = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><geom size='1'/><body><freejoint/><geom size='1'/></body></worldbody></mujoco>"
    )
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    views = [getattr(d.contact, name) for name in _CONTACT_FIELDS]
    offsets = [view.ctypes.data - d.contact.dist.ctypes.data for view in views]
    stride = views[0].strides[0]
    return stride // 8, *(offset // 8 for offset in offsets[:4]), offsets[4] // 4, stride // 4


def _contact_memory(d: mujoco.MjData) -> tuple[Array, NDArray[np.int32]]:
    """MuJoCo's own contacts, as numbers and as integers.

    Reading them through MuJoCo's Python objects would take longer than solving for the contacts of a small robot. They
    stand at the beginning of its arena, in all steps.
    """
    start = d.contact.dist.ctypes.data
    numbers = np.ctypeslib.as_array((ctypes.c_double * (d.narena // 8)).from_address(start))
    integers = np.ctypeslib.as_array((ctypes.c_int32 * (d.narena // 4)).from_address(start))
    return numbers, integers


_NO_ARENA = np.zeros(1), np.zeros(1, dtype=np.int32)


def _with_contacts(model: mujoco.MjModel, margin: float) -> mujoco.MjModel:
    """A copy that finds contacts up to `margin` apart, and leaves all constraints to us."""
    m = copy.copy(model)
    off = mujoco.mjtDisableBit
    m.opt.disableflags &= ~(int(off.mjDSBL_CONSTRAINT) | int(off.mjDSBL_CONTACT))
    m.opt.disableflags |= off.mjDSBL_EQUALITY | off.mjDSBL_LIMIT | off.mjDSBL_FRICTIONLOSS
    m.geom_gap[:] = margin
    m.geom_margin[:] = 0.0
    sharpen(m)
    return m


@numba.njit(cache=True)
def _write(qpos: Array, qvel: Array, ctrl: Array, applied: Array, q: Array, v: Array, u: Array, tau: Array) -> None:
    """Set MuJoCo's inputs, quicker than four assignments."""
    for i in range(q.shape[0]):
        qpos[i] = q[i]
    for i in range(v.shape[0]):
        qvel[i], applied[i] = v[i], tau[i]
    for i in range(u.shape[0]):
        ctrl[i] = u[i]


@numba.njit(cache=True)
def _same(qpos: Array, qvel: Array, ctrl: Array, applied: Array, q: Array, v: Array, u: Array, tau: Array) -> bool:
    """Whether these are the inputs that were set last."""
    for i in range(q.shape[0]):
        if qpos[i] != q[i]:
            return False
    for i in range(v.shape[0]):
        if qvel[i] != v[i] or applied[i] != tau[i]:
            return False
    for i in range(u.shape[0]):  # noqa: SIM110  (plain loops compile to the quickest code)
        if ctrl[i] != u[i]:
            return False
    return True
