"""What a contact model is to the rest of the library.

A `ContactModel` is a choice with its options, small and immutable. `bind` turns it into an `Engine` for one scene. A
step is a value: the result of `Engine.step` carries a *tape*, all that its derivative needs, and a *guess* for the step
after it. Engines keep nothing between calls, so the same call gives the same numbers, whatever came before.

Engines come from two base classes: `HostEngine` for models in numba, `JaxEngine` for models in JAX. Arrays that reach
an engine have been checked: float64, finite, of the scene's sizes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tangens.contact.batch import Steps, differentiate_one_by_one, take_one_by_one
from tangens.contact.capabilities import EVERYTHING, refuse_unsupported
from tangens.contact.rules import Exact, GradientRule
from tangens.errors import NotDifferentiable, OptionError
from tangens.results import NO_SWITCH, Jacobian, Owner, Step, Switch

if TYPE_CHECKING:
    from tangens.scene import Scene

Array = NDArray[np.float64]

T = TypeVar("T")

_EXACT = Exact()
_KEPT = 64  # engines for other parameters than the scene's own


class Point(NamedTuple):
    """Where a step starts, and what drives it. In a batch, each array has a leading axis."""

    q: Array
    v: Array
    u: Array
    tau: Array


class Cotangent(NamedTuple):
    """∂L/∂(results of a step), in the tangent space of q⁺."""

    q: Array
    v: Array
    force: Array | None = None
    """By the contact forces, shape (n, 3); only for models whose `forces` is true."""


class Engine(ABC):
    """One contact model at work on one scene; immutable, and shared between threads."""

    def __init__(self, scene: Scene, contact: ContactModel) -> None:
        refuse_unsupported(scene, contact)
        self.scene = scene
        self.contact = contact
        self.owner = Owner(contact, lambda: scene.fingerprint)
        """What its steps are marked with."""
        self._relatives: OrderedDict[bytes, Engine] = OrderedDict()
        self._lock = Lock()

    @abstractmethod
    def step(self, x: Point, guess: Any = None) -> Step:
        """Advance by one time step, from the guess that another step's result carries if one is given.

        A step that fails says so in its report; raising is left to the caller.
        """

    @abstractmethod
    def jacobian(self, tape: Any, wrt: Sequence[str], with_force: bool, rule: GradientRule) -> Jacobian:
        """Derivative of the step that left the tape, by each input in `wrt`; of its contact forces too, if asked."""

    @abstractmethod
    def pullback(
        self, tape: Any, cotangent: Cotangent, wrt: Sequence[str], rule: GradientRule
    ) -> tuple[dict[str, Array], bool]:
        """∂L/∂(q, v, u, tau) and by each parameter in `wrt`; and whether the laws determine v⁺ at the step's modes."""

    def steps(self, x: Point, parameters: Mapping[str, Any] | None = None) -> Steps:
        """A step from each row of a batch; parameters that differ between rows have a leading axis, too.

        Failure is data: a step that fails is marked, and the others are as if they were alone.
        """
        return take_one_by_one(self, x, parameters or {}, self.each)

    def jacobians(self, steps: Steps, wrt: Sequence[str], rule: GradientRule = _EXACT) -> dict[str, Array]:
        """Derivatives of all steps of a batch by each input in `wrt`, stacked over q⁺ and v⁺: (n, 2, nv, ...).

        Not a number where a step failed.
        """
        return differentiate_one_by_one(self, steps, wrt, rule, self.each)

    def each(self, task: Callable[[int], T], count: int) -> list[T]:
        """task(0) to task(count − 1)."""
        return [task(i) for i in range(count)]

    def derivative_shape(self, name: str) -> tuple[int, ...]:
        """Shape of ∂v⁺/∂(an input or a parameter)."""
        nv, nu = self.scene.nv, self.scene.nu
        inputs = {"q": (nv,), "v": (nv,), "u": (nu,), "tau": (nv,)}
        return nv, *(inputs[name] if name in inputs else self.scene.parameters[name].shape)

    def with_parameters(self, parameters: Mapping[str, Array]) -> Engine:
        """The engine of the scene with other parameters; binding one takes milliseconds, so some are kept."""
        known = self.scene.parameters
        changed: dict[str, Any] = {
            name: value for name, value in parameters.items() if not np.array_equal(value, known[name])
        }
        if not changed:
            return self
        key = b"".join(name.encode() + value.tobytes() for name, value in sorted(changed.items()))
        with self._lock:
            if key not in self._relatives:
                self._relatives[key] = self.contact.bind(self.scene.replace(**changed))
                while len(self._relatives) > _KEPT:
                    self._relatives.popitem(last=False)
            return self._relatives[key]

    def refused(self, tape: Any) -> frozenset[str]:
        """Parameters of the model by which the step that left the tape has no derivative; asked for, they raise."""
        del tape
        return frozenset()

    def switch(self, tape: Any) -> Switch:
        """The nearest switch of a law in the step that left the tape; none unless the model has some."""
        return NO_SWITCH

    def has_other_answers(self, tape: Any) -> bool:
        """Whether a search finds another v⁺ that the laws allow in that step; never unless the model has several."""
        del tape
        return False

    @abstractmethod
    def function(self, rule: GradientRule) -> PureStep:
        """The step as a pure JAX function."""

    def inverse_dynamics(self, x: Point, acceleration: Array) -> Array:
        """The tau of a step from x that ends with (v⁺ − v) / h = acceleration; that of x is not looked at."""
        del x, acceleration
        raise OptionError(
            f"contact model {self.contact.name!r} has no inverse dynamics: its forces are found by solving for the "
            'motion, and many of them allow the same one. contact="soft", "convex" and None have it'
        )

    def hessian(self, x: Point, cotangent: Cotangent, wrt: Sequence[str]) -> dict[tuple[str, str], Array]:
        """Second derivative of cotangent·(q⁺, v⁺) by each two inputs in `wrt`."""
        del x, cotangent, wrt
        raise _first_order_only(self.contact)

    def hessian_product(self, x: Point, cotangent: Cotangent, direction: Mapping[str, Array]) -> dict[str, Array]:
        """The same times a direction, by each input that the direction names."""
        del x, cotangent, direction
        raise _first_order_only(self.contact)


