"""What a contact model is to the rest of the library.

A `ContactModel` is a choice with its options, small and immutable. `bind` turns it into an `Engine` for one scene,
which owns the scratch memory. Arrays that reach an engine have been checked: float64, finite, of the scene's sizes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from tangens.results import Jacobian, Step

if TYPE_CHECKING:
    from tangens.scene import Scene

Array = NDArray[np.float64]


class Engine(Protocol):
    """One contact model at work on one scene."""

    def step(self, q: Array, v: Array, u: Array, tau: Array) -> Step:
        """Advance by one time step; raise SolverError rather than return what is not finite."""
        ...

    def jacobian(self, q: Array, v: Array, u: Array, tau: Array, wrt: Sequence[str], with_force: bool) -> Jacobian:
        """Derivative of that very step by each input in `wrt`; of its contact forces too, if asked."""
        ...

    def pullback(
        self, q: Array, v: Array, u: Array, tau: Array, dq: Array, dv: Array, dforce: Array | None, wrt: Sequence[str]
    ) -> dict[str, Array]:
        """∂L/∂(q, v, u, tau) and by each parameter in `wrt`, from ∂L/∂(q⁺, v⁺) in the tangent space.

        `dforce`, ∂L/∂(contact forces) of shape (n, 3), is given only to models whose `forces` is true.
        """
        ...


class ContactModel(ABC):
    """A way of modelling contact: its name, what it can be differentiated by, its options as fields."""

    name: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]]
    """Scene parameters that a derivative can be taken by, besides q, v, u and tau."""

    forces: ClassVar[bool] = False
    """Whether contact forces can be differentiated."""

    @abstractmethod
    def bind(self, scene: Scene) -> Engine:
        """An engine for `scene`; SceneError if the model cannot take it."""
