"""Hard contact at work on one scene: MuJoCo finds contacts, compiled code solves for them and differentiates steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tangens.contact.base import Cotangent, Point
from tangens.contact.constraint_specs import Constraints
from tangens.contact.host_engine import HostEngine
from tangens.contact.interruptible import interruptible
from tangens.contact.rigid.assembly.every_row import every_row
from tangens.contact.rigid.gradients.continuous_bounce import bounce_map, with_bounces
from tangens.contact.rigid.gradients.jacobians import jacobian_in_parts, step_jacobian
from tangens.contact.rigid.gradients.linearizer import INPUTS, Linearizer
from tangens.contact.rigid.gradients.other_answers import other_answer
from tangens.contact.rigid.gradients.other_side import across
from tangens.contact.rigid.gradients.pullbacks import carry_back
from tangens.contact.rigid.gradients.switches import (
    Crossing,
    ball_at_rest,
    bouncing_jumps,
    first_to_part,
    largest_asked_in_pose,
    nearest_closing,
    nearest_switch,
    tilting_jumps,
)
from tangens.contact.rigid.gradients.two_stages import UNKNOWN, carry_back_through_two_stages, jacobian_of_two_stages
from tangens.contact.rigid.memory.tape import CORRECTION, Solved, rotations_of
from tangens.contact.rigid.overlaps import share_to_undo, undo_overlaps
from tangens.contact.rigid.problem.contact_problem import BOX, BREAKING
from tangens.contact.rigid.results import RigidTape, block_name, read_contacts, solver_report
from tangens.contact.rigid.scratch import RigidScratch
from tangens.contact.rigid.step import step as compiled_step
from tangens.contact.rules import ContinuousBounce, Exact, GradientRule, OtherSide
from tangens.errors import NotDifferentiable
from tangens.results import NO_CONTACTS, Jacobian, Step, Switch
from tangens.state import State

if TYPE_CHECKING:
    from tangens.contact.rigid.options import RigidContact
    from tangens.scene import Scene

Array = NDArray[np.float64]

_NO_GUESS = np.zeros(0)
_MANY = 96  # contacts: fewer are solved for, or given up, within about a second
_NEARLY = 0.999  # the largest share of overlaps that the first of two stages undoes
_EASY = 22  # iterations: what takes more went to the methods for hard problems
_LOOKS = 6  # for contacts of one step: where v⁺ outruns the search, geoms that met look further, at last all do


class RigidEngine(HostEngine):
    """`ncp` or `lcp` at work on one scene."""

    def __init__(self, scene: Scene, options: RigidContact) -> None:
        self._options, self._h = options, scene.timestep
        self.linearizer = Linearizer(scene)
        """Reads the tapes of this engine."""
        self._sizes, self._layout = self.linearizer.sizes, scene.joint_layout
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
            found = self._take(scratch, nc, first, duration, implicit_h, correction, correction == 0.0)
            share, second = 1.0, None
            if correction > 0.0 and found[4] > self._options.tolerance:
                found, share, second = self._undo(scratch, nc, found, duration, implicit_h, correction)
            if look == _LOOKS or found[6] == math.inf or not (found[3] or second is not None):
                break
            more = scratch.look_again(*self._split(found[0]), duration, everywhere=look == _LOOKS - 1)
            if more < 0:
                break
            nc = more
        out, relaxed = found[0], found[11] if second is None else max(found[11], found[4])
        out.setflags(write=False)  # and with it all views
        nq, nv, _ = self._sizes
        report = partial(solver_report, self._options.tolerance, relaxed, found[5:11])  # without the tape
        contacts = partial(read_contacts, out, nq + nv, nc) if nc else NO_CONTACTS
        state, tape = State.trusted(out[:nq], out[nq : nq + nv]), RigidTape(found[1], report, second, share)
        return Step(state, contacts, report, tape, found[2], self.owner, found[6] == math.inf)

    def _take(
        self, scratch: RigidScratch, nc: int, guess: Array, duration: float, implicit_h: float, correction: float,
        patient: bool,
    ) -> Any:  # fmt: skip
        """The compiled step."""
        arguments = nc, guess, duration, implicit_h, correction, patient
        if nc < _MANY:  # as below, without the detour
            return compiled_step.unchecked(scratch.addresses, *arguments)
        return self._run(scratch, nc, compiled_step, *arguments)

    @staticmethod
    def _run(scratch: RigidScratch, nc: int, kernel: Callable[..., Any], *arguments: Any) -> Any:
        """A kernel at work on a scratch; with many contacts it may take long, and Ctrl-C has to get through."""
        if nc < _MANY:
            return kernel(scratch.addresses, *arguments)
        try:
            return interruptible(partial(_run_on, scratch, kernel, *arguments))
        except KeyboardInterrupt:
            scratch.abandoned = True  # something still works on it
            raise

    def _undo(
        self, scratch: RigidScratch, nc: int, plain: Any, duration: float, implicit_h: float, correction: float
    ) -> tuple[Any, float, Array | None]:
        """A step with overlaps, by the laws of contact as far as those can undo them, else in two stages.

        Returns what is reported of it, the share that the laws undo, and the second stage's tape.
        """
        share, tolerance = self._run(scratch, nc, share_to_undo, plain[1], plain[4]), self._options.tolerance
        if share == 1.0 and plain[6] > tolerance:
            plain = self._take(scratch, nc, _NO_GUESS, duration, implicit_h, correction, True)
        if share == 1.0 and not tolerance < plain[6] < math.inf:
            return plain, 1.0, None
        missed = 0.0
        for attempt in (min(share, _NEARLY), 0.0):
            share, first = attempt, self._take(scratch, nc, _NO_GUESS, duration, implicit_h, attempt * correction, True)
            if first[6] <= tolerance:
                break
            missed = first[6]  # this share has an answer, which nobody found: the report says so
        responses = scratch.trees, scratch.body_responses, scratch.constraint_responses
        out, second, taken, error, asked = self._run(scratch, nc, undo_overlaps, first[1], correction, *responses)
        at = sum(self._sizes[:2]) + 7 * nc
        out[at : at + 3 * nc] += first[0][at : at + 3 * nc]  # forces
        modes, before = out[at + 3 * nc : at + 4 * nc], first[0][at + 3 * nc : at + 4 * nc]
        modes[:] = np.where(before != BREAKING, before, modes)
        _, tape, guess, beyond, _, iterations, residual, *numbers = first
        residual, iterations = max(residual, error, missed), iterations + taken
        return (out, tape, guess, beyond, asked, iterations, residual, *numbers), share, second

    def _split(self, out: Array) -> tuple[Array, Array]:
        """q⁺ and v⁺ of what the compiled step reports."""
        nq, nv, _ = self._sizes
        return out[:nq], out[nq : nq + nv]

    # ------------------------------------------------------------------ derivatives

    def refused(self, tape: Any) -> frozenset[str]:
        """Parameters by which the step that left the tape has no derivative."""
        in_scene = frozenset(("placement",)) if self.linearizer.placement_is_fixed_by else frozenset[str]()
        return in_scene if tape.second is None else in_scene | UNKNOWN

    def switch(self, tape: Any) -> Switch:
        """The nearest switch of a contact law, a limit or dry friction in the step that left the tape."""
        with self.scratch() as scratch:
            near, _ = self._nearest_switch(scratch, tape.memory)
            if tape.second is not None:
                other, _ = self._nearest_switch(scratch, tape.second)
                solved = self.linearizer.solved(tape.second)
                closing = nearest_closing(solved, self._namer(scratch, solved))
                near = min(near, other, closing, key=lambda switch: switch.distance)
            jams = self._jams_beside(scratch, tape.memory) if tape.second is None else 0.0 < tape.share < 1.0
        if jams:  # the share that is undone changes with the state, which the derivative does not follow
            return Switch(0.0, "overlaps", "friction or bodies that are about to jam")
        return near

    def _jams_beside(self, scratch: RigidScratch, memory: Array) -> bool:
        """Whether a step by the laws alone has neighbours in two stages.

        What takes part asks for nothing, so that nobody looked at overlaps that part by themselves: whether they can be
        undone is a property of the pose, and asked as soon as anything else is off by a hair.
        """
        solved, tolerance = self.linearizer.solved(memory), self._options.tolerance
        if not len(solved.blocks) or memory[CORRECTION] == 0.0:
            return False
        _, target, blocks = every_row(scratch.addresses, memory)
        asked = largest_asked_in_pose(blocks, target, solved.contacts)
        return asked > tolerance and self._run(scratch, len(solved.contacts), share_to_undo, memory, asked) < 1.0

    def _nearest_switch(self, scratch: RigidScratch, memory: Array) -> tuple[Switch, Crossing | None]:
        m, solved = scratch.model, self.linearizer.solved(memory)
        namer = self._namer(scratch, solved)
        tilting = tilting_jumps(m, solved, rotations_of(scratch.addresses, memory))
        jumps = np.minimum(tilting, self._bouncing_jumps(solved))
        fastest, bodies = self._options.correction_speed, m.geom_bodyid.astype(np.int64)
        near, crossing = nearest_switch(scratch.addresses, memory, solved, fastest, bodies, jumps, namer)
        resting = ball_at_rest(self.scene.shared_model, self.linearizer.inputs(memory).q, solved)
        if resting.distance < near.distance:
            near, crossing = resting, None
        try:
            lin, _ = self.linearizer.linearize(scratch, memory, Exact(), with_u=False, with_turn=False)
        except NotDifferentiable:
            return near, crossing
        if near.distance > 0.0 and (b := first_to_part(lin, solved)) is not None:
            return Switch(0.0, "contact", namer(solved.blocks[b])), None
        return near, crossing

    def _namer(self, scratch: RigidScratch, solved: Solved) -> Callable[[np.void], str]:
        return partial(block_name, scratch.model, Constraints(self.scene.shared_model), solved.contacts)

    def _bouncing_jumps(self, solved: Solved) -> Array:
        """How far contacts are from the gap at which bodies bounce; infinite for those that do not."""
        return bouncing_jumps(self.scene.parameters["restitution"], solved)

    def _other_side(self, scratch: RigidScratch, tape: RigidTape, within: float) -> RigidTape:
        """The tape of a step just across the nearest switch, if that is near."""
        near, crossing = self._nearest_switch(scratch, tape.memory)
        if near.distance > within:
            return tape
        x, solved = self.linearizer.inputs(tape.memory), self.linearizer.solved(tape.memory)

        def take(dv: Array) -> tuple[Step, Solved]:
            out = self.solve_for(scratch, x._replace(v=x.v + dv), None, solved.h, float(tape.memory[CORRECTION]))
            return out, self.linearizer.solved(out.tape.memory)

        lin, _ = self.linearizer.linearize(scratch, tape.memory, Exact(), with_u=False, with_turn=False)
        out = None if crossing is None else across(near, crossing, solved, take, lin.W @ lin.W.T)
        if out is None:
            raise NotDifferentiable(f"no push leads to the other side of this switch: {near}")
        return RigidTape(*out.tape)

    def has_other_answers(self, tape: Any) -> bool:
        """Whether the laws allow another v⁺ in the step that left the tape."""
        with self.scratch() as scratch:
            hard = tape.report().iterations > _EASY
            return bool(
                self._run(scratch, len(self.linearizer.solved(tape.memory).contacts), other_answer, tape.memory, hard)
            )

    def differentiate(
        self, scratch: RigidScratch, tape: Any, wrt: Sequence[str], with_force: bool, rule: GradientRule
    ) -> Jacobian:
        """Derivative of a step at its modes."""
        if isinstance(rule, OtherSide):
            tape, rule = self._other_side(scratch, tape, rule.within), Exact()
        if tape.second is not None:
            return jacobian_of_two_stages(self.linearizer, scratch, tape, wrt, with_force, rule)
        if with_force or not INPUTS.issuperset(wrt):
            shares_load = self._options.law == BOX
            J = jacobian_in_parts(self.linearizer, scratch, tape, wrt, with_force, rule, shares_load)
        else:
            J = step_jacobian(self.linearizer, scratch, tape, wrt, rule)
        if isinstance(rule, ContinuousBounce):
            bounce = bounce_map(self.linearizer.solved(tape.memory), self.linearizer.inputs(tape.memory).v)
            return J if bounce is None else with_bounces(bounce, J, wrt, with_force)
        return J

    def carry_back(
        self, scratch: RigidScratch, tape: Any, cotangent: Cotangent, wrt: Sequence[str], rule: GradientRule
    ) -> tuple[dict[str, Array], bool]:
        """Carry ∂L/∂(q⁺, v⁺, forces) back through the step."""
        if isinstance(rule, OtherSide):
            tape, rule = self._other_side(scratch, tape, rule.within), Exact()
        if tape.second is not None:
            return carry_back_through_two_stages(self.linearizer, scratch, tape, cotangent, wrt, rule)
        return carry_back(self.linearizer, scratch, tape.memory, cotangent, wrt, rule)


def _run_on(scratch: RigidScratch, kernel: Callable[..., Any], *arguments: Any) -> Any:
    """A kernel, which keeps alive what it works on."""
    return kernel(scratch.addresses, *arguments)