def _first_order_only(contact: ContactModel) -> NotDifferentiable:
    return NotDifferentiable(
        f"contact model {contact.name!r} has first derivatives only: it is solved, and switches. "
        'contact="soft" has second ones, everywhere'
    )


PureStep = Callable[[Mapping[str, Any] | None, Any, Any, Any, Any], tuple[Any, Any]]
"""(parameters, q, v, u, tau) -> (q⁺, v⁺) in JAX: for jit, grad, jacfwd, jacrev, vmap and scan."""


class ContactModel(ABC):
    """A way of modelling contact: its name, what it can be differentiated by, its options as fields."""

    name: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]]
    """Scene parameters that a derivative can be taken by, besides q, v, u and tau."""

    takes: ClassVar[frozenset[str]] = EVERYTHING
    """Features of scenes that it can take, see `capabilities`."""

    rules: ClassVar[tuple[type[GradientRule], ...]] = (Exact,)
    """Gradient rules that it knows."""

    forces: ClassVar[bool] = False
    """Whether contact forces can be differentiated."""

    inverse_dynamics: ClassVar[bool] = False
    """Whether contact forces are a function of the motion, so that `Simulator.inverse_dynamics` has an answer."""

    second_order: ClassVar[bool] = False
    """Whether it has second derivatives: `Simulator.hessian`."""

    @abstractmethod
    def bind(self, scene: Scene) -> Engine:
        """An engine for `scene`; SceneError if the model cannot take it."""
