"""Which smooth physics of MJCF is not simulated, by whom, and how it is switched off.

One table for both numeric worlds, which read the same `ForceModel`. A feature is refused only where it has an effect:
once switched off, it is not found any more. What does not affect motion (textures, sensors, cameras) is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import mujoco
import numpy as np

from tangens.dynamics import feature_masks as masks
from tangens.dynamics.feature_masks import Mask
from tangens.errors import SceneError

_OBJ = mujoco.mjtObj
Find = Callable[[mujoco.MjModel], Iterator[str]]
Change = Callable[[mujoco.MjModel], None]
World = Literal["exact", "smooth"]
EXACT: tuple[World, ...] = ("exact",)
BOTH: tuple[World, ...] = ("exact", "smooth")


@dataclass(frozen=True)
class Feature:
    """Something MJCF can say that we do not simulate."""

    name: str
    why: str
    find: Find
    """Names the elements that use it."""
    switch_off: Change | None
    """Removes its effect from a model; None where that cannot be done."""
    refused_by: tuple[World, ...] = BOTH
    """The numeric worlds that cannot simulate it. A scene may go to either, so `tg.load` refuses it in any case."""


def refuse_unsupported(m: mujoco.MjModel, world: World) -> None:
    """Raise SceneError for the first feature that this world cannot simulate."""
    for feature in SMOOTH_FEATURES:
        if world in feature.refused_by:
            refuse(m, feature)


def refuse(m: mujoco.MjModel, feature: Feature, file: object = None) -> None:
    """Raise SceneError if the model uses the feature."""
    culprits = list(feature.find(m))
    if not culprits:
        return
    more = f" (and {len(culprits) - 1} more)" if len(culprits) > 1 else ""
    remedy = "take it out of the model"
    if feature.switch_off:
        remedy += f', or load with ignore=("{feature.name}",) to simulate without it'
    raise SceneError(
        f"{feature.name} is not supported{more}: {feature.why}", file=file, element=culprits[0], remedy=remedy
    )


def element_name(m: mujoco.MjModel, kind: mujoco.mjtObj, index: int) -> str:
    """An element as a person would look for it: kind, name, else number."""
    label = kind.name.removeprefix("mjOBJ_").lower()
    name = mujoco.mj_id2name(m, kind, index)
    return f"{label} {name!r}" if name else f"{label} number {index} (unnamed)"


def where(kind: mujoco.mjtObj, mask: Callable[[mujoco.MjModel], Mask]) -> Find:
    """A function that names the elements of a mask."""
    return lambda m: (element_name(m, kind, int(i)) for i in np.flatnonzero(mask(m)))


def setter(**values: float) -> Change:
    """A function that sets whole fields of a model."""

    def set_all(m: mujoco.MjModel) -> None:
        for field, value in values.items():
            getattr(m, field)[:] = value

    return set_all


def _actuator(
    name: str, why: str, mask: Callable[[mujoco.MjModel], Mask], refused_by: tuple[World, ...] = BOTH
) -> Feature:
    """A feature of actuators, which is switched off by silencing them."""
    return Feature(
        name, why, where(_OBJ.mjOBJ_ACTUATOR, mask), lambda m: masks.silence(m, mask(m)), refused_by
    )  # fmt: skip


def _fluid(m: mujoco.MjModel) -> Iterator[str]:
    if m.opt.density or m.opt.viscosity:
        yield f"option density={m.opt.density:g} viscosity={m.opt.viscosity:g}"


def _drain(m: mujoco.MjModel) -> None:
    m.opt.density = m.opt.viscosity = 0.0


def _plugins(m: mujoco.MjModel) -> Iterator[str]:
    for kind, field in (
        (_OBJ.mjOBJ_BODY, m.body_plugin),
        (_OBJ.mjOBJ_GEOM, m.geom_plugin),
        (_OBJ.mjOBJ_ACTUATOR, m.actuator_plugin),
    ):
        for i in np.flatnonzero(field >= 0):
            yield element_name(m, kind, int(i))


# A plastic spring is elastic when it has no plastic state; a yield threshold of 0 would make it yield at once.
SMOOTH_FEATURES = (
    Feature("plugin", "its forces are computed by code outside the model", _plugins, None),
    Feature("flex", "deformable bodies are outside rigid-body dynamics",
            where(_OBJ.mjOBJ_FLEX, masks.flexes), masks.soften_flexes),
    Feature("fluid", "drag and lift are not modelled", _fluid, _drain),
    Feature("spatial tendon", "only fixed tendons (linear combinations of joints) are",
            where(_OBJ.mjOBJ_TENDON, masks.spatial_tendons), masks.slacken_spatial_tendons),
    Feature("tendon armature", "inertia along a tendon couples joints in the mass matrix",
            where(_OBJ.mjOBJ_TENDON, masks.heavy_tendons), masks.drop_tendon_armature, EXACT),
    Feature("tendon force limit", "the actuator force on a tendon as a whole is not clamped",
            where(_OBJ.mjOBJ_TENDON, lambda m: m.tendon_actfrclimited.astype(bool)), setter(tendon_actfrclimited=0),
            EXACT),
    _actuator("muscle", "muscle activation and force curves are not modelled", masks.muscles),
    _actuator("activation", "an actuator with a state of its own would add to (q, v)", masks.stateful),
    _actuator("actuator law", "actuators are motor, position, velocity or general affine", masks.odd_law),
    _actuator("transmission", "actuators act on joints and fixed tendons", masks.odd_transmission),
    _actuator("turning transmission", "the arms of actuators on sites, and of jointinparent on ball and free joints, "
              "turn with q", masks.turning_transmission, EXACT),
    Feature("actuator delay", "a delayed control would add to the state",
            where(_OBJ.mjOBJ_ACTUATOR, masks.delayed), None),
    Feature("plastic spring", "a yielding spring would add to the state",
            where(_OBJ.mjOBJ_JOINT, lambda m: m.jnt_plasticadr >= 0), setter(jnt_plasticadr=-1, jnt_springyield=0)),
    Feature("plastic tendon", "a yielding spring would add to the state",
            where(_OBJ.mjOBJ_TENDON, lambda m: m.tendon_plasticadr >= 0),
            setter(tendon_plasticadr=-1, tendon_springyield=0)),
    Feature("polynomial free-joint spring", "a free joint's spring must be linear",
            where(_OBJ.mjOBJ_JOINT, masks.polynomial_free_springs), masks.linearise_free_springs, EXACT),
)  # fmt: skip
