"""Loading a scene from whatever describes it; MuJoCo is the compiler."""

from __future__ import annotations

import copy
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from lxml import etree

from tangens.errors import OptionError, SceneError
from tangens.scene.floor import add_floor, add_poses, lowest_point
from tangens.scene.scene import Scene, keep_small_offsets
from tangens.scene.support import check_support, warn_of_integrator
from tangens.scene.urdf import urdf_spec
from tangens.scene.validate import check_model

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_FIRST_TAG = re.compile(r"<\s*([A-Za-z_][\w:.-]*)")


def load(
    source: str | os.PathLike[str] | mujoco.MjSpec | mujoco.MjModel,
    *,
    floating_base: bool = False,
    ground: bool | float = False,
    motors: bool = False,
    ignore: Iterable[str] = (),
    repair_inertia: bool = False,
    package_dirs: Iterable[str | os.PathLike[str]] = (),
    poses: Mapping[str, Mapping[str, float]] | None = None,
) -> Scene:
    """Load a scene.

    Args:
        source: path of an MJCF or URDF file (or a compiled .mjb), XML text, an `MjSpec` or an `MjModel`.
        floating_base: let the robot's root body move freely.
        ground: add a horizontal floor, at height 0 or under the lowest point of a robot that reaches below it; a
            number is its height.
        motors: add a motor to each hinge and slide that no actuator drives, limited to the joint's effort; for URDF,
            which has no actuators.
        ignore: features that affect the motion and that tangens does not simulate, to be switched off instead
            of refused, such as "fluid" or "spatial tendon".
        repair_inertia: replace impossible inertias of a URDF by the nearest possible ones.
        package_dirs: folders in which `package://name/...` is looked for, besides those around the file.
        poses: keyframes by name, each with positions of hinges and slides by name; with a floor, a floating robot is
            lifted until it stands on it.

    Raises:
        SceneError: the description is broken or not supported; the message names file, element and remedy.

    Warns:
        SceneWarning: the scene asks for an integrator that is replaced by another one.

    """
    file = _name_of(source)
    _check_ground(ground)
    if isinstance(source, mujoco.MjModel):
        if floating_base or ground is not False or motors or repair_inertia or poses:
            raise OptionError(
                "floating_base, ground, motors, repair_inertia and poses change the description: load from XML or an "
                "MjSpec"
            )
        model = copy.copy(source)
    else:
        with _reporting(file):
            spec = _spec_of(source, file, floating_base, repair_inertia, [Path(folder) for folder in package_dirs])
            if isinstance(spec, mujoco.MjModel):
                model = spec
            else:
                _drop_decoration(spec)
                _add_options(spec, floating_base, motors)
                for body in spec.bodies:
                    body.simple = 0  # keep the mass matrix's structure valid for any centre of mass
                model = spec.compile()
                if ground is not False or poses:
                    floor = _floor_height(ground, model)
                    if floor is not None:
                        add_floor(spec, _free_name("ground", spec.geoms), floor)
                    add_poses(spec, model, poses or {}, floor)
                    model = spec.compile()
    keep_small_offsets(model)
    check_support(model, ignore, file)
    check_model(model, file)
    warn_of_integrator(model, file)
    return Scene(model, source=file)


def _name_of(source: object) -> str:
    if isinstance(source, str) and source.lstrip().startswith("<"):
        return "XML text"
    return str(source) if isinstance(source, (str, os.PathLike)) else type(source).__name__


def _spec_of(
    source: Any, file: str, floating_base: bool, repair_inertia: bool, package_dirs: list[Path]
) -> mujoco.MjSpec | mujoco.MjModel:
    if isinstance(source, mujoco.MjSpec):
        return source.copy()
    if not isinstance(source, (str, os.PathLike)):
        raise SceneError(
            f"cannot load a scene from {type(source).__name__}",
            remedy="give a path, XML text, an MjSpec or an MjModel",
        )
    path: Path | None = None
    if file == "XML text":
        text, base = str(source), Path.cwd()
    else:
        path = Path(source)
        if path.suffix.lower() == ".mjb":
            return mujoco.MjModel.from_binary_path(str(path))
        text, base = _read_text(path), path.resolve().parent
    tag = _FIRST_TAG.search(_COMMENT.sub("", text))
    if tag is None:
        raise SceneError("no XML element found", file=file, remedy="give an MJCF (<mujoco>) or URDF (<robot>) document")
    if tag.group(1) == "robot":
        return urdf_spec(
            _parse(text, file),
            base,
            file,
            floating_base=floating_base,
            repair_inertia=repair_inertia,
            package_dirs=package_dirs,
        )
    return mujoco.MjSpec.from_file(str(path)) if path else mujoco.MjSpec.from_string(text)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SceneError("no such file", file=path, remedy=_remedy_for_missing(path)) from None
    except UnicodeDecodeError:
        raise SceneError("it is not a text file", file=path, remedy="give an MJCF or URDF file") from None
    except (OSError, ValueError) as error:
        raise SceneError(f"cannot be read: {error}", file=str(path)[:200], remedy="check the path") from None


