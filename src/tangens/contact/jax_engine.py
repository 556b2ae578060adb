"""Engines of contact models in JAX: the door between pure functions of arrays and the rest of the library.

A subclass says which `PureModel` a scene has (`model`), what scenes share it (`key`), and the numbers of its own scene
(`numbers`). All else is here: compiling, double precision, tapes, derivatives, batches, the pure function.

What a step leaves behind are NumPy arrays: tapes and guesses can be copied, pickled and sent to other processes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tangens.contact.base import ContactModel, Cotangent, Engine, Point, PureStep
from tangens.contact.batch import Steps
from tangens.contact.compiling import FUNCTIONS
from tangens.contact.jax_batch import LANES, gathered, is_usable, take_jacobians, take_steps
from tangens.contact.jax_derivatives import hessian_of, hessian_product_of, jacobian_of, pullback_of
from tangens.contact.jax_function import pure_step
from tangens.contact.jax_model import Inputs, PureModel, Solution
from tangens.contact.rules import Exact, GradientRule
from tangens.errors import SolverError
from tangens.results import NO_CONTACTS, Jacobian, SolverReport, Step
from tangens.scene import Scene
from tangens.state import State

Array = NDArray[np.float64]
Named = dict[str, Any]

_EXACT = Exact()
_MODELS: WeakValueDictionary[Hashable, PureModel] = WeakValueDictionary()  # of all engines that are alive
_NO_GUESSES: WeakKeyDictionary[PureModel, Any] = WeakKeyDictionary()


class Tape(NamedTuple):
    """What the derivative of a step needs."""

    x: Point
    v_next: Array
    memory: Any
    """Of the model's own."""
    report: SolverReport
    room: int


class Guess(NamedTuple):
    """What the step after may start its solver from."""

    memory: Any
    room: int


