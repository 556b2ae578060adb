"""Hard contact at work on one scene: MuJoCo finds contacts, compiled code solves for them and differentiates steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.contact.base import Cotangent, Point
from tangens.contact.constraint_specs import Constraints
from tangens.contact.host_engine import HostEngine
from tangens.contact.interruptible import interruptible
from tangens.contact.rigid.gradients.complementarity_aware import with_touching_contacts, with_wanted_modes
from tangens.contact.rigid.gradients.contact_forces import ContactForces
from tangens.contact.rigid.gradients.contact_motion import EXACT
from tangens.contact.rigid.gradients.contact_parameters import CONTACT_PARAMETERS, parameter_terms
from tangens.contact.rigid.gradients.continuous_bounce import BounceMap, bounce_map
from tangens.contact.rigid.gradients.linearization import (
    Linearization,
    apply_B,
    differentiate,
    forward,
    linearize,
    reverse,
)
from tangens.contact.rigid.gradients.other_answers import other_answer
from tangens.contact.rigid.gradients.other_side import across
from tangens.contact.rigid.gradients.placement import LongTree, long_tree, placement_terms
from tangens.contact.rigid.gradients.redundant_forces import RedundantForces, force_derivative
from tangens.contact.rigid.gradients.switches import (
    Crossing,
    bouncing_jumps,
    first_to_part,
    nearest_switch,
    tilting_jumps,
)
from tangens.contact.rigid.gradients.two_stages import (
    UNAFFECTED,
    Stage,
    force_derivative_of,
    through_both,
    to_the_last_digit,
)
from tangens.contact.rigid.memory.tape import CORRECTION, Solved, gaps_of, inputs_of, read_tape, rotations_of
from tangens.contact.rigid.overlaps import undo_overlaps
from tangens.contact.rigid.problem.contact_problem import BOX, BREAKING, MODE_NAMES
from tangens.contact.rigid.scratch import RigidScratch
from tangens.contact.rigid.solvers.methods import METHODS
from tangens.contact.rigid.step import step as compiled_step
from tangens.contact.rules import (
    ComplementarityAware,
    ContinuousBounce,
    Exact,
    FixedContacts,
    GradientRule,
    OtherSide,
    Randomized,
)
from tangens.dynamics.tangent import integrate_jacobians
from tangens.errors import NotDifferentiable
from tangens.results import NO_CONTACTS, Contacts, Jacobian, SolverReport, Step, Switch
from tangens.scene.support import element_name
from tangens.state import State

if TYPE_CHECKING:
    from tangens.contact.rigid.options import RigidContact
    from tangens.scene import Scene

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

_NO_GUESS = np.zeros(0)
_MANY = 96  # contacts: fewer are solved for, or given up, within about a second
_LOOKS = 6  # for contacts of one step: where v⁺ outruns the search, geoms that met look further, at last all do
_INPUTS = frozenset(("q", "v", "u", "tau"))


class RigidTape(NamedTuple):
    """A solved step, see `memory.tape`, and its report."""

    memory: Array
    report: partial[SolverReport]
    second: Array | None = None
    """Of a step in two stages, the tape of the second one, see `overlaps`."""


class RigidEngine(HostEngine):
    """`ncp` or `lcp` at work on one scene."""

    def __init__(self, scene: Scene, options: RigidContact) -> None:
        self._options, self._h = options, scene.timestep
        m = scene.shared_model
        self._sizes, self._entries = (m.nq, m.nv, m.nu), int(m.nM)
        self._square, self._no_u = (m.nv, m.nv), np.empty((2, m.nv, 0))
        self._layout = scene.joint_layout
        self._friction = scene.parameters["friction"].copy()
        self._shapes = {name: value.shape for name, value in scene.parameters.items()}
        super().__init__(scene, options)

    def new_scratch(self) -> RigidScratch:
        """MuJoCo's data and tables of addresses, for one thread."""
        return RigidScratch(self.scene, self._options)

    # ------------------------------------------------------------------ the step

    def solve(self, scratch: RigidScratch, x: Point, guess: Array | None) -> Step:
        """Advance by one time step."""
        return self.solve_for(scratch, x, guess, self._h, self._options.correction)

    def solve_for(
        self, scratch: RigidScratch, x: Point, guess: Array | None, duration: float, correction: float
    ) -> Step:
        """Advance by some time, undoing a share of each overlap."""
        nc = scratch.prepare(x, duration)
        implicit_h = duration if scratch.damps_implicitly else 0.0
        first = _NO_GUESS if guess is None else guess
        for look in range(_LOOKS + 1):
            found = self._take(scratch, nc, first, duration, implicit_h, correction)
            relaxed, second = 0.0, None
            if correction > 0.0 and self._options.tolerance < found[5] < math.inf:
                found, relaxed, second = self._in_two_stages(scratch, nc, found, duration, implicit_h, correction)
            if look == _LOOKS or found[5] == math.inf or not (found[3] or second is not None):
                break
            more = scratch.look_again(*self._split(found[0]), duration, everywhere=look == _LOOKS - 1)
            if more < 0:
                break
            nc = more
        out, memory, next_guess, _, *numbers = found
        failed = numbers[1] == math.inf
        out.setflags(write=False)  # and with it all views
        nq, nv, _ = self._sizes
        report = partial(_report, self._options.tolerance, relaxed, *numbers)
        contacts = partial(_contacts, out[nq + nv :], nc) if nc else NO_CONTACTS
        state = State.trusted(out[:nq], out[nq : nq + nv])
        return Step(state, contacts, report, RigidTape(memory, report, second), next_guess, self.owner, failed)

    def _take(
        self, scratch: RigidScratch, nc: int, guess: Array, duration: float, implicit_h: float, correction: float
    ) -> Any:
        """The compiled step; those of many contacts may take long, and Ctrl-C has to get through."""
        if nc < _MANY:
            return compiled_step(scratch.addresses, nc, guess, duration, implicit_h, correction)
        task = partial(_step_on, scratch, nc, guess, duration, implicit_h, correction)
        try:
            return interruptible(task)
        except KeyboardInterrupt:
            scratch.abandoned = True  # something still works on it
            raise

    def _in_two_stages(
        self, scratch: RigidScratch, nc: int, unsolved: Any, duration: float, implicit_h: float, correction: float
    ) -> tuple[Any, float, Array | None]:
        """The step again in two stages, see `overlaps`, the velocity that overlaps ask for, and the second tape.

        Where nothing asks for any, or the first stage ends no nearer to the laws, the step stays as it is.
        """
        first = self._take(scratch, nc, _NO_GUESS, duration, implicit_h, 0.0)
        if not first[5] < unsolved[5]:
            return unsolved, 0.0, None
        responses = scratch.trees, scratch.body_responses, scratch.constraint_responses
        out, second, taken, error, asked = undo_overlaps(scratch.addresses, first[1], correction, *responses)
        if asked <= self._options.tolerance:
            return unsolved, 0.0, None
        at = sum(self._sizes[:2]) + 7 * nc
        out[at : at + 3 * nc] += first[0][at : at + 3 * nc]  # forces
        modes, before = out[at + 3 * nc : at + 4 * nc], first[0][at + 3 * nc : at + 4 * nc]
        modes[:] = np.where(before != BREAKING, before, modes)
        _, tape, guess, beyond, iterations, residual, *numbers = first
        found = (out, tape, guess, beyond, iterations + taken, max(residual, error), *numbers)
        return found, asked, second

    def _split(self, out: Array) -> tuple[Array, Array]:
        """q⁺ and v⁺ of what the compiled step reports."""
        nq, nv, _ = self._sizes
        return out[:nq], out[nq : nq + nv]

    # ------------------------------------------------------------------ derivatives

    def switch(self, tape: Any) -> Switch:
        """The nearest switch of a contact law, a limit or dry friction in the step that left the tape."""
        with self.scratch() as scratch:
            near, _ = self._nearest_switch(scratch, tape.memory)
            if tape.second is not None:
                other, _ = self._nearest_switch(scratch, tape.second)
                near = min(near, other, key=lambda switch: switch.distance)
        return near

    def _nearest_switch(self, scratch: RigidScratch, memory: Array) -> tuple[Switch, Crossing | None]:
        m, solved = scratch.model, self.solved(memory)
        namer = partial(_block_name, m, Constraints(self.scene.shared_model), solved.contacts)
        tilting = tilting_jumps(m, solved, rotations_of(scratch.addresses, memory))
        jumps = np.minimum(tilting, self._bouncing_jumps(solved))
        fastest, bodies = self._options.correction_speed, m.geom_bodyid.astype(np.int64)
        near, crossing = nearest_switch(scratch.addresses, memory, solved, fastest, bodies, jumps, namer)
        try:
            lin, _ = self.linearize(scratch, memory, Exact(), with_u=False, with_turn=False)
        except NotDifferentiable:
            return near, crossing
        if near.distance > 0.0 and (b := first_to_part(lin, solved)) is not None:
            return Switch(0.0, "contact", namer(solved.blocks[b])), None
        return near, crossing

    def _bouncing_jumps(self, solved: Solved) -> Array:
        """How far contacts are from the gap at which bodies bounce; infinite for those that do not."""
        return bouncing_jumps(self.scene.parameters["restitution"], solved)

    def _other_side(self, scratch: RigidScratch, tape: RigidTape, within: float) -> RigidTape:
        """The tape of a step just across the nearest switch, if that is near."""
        near, crossing = self._nearest_switch(scratch, tape.memory)
        if near.distance > within:
            return tape
        x, solved, correction = self._inputs(tape.memory), self.solved(tape.memory), float(tape.memory[CORRECTION])

        def take(dv: Array) -> tuple[Step, Solved]:
            out = self.solve_for(scratch, x._replace(v=x.v + dv), None, solved.h, correction)
            return out, self.solved(out.tape.memory)

        lin, _ = self.linearize(scratch, tape.memory, Exact(), with_u=False, with_turn=False)
        out = None if crossing is None else across(near, crossing, solved, take, lin.W @ lin.W.T)
        if out is None:
            raise NotDifferentiable(f"no push leads to the other side of this switch: {near}")
        return RigidTape(*out.tape)

    def has_other_answers(self, tape: Any) -> bool:
        """Whether the laws allow another v⁺ in the step that left the tape."""
        with self.scratch() as scratch:
            return bool(other_answer(scratch.addresses, tape.memory))

    def differentiate(
        self, scratch: RigidScratch, tape: Any, wrt: Sequence[str], with_force: bool, rule: GradientRule
    ) -> Jacobian:
        """Derivative of a step at its modes."""
        if isinstance(rule, OtherSide):
            tape, rule = self._other_side(scratch, tape, rule.within), Exact()
        memory, (_, nv, nu) = tape.memory, self._sizes
        if tape.second is not None:
            return self._jacobian_of_two_stages(scratch, tape, wrt, with_force, rule)
        by_state = np.empty((3, 2, *self._square))
        by_u = np.empty((2, nv, nu)) if "u" in wrt else self._no_u
        if with_force or not _INPUTS.issuperset(wrt):
            J = self._jacobian_in_parts(scratch, tape, wrt, with_force, rule, by_state, by_u)
        else:
            responses, gravcomp = self._responses(scratch, memory, rule), self._gravity_compensation(scratch, memory)
            unknown, ambiguous = differentiate(scratch.addresses, memory, responses, gravcomp, by_state, by_u)
            while unknown >= 0:
                responses = self._by_differences(scratch, memory, responses, unknown)
                unknown, ambiguous = differentiate(scratch.addresses, memory, responses, gravcomp, by_state, by_u)
            J = Jacobian(_StateBlocks(by_state, by_u, wrt), None, not ambiguous, tape.report)
        return self._with_continuous_bounces(tape, J, wrt, with_force) if isinstance(rule, ContinuousBounce) else J

    def _jacobian_in_parts(
        self, scratch: RigidScratch, tape: RigidTape, wrt: Sequence[str], with_force: bool, rule: GradientRule,
        by_state: Array, by_u: Array,
    ) -> Jacobian:  # fmt: skip
        """The same with parameters and contact forces: every input is a pair (R, C), see `linearization`."""
        memory, nv = tape.memory, self._sizes[1]
        lin, responses = self.linearize(scratch, memory, rule, with_u=by_u.shape[2] > 0, with_turn=with_force)
        P, T = forward(scratch.addresses, memory, lin, by_state, by_u)
        blocks = dict(_StateBlocks(by_state, by_u, tuple(name for name in wrt if name in _INPUTS)))
        force: dict[str, Array] = {}
        solved, integrate = self.solved(memory), self.integration(lin.v_next, memory)
        nc = len(solved.contacts)
        open_forces = self._redundant_forces(scratch, memory, responses, lin, solved) if with_force else None
        for name, (R, C) in self._terms(scratch, memory, responses, wrt, lin).items():
            shape, size = R.shape[1:], math.prod(R.shape[1:])
            by_force, by_law = R.reshape(nv, size), C.reshape(len(T.T), size)
            if name not in _INPUTS:
                by_parameter = P @ by_force - T @ by_law
                blocks[name] = np.stack([integrate @ by_parameter, by_parameter]).reshape(2, nv, *shape)
            if with_force:
                d_impulse = -lin.A_inverse @ (through_B(lin, lin.Y @ by_force) + by_law)
                if open_forces is not None:
                    by_null = open_forces.by_configuration() if name == "q" else None
                    d_impulse = open_forces.completed(d_impulse, by_null)
                turn = lin.turn if name == "q" else None
                force[name] = ContactForces.of(solved).derivative(lin.active, d_impulse, turn).reshape(nc, 3, *shape)
        chosen = {name: blocks[name] for name in wrt}
        return Jacobian(chosen, force if with_force else None, not lin.ambiguous, tape.report)

    def _jacobian_of_two_stages(
        self, scratch: RigidScratch, tape: RigidTape, wrt: Sequence[str], with_force: bool, rule: GradientRule
    ) -> Jacobian:
        """See `gradients.two_stages`."""
        for name in ("size", "placement"):
            if name in wrt:
                raise NotDifferentiable(
                    f"overlaps that the laws of contact cannot undo were undone apart from them in this step, which "
                    f"has no derivative by {name}: take the overlap out of the pose, or exclude the pair from collision"
                )
        nv, h = self._sizes[1], self.solved(tape.memory).h
        stages, terms, forces = [], [], None
        assert tape.second is not None
        for memory in (tape.memory, tape.second):
            lin, responses = self.linearize(scratch, memory, rule, with_u="u" in wrt, with_turn=with_force)
            if memory is tape.second:
                lin = to_the_last_digit(lin)
            stages.append(Stage(lin, self.solved(memory)))
            terms.append(self._terms(scratch, memory, responses, wrt, lin))
            if forces is None and "q" in wrt:
                forces = force_derivative(scratch.addresses, memory, responses, stages[0].solved.impulse)
        first, second = stages
        blocks: dict[str, Array] = {}
        force: dict[str, Array] = {}
        by_q, by_dv = integrate_jacobians(self._layout, second.lin.v_next, h * second.lin.v_next)
        for name in wrt:
            shape = terms[0][name][0].shape[1:]
            size = math.prod(shape)
            one, two = ((R.reshape(nv, size), C.reshape(len(C), size)) for R, C in (term[name] for term in terms))
            if name in UNAFFECTED:
                two = np.zeros_like(two[0]), np.zeros_like(two[1])
            dv, *d_impulses = through_both(first, second, one, two, forces if name == "q" else None)
            dq = h * by_dv @ dv + (by_q if name == "q" else 0.0)
            blocks[name] = np.stack([dq, dv]).reshape(2, nv, *shape)
            if with_force:
                change = force_derivative_of((first, second), (d_impulses[0], d_impulses[1]), name == "q")
                force[name] = change.reshape(-1, 3, *shape)
        determinate = not (first.lin.ambiguous or second.lin.ambiguous)
        return Jacobian(blocks, force if with_force else None, determinate, tape.report)

    def carry_back(
        self, scratch: RigidScratch, tape: Any, cotangent: Cotangent, wrt: Sequence[str], rule: GradientRule
    ) -> tuple[dict[str, Array], bool]:
        """Carry ∂L/∂(q⁺, v⁺, forces) back through the step: one linear solve, whatever `wrt` holds."""
        if isinstance(rule, OtherSide):
            tape, rule = self._other_side(scratch, tape, rule.within), Exact()
        memory = tape.memory
        if tape.second is not None:
            return self._carry_back_through_two_stages(scratch, tape, cotangent, wrt, rule)
        back, lin = self._carry_back(scratch, memory, cotangent, wrt, rule)
        if isinstance(rule, ComplementarityAware):
            back = self._aware_of_other_modes(scratch, memory, cotangent, wrt, rule, lin, back)
        elif isinstance(rule, ContinuousBounce) and (bounce := self._bounce_map(memory)) is not None:
            still = cotangent._replace(q=np.zeros_like(cotangent.q))
            by_velocity, _ = self._carry_back(scratch, memory, still, (), rule)
            back["q"] = by_velocity["q"] + cotangent.q @ bounce.q_by_q + cotangent.v @ bounce.more_v_by_q
            back["v"] = by_velocity["v"] + cotangent.q @ bounce.q_by_v + cotangent.v @ bounce.more_v_by_v
        return back, not lin.ambiguous

    def _carry_back_through_two_stages(
        self, scratch: RigidScratch, tape: RigidTape, cotangent: Cotangent, wrt: Sequence[str], rule: GradientRule
    ) -> tuple[dict[str, Array], bool]:
        """By the Jacobian: such steps are rare."""
        names, dforce = tuple(dict.fromkeys((*_INPUTS, *wrt))), cotangent.force
        J = self._jacobian_of_two_stages(scratch, tape, names, dforce is not None, rule)
        back: dict[str, Array] = {}
        for name in names:
            back[name] = np.tensordot(cotangent.q, J["q", name], 1) + np.tensordot(cotangent.v, J["v", name], 1)
            if dforce is not None:
                back[name] = back[name] + np.tensordot(dforce, J["force", name], 2)
        return back, J.determinate

    def _carry_back(
        self, scratch: RigidScratch, memory: Array, cotangent: Cotangent, wrt: Sequence[str], rule: GradientRule
    ) -> tuple[dict[str, Array], Linearization]:
        dforce = cotangent.force
        lin, responses = self.linearize(scratch, memory, rule, with_u=True, with_turn=dforce is not None)
        d_impulse, forces = np.zeros(len(lin.active)), ContactForces.of(self.solved(memory))
        if dforce is not None:
            d_impulse = forces.cotangent(lin.active, dforce)
        by_q, by_v, by_tau, by_u, z, s = reverse(scratch.addresses, memory, lin, cotangent.q, cotangent.v, d_impulse)
        if dforce is not None:
            by_q = by_q + np.einsum("ci,cij->j", np.cross(forces.values(), dforce), lin.turn)
        out = {"q": by_q, "v": by_v, "tau": by_tau, "u": by_u}
        for name, (R, C) in self._terms(scratch, memory, responses, wrt, lin).items():
            out[name] = np.tensordot(z, R, axes=1) - np.tensordot(s, C, axes=1)
        return out, lin

    def _aware_of_other_modes(
        self, scratch: RigidScratch, memory: Array, cotangent: Cotangent, wrt: Sequence[str], rule: GradientRule,
        lin: Linearization, back: dict[str, Array],
    ) -> dict[str, Array]:  # fmt: skip
        """The gradient at the modes that the loss asks for, if it moves more (paper 5, Sec. IV-D)."""
        dv = cotangent.v + self.integration(lin.v_next, memory).T @ cotangent.q
        everyone = with_touching_contacts(scratch.addresses, memory)
        wanted = with_wanted_modes(everyone, self._sizes[1], self._entries, lin, dv)
        if wanted is None:
            return back
        other, _ = self._carry_back(scratch, wanted, cotangent, wrt, rule)
        return other if self._drive(other) > self._drive(back) else back

    def _drive(self, back: Mapping[str, Array]) -> float:
        """How much a gradient would move the motion (paper 5, Sec. IV-D)."""
        return float(back["v"] @ back["v"] + back["tau"] @ back["tau"] / self._h)

    def _with_continuous_bounces(self, tape: RigidTape, J: Jacobian, wrt: Sequence[str], with_force: bool) -> Jacobian:
        """The Jacobian by q and v with what bounces in continuous time would change."""
        bounce = self._bounce_map(tape.memory)
        if bounce is None:
            return J
        inputs = {name: np.stack([J["q", name], J["v", name]]) for name in wrt}
        for name, position, more in (
            ("q", bounce.q_by_q, bounce.more_v_by_q),
            ("v", bounce.q_by_v, bounce.more_v_by_v),
        ):
            if name in inputs:
                inputs[name][0] = position
                inputs[name][1] += more
        force = {name: J["force", name] for name in wrt} if with_force else None
        return Jacobian(inputs, force, J.determinate, tape.report)

    def _bounce_map(self, memory: Array) -> BounceMap | None:
        return bounce_map(self.solved(memory), self._inputs(memory).v)

    # ------------------------------------------------------------------ what derivatives are made of

    def linearize(
        self, scratch: RigidScratch, memory: Array, rule: GradientRule, *, with_u: bool, with_turn: bool
    ) -> tuple[Linearization, Array]:
        """The step's derivative in factors, and the responses of its contacts."""
        responses, gravcomp = self._responses(scratch, memory, rule), self._gravity_compensation(scratch, memory)
        lin = linearize(scratch.addresses, memory, responses, gravcomp, with_u, with_turn)
        while lin.unknown >= 0:
            responses = self._by_differences(scratch, memory, responses, lin.unknown)
            lin = linearize(scratch.addresses, memory, responses, gravcomp, with_u, with_turn)
        return lin, responses

    def solved(self, memory: Array) -> Solved:
        """The contact problem on a tape, for Python to read."""
        return read_tape(memory, self._sizes[1], self._entries)

    def integration(self, v_next: Array, memory: Array) -> Array:
        """∂q⁺/∂v⁺."""
        h = self.solved(memory).h
        return h * integrate_jacobians(self._layout, v_next, h * v_next)[1]

    def _responses(self, scratch: RigidScratch, memory: Array, rule: GradientRule) -> Array:
        if not isinstance(rule, FixedContacts | Randomized):
            return EXACT
        solved = self.solved(memory)
        return scratch.motion.responses(rule, self._inputs(memory).q, solved.contacts, solved.blocks)

    def _by_differences(self, scratch: RigidScratch, memory: Array, responses: Array, c: int) -> Array:
        solved, x = self.solved(memory), self._inputs(memory)
        scratch.place_within(x, solved.h, gaps_of(memory, scratch.model.ngeom))  # within others, it is another contact
        return scratch.motion.with_differences(responses, x.q, solved.contacts, c)

    def _gravity_compensation(self, scratch: RigidScratch, memory: Array) -> Array:
        """Its force and slope by q; empty without it."""
        if not scratch.compensates:
            return _NO_COMPENSATION
        force, by_q = scratch.dynamics.gravity_compensation(*self._inputs(memory))
        return np.vstack([force[None], by_q])

    def _inputs(self, memory: Array) -> Point:
        return Point(*inputs_of(memory, *self._sizes))

    def _terms(
        self, scratch: RigidScratch, memory: Array, responses: Array, names: Sequence[str], lin: Linearization
    ) -> dict[str, tuple[Array, Array]]:
        """R (nv, ...) and C (m, ...) of each input."""
        out: dict[str, tuple[Array, Array]] = {}
        x, h = self._inputs(memory), self.solved(memory).h
        m, nv = len(lin.active), len(x.v)
        regressors: dict[str, Array] = {}
        for name in names:
            if name in ("q", "v"):
                out[name] = lin.R["qv".index(name)], through_B(lin, lin.K["qv".index(name)])
            elif name in ("tau", "u"):
                R = h * np.eye(nv) if name == "tau" else lin.R_u
                out[name] = R, np.zeros((m, R.shape[1]))
            elif name in CONTACT_PARAMETERS:
                which, shape = CONTACT_PARAMETERS.index(name), self._shapes[name]
                R, C = parameter_terms(scratch.addresses, memory, responses, self._friction, lin.slide, which)
                out[name] = R.reshape(nv, *shape), C.reshape(m, *shape)
            elif name == "placement":
                out[name] = self._placement_terms(scratch, memory, responses, lin)
            else:
                force = h * scratch.forces_by_parameter(name, x, (lin.v_next - x.v) / h, h, regressors)
                out[name] = force, np.zeros((m, *force.shape[1:]))
        return out

    def _placement_terms(
        self, scratch: RigidScratch, memory: Array, responses: Array, lin: Linearization
    ) -> tuple[Array, Array]:
        if scratch.compensates or scratch.has_ties:
            what = "gravity compensation" if scratch.compensates else "a connect or weld equality"
            raise NotDifferentiable(f"with {what} in the scene, steps have no derivative by placement")
        m = len(lin.active)
        R, K, unknown = placement_terms(scratch.addresses, memory, responses, m, self.long_tree)
        if unknown >= 0:
            scratch.motion.refuse(self.solved(memory).contacts, unknown)
        return R, through_B(lin, K.reshape(m, math.prod(K.shape[1:]))).reshape(K.shape)

    @cached_property
    def long_tree(self) -> LongTree:
        """The kinematic tree with three sliding joints in front of each body."""
        return long_tree(self.scene.shared_model)

    def _redundant_forces(
        self, scratch: RigidScratch, memory: Array, responses: Array, lin: Linearization, solved: Solved
    ) -> RedundantForces | None:
        """How impulses that the laws leave open change, where the model has a rule for them."""
        if self._options.law != BOX or not len(lin.active):
            return None
        return RedundantForces(scratch.addresses, memory, responses, lin, solved)


