"""What each contact model can take: the one table behind refusals, `NotDifferentiable` and the docs.

A model's class says which features it takes (`takes`), by which parameters it can be differentiated (`parameters`), by
which rules (`rules`) and whether contact forces can be (`forces`). Here is what a feature is, how a scene shows it, and
what to do about a scene that shows one too many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

from tangens.contact.rules import RULES
from tangens.errors import SceneError
from tangens.scene.parameters import PARAMETERS
from tangens.scene.support import element_name

if TYPE_CHECKING:
    from tangens.contact.base import ContactModel
    from tangens.scene import Scene

_OBJ, _OFF = mujoco.mjtObj, mujoco.mjtDisableBit


@dataclass(frozen=True)
class Feature:
    """Something that a scene may have and not every model can take."""

    name: str
    elements: Callable[[Scene], Iterable[str]]
    """Names of the elements that show it, if any."""
    remedy: str


def _joints(scene: Scene, kinds: tuple[mujoco.mjtJoint, ...]) -> list[str]:
    m = scene.shared_model
    shown = np.isin(m.jnt_type, [int(kind) for kind in kinds]) & m.jnt_limited.astype(bool)
    return _named(scene, _OBJ.mjOBJ_JOINT, shown, _OFF.mjDSBL_LIMIT)


def _named(scene: Scene, kind: mujoco.mjtObj, shown: Any, switch: mujoco.mjtDisableBit | None = None) -> list[str]:
    m = scene.shared_model
    if switch is not None and m.opt.disableflags & switch:
        return []
    return [element_name(m, kind, int(i)) for i in np.flatnonzero(shown)]


def _dry_joints(scene: Scene) -> list[str]:
    m = scene.shared_model
    dry = np.zeros(m.njnt, dtype=bool)
    dry[m.dof_jntid[m.dof_frictionloss > 0]] = True
    return _named(scene, _OBJ.mjOBJ_JOINT, dry, _OFF.mjDSBL_FRICTIONLOSS)


def _dry_tendons(scene: Scene) -> list[str]:
    return _named(scene, _OBJ.mjOBJ_TENDON, scene.shared_model.tendon_frictionloss > 0, _OFF.mjDSBL_FRICTIONLOSS)


_HINGES = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
_BALLS = (mujoco.mjtJoint.mjJNT_BALL,)
_OTHERS = 'take it out of the scene, or choose contact="ncp" or "lcp"'
FEATURES = (
    Feature("limits of hinges and slides", lambda scene: _joints(scene, _HINGES), _OTHERS),
    Feature("limits of ball joints", lambda scene: _joints(scene, _BALLS), _OTHERS),
    Feature(
        "limits of tendons",
        lambda scene: _named(scene, _OBJ.mjOBJ_TENDON, scene.shared_model.tendon_limited, _OFF.mjDSBL_LIMIT),
        _OTHERS,
    ),
    Feature("dry friction of joints and tendons", lambda scene: _dry_joints(scene) + _dry_tendons(scene), _OTHERS),
    Feature(
        "equalities",
        lambda scene: _named(scene, _OBJ.mjOBJ_EQUALITY, scene.shared_model.eq_active0, _OFF.mjDSBL_EQUALITY),
        _OTHERS,
    ),
    Feature(
        "restitution",
        lambda scene: _named(scene, _OBJ.mjOBJ_GEOM, scene.parameters["restitution"] > 0),
        'scene.replace(restitution=0), or contact="lcp"',
    ),
    Feature(
        "shapes of tangens.geometry",
        lambda scene: [f"geom {name!r}" for name in scene.shapes],
        'choose contact="single-level", or describe the shape in MJCF',
    ),
)
LIMITS, BALL_LIMITS, TENDON_LIMITS, DRY_FRICTION, EQUALITIES, RESTITUTION, SHAPES = (f.name for f in FEATURES)
EVERYTHING = frozenset(feature.name for feature in FEATURES)


def refuse_unsupported(scene: Scene, model: ContactModel) -> None:
    """Raise a SceneError for the first feature of a scene that a model does not take."""
    for feature in FEATURES:
        if feature.name in model.takes:
            continue
        for element in feature.elements(scene):
            raise SceneError(
                f"contact model {model.name!r} does not take {feature.name}",
                file=scene.source,
                element=element,
                remedy=feature.remedy,
            )


def table(models: Iterable[type[ContactModel]]) -> str:
    """The whole table in Markdown, a column for each model."""
    columns = list(models)
    lines = [_row("", (f"`{model.name}`" for model in columns)), _row("---", (":-:" for _ in columns))]
    lines.append(_row("**takes**", ("" for _ in columns)))
    lines += [_row(f.name, (_mark(f.name in model.takes) for model in columns)) for f in FEATURES]
    lines.append(_row("**derivatives by** q, v, u, tau", (_mark(True) for _ in columns)))
    names = [name for name in ("restitution", *PARAMETERS) if any(name in model.parameters for model in columns)]
    lines += [_row(f"`{name}`", (_mark(name in model.parameters) for model in columns)) for name in names]
    lines.append(_row("**derivatives of** contact forces", (_mark(model.forces) for model in columns)))
    lines.append(_row("**second derivatives**", (_mark(model.second_order) for model in columns)))
    lines.append(_row("**inverse dynamics**", (_mark(model.inverse_dynamics) for model in columns)))
    lines.append(_row("**gradient rules**", ("" for _ in columns)))
    lines += [_row(f'`"{name}"`', (_mark(rule in model.rules) for model in columns)) for name, rule in RULES.items()]
    return "\n".join(lines)


def _row(first: str, cells: Iterable[str]) -> str:
    return f"| {first} | {' | '.join(cells)} |"


def _mark(yes: bool) -> str:
    return "yes" if yes else "–"