class JaxEngine(Engine):
    """A contact model in JAX at work on one scene."""

    method = ""
    """Name of the solver, for reports."""
    small = 24
    """Up to this nv, reverse mode multiplies with the Jacobian: on a cube, nv = 6, that takes no longer than a function
    of its own, which would have to be compiled, too."""
    first_room = 1
    """What `model` is made with at first, if not told otherwise: doubled for steps that turn out to be crowded."""

    def __init__(self, scene: Scene, contact: ContactModel, hands_on: bool = False) -> None:
        super().__init__(scene, contact)
        self._hands_on = hands_on  # whether steps hand their memory to the next one
        self._key = (type(self), *self.key())
        with jax.enable_x64(True):
            self._models = {self.first_room: self.shared_model(self.first_room)}
            # Arrays of our own: JAX remembers in which precision it has seen one of NumPy.
            self.parameters, self.settings = jax.tree.map(jnp.array, self.numbers())
        self.known = (*Point._fields, *contact.parameters)
        """What derivatives are taken by; parameters that are no plain arrays have theirs in `function` alone."""

    # ------------------------------------------------------------------ what a subclass writes

    @abstractmethod
    def key(self) -> tuple[Hashable, ...]:
        """What two scenes have in common that can share a model and its compiled functions."""

    @abstractmethod
    def model(self, room: int | None) -> PureModel:
        """The model of all scenes with this key; `room` bounds how much is solved for, None is no bound."""

    @abstractmethod
    def numbers(self) -> tuple[Named, Named]:
        """The parameters of this scene, and the settings."""

    def smooth_settings(self, rule: GradientRule) -> Named | None:
        """The settings of the equations that this rule differentiates; None: those of the step."""
        del rule
        return None

    def hurried(self) -> Named | None:
        """Settings under which a batch takes its steps first: slow ones pause, and are taken again, together.

        None: there is no such thing. A portion of a batch is done when its slowest step is.
        """
        return None

    def check(self, wrt: Sequence[str]) -> None:
        """Raise NotDifferentiable for a parameter that this scene has no derivative by."""

    # ------------------------------------------------------------------ one step

    def step(self, x: Point, guess: Guess | None = None) -> Step:
        """Advance by one time step."""
        room, memory = (self.first_room, None) if guess is None else (guess.room, guess.memory)
        with jax.enable_x64(True):
            solution, room = self._solve(Inputs(x, self.parameters, self.settings), memory, room)
            found = jax.tree.map(np.asarray, solution)
        q, v, contacts, memory = found.q, found.v, found.contacts, found.memory
        report = self._report(solution)
        q.flags.writeable = v.flags.writeable = False
        state = State.trusted(q, v)
        if report.failed:
            return Step(state, NO_CONTACTS, report, owner=self.owner, failed=True)
        tape = Tape(Point(*map(np.array, x)), v, memory, report, room)
        handed = Guess(memory, room) if self._hands_on and report.converged else None
        return Step(state, lambda: gathered(contacts), report, tape, handed, self.owner)

    def _solve(self, inputs: Inputs, memory: Any, room: int) -> tuple[Solution, int]:
        """Solve a step, from the memory of another one if there is one, with as much room as it takes."""
        while True:
            # With a guess or without, it is the same function: one to compile.
            start = self._no_guess(inputs, room) if memory is None and self._hands_on else memory
            given = (start,) if self._hands_on else ()
            solution: Solution = self.compiled("solve", room, lambda m: m.solve, len(given))(inputs, *given)
            if not solution.crowded:
                return solution, room
            room, memory = 2 * room, None

    def _no_guess(self, inputs: Inputs, room: int) -> Any:
        model = self._models.setdefault(room, self.shared_model(room))
        if model not in _NO_GUESSES:  # half a second of tracing
            shapes = jax.eval_shape(model.no_guess, inputs)
            _NO_GUESSES[model] = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
        return _NO_GUESSES[model]

    def _report(self, solution: Solution) -> SolverReport:
        usable = bool(is_usable(*map(np.asarray, (solution.q, solution.v, solution.residual))))
        residual = float(solution.residual) if usable else float("inf")
        converged = bool(solution.converged) and usable
        return SolverReport(
            converged, int(solution.iterations), residual, method=self.method, relaxation=float(solution.relaxation)
        )

    # ------------------------------------------------------------------ derivatives

    def jacobian(self, tape: Tape, wrt: Sequence[str], with_force: bool, rule: GradientRule) -> Jacobian:
        """Derivative of the step that left the tape."""
        del with_force
        self.check(wrt)
        with jax.enable_x64(True):
            inputs, memory, report = self._equations(tape, rule)
            run = self.compiled("jacobian", tape.room, lambda model: jacobian_of(model, self.known))
            found = run(inputs, tape.v_next, memory)
            blocks = {name: np.asarray(found[name]) for name in wrt}
        _refuse_infinite(blocks)
        return Jacobian(blocks, solver=report)

    def pullback(
        self, tape: Tape, cotangent: Cotangent, wrt: Sequence[str], rule: GradientRule
    ) -> tuple[dict[str, Array], bool]:
        """Derivative of a loss by the inputs of the step that left the tape."""
        self.check(wrt)
        with jax.enable_x64(True):
            inputs, memory, _ = self._equations(tape, rule)
            if self.scene.nv <= self.small:
                run = self.compiled("jacobian", tape.room, lambda model: jacobian_of(model, self.known))
                found, rows = run(inputs, tape.v_next, memory), np.stack([cotangent.q, cotangent.v])
                blocks = {name: np.tensordot(rows, np.asarray(found[name]), 2) for name in (*Point._fields, *wrt)}
            else:
                run = self.compiled("pullback", tape.room, lambda model: pullback_of(model, self.known))
                found = run(inputs, tape.v_next, memory, (cotangent.q, cotangent.v))
                blocks = {name: np.asarray(found[name]) for name in (*Point._fields, *wrt)}
        _refuse_infinite(blocks)
        return blocks, True

    def _equations(self, tape: Tape, rule: GradientRule) -> tuple[Inputs, Any, SolverReport]:
        """The equations that a rule differentiates, and their solution: that of the tape, or one of their own."""
        inputs, smooth = Inputs(tape.x, self.parameters, self.settings), self.smooth_settings(rule)
        if smooth is None:
            return inputs, tape.memory, tape.report
        inputs = inputs._replace(settings=smooth)
        solution, _ = self._solve(inputs, None, tape.room)
        return inputs, solution.memory, self._report(solution) if tape.report.converged else tape.report

    def hessian(self, x: Point, cotangent: Cotangent, wrt: Sequence[str]) -> dict[tuple[str, str], Array]:
        """Second derivatives, of models that JAX can differentiate."""
        if not self._models[self.first_room].is_explicit:
            return super().hessian(x, cotangent, wrt)
        self.check(wrt)
        with jax.enable_x64(True):
            run = self.compiled("hessian", self.first_room, lambda model: hessian_of(model, tuple(wrt)), tuple(wrt))
            found = run(Inputs(x, self.parameters, self.settings), (cotangent.q, cotangent.v))
            blocks = {(a, b): np.asarray(found[a][b]) for a in wrt for b in wrt}
        _refuse_infinite({f"{a} and {b}": block for (a, b), block in blocks.items()})
        return blocks

    def hessian_product(self, x: Point, cotangent: Cotangent, direction: Mapping[str, Array]) -> dict[str, Array]:
        """Second derivatives along a direction, of models that JAX can differentiate."""
        if not self._models[self.first_room].is_explicit:
            return super().hessian_product(x, cotangent, direction)
        self.check(tuple(direction))
        with jax.enable_x64(True):
            run = self.compiled("hessian product", self.first_room, hessian_product_of, tuple(direction))
            inputs = Inputs(x, self.parameters, self.settings)
            found = run(inputs, (cotangent.q, cotangent.v), dict(direction))
            blocks = {name: np.asarray(block) for name, block in found.items()}
        _refuse_infinite(blocks)
        return blocks

    # ------------------------------------------------------------------ batches

    def steps(self, x: Point, parameters: Mapping[str, Any] | None = None, lanes: int = LANES) -> Steps:
        """A step from each row of a batch; `lanes` are taken at once, each number of them is compiled for itself."""
        return take_steps(self, x, parameters, lanes)

    def jacobians(self, steps: Steps, wrt: Sequence[str], rule: GradientRule = _EXACT) -> dict[str, Array]:
        """Derivatives of all steps of a batch; where one does not exist, its entries are not finite."""
        self.check(wrt)
        return take_jacobians(self, steps, wrt, rule)

    # ------------------------------------------------------------------ the pure function

    def function(self, rule: GradientRule) -> PureStep:
        """The step as a pure JAX function, with room for all there may be."""
        model = self.shared_model(None)
        single = self.model(None) if model.is_explicit else model
        return pure_step(model, single, self.parameters, self.settings, self.smooth_settings(rule), self.scene.nu)

    # ------------------------------------------------------------------ what engines share

    def shared_model(self, room: int | None) -> PureModel:
        """The model of this engine, and of all others with its key."""
        key = (self._key, room)
        found = _MODELS.get(key)
        if found is None:
            with jax.enable_x64(True):
                found = _MODELS[key] = self.model(room)
        return found

    def compiled(
        self, what: str, room: int, make: Callable[[PureModel], Callable[..., Any]], *more: Hashable
    ) -> Callable[..., Any]:
        """The compiled function of this name, made of the model for so much room."""

        def made() -> Callable[..., Any]:
            self._models.setdefault(room, self.shared_model(room))
            return make(self._models[room])

        return FUNCTIONS((self._key, room, what, *more), made)


def _refuse_infinite(blocks: dict[str, Array]) -> None:
    for name, block in blocks.items():
        if not np.isfinite(block).all():
            raise SolverError(
                f"the derivative of this step by {name} is not finite: its equations have no regular solution. "
                "Differentiate more relaxed ones, if the model can: gradient=tangens.Relaxed(...)"
            )