def _remedy_for_missing(path: Path) -> str:
    name = str(path)
    if len(path.parts) > 1 or path.suffix:
        return "check the path"
    by_name = f"tangens.robots.get({name!r}) loads a robot by name, tangens.scenes.get({name!r}) a bundled scene"
    return f"check the path; {by_name}"


def _parse(text: str, file: str) -> Any:
    # Comments with "--" inside are common and harmless, but not XML.
    parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True)
    try:
        return etree.fromstring(_COMMENT.sub("", text).encode(), parser)
    except etree.XMLSyntaxError as error:
        raise SceneError(f"broken XML: {error}", file=file, remedy="correct the file at that place") from None


def _drop_decoration(spec: mujoco.MjSpec) -> None:
    """Remove what only shows or measures, so that its missing files and features do not matter; colours are kept."""
    for element in (*spec.geoms, *spec.sites, *spec.tendons):
        material = spec.material(element.material) if element.material else None
        if material is not None and hasattr(element, "rgba"):
            element.rgba = material.rgba
        element.material = ""
    for flex in spec.flexes:
        flex.material = ""
    for element in (*spec.sensors, *spec.skins, *spec.materials, *spec.textures):
        spec.delete(element)


def _check_ground(ground: object) -> None:
    if not isinstance(ground, (bool, int, float)) or not np.isfinite(ground):
        raise OptionError(f"ground={ground!r} must be True, False or a height in metres")


def _floor_height(ground: bool | float, model: mujoco.MjModel) -> float | None:
    """Height of the floor to add, None for no floor."""
    if ground is True:
        return min(0.0, lowest_point(model))
    return None if ground is False else float(ground)


def _add_options(spec: mujoco.MjSpec, floating_base: bool, motors: bool) -> None:
    if floating_base:
        roots = [body for body in spec.worldbody.bodies if not len(body.joints)]
        if len(roots) != 1 or len(spec.worldbody.bodies) != 1:
            names = ", ".join(repr(body.name) for body in spec.worldbody.bodies) or "none"
            raise OptionError(
                f"floating_base needs exactly one body fixed to the world; found {names}. "
                "Add a <freejoint/> to the right one in the description instead"
            )
        roots[0].add_freejoint(name=_free_name("floating_base", spec.joints))
    if motors:
        driven = {actuator.target for actuator in spec.actuators}
        scalar = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
        for joint in spec.joints:
            if joint.type in scalar and joint.name and joint.name not in driven:
                motor = spec.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
                motor.set_to_motor()
                # A motor of ours is none of the file's kind: its defaults may ask for limits or gears of their own.
                motor.gear = (1, 0, 0, 0, 0, 0)
                motor.forcelimited = motor.actlimited = motor.ctrllimited = mujoco.mjtLimited.mjLIMITED_FALSE
                if joint.actfrcrange[0] < joint.actfrcrange[1]:
                    motor.ctrlrange = joint.actfrcrange
                    motor.ctrllimited = mujoco.mjtLimited.mjLIMITED_TRUE


def _free_name(wanted: str, elements: Iterable[Any]) -> str:
    taken = {element.name for element in elements}
    return next(name for name in (wanted, *(f"{wanted}_{i}" for i in range(1, 1000))) if name not in taken)


# ---------------------------------------------------------------------- MuJoCo's messages

_REMEDIES = {
    "mass and inertia of moving bodies": "give the body an <inertial>, or a geom to infer it from",
    "A + B >= C": 'correct the inertia, or set balanceinertia="true" on <compiler>',
    "opening file": "put the file there, or correct its path",
    "XML parse error": "correct the XML at that line",
    "negative": "correct the number",
    "nan": "correct the number",
}
_ELEMENT = re.compile(r"Element (?:name )?'(?P<name>[^']*)'(?:, id (?P<id>\d+))?(?:, line (?P<line>\d+))?")


@contextmanager
def _reporting(file: str) -> Iterator[None]:
    """Turn MuJoCo's complaints into SceneErrors, and a NaN it would pass over into one as well."""
    notes: list[str] = []
    previous = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(notes.append)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*deprecated.*", category=UserWarning)
            yield
    except (ValueError, TypeError, mujoco.FatalError, mujoco.UnexpectedError) as error:
        raise _scene_error(str(error), file) from None
    finally:
        mujoco.set_mju_user_warning(previous)
    if any("NaN" in note for note in notes):
        raise SceneError("a number in it is NaN, which MuJoCo takes for unset", file=file, remedy="correct the number")


def _scene_error(message: str, file: str) -> SceneError:
    reason = message.strip().split("\nElement")[0].replace("\n", " ")
    reason = reason.removeprefix("Error: ").removeprefix("XML Error: ")
    found = _ELEMENT.search(message)
    element = None
    if found:
        element = repr(found["name"]) if found["name"] else f"element number {found['id']} (unnamed)"
        element += f", line {found['line']}" if found["line"] else ""
    remedy = next((text for key, text in _REMEDIES.items() if key in message), "correct the description there")
    return SceneError(reason, file=file, element=element, remedy=remedy)
