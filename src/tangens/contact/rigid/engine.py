"""Hard contact at work on one scene: MuJoCo finds contacts, compiled code solves for them and differentiates steps."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.collision.accuracy import sharpen
from tangens.collision.rows import geom_records
from tangens.collision.shapes import CYLINDER, ELLIPSOID, hull_tables
from tangens.contact.rigid import workspace
from tangens.contact.rigid.bundle import FILLED_BY_MUJOCO, Bundle, contact_layout, contact_memory
from tangens.contact.rigid.constraints import Constraints
from tangens.contact.rigid.contact_motion import EXACT, ContactMotion
from tangens.contact.rigid.detection import bouncing_normals, polish_contacts, set_margins
from tangens.contact.rigid.exploration import explored_modes
from tangens.contact.rigid.forces import ContactForces
from tangens.contact.rigid.gradient import Linearization, apply_B, differentiate, forward, linearize, reverse
from tangens.contact.rigid.laws import BOX, MODE_NAMES, SLIDING
from tangens.contact.rigid.methods import METHODS
from tangens.contact.rigid.options import CORRECTION, IMPLICIT, TIMESTEP
from tangens.contact.rigid.parameters import CONTACT_PARAMETERS, gap_by_size, parameter_terms, timestep_terms
from tangens.contact.rigid.placement import LongTree, axes_of, gap_by_placement, long_tree, placement_terms
from tangens.contact.rigid.shared_load import SharedLoad
from tangens.contact.rigid.solvers import SOLVERS
from tangens.contact.rigid.step import step as compiled_step
from tangens.dynamics.exact import ExactDynamics, write_inputs
from tangens.dynamics.kinematic_tree import pack_tree
from tangens.dynamics.tangent import integrate_jacobians
from tangens.errors import NotDifferentiable, SolverError, diverged
from tangens.results import NO_CONTACTS, Contacts, Jacobian, SolverReport, Step
from tangens.state import State

if TYPE_CHECKING:
    from tangens.contact.rigid.model import RigidContact
    from tangens.scene import Scene

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]


class RigidEngine:
    """`ncp` or `lcp` at work on one scene."""

    def __init__(self, scene: Scene, options: RigidContact) -> None:
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
        bundle_options = np.array([
            self._h, self._dynamics.implicit_h, options.correction, options.correction_speed, options.damping,
            options.tolerance, options.max_iterations, SOLVERS.index(options.solver_name()),
            constraints.rows, options.margin, options.law, options.explores, options.arrival,
        ])  # fmt: skip
        bundle = self._bundle = Bundle({
            "tree": pack_tree(m, self._dynamics.dampers),
            "geoms": geom_records(m, scene.parameters["restitution"]),
            "face_normals": normals, "faces": faces, "corners": corners,
            "constraints": constraints.packed,
            "options": bundle_options,
            "quats": np.array([*plain, *((q, v, 1) for q, v in zip(layout.quat_q, layout.quat_v, strict=True))]),
            "elements": self._dynamics.packed_elements,
            "gravcomp": np.zeros(m.nv),
            "frozen": EXACT,
            "warm": np.zeros(1 + 6 * int(constraints.packed[0])),
            "geom_gap": m.geom_gap,
            "gravity": m.opt.gravity * (not m.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_GRAVITY),
            "arena_layout": np.array(contact_layout()),
            **{name: getattr(d, name) for name in FILLED_BY_MUJOCO},
        })  # fmt: skip
        self._table = bundle.table
        self._compensates = bool(m.body_gravcomp.any())
        ties = (int(mujoco.mjtEq.mjEQ_CONNECT), int(mujoco.mjtEq.mjEQ_WELD))
        self._ties = bool(np.isin(m.eq_type, ties).any())
        self._square, self._no_u = (m.nv, m.nv), np.empty((2, m.nv, 0))
        self._curved = bool(np.isin(m.geom_type, (ELLIPSOID, CYLINDER)).any())
        self._layout, self._explores, self._correction = layout, options.explores, options.correction
        self._friction = scene.parameters["friction"].copy()
        self._smallest = options.law == BOX  # whether impulses that the laws leave open are the smallest
        self._shapes = {name: value.shape for name, value in scene.parameters.items()}
        self._motion = ContactMotion(m, d, bundle, options)
        self._capacity, self._nc = -1, 0
        self._solved: tuple[Array, Array] | None = None

    def step(self, q: Array, v: Array, u: Array, tau: Array) -> Step:
        """Advance by one time step."""
        m, d = self._m, self._d
        self._solved = None
        self._motion.forget()
        write_inputs(*self._inputs, q, v, u, tau)
        self._find_contacts()
        mujoco.mj_makeM(m, d)
        if m.ntendon:
            mujoco.mj_tendon(m, d)
        mujoco.mj_transmission(m, d)
        mujoco.mj_fwdVelocity(m, d)
        mujoco.mj_fwdActuation(m, d)
        nc = self._nc
        nq, nv = self._sizes
        out = np.empty(nq + nv + 13 * nc)
        result = compiled_step(self._table, nc, out)
        error = result[1]
        if error == math.inf:
            self._bundle["warm"][:] = 0.0  # the next motion starts afresh
            raise SolverError(diverged(self._h))
        self._solved = q, v
        out.setflags(write=False)  # and with it all views
        state = State.trusted(out[:nq], out[nq : nq + nv])
        report = partial(_report, self._tolerance, *result)
        return Step(state, partial(_contacts, out[nq + nv :], nc) if nc else NO_CONTACTS, report)

    def _find_contacts(self) -> None:
        m, d = self._m, self._d
        mujoco.mj_kinematics(m, d)
        mujoco.mj_comPos(m, d)
        set_margins(self._table)
        mujoco.mj_collision(m, d)
        nc = self._nc = d.ncon
        if nc > self._capacity:
            self._grow(nc)
        if nc and self._curved:
            polish_contacts(self._table, nc)

    def set_timestep(self, h: float, *, undo: bool = True) -> None:
        """Let steps last h from now on, and undo overlaps or not; dampers stay implicit if they were."""
        settings, implicit = self._bundle["options"], self._dynamics.implicit_h > 0.0
        correction = self._correction if undo else 0.0
        if h == self._h and correction == settings[CORRECTION]:
            return
        settings[TIMESTEP], settings[IMPLICIT], settings[CORRECTION] = h, h if implicit else 0.0, correction
        self._h, self._solved = h, None
        self._dynamics.parameter_forces.implicit_h = settings[IMPLICIT]

    def bouncing_normals(self, q: Array | None = None) -> Array:
        """Index, gap, the two geoms and the normal's row for each contact with restitution, shape (n, 4 + nv).

        Of the step taken last, or at another configuration.
        """
        if q is not None:
            self._solved = None
            self._inputs[0][:] = q
            self._find_contacts()
        return bouncing_normals(self._table, self._nc)

    def gap_slopes(self, contact: int) -> dict[str, Array]:
        """∂gap/∂size and ∂gap/∂placement of a contact that was found last."""
        found, tree = self._d.contact, self._long_tree
        (one, two), p, frame = found.geom[contact], found.pos[contact], found.frame[contact]
        axes = axes_of(tree, self._d.cdof, self._d.xmat)
        return {
            "size": gap_by_size(self._table, one, two, p, frame, found.dist[contact]),
            "placement": gap_by_placement(self._table, one, two, p, frame, tree, axes),
        }

    def timestep_slope(self) -> Array:
        """∂(q⁺, v⁺)/∂h of the step taken last, shape (2, nv)."""
        lin = self._linearize(with_u=False, with_turn=False)
        by_force, by_law = timestep_terms(self._table, self._nc, lin.active)
        by_law = _through_B(lin, by_law[:, None])[:, 0]
        z = lin.W @ (lin.W.T @ by_force)
        dv = z - lin.Y.T @ (lin.A_inverse @ (_through_B(lin, (lin.Y @ by_force)[:, None])[:, 0] + by_law))
        return np.stack([self._integration(lin.v_next) @ dv + lin.v_next, dv])

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of velocities and of controls."""
        return self._m.nv, self._m.nu

    def parameter_shape(self, name: str) -> tuple[int, ...]:
        """Shape of a scene parameter."""
        return self._shapes[name]

    def jacobian(self, q: Array, v: Array, u: Array, tau: Array, wrt: Sequence[str], with_force: bool) -> Jacobian:
        """Derivative of the step at its modes; uses the step taken last if its inputs were these."""
        if not self._is_solved(q, v, u, tau):
            self.step(q, v, u, tau)
        by_state = np.empty((3, 2, *self._square))
        by_u = np.empty((2, len(v), len(u))) if "u" in wrt else self._no_u
        self._prepare_slopes(q, v, u, tau)
        if with_force or not _INPUTS.issuperset(wrt):
            return self._jacobian_in_parts(q, v, wrt, with_force, by_state, by_u)
        unknown, ambiguous = differentiate(self._table, self._nc, by_state, by_u)
        while unknown >= 0:
            self._motion.difference(self._workspace().contacts, unknown)
            unknown, ambiguous = differentiate(self._table, self._nc, by_state, by_u)
        return Jacobian(_StateBlocks(by_state, by_u, wrt), unique=not ambiguous)

    def _jacobian_in_parts(
        self, q: Array, v: Array, wrt: Sequence[str], with_force: bool, by_state: Array, by_u: Array
    ) -> Jacobian:
        """The same with parameters and contact forces: every input is a pair (R, C), see `gradient`."""
        lin = self._linearize(with_u=by_u.shape[2] > 0, with_turn=with_force)
        P, T = forward(self._table, lin, by_state, by_u)
        blocks = dict(_StateBlocks(by_state, by_u, tuple(name for name in wrt if name in _INPUTS)))
        force: dict[str, Array] = {}
        integrate = self._integration(lin.v_next)
        load = self._shared_load(lin) if with_force else None
        for name, (R, C) in self._terms(q, v, wrt, lin).items():
            shape, size = R.shape[1:], math.prod(R.shape[1:])
            by_force, by_law = R.reshape(len(v), size), C.reshape(len(T.T), size)
            if name not in _INPUTS:
                by_parameter = P @ by_force - T @ by_law
                blocks[name] = np.stack([integrate @ by_parameter, by_parameter]).reshape(2, len(v), *shape)
            if with_force:
                d_impulse = -lin.A_inverse @ (_through_B(lin, lin.Y @ by_force) + by_law)
                if load is not None:
                    d_impulse = load.completed(d_impulse, load.by_configuration() if name == "q" else None)
                slopes = self._forces().slopes(lin.active, d_impulse, lin.turn if name == "q" else None)
                force[name] = slopes.reshape(-1, 3, *shape)
        return Jacobian({name: blocks[name] for name in wrt}, force if with_force else None, not lin.ambiguous)

    def pullback(
        self, q: Array, v: Array, u: Array, tau: Array, dq: Array, dv: Array, dforce: Array | None, wrt: Sequence[str]
    ) -> dict[str, Array]:
        """Carry ∂L/∂(q⁺, v⁺, forces) back through the step: one linear solve, whatever `wrt` holds."""
        if not self._is_solved(q, v, u, tau):
            self.step(q, v, u, tau)
        self._prepare_slopes(q, v, u, tau)
        lin = self._linearize(with_u=True, with_turn=dforce is not None)
        back = self._carry_back(lin, q, v, dq, dv, dforce, wrt)
        if not self._explores:
            return back
        w = self._workspace()
        with explored_modes(w.blocks, w.J, w.sigma, lin, dv + self._integration(lin.v_next).T @ dq) as changed:
            if not changed:
                return back
            lin = self._linearize(with_u=True, with_turn=dforce is not None)
            other = self._carry_back(lin, q, v, dq, dv, dforce, wrt)
        return other if self._drive(other) > self._drive(back) else back

    def _drive(self, back: Mapping[str, Array]) -> float:
        """How much a gradient would move the motion (paper 5, Sec. IV-D)."""
        return float(back["v"] @ back["v"] + back["tau"] @ back["tau"] / self._h)

    def _carry_back(
        self, lin: Linearization, q: Array, v: Array, dq: Array, dv: Array, dforce: Array | None, wrt: Sequence[str]
    ) -> dict[str, Array]:
        d_impulse = np.zeros(len(lin.active)) if dforce is None else self._forces().cotangent(lin.active, dforce)
        by_q, by_v, by_tau, by_u, z, s = reverse(self._table, lin, dq, dv, d_impulse)
        if dforce is not None:
            by_q = by_q + np.einsum("ci,cij->j", np.cross(self._forces().values(), dforce), lin.turn)
        out = {"q": by_q, "v": by_v, "tau": by_tau, "u": by_u}
        for name, (R, C) in self._terms(q, v, wrt, lin).items():
            out[name] = np.tensordot(z, R, axes=1) - np.tensordot(s, C, axes=1)
        return out

    def _prepare_slopes(self, q: Array, v: Array, u: Array, tau: Array) -> None:
        """What the derivative needs and compiled code cannot find out."""
        if self._compensates:
            force, by_q = self._dynamics.gravity_compensation(q, v, u, tau)
            self._bundle.put("gravcomp", np.ascontiguousarray(force))
            self._bundle.put("gravcomp_q", np.ascontiguousarray(by_q))
        if not self._motion.is_exact:
            w = self._workspace()
            self._motion.prepare(w.contacts, w.blocks)

    def _linearize(self, *, with_u: bool, with_turn: bool) -> Linearization:
        lin = linearize(self._table, self._nc, with_u, with_turn)
        while lin.unknown >= 0:
            self._motion.difference(self._workspace().contacts, lin.unknown)
            lin = linearize(self._table, self._nc, with_u, with_turn)
        return lin

    def _terms(self, q: Array, v: Array, names: Sequence[str], lin: Linearization) -> dict[str, tuple[Array, Array]]:
        """R (nv, ...) and C (m, ...) of each input."""
        out: dict[str, tuple[Array, Array]] = {}
        m, nv, h = len(lin.active), len(v), self._h
        regressors: dict[str, Array] = {}
        for name in names:
            if name in ("q", "v"):
                out[name] = lin.R["qv".index(name)], _through_B(lin, lin.K["qv".index(name)])
            elif name in ("tau", "u"):
                R = h * np.eye(nv) if name == "tau" else lin.R_u
                out[name] = R, np.zeros((m, R.shape[1]))
            elif name in CONTACT_PARAMETERS:
                which = CONTACT_PARAMETERS.index(name)
                R, C = parameter_terms(self._table, self._nc, self._friction, lin.slide, which)
                out[name] = R.reshape(nv, *self._shapes[name]), C.reshape(m, *self._shapes[name])
            elif name == "placement":
                out[name] = self._placement_terms(lin)
            else:
                a = (lin.v_next - v) / h
                force = h * self._dynamics.parameter_forces.by(name, q, v, a, regressors)
                out[name] = force, np.zeros((m, *force.shape[1:]))
        return out

    def _placement_terms(self, lin: Linearization) -> tuple[Array, Array]:
        if self._compensates or self._ties:
            what = "gravity compensation" if self._compensates else "a connect or weld equality"
            raise NotDifferentiable(f"with {what} in the scene, steps have no derivative by placement")
        tree, m = self._long_tree, len(lin.active)
        R, K, unknown = placement_terms(self._table, self._nc, m, tree, axes_of(tree, self._d.cdof, self._d.xmat))
        if unknown >= 0:
            self._motion.refuse(self._workspace().contacts, unknown)
        return R, _through_B(lin, K.reshape(m, math.prod(K.shape[1:]))).reshape(K.shape)

    @cached_property
    def _long_tree(self) -> LongTree:
        return long_tree(self._m)

    def _integration(self, v_next: Array) -> Array:
        """∂q⁺/∂v⁺."""
        return self._h * integrate_jacobians(self._layout, v_next, self._h * v_next)[1]

    def _workspace(self) -> workspace.Workspace:
        """What the step taken last found out, with the blocks that took part."""
        w = workspace.carve.py_func(self._bundle["memory"], self._m.nv, self._m.nM, self._nc, self._rows)
        return w._replace(blocks=w.blocks[: int(w.counts[0])])

    def _shared_load(self, lin: Linearization) -> SharedLoad | None:
        """How impulses that the laws leave open change, where the engine has a rule for them."""
        if not self._smallest or not len(lin.active):
            return None
        w = self._workspace()
        blocks = w.blocks
        bounded = np.zeros(len(lin.active), dtype=bool)
        for block in blocks[(blocks["kind"] == BOX) & (blocks["mode"] == SLIDING)]:
            bounded[np.searchsorted(lin.active, block["start"]) + 1 + np.flatnonzero(block["side"])] = True
        return SharedLoad(self._table, self._nc, lin, w.impulse, bounded)

    def _forces(self) -> ContactForces:
        w = self._workspace()
        return ContactForces(w.contacts, w.blocks, w.impulse, self._h)

    def _is_solved(self, q: Array, v: Array, u: Array, tau: Array) -> bool:
        """Whether the step taken last was from these inputs; arrays of a State cannot have changed since."""
        if self._solved is None:
            return False
        qpos, qvel, ctrl, applied = self._inputs
        known = q is self._solved[0] and v is self._solved[1] and not q.flags.writeable
        if not known and (q.tobytes() != qpos.tobytes() or v.tobytes() != qvel.tobytes()):
            return False
        return u.tobytes() == ctrl.tobytes() and tau.tobytes() == applied.tobytes()

    def _grow(self, contacts: int) -> None:
        """More memory, for more contacts than ever before."""
        self._capacity = capacity = 2 * contacts
        bundle, before = self._bundle, self._bundle["warm"]
        bundle.put("memory", np.zeros(workspace.size(self._m.nv, self._m.nM, capacity, self._rows)))
        bundle.put("warm", np.concatenate([before, np.zeros(5 * capacity)]))
        if contacts:
            bundle.put("arena", contact_memory(self._d))


