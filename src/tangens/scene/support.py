"""Which physics of MJCF tangens simulates, and what happens to the rest.

A feature that affects motion and that we do not simulate is refused by name, unless the user lists it in `ignore`:
then it is switched off in our copy of the model. What does not affect motion (textures, sensors, cameras, skins) is
not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.errors import OptionError, SceneError

_DYN, _GAIN, _BIAS, _TRN = mujoco.mjtDyn, mujoco.mjtGain, mujoco.mjtBias, mujoco.mjtTrn
_OBJ = mujoco.mjtObj
_ROTARY = (int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_BALL))


@dataclass(frozen=True)
class Feature:
    """Something MJCF can say that we do not simulate."""

    name: str
    why: str
    find: Callable[[mujoco.MjModel], Iterator[str]]
    """Names the elements that use it."""
    switch_off: Callable[[mujoco.MjModel], None] | None
    """Removes its effect from a model; None where that cannot be done."""


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
        culprits = list(feature.find(model))
        if not culprits:
            continue
        if feature.name not in ignored or feature.switch_off is None:
            more = f" (and {len(culprits) - 1} more)" if len(culprits) > 1 else ""
            remedy = (
                f'take it out of the model, or load with ignore=("{feature.name}",) to simulate without it'
                if feature.switch_off
                else "take it out of the model"
            )
            raise SceneError(
                f"{feature.name} is not supported{more}: {feature.why}", file=file, element=culprits[0], remedy=remedy
            )
        feature.switch_off(model)


def element_name(m: mujoco.MjModel, kind: mujoco.mjtObj, index: int) -> str:
    """An element as a person would look for it: kind, name, else number."""
    label = kind.name.removeprefix("mjOBJ_").lower()
    name = mujoco.mj_id2name(m, kind, index)
    return f"{label} {name!r}" if name else f"{label} number {index} (unnamed)"


def _where(
    kind: mujoco.mjtObj, mask: Callable[[mujoco.MjModel], NDArray[np.bool_]]
) -> Callable[[mujoco.MjModel], Iterator[str]]:
    def find(m: mujoco.MjModel) -> Iterator[str]:
        return (element_name(m, kind, int(i)) for i in np.flatnonzero(mask(m)))

    return find


def _actuators(mask: Callable[[mujoco.MjModel], NDArray[np.bool_]]) -> dict[str, Callable]:  # type: ignore[type-arg]
    """Find the actuators of a mask, and silence them."""

    def silence(m: mujoco.MjModel) -> None:
        which = mask(m)
        m.actuator_gaintype[which], m.actuator_biastype[which] = int(_GAIN.mjGAIN_FIXED), int(_BIAS.mjBIAS_NONE)
        m.actuator_dyntype[which] = int(_DYN.mjDYN_NONE)
        m.actuator_gainprm[which], m.actuator_biasprm[which] = 0.0, 0.0
        m.actuator_damping[which], m.actuator_dampingpoly[which], m.actuator_armature[which] = 0.0, 0.0, 0.0

    return {"find": _where(_OBJ.mjOBJ_ACTUATOR, mask), "switch_off": silence}


def _setter(**values: float) -> Callable[[mujoco.MjModel], None]:
    def set_all(m: mujoco.MjModel) -> None:
        for field, value in values.items():
            getattr(m, field)[:] = value

    return set_all


def _is(field: str, *members: object) -> Callable[[mujoco.MjModel], NDArray[np.bool_]]:
    values = [int(member) for member in members]  # type: ignore[call-overload]
    return lambda m: np.isin(getattr(m, field), values)


def _muscles(m: mujoco.MjModel) -> NDArray[np.bool_]:
    return (
        _is("actuator_dyntype", _DYN.mjDYN_MUSCLE)(m)
        | _is("actuator_gaintype", _GAIN.mjGAIN_MUSCLE)(m)
        | _is("actuator_biastype", _BIAS.mjBIAS_MUSCLE)(m)
    )


def _stateful(m: mujoco.MjModel) -> NDArray[np.bool_]:
    return ~_is("actuator_dyntype", _DYN.mjDYN_NONE)(m) & ~_muscles(m)


def _odd_force_law(m: mujoco.MjModel) -> NDArray[np.bool_]:
    plain = _is("actuator_gaintype", _GAIN.mjGAIN_FIXED, _GAIN.mjGAIN_AFFINE)(m)
    plain &= _is("actuator_biastype", _BIAS.mjBIAS_NONE, _BIAS.mjBIAS_AFFINE)(m)
    return ~plain & ~_muscles(m) & ~_stateful(m)


def _odd_transmission(m: mujoco.MjModel) -> NDArray[np.bool_]:
    plain = _is("actuator_trntype", _TRN.mjTRN_JOINT, _TRN.mjTRN_TENDON)(m)
    for i in np.flatnonzero(_is("actuator_trntype", _TRN.mjTRN_JOINTINPARENT)(m)):
        plain[i] = m.jnt_type[m.actuator_trnid[i, 0]] not in _ROTARY
    return ~plain


def _delayed(m: mujoco.MjModel) -> NDArray[np.bool_]:
    return (m.actuator_delay > 0) | (m.actuator_history[:, 0] > 0)


def _spatial(m: mujoco.MjModel) -> NDArray[np.bool_]:
    return _is("tendon_type", mujoco.mjtTendon.mjTENDON_SPATIAL)(m)


def _slacken_spatial_tendons(m: mujoco.MjModel) -> None:
    which = _spatial(m)
    for field in ("stiffness", "stiffnesspoly", "damping", "dampingpoly", "frictionloss", "armature", "limited"):
        getattr(m, f"tendon_{field}")[which] = 0
    for i in range(m.nactuator):
        if m.actuator_trntype[i] == _TRN.mjTRN_TENDON and which[m.actuator_trnid[i, 0]]:
            m.actuator_gainprm[i], m.actuator_biasprm[i], m.actuator_damping[i] = 0.0, 0.0, 0.0


def _tendon_armature(m: mujoco.MjModel) -> NDArray[np.bool_]:
    heavy = m.tendon_armature > 0
    for i in range(m.nactuator):
        if m.actuator_trntype[i] == _TRN.mjTRN_TENDON and m.actuator_armature[i] > 0:
            heavy[m.actuator_trnid[i, 0]] = True
    return heavy & ~_spatial(m)


def _drop_tendon_armature(m: mujoco.MjModel) -> None:
    m.tendon_armature[:] = 0.0
    m.actuator_armature[_is("actuator_trntype", _TRN.mjTRN_TENDON)(m)] = 0.0


def _polynomial_free(m: mujoco.MjModel) -> NDArray[np.bool_]:
    return (m.jnt_type == int(mujoco.mjtJoint.mjJNT_FREE)) & m.jnt_stiffnesspoly.any(axis=1)


def _linearise_free_springs(m: mujoco.MjModel) -> None:
    m.jnt_stiffnesspoly[_polynomial_free(m)] = 0.0


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


def _soften_flexes(m: mujoco.MjModel) -> None:
    for field in ("stiffness", "bending", "edgestiffness", "edgedamping", "damping", "contype", "conaffinity"):
        getattr(m, f"flex_{field}")[:] = 0


FEATURES = (
    Feature("plugin", "its forces are computed by code outside the model", _plugins, None),
    Feature("flex", "deformable bodies are outside rigid-body dynamics",
            _where(_OBJ.mjOBJ_FLEX, lambda m: np.ones(m.nflex, dtype=bool)), _soften_flexes),
    Feature("fluid", "drag and lift are not modelled", _fluid, _drain),
    Feature("spatial tendon", "only fixed tendons (linear combinations of joints) are",
            _where(_OBJ.mjOBJ_TENDON, _spatial), _slacken_spatial_tendons),
    Feature("tendon armature", "inertia along a tendon couples joints in the mass matrix",
            _where(_OBJ.mjOBJ_TENDON, _tendon_armature), _drop_tendon_armature),
    Feature("tendon force limit", "the actuator force on a tendon as a whole is not clamped",
            _where(_OBJ.mjOBJ_TENDON, lambda m: m.tendon_actfrclimited.astype(bool)), _setter(tendon_actfrclimited=0)),
    Feature("muscle", "muscle activation and force curves are not modelled", **_actuators(_muscles)),
    Feature("activation", "an actuator with a state of its own would add to (q, v)", **_actuators(_stateful)),
    Feature("actuator law", "actuators are motor, position, velocity or general affine", **_actuators(_odd_force_law)),
    Feature("transmission", "actuators act on joints and fixed tendons; jointinparent on hinges and slides only",
            **_actuators(_odd_transmission)),
    Feature("actuator delay", "a delayed control would add to the state",
            _where(_OBJ.mjOBJ_ACTUATOR, _delayed), None),
    Feature("plastic spring", "a yielding spring would add to the state",
            _where(_OBJ.mjOBJ_JOINT, lambda m: m.jnt_springyield > 0), _setter(jnt_springyield=0)),
    Feature("plastic tendon", "a yielding spring would add to the state",
            _where(_OBJ.mjOBJ_TENDON, lambda m: m.tendon_springyield > 0), _setter(tendon_springyield=0)),
    Feature("polynomial free-joint spring", "a free joint's spring must be linear",
            _where(_OBJ.mjOBJ_JOINT, _polynomial_free), _linearise_free_springs),
    Feature("surface velocity", "conveyor-like surfaces are not modelled",
            _where(_OBJ.mjOBJ_GEOM, lambda m: m.geom_surfacevel.any(axis=1)), _setter(geom_surfacevel=0)),
    Feature("adhesion", "contacts push, they do not pull",
            _where(_OBJ.mjOBJ_GEOM, lambda m: m.geom_adhesion > 0), _setter(geom_adhesion=0)),
)  # fmt: skip