_NO_COMPENSATION = np.zeros((0, 0))


def _step_on(scratch: RigidScratch, *arguments: Any) -> Any:
    """The compiled step, which keeps alive what it works on."""
    return compiled_step(scratch.addresses, *arguments)


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


def through_B(lin: Linearization, X: Array) -> Array:  # noqa: N802
    """B·X."""
    out = X.copy()
    apply_B(lin.slide, out)
    return out


def _report(
    tolerance: float, relaxed: float, iterations: int, error: float, signorini: float, cone: float, dissipation: float,
    method: int,
) -> SolverReport:  # fmt: skip
    return SolverReport(error <= tolerance, iterations, error, signorini, cone, dissipation, METHODS[method], relaxed)


def _contacts(found: Array, n: int) -> Contacts:
    """The compiled step's report of its contacts, made readable when somebody asks."""
    modes = tuple([MODE_NAMES[int(i)] for i in found[10 * n : 11 * n]])
    geom = found[11 * n : 13 * n].reshape(n, 2).astype(np.int64)
    position, normal, force = (found[a * n : (a + 3) * n].reshape(n, 3) for a in (0, 3, 7))
    return Contacts(position, normal, found[6 * n : 7 * n], force, geom, modes, None)


def geom_names(m: mujoco.MjModel, geoms: IntArray) -> str:
    """The two geoms of a contact."""
    one, two = (element_name(m, mujoco.mjtObj.mjOBJ_GEOM, int(g)) for g in geoms)
    return f"{one} and {two}"


def _block_name(m: mujoco.MjModel, constraints: Constraints, contacts: Records, block: np.void) -> str:
    """The two geoms of a contact, or the joint or tendon of a limit or of dry friction."""
    source = int(block["source"])
    if source >= 0:
        return geom_names(m, contacts["geom"][source])
    kind, index = constraints.owners[-1 - source]
    return element_name(m, kind, index)
