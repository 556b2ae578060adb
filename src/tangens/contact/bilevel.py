"""The baseline of paper 1: contact dynamics with collision detection solved inside each iteration.

Where faces touch, the contact point jumps as bodies turn, and the method often fails; `out.solver.converged` says so.
Use `SingleLevel` for work, and this one to compare.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tangens.contact.interior.options import InteriorContact


@dataclass(frozen=True)
class Bilevel(InteriorContact):
    """Collision detection inside contact dynamics."""

    name: ClassVar[str] = "bilevel"
    bilevel: ClassVar[bool] = True
