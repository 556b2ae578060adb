"""Collision detection and contact dynamics as one problem, relaxed by ρ (paper 1, Eq. 20).

A pair of convex shapes touches in one point, found together with the force that acts there. Where two faces lie on each
other, that is the point the physics asks for, under the centre of pressure; collision detection alone could not tell.

Derivatives by q, v, u, tau, inertial parameters, friction and sizes, at a relaxation of your choice. A larger one looks
farther: it sees contacts before they happen, and rounds corners off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tangens.contact.interior.options import InteriorContact


@dataclass(frozen=True)
class SingleLevel(InteriorContact):
    """Collision detection and contact in one interior-point problem."""

    name: ClassVar[str] = "single-level"
