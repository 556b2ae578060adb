"""Which physics of MJCF tangens simulates, and what happens to the rest.

A feature that affects motion and that we do not simulate is refused by name, unless the user lists it in `ignore`:
then it is switched off in our copy of the model. `dynamics.features` lists what concerns motion without contact.
"""

from __future__ import annotations

from collections.abc import Iterable

import mujoco

from tangens.dynamics.features import SMOOTH_FEATURES, Feature, element_name, refuse, setter, where
from tangens.errors import OptionError

__all__ = ["FEATURES", "Feature", "check_support", "element_name"]


def check_support(model: mujoco.MjModel, ignore: Iterable[str], file: object = None) -> None:
    """Refuse unsupported features of `model`, or switch those off that are listed in `ignore`, in place."""
    if isinstance(ignore, str):
        ignore = (ignore,)
    ignored = set(ignore)
    known = {feature.name for feature in FEATURES}
    if ignored - known:
        raise OptionError(
            f"ignore={sorted(ignored - known)!r}: not a feature that can be ignored. Known: {', '.join(sorted(known))}"
        )
    for feature in FEATURES:
        if feature.name in ignored and feature.switch_off:
            feature.switch_off(model)
        else:
            refuse(model, feature, file)


FEATURES = (
    *SMOOTH_FEATURES,
    Feature("surface velocity", "conveyor-like surfaces are not modelled",
            where(mujoco.mjtObj.mjOBJ_GEOM, lambda m: m.geom_surfacevel.any(axis=1)), setter(geom_surfacevel=0)),
    Feature("adhesion", "contacts push, they do not pull",
            where(mujoco.mjtObj.mjOBJ_GEOM, lambda m: m.geom_adhesion > 0), setter(geom_adhesion=0)),
)  # fmt: skip
