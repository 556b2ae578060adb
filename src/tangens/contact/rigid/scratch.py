"""Memory of one thread: MuJoCo's and Pinocchio's data, and the table of addresses that compiled code reads.

Everything here is written over by the next step. Nothing here is part of a result, so it is never copied or pickled.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.collision.accuracy import set_accuracy
from tangens.collision.contact_rows import geom_records
from tangens.collision.nearest import SLACK, may_have_patches, without_patches
from tangens.collision.parallel_boxes import align_boxes, any_alike, box_pairs
from tangens.collision.shapes import CYLINDER, ELLIPSOID, MESH, SPHERE, hull_tables
from tangens.contact.base import Point
from tangens.contact.constraint_specs import Constraints
from tangens.contact.rigid.assembly.contacts import false_patches, is_point, keep_contacts, refine_contacts
from tangens.contact.rigid.assembly.prepare import prepare
from tangens.contact.rigid.assembly.search import look_around, look_further, share_gaps
from tangens.contact.rigid.gradients.contact_motion import ContactMotion
from tangens.contact.rigid.gradients.inertial_parameters import inertial_gradients_on
from tangens.contact.rigid.memory.address_table import KINEMATICS, AddressTable, contact_layout, contact_memory
from tangens.contact.rigid.memory.settings import WORK
from tangens.contact.rigid.overlaps import body_responses, constraint_responses, trees
from tangens.contact.rigid.solvers.solve import SOLVERS
from tangens.dynamics.exact import ExactDynamics
from tangens.dynamics.kinematic_tree import pack_tree
from tangens.dynamics.mujoco_calls import call_addresses
from tangens.dynamics.parameter_forces import ParameterForces

if TYPE_CHECKING:
    from tangens.contact.rigid.options import RigidContact
    from tangens.scene import Scene

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

_OVERLAPS = 1e-9  # [m]
_ALIGNED = 1.0 - 5e-5  # the cosine of normals that are the same to within 0.01 rad
_WORK = 1e12  # multiplications in one step, after which it ends unsolved: about ten seconds


class RigidScratch:
    """What one thread needs to take and differentiate steps of one scene."""

    abandoned = False
    """Whether an interrupted step may still write to it."""
    contacts = 0
    """How many contacts were found last; MuJoCo's own count includes those that gave way to nearest points."""

    def __init__(self, scene: Scene, options: RigidContact) -> None:
        self.dynamics = ExactDynamics(scene.shared_model)
        m = self.model = _with_contacts(self.dynamics.model, options.margin)
        d = self.data = mujoco.MjData(m)
        self.motion = ContactMotion(m)
        self._inputs, self._rotations = (d.qpos, d.qvel), d.geom_xmat
        self._has_tendons = m.ntendon > 0
        self.damps_implicitly = self.dynamics.implicit_h > 0.0
        self.compensates = bool(m.body_gravcomp.any())
        self._box_pairs, self._places = box_pairs(m), (d.geom_xpos, m.geom_rbound, m.geom_gap)
        self._refines, self._has_patches = _has_inexact_pairs(m), may_have_patches(m)
        constraints = Constraints(scene.shared_model)
        self.trees = trees(scene.shared_model)
        self.body_responses = body_responses(scene.shared_model)
        """How fast the geoms' bodies answer impulses, and constraints besides contact: see `overlaps`."""
        self.constraint_responses = constraint_responses(scene.shared_model, constraints.packed)
        self._settings = _settings(options, constraints)
        self._table = _address_table(scene, self._settings, constraints, self.dynamics, m, d)
        self.addresses = self._table.addresses
        """What compiled code takes."""

    def prepare(self, x: Point, duration: float) -> int:
        """Let MuJoCo compute all that a step needs; returns the number of contacts."""
        implicit = duration if self.damps_implicitly else 0.0
        self._settings[WORK] = _WORK
        prepare.unchecked(self.addresses, *x, duration, implicit, self._has_tendons)
        return self._find_contacts(duration)

    @contextmanager
    def changed(self, setting: int, value: float) -> Iterator[None]:
        """One of `memory.settings` is another for a while."""
        usual, self._settings[setting] = self._settings[setting], value
        try:
            yield
        finally:
            self._settings[setting] = usual

    def place(self, q: Array, v: Array, duration: float) -> int:
        """Let MuJoCo find the contacts of a configuration; returns their number."""
        self._inputs[0][:] = q
        self._inputs[1][:] = v
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)
        look_around(self.addresses, duration)
        return self._find_contacts(duration)

    def look_again(self, q_next: Array, v_next: Array, duration: float, everywhere: bool) -> int:
        """Find the contacts of a step again if q⁺ has overlaps that it did not see coming; else −1.

        Only the geoms that ran into each other look further, unless all are to.
        """
        m, known = self.model, {(int(a), int(b)) for a, b in self.data.contact.geom}
        chosen = np.full(m.ngeom, everywhere)
        chosen[[g for pair in self._overlaps(q_next) - known for g in pair]] = True
        if not chosen.any():
            return -1
        look_further(self.addresses, duration, v_next, chosen)
        return self._find_contacts(duration)

    def place_within(self, x: Point, duration: float, gaps: Array) -> None:
        """Find the contacts of a step as it has found them: with these gaps of the geoms."""
        self.prepare(x, duration)
        self.model.geom_gap[:] = gaps
        share_gaps(self.addresses)
        self._find_contacts(duration)

    def _overlaps(self, q: Array) -> set[tuple[int, int]]:
        """Pairs of geoms that overlap at a configuration."""
        m, d = self.model, self._other_data
        gaps = m.geom_gap.copy()
        m.geom_gap[:] = 0.0
        share_gaps(self.addresses)
        d.qpos[:] = q
        mujoco.mj_kinematics(m, d)
        with without_patches(m):
            mujoco.mj_collision(m, d)
        m.geom_gap[:] = gaps
        share_gaps(self.addresses)
        deep = d.contact.geom[d.contact.dist < -_OVERLAPS]
        return {(int(a), int(b)) for a, b in deep}

    @cached_property
    def _other_data(self) -> mujoco.MjData:
        return mujoco.MjData(self.model)

    def _find_contacts(self, duration: float) -> int:
        """Let MuJoCo find the contacts, kinematics and margins being set."""
        m, d = self.model, self.data
        if len(self._box_pairs) and any_alike.unchecked(self._box_pairs, self._rotations, *self._places):
            rotations = self._rotations.copy()
            align_boxes(self._box_pairs, self._rotations)
            mujoco.mj_collision(m, d)
            self._rotations[:] = rotations
        else:
            mujoco.mj_collision(m, d)
        nc = int(d.ncon)
        if nc:
            if "arena" not in self._table:
                self._table.put("arena", contact_memory(d))
            if self._has_patches and len(false := false_patches(self.addresses, nc)):
                nc = self._replace(false, nc)
            if self._refines:
                refine_contacts(self.addresses, nc, duration)
        self.contacts = nc
        return nc

    def _replace(self, false: IntArray, nc: int) -> int:
        """Put the nearest points in the place of patches that are none; returns the number of contacts.

        An edge along a face has no nearest point, but many. If the patch lies there, it is the better answer.
        """
        m, d, found = self.model, self._other_data, self.data.contact
        d.qpos[:] = self.data.qpos
        mujoco.mj_kinematics(m, d)
        with without_patches(m):
            mujoco.mj_collision(m, d)
        place = {(a, b): c for c, (a, b) in enumerate(d.contact.geom.tolist())}
        there = d.contact.pos, d.contact.frame, d.contact.dist
        geom, pos, frame, dist = found.geom, found.pos, found.frame, found.dist
        kept = np.ones(nc, dtype=bool)
        for first, last in false.tolist():
            pair = geom[first].astype(np.int64)
            at = place.get((int(pair[0]), int(pair[1])))
            if at is None:
                kept[first : last + 1] = False
                continue
            p, axes, gap = (values[at] for values in there)
            lies_there = frame[first, :3] @ axes[:3] > _ALIGNED or (
                dist[first : last + 1].min() - gap <= SLACK * m.geom_rbound[pair].min()
            )
            if lies_there and not is_point(self.addresses, pair, p, axes, float(gap)):
                continue
            kept[first + 1 : last + 1] = False
            pos[first], frame[first], dist[first] = p, axes, gap
        return keep_contacts(self.addresses, kept)

    def forces_by_parameter(self, name: str, x: Point, a: Array, h: float, regressors: dict[str, Array]) -> Array:
        """∂(generalised force)/∂parameter at an acceleration, right after the step on the same tape was linearised."""
        return self._parameter_forces(h).by(name, x.q, x.v, a, regressors)

    def parameters_carried_back(self, names: Sequence[str], tape: Array, h: float, v: Array, a: Array, z: Array) -> Any:
        """z·∂(generalised force)/∂parameter, likewise."""
        forces = self._parameter_forces(h)
        inertial = partial(inertial_gradients_on, self.addresses, tape, forces.inertials, a, z)
        return forces.carried_back(names, z, v, a, inertial)

    def _parameter_forces(self, h: float) -> ParameterForces:
        forces = self.dynamics.parameter_forces
        forces.implicit_h = h if self.damps_implicitly else 0.0
        return forces


