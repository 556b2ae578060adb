"""An interior-point contact model at work on one scene."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tangens.contact.geom_pairs import refuse_sizes
from tangens.contact.interior.model import InteriorModel
from tangens.contact.interior.options import InteriorContact
from tangens.contact.jax_engine import JaxEngine
from tangens.contact.rules import GradientRule, Relaxed
from tangens.contact.structure import structure
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
        super().__init__(scene, contact, hands_on=contact.warm_start)

    def key(self) -> tuple[Hashable, ...]:
        """What two scenes have in common that can share a model and its compiled functions."""
        scene, contact = self.scene, self.contact
        shapes = tuple((name, kind(shape)) for name, shape in scene.shapes.items())
        return structure(scene.shared_model), scene.geom_names, shapes, contact.bilevel, contact.torsional_friction

    def model(self, room: int | None) -> InteriorModel:
        """The model of all scenes with this key."""
        return InteriorModel(self.scene, self.contact.bilevel, self.contact.torsional_friction, room)

    def numbers(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parameters of this scene, and the settings."""
        scene, contact = self.scene, self.contact
        parameters: dict[str, Any] = {name: scene.parameters[name] for name in contact.parameters}
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

    def check(self, wrt: Sequence[str]) -> None:
        """Refuse sizes where shapes do not come from them."""
        refuse_sizes(self.contact.name, self.scene, wrt)
