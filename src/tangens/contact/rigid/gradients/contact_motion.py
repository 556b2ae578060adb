"""How the contacts of a step move with their bodies, where compiled code does not find out by itself.

The *response* of a contact is a (7, 6) matrix: how its point, its frame and its gap change with the relative motion of
its geoms. All of a step are one array of shape (nc, 42), in which NaN stands for the exact response; an empty one says
that all are exact.
"""

from __future__ import annotations

from functools import cached_property
from typing import NoReturn

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.collision.differenced import DifferencedContacts
from tangens.collision.randomized import RandomizedContacts
from tangens.contact.rigid.problem.contact_problem import BREAKING
from tangens.contact.rules import FixedContacts, GradientRule, Randomized
from tangens.errors import NotDifferentiable
from tangens.scene.support import element_name

Array = NDArray[np.float64]
Records = NDArray[np.void]

EXACT = np.zeros((0, 42))
"""The responses of a step whose contacts all move as compiled code says."""


class ContactMotion:
    """Responses of contacts by a gradient rule, for one scene. Holds scratch memory: one for each thread."""

    def __init__(self, model: mujoco.MjModel) -> None:
        self._m, self._d = model, mujoco.MjData(model)
        self._randomized: dict[Randomized, RandomizedContacts] = {}

    def responses(self, rule: GradientRule, q: Array, contacts: Records, blocks: Records) -> Array:
        """What the rule asks for: contacts fixed on their first body, smoothed ones, or exact ones."""
        if not isinstance(rule, FixedContacts | Randomized):
            return EXACT
        out = np.zeros((len(contacts), 7, 6))
        out[:, 6, :3] = contacts["frame"][:, :3]
        if isinstance(rule, Randomized):
            self._d.qpos[:] = q
            mujoco.mj_kinematics(self._m, self._d)
            for block in blocks[(blocks["source"] >= 0) & (blocks["mode"] != BREAKING)]:
                out[block["source"], :6] = self._smoothed(rule, contacts, int(block["source"]))
        return out.reshape(-1, 42)

    def _smoothed(self, rule: Randomized, contacts: Records, c: int) -> Array:
        if rule not in self._randomized:
            self._randomized[rule] = RandomizedContacts(self._m, rule.samples, rule.scale, rule.seed)
        pair = contacts["geom"][c]
        poses = self._d.geom_xpos[pair], self._d.geom_xmat[pair]
        found = self._randomized[rule].response(tuple(pair), *poses, contacts["position"][c], contacts["frame"][c])
        return self.refuse(contacts, c) if found is None else found

    def with_differences(self, responses: Array, q: Array, contacts: Records, c: int) -> Array:
        """The responses with that of one more contact, found by differences; NotDifferentiable if it has none."""
        of_pair = (contacts["geom"] == contacts["geom"][c]).all(axis=1)
        one, two = contacts["geom"][c]
        found = self._differences.response(q, (int(one), int(two)), int(of_pair[:c].sum()), alone=of_pair.sum() == 1)
        if found is None:
            self.refuse(contacts, c)
        out = responses.copy() if len(responses) else np.full((len(contacts), 42), np.nan)
        out[c] = np.asarray(found).ravel()
        return out

    def refuse(self, contacts: Records, c: int) -> NoReturn:
        """Name the pair."""
        one, two = (element_name(self._m, mujoco.mjtObj.mjOBJ_GEOM, int(g)) for g in contacts["geom"][c])
        raise NotDifferentiable(
            f"it is not known how the contact between {one} and {two} moves with the bodies: its point is on no "
            "corner, edge or face of theirs, and jumps when they move. Differentiate at a state beside this one, hold "
            'contacts in their bodies (gradient="fixed-contacts"), or smooth their motion (gradient="randomized")'
        )

    @cached_property
    def _differences(self) -> DifferencedContacts:
        return DifferencedContacts(self._m)
