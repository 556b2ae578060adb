"""Which physics of MJCF tangens simulates, and what happens to the rest.

A feature that affects motion and that we do not simulate is refused by name, unless the user lists it in `ignore`:
then it is switched off in our copy of the model. `dynamics.features` lists what concerns motion without contact.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import mujoco

from tangens.dynamics.features import SMOOTH_FEATURES, Feature, element_name, refuse, setter, where
from tangens.errors import OptionError, SceneWarning

__all__ = ["FEATURES", "Feature", "check_support", "element_name", "warn_of_integrator"]


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


def warn_of_integrator(model: mujoco.MjModel, file: object) -> None:
    """Say what a model is stepped by if that is not what it asks for."""
    kind = mujoco.mjtIntegrator
    instead = {
        int(kind.mjINT_RK4): ("RK4", 'Euler\'s method, as if the scene said integrator="Euler"'),
        int(kind.mjINT_IMPLICIT): ("implicit", "implicitfast, which leaves out the slope of Coriolis forces"),
    }
    if int(model.opt.integrator) in instead:
        asked, taken = instead[int(model.opt.integrator)]
        warnings.warn(f"{file}: the scene asks for integrator={asked!r}; steps are taken by {taken}", SceneWarning, 3)


FEATURES = (
    *SMOOTH_FEATURES,
    Feature("surface velocity", "conveyor-like surfaces are not modelled",
            where(mujoco.mjtObj.mjOBJ_GEOM, lambda m: m.geom_surfacevel.any(axis=1)), setter(geom_surfacevel=0)),
    Feature("adhesion", "contacts push, they do not pull",
            where(mujoco.mjtObj.mjOBJ_GEOM, lambda m: m.geom_adhesion > 0), setter(geom_adhesion=0)),
)  # fmt: skip
