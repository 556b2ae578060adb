"""Steps of one scene, linearised, and what each input adds: every input is a pair (R, C), see `linearization`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.contact.base import Point
from tangens.contact.rigid.gradients.contact_motion import EXACT
from tangens.contact.rigid.gradients.contact_parameters import CONTACT_PARAMETERS, parameter_gradient, parameter_terms
from tangens.contact.rigid.gradients.linearization import Linearization, linearize, through_B
from tangens.contact.rigid.gradients.placement import LongTree, long_tree, placement_terms
from tangens.contact.rigid.memory.tape import DURATION, Solved, gaps_of, inputs_of, read_tape
from tangens.contact.rules import FixedContacts, GradientRule, Randomized
from tangens.dynamics.parameter_forces import PARAMETERS
from tangens.dynamics.tangent import integrate_jacobians
from tangens.errors import NotDifferentiable

if TYPE_CHECKING:
    from tangens.contact.rigid.scratch import RigidScratch
    from tangens.scene import Scene

Array = NDArray[np.float64]

INPUTS = frozenset(("q", "v", "u", "tau"))
_NO_COMPENSATION = np.zeros((0, 0))


class Linearizer:
    """Reads tapes of one scene; immutable, and shared by all threads."""

    def __init__(self, scene: Scene) -> None:
        m = scene.shared_model
        self.sizes = (m.nq, m.nv, m.nu)
        """nq, nv and nu."""
        self.entries = int(m.nM)
        """Length of M."""
        self.layout = scene.joint_layout
        self.shapes = {name: value.shape for name, value in scene.parameters.items()}
        """Of all parameters."""
        self._scene, self._friction = scene, scene.parameters["friction"].copy()
        self.placement_is_fixed_by = _fixed_by(m)
        """What in the scene keeps steps from having a derivative by placement; empty if nothing does."""

    def solved(self, memory: Array) -> Solved:
        """The contact problem on a tape, for Python to read."""
        return read_tape(memory, self.sizes[1], self.entries)

    def inputs(self, memory: Array) -> Point:
        """The inputs of the step on a tape."""
        return Point(*inputs_of(memory, *self.sizes))

    def linearize(
        self, scratch: RigidScratch, memory: Array, rule: GradientRule, *, with_u: bool, with_turn: bool
    ) -> tuple[Linearization, Array]:
        """The step's derivative in factors, and the responses of its contacts."""
        responses, gravcomp = self.responses(scratch, memory, rule), self.gravity_compensation(scratch, memory)
        lin = linearize(scratch.addresses, memory, responses, gravcomp, with_u, with_turn)
        while lin.unknown >= 0:
            responses = self.by_differences(scratch, memory, responses, lin.unknown)
            lin = linearize(scratch.addresses, memory, responses, gravcomp, with_u, with_turn)
        return lin, responses

    def integration(self, v_next: Array, memory: Array) -> Array:
        """∂q⁺/∂v⁺."""
        h = self.solved(memory).h
        return h * integrate_jacobians(self.layout, v_next, h * v_next)[1]

    def responses(self, scratch: RigidScratch, memory: Array, rule: GradientRule) -> Array:
        """How contacts answer motion of their bodies, as far as a rule says; the rest is compiled."""
        if not isinstance(rule, FixedContacts | Randomized):
            return EXACT
        solved = self.solved(memory)
        return scratch.motion.responses(rule, self.inputs(memory).q, solved.contacts, solved.blocks)

    def by_differences(self, scratch: RigidScratch, memory: Array, responses: Array, c: int) -> Array:
        """The responses with those of a contact that no formula knows."""
        solved, x = self.solved(memory), self.inputs(memory)
        scratch.place_within(x, solved.h, gaps_of(memory, scratch.model.ngeom))  # within others, it is another contact
        return scratch.motion.with_differences(responses, x.q, solved.contacts, c)

    def gravity_compensation(self, scratch: RigidScratch, memory: Array) -> Array:
        """Its force and slope by q; empty without it."""
        if not scratch.compensates:
            return _NO_COMPENSATION
        force, by_q = scratch.dynamics.gravity_compensation(*self.inputs(memory))
        return np.vstack([force[None], by_q])

    def terms(
        self, scratch: RigidScratch, memory: Array, responses: Array, names: Sequence[str], lin: Linearization
    ) -> dict[str, tuple[Array, Array]]:
        """R (nv, ...) and C (m, ...) of each input."""
        out: dict[str, tuple[Array, Array]] = {}
        x, h = self.inputs(memory), self.solved(memory).h
        m, nv = len(lin.active), len(x.v)
        regressors: dict[str, Array] = {}
        for name in names:
            if name in ("q", "v"):
                out[name] = lin.R["qv".index(name)], through_B(lin, lin.K["qv".index(name)])
            elif name in ("tau", "u"):
                R = h * np.eye(nv) if name == "tau" else lin.R_u
                out[name] = R, np.zeros((m, R.shape[1]))
            elif name in CONTACT_PARAMETERS:
                which, shape = CONTACT_PARAMETERS.index(name), self.shapes[name]
                R, C = parameter_terms(scratch.addresses, memory, responses, self._friction, lin.slide, which)
                out[name] = R.reshape(nv, *shape), C.reshape(m, *shape)
            elif name == "placement":
                out[name] = self._placement_terms(scratch, memory, responses, lin)
            else:
                force = h * scratch.forces_by_parameter(name, x, (lin.v_next - x.v) / h, h, regressors)
                out[name] = force, np.zeros((m, *force.shape[1:]))
        return out

    def carried_back(
        self, scratch: RigidScratch, memory: Array, responses: Array, names: Sequence[str], lin: Linearization,
        z: Array, s: Array,
    ) -> dict[str, Array]:  # fmt: skip
        """z·R − s·C of each parameter: what `reverse` makes of a cotangent. Whole regressors are not needed for it."""
        h, v = float(memory[DURATION]), inputs_of(memory, *self.sizes)[1]
        smooth = [name for name in names if name in PARAMETERS]
        out = scratch.parameters_carried_back(smooth, memory, h, v, (lin.v_next - v) / h, h * z) if smooth else {}
        for name in names:
            if name in CONTACT_PARAMETERS:
                which = CONTACT_PARAMETERS.index(name)
                found = parameter_gradient(scratch.addresses, memory, responses, self._friction, lin.slide, which, z, s)
                out[name] = found.reshape(self.shapes[name])
            elif name == "placement":
                R, C = self._placement_terms(scratch, memory, responses, lin)
                out[name] = np.tensordot(z, R, axes=1) - np.tensordot(s, C, axes=1)
        return out

    def _placement_terms(
        self, scratch: RigidScratch, memory: Array, responses: Array, lin: Linearization
    ) -> tuple[Array, Array]:
        if what := self.placement_is_fixed_by:
            raise NotDifferentiable(f"with {what} in the scene, steps have no derivative by placement")
        m = len(lin.active)
        R, K, unknown = placement_terms(scratch.addresses, memory, responses, m, self.long_tree)
        if unknown >= 0:
            scratch.motion.refuse(self.solved(memory).contacts, unknown)
        return R, through_B(lin, K.reshape(m, math.prod(K.shape[1:]))).reshape(K.shape)

    @cached_property
    def long_tree(self) -> LongTree:
        """The kinematic tree with three sliding joints in front of each body."""
        return long_tree(self._scene.shared_model)


def _fixed_by(m: mujoco.MjModel) -> str:
    ties = (int(mujoco.mjtEq.mjEQ_CONNECT), int(mujoco.mjtEq.mjEQ_WELD))
    if m.body_gravcomp.any():
        return "gravity compensation"
    return "a connect or weld equality" if np.isin(m.eq_type, ties).any() else ""
