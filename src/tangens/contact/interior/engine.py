"""An interior-point contact model at work on one scene."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tangens.contact.base import Point
from tangens.contact.geom_pairs import refuse_sizes
from tangens.contact.interior.model import InteriorModel
from tangens.contact.interior.options import InteriorContact
from tangens.contact.jax_engine import JaxEngine
from tangens.contact.rules import GradientRule, Relaxed
from tangens.contact.structure import structure
from tangens.errors import NotDifferentiable
from tangens.geometry import kind
from tangens.scene import Scene

_HURRIED, _NEVER = 18, 2**30
"""Iterations after which slow steps of a batch are left for later: 7 to 15 are common."""


class InteriorEngine(JaxEngine):
    """Steps and derivatives of one scene."""

    contact: InteriorContact
    method = "interior-point"
    first_room = 16  # pairs of a kind: few scenes have more of them near each other

    def __init__(self, scene: Scene, contact: InteriorContact) -> None:
        self._bounces = bool((scene.parameters["restitution"] > 0).any())
        super().__init__(scene, contact, hands_on=contact.warm_start)
        self.known = (*Point._fields, *self._own_parameters())

    def key(self) -> tuple[Hashable, ...]:
        """What two scenes have in common that can share a model and its compiled functions."""
        scene, contact = self.scene, self.contact
        shapes = tuple((name, kind(shape)) for name, shape in scene.shapes.items())
        kinds = contact.bilevel, contact.torsional_friction, self._bounces
        return structure(scene.shared_model, dry_joints_differ=True), scene.geom_names, shapes, *kinds

    def model(self, room: int | None) -> InteriorModel:
        """The model of all scenes with this key."""
        contact = self.contact
        return InteriorModel(self.scene, contact.bilevel, contact.torsional_friction, self._bounces, room)

    def numbers(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parameters of this scene, and the settings."""
        scene, contact = self.scene, self.contact
        parameters: dict[str, Any] = {name: scene.parameters[name] for name in self._own_parameters()}
        parameters["shapes"] = dict(scene.shapes)
        model = self.shared_model(self.first_room)
        assert isinstance(model, InteriorModel)
        return parameters, {
            "timestep": scene.timestep,
            "relaxation": contact.relaxation,
            "explicit": float(contact.conserve_momentum),
            "tolerance": contact.tolerance,
            "max_iterations": np.int32(contact.max_iterations),
            "pause": np.int32(_NEVER),
            "sharpness": contact.sharpness,
            "reach": model.table.reach(scene.parameters["size"], scene.shapes),
        }

    def smooth_settings(self, rule: GradientRule) -> dict[str, Any] | None:
        """Those with the relaxation that the rule asks for."""
        if not isinstance(rule, Relaxed) or rule.relaxation == self.contact.relaxation:
            return None
        with jax.enable_x64(True):
            return self.settings | {"relaxation": jnp.array(rule.relaxation)}

    def hurried(self) -> dict[str, Any] | None:
        """Those under which steps pause that take twice as long as most."""
        with jax.enable_x64(True):
            return self.settings | {"pause": jnp.array(_HURRIED, jnp.int32)}

    def _own_parameters(self) -> tuple[str, ...]:
        """Those of the model; without a bounce there is no restitution: its law begins with a jump."""
        return tuple(name for name in self.contact.parameters if name != "restitution" or self._bounces)

    def refused(self, tape: Any) -> frozenset[str]:
        """Restitution, where nothing bounces."""
        del tape
        return frozenset(self.contact.parameters) - frozenset(self._own_parameters())

    def check(self, wrt: Sequence[str]) -> None:
        """Refuse sizes where shapes do not come from them, and restitution where there is none."""
        if "restitution" in wrt and not self._bounces:
            raise NotDifferentiable(
                f"{self.contact.name!r} cannot be differentiated by restitution where it is zero: bodies that do not "
                "bounce come to rest on each other, those that hardly do leave at once. Give a geom some"
            )
        refuse_sizes(self.contact.name, self.scene, wrt)
