"""Contact models, by name. A new one is a module in this folder and a line in `_MODELS`."""

from __future__ import annotations

import difflib

from tangens.contact.base import ContactModel, Engine
from tangens.contact.bilevel import Bilevel
from tangens.contact.convex.options import Convex
from tangens.contact.free import ContactFree
from tangens.contact.lcp import Lcp
from tangens.contact.ncp import Ncp
from tangens.contact.rules import (
    RULES,
    ComplementarityAware,
    ContinuousBounce,
    Exact,
    FixedContacts,
    GradientRule,
    OtherSide,
    Randomized,
    Relaxed,
)
from tangens.contact.single_level import SingleLevel
from tangens.contact.smoothed import Smoothed
from tangens.contact.soft.options import Soft
from tangens.errors import OptionError

__all__ = [
    "CONTACT_MODELS",
    "RULES",
    "Bilevel",
    "ComplementarityAware",
    "ContactModel",
    "ContinuousBounce",
    "Convex",
    "Engine",
    "Exact",
    "FixedContacts",
    "GradientRule",
    "Lcp",
    "Ncp",
    "OtherSide",
    "Randomized",
    "Relaxed",
    "SingleLevel",
    "Smoothed",
    "Soft",
    "contact_model",
]

_MODELS: dict[str, type[ContactModel]] = {model.name: model for model in (Ncp, Lcp, SingleLevel, Bilevel, Soft, Convex)}

CONTACT_MODELS: tuple[str, ...] = tuple(_MODELS)
"""Names that `Simulator(scene, contact=...)` understands."""


def contact_model(choice: str | ContactModel | None) -> ContactModel:
    """The model behind a name, with its default options; None is motion without contact."""
    if choice is None:
        return ContactFree()
    if isinstance(choice, ContactModel):
        return choice
    if isinstance(choice, str) and choice in _MODELS:
        return _MODELS[choice]()
    known = ", ".join(repr(name) for name in CONTACT_MODELS) or "none yet besides contact=None"
    close = difflib.get_close_matches(str(choice), CONTACT_MODELS, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise OptionError(f"unknown contact model {choice!r}.{hint} Known models: {known}")