def _has_inexact_pairs(m: mujoco.MjModel) -> bool:
    """Whether some contacts of MuJoCo's are approximate: those that `accuracy.refine_contact` corrects."""
    kinds = set(m.geom_type.tolist())
    return bool(kinds & {ELLIPSOID, CYLINDER}) or {SPHERE, MESH} <= kinds


def _settings(options: RigidContact, constraints: Constraints) -> Array:
    return np.array([
        options.correction_speed, options.damping, options.tolerance, options.max_iterations,
        SOLVERS.index(options.solver_name()), constraints.rows, options.margin, options.law, options.arrival, 0.0,
        _WORK,
    ])  # fmt: skip


def _address_table(
    scene: Scene, settings: Array, constraints: Constraints, dynamics: ExactDynamics, m: mujoco.MjModel,
    d: mujoco.MjData,
) -> AddressTable:  # fmt: skip
    layout = scene.joint_layout
    plain = [(q, v, 0) for q, v in zip(layout.euclid_q, layout.euclid_v, strict=True)]
    turning = [(q, v, 1) for q, v in zip(layout.quat_q, layout.quat_v, strict=True)]
    normals, faces, corners = hull_tables(m)
    return AddressTable({
        "tree": pack_tree(m, dynamics.dampers),
        "geoms": geom_records(m, scene.parameters["restitution"]),
        "face_normals": normals, "faces": faces, "corners": corners,
        "constraints": constraints.packed,
        "settings": settings,
        "joints": np.array([*plain, *turning], dtype=np.int64),
        "elements": dynamics.packed_elements,
        "geom_gap": m.geom_gap, "body_margin": m.body_margin, "pair_gap": m.pair_gap,
        "pair_geoms": np.stack([m.pair_geom1, m.pair_geom2], axis=1).astype(np.int64),
        "free": np.zeros(2 * m.nv + int(m.nM)),
        "calls": call_addresses(m, d),
        "gravity": dynamics.parameter_forces.gravity,
        "arena_layout": np.array(contact_layout()),
        **{name: getattr(d, name) for name in KINEMATICS},
    })  # fmt: skip


def _with_contacts(model: mujoco.MjModel, margin: float) -> mujoco.MjModel:
    """A copy that finds contacts up to `margin` apart, and leaves all constraints to us."""
    m = copy.copy(model)
    off = mujoco.mjtDisableBit
    m.opt.disableflags &= ~(int(off.mjDSBL_CONSTRAINT) | int(off.mjDSBL_CONTACT))
    m.opt.disableflags |= off.mjDSBL_EQUALITY | off.mjDSBL_LIMIT | off.mjDSBL_FRICTIONLOSS
    m.geom_gap[:] = min(margin, 1.0)
    m.geom_margin[:] = m.pair_margin[:] = 0.0
    set_accuracy(m)
    return m
