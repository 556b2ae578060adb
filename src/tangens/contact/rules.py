"""Gradient rules: which derivative of a step is taken. The step itself is the same under all of them.

A rule is passed to `Simulator(..., gradient=...)`, or to a single `jacobian` or `pullback`, by name or as an object
with options of its own. Which models know which rules stands in `capabilities`.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import ClassVar

from tangens.errors import OptionError


@dataclass(frozen=True)
class GradientRule:
    """A way of differentiating a step."""

    name: ClassVar[str]
    reverse_only: ClassVar[bool] = False
    """Whether the rule looks at the loss, so that there is no Jacobian without one."""


@dataclass(frozen=True)
class Exact(GradientRule):
    """The derivative of the very step, at its modes."""

    name: ClassVar[str] = "exact"


@dataclass(frozen=True)
class ComplementarityAware(GradientRule):
    """Contacts part or hold where the loss asks for it, which leads out of saddle points (paper 5, Sec. IV-D)."""

    name: ClassVar[str] = "complementarity-aware"
    reverse_only: ClassVar[bool] = True


@dataclass(frozen=True)
class ContinuousBounce(GradientRule):
    """The step answers to q and v as if bodies had bounced in continuous time (paper 5, Sec. VI), forces included."""

    name: ClassVar[str] = "continuous-bounce"


@dataclass(frozen=True)
class OtherSide(GradientRule):
    """The derivative across the nearest switch, where it is near: J is one side of the truth there, this the other."""

    name: ClassVar[str] = "other-side"
    within: float = 1e-3
    """Steps with no switch nearer than this have their own derivative [m/s], see `Jacobian.switch`."""

    def __post_init__(self) -> None:
        if not (isinstance(self.within, int | float) and self.within > 0):
            raise OptionError(f"OtherSide(within={self.within!r}) must be above 0")


@dataclass(frozen=True)
class Relaxed(GradientRule):
    """The derivative of the equations with another relaxation than the step's own (paper 1, Sec. VI)."""

    name: ClassVar[str] = "relaxed"
    relaxation: float = 1e-3
    """ρ of the equations that are differentiated, in units of each pair."""

    def __post_init__(self) -> None:
        if not (isinstance(self.relaxation, int | float) and 0 < self.relaxation < math.inf):
            raise OptionError(f"Relaxed(relaxation={self.relaxation!r}) must be a positive number")


@dataclass(frozen=True)
class Randomized(GradientRule):
    """Contacts move as they do on average over nearby poses of their geoms (paper 2, randomised smoothing)."""

    name: ClassVar[str] = "randomized"
    samples: int = 32
    """Poses for each contact, in opposite pairs."""
    scale: float = 1e-2
    """Deviation of those poses [m, rad]."""
    seed: int = 0
    """Of the poses: a derivative depends on its arguments and this alone."""

    def __post_init__(self) -> None:
        if not (isinstance(self.samples, int) and self.samples >= 6):
            raise OptionError(f"Randomized(samples={self.samples!r}) must be 6 or more")
        if not 0 < self.scale < math.inf:
            raise OptionError(f"Randomized(scale={self.scale!r}) must be above 0")


@dataclass(frozen=True)
class FixedContacts(GradientRule):
    """Each contact stays fixed on the first of its bodies, as in engines without collision derivatives."""

    name: ClassVar[str] = "fixed-contacts"


RULES: dict[str, type[GradientRule]] = {
    rule.name: rule
    for rule in (Exact, ComplementarityAware, ContinuousBounce, OtherSide, Relaxed, Randomized, FixedContacts)
}


def gradient_rule(choice: str | GradientRule) -> GradientRule:
    """The rule behind a name, with its default options."""
    if isinstance(choice, GradientRule):
        return choice
    if isinstance(choice, str) and choice in RULES:
        return RULES[choice]()
    close = difflib.get_close_matches(str(choice), RULES, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise OptionError(f"unknown gradient rule {choice!r}.{hint} Known rules: {', '.join(map(repr, RULES))}")
