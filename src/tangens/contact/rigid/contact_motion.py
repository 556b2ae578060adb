"""How the contacts of a step move with their bodies, where compiled code does not find out by itself.

It does for `collision_gradient="analytic"`, but for a few contacts that it asks back for.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NoReturn

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.collision.differenced import DifferencedContacts
from tangens.collision.randomized import RandomizedContacts
from tangens.contact.rigid.bundle import Bundle
from tangens.contact.rigid.laws import BREAKING
from tangens.errors import NotDifferentiable
from tangens.scene.support import element_name

if TYPE_CHECKING:
    from tangens.contact.rigid.model import RigidContact

Records = NDArray[np.void]

EXACT = np.zeros((0, 7, 6))
"""What the bundle's `frozen` is where all contacts move as compiled code says."""


class ContactMotion:
    """Fills the bundle's `frozen`: a (7, 6) response for each contact, NaN for the exact one."""

    def __init__(self, m: mujoco.MjModel, d: mujoco.MjData, bundle: Bundle, options: RigidContact) -> None:
        self._m, self._d, self._bundle = m, d, bundle
        self.is_exact = options.collision_gradient == "analytic"
        self._sampled = None
        if options.collision_gradient == "randomized":
            self._sampled = RandomizedContacts(m, options.samples, options.scale, options.seed)

    def forget(self) -> None:
        """Start a new step."""
        if len(self._bundle["frozen"]):
            self._bundle.put("frozen", EXACT)

    def prepare(self, contacts: Records, blocks: Records) -> None:
        """Set what the option asks for instead of the exact motion: contacts fixed on their first body, or smoothed."""
        out = np.zeros((len(contacts), 7, 6))
        out[:, 6, :3] = contacts["frame"][:, :3]
        for block in blocks:
            c = int(block["source"])
            if self._sampled is None or c < 0 or block["mode"] == BREAKING:
                continue
            pair = contacts["geom"][c]
            poses = self._d.geom_xpos[pair], self._d.geom_xmat[pair]
            found = self._sampled.response(tuple(pair), *poses, contacts["position"][c], contacts["frame"][c])
            if found is None:
                self.refuse(contacts, c)
            out[c, :6] = found
        self._bundle.put("frozen", out)

    def difference(self, contacts: Records, c: int) -> None:
        """Find out by differences how a contact moves, or complain."""
        geoms = contacts["geom"]
        index = int((geoms[:c] == geoms[c]).all(axis=1).sum())
        found = self._differences.response(self._d.qpos, (int(geoms[c, 0]), int(geoms[c, 1])), index)
        if found is None:
            self.refuse(contacts, c)
        frozen = self._bundle["frozen"]
        if not len(frozen):
            frozen = np.full((len(contacts), 7, 6), np.nan)
            self._bundle.put("frozen", frozen)
        frozen[c] = found

    def refuse(self, contacts: Records, c: int) -> NoReturn:
        """Name the pair."""
        one, two = (element_name(self._m, mujoco.mjtObj.mjOBJ_GEOM, int(g)) for g in contacts["geom"][c])
        raise NotDifferentiable(f"it is not known how the contact between {one} and {two} moves with the bodies")

    @cached_property
    def _differences(self) -> DifferencedContacts:
        return DifferencedContacts(self._m)