_INPUTS = frozenset(("q", "v", "u", "tau"))


class _StateBlocks(Mapping[str, Array]):
    """Blocks by q, v, tau and u, cut out of the compiled function's arrays when somebody asks."""

    __slots__ = ("_by_state", "_by_u", "_names")

    def __init__(self, by_state: Array, by_u: Array, names: Sequence[str]) -> None:
        self._by_state, self._by_u, self._names = by_state, by_u, names

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(name)
        return self._by_u if name == "u" else self._by_state[("q", "v", "tau").index(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _through_B(lin: Linearization, X: Array) -> Array:  # noqa: N802
    """B·X."""
    out = X.copy()
    apply_B(lin.slide, out)
    return out


def _report(
    tolerance: float, iterations: int, error: float, signorini: float, cone: float, dissipation: float, method: int
) -> SolverReport:
    return SolverReport(error <= tolerance, iterations, error, signorini, cone, dissipation, METHODS[method])


def _contacts(found: Array, n: int) -> Contacts:
    """The compiled step's report of its contacts, made readable when somebody asks."""
    modes = tuple([MODE_NAMES[int(i)] for i in found[10 * n : 11 * n]])
    geom = found[11 * n : 13 * n].reshape(n, 2).astype(np.int64)
    position, normal, force = (found[a * n : (a + 3) * n].reshape(n, 3) for a in (0, 3, 7))
    return Contacts(position, normal, found[6 * n : 7 * n], force, geom, modes, None)


def _with_contacts(model: mujoco.MjModel, margin: float) -> mujoco.MjModel:
    """A copy that finds contacts up to `margin` apart, and leaves all constraints to us."""
    m = copy.copy(model)
    off = mujoco.mjtDisableBit
    m.opt.disableflags &= ~(int(off.mjDSBL_CONSTRAINT) | int(off.mjDSBL_CONTACT))
    m.opt.disableflags |= off.mjDSBL_EQUALITY | off.mjDSBL_LIMIT | off.mjDSBL_FRICTIONLOSS
    m.geom_gap[:] = min(margin, 1.0)
    m.geom_margin[:] = 0.0
    sharpen(m)
    return m
