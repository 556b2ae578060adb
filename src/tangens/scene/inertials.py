"""Inertias in robot descriptions: checked, and mended where that changes nothing.

Only the sum over a moving link and all that is fixed to it enters the motion. So a part's impossible inertia (a
camera exported with nonsense, a placeholder link) is moved onto the link that carries it, which leaves the motion
exactly as described. If the sum itself is impossible, that is an error, unless the user asks for a repair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pinocchio as pin
from lxml import etree
from numpy.typing import NDArray

from tangens.errors import SceneError

Array = NDArray[np.float64]

# MuJoCo refuses principal moments below 1e-15 on moving bodies. Point masses get this much, in kg·m².
_SMALLEST_MOMENT = 1e-12
# Relative rounding of moments printed with six or seven digits.
_ROUNDING = 1e-6


@dataclass
class Inertial:
    """Mass, centre of mass and inertia about it, in the axes of one link."""

    mass: float
    com: Array
    inertia: Array

    def moved(self, pose: pin.SE3) -> Inertial:
        """The same body seen from a frame in which the link has `pose`."""
        R = pose.rotation
        return Inertial(self.mass, pose.translation + R @ self.com, R @ self.inertia @ R.T)

    def __add__(self, other: Inertial) -> Inertial:
        mass = self.mass + other.mass
        com = (self.mass * self.com + other.mass * other.com) / mass if mass > 0 else self.com
        inertia = np.zeros((3, 3))
        for part in (self, other):
            d = part.com - com
            inertia += part.inertia + part.mass * ((d @ d) * np.eye(3) - np.outer(d, d))
        return Inertial(mass, com, inertia)

    def complaint(self) -> str | None:
        """Why no distribution of mass has this inertia, or None."""
        low, middle, high = np.linalg.eigvalsh(self.inertia)
        slack = max(_ROUNDING * high, _SMALLEST_MOMENT)
        if low < -slack:
            return f"a principal moment of inertia is negative ({low:.3g})"
        if high > low + middle + slack:
            return f"principal moments {low:.3g}, {middle:.3g}, {high:.3g} break A + B >= C"
        if self.mass <= 0 and high > _SMALLEST_MOMENT:
            return "it has inertia but no mass"
        return None

    def nearest_possible(self) -> Inertial:
        """Moments raised just enough: positive, and no one larger than the sum of the others."""
        moments, axes = np.linalg.eigh(self.inertia)
        moments = np.maximum(moments, _SMALLEST_MOMENT)
        moments[:2] += max(0.0, moments[2] - moments[0] - moments[1]) / 2 * (1 + 1e-9)
        return Inertial(max(self.mass, _SMALLEST_MOMENT), self.com, (axes * moments) @ axes.T)


_NOTHING = Inertial(0.0, np.zeros(3), np.zeros((3, 3)))


def mend_inertials(robot: Any, file: object, *, base_moves: bool, repair: bool) -> set[str]:
    """Rewrite the `<inertial>` elements of a URDF robot so that every moving link has a possible one.

    Returns the links that are left without mass: they never had any, or another link carries it now.
    """
    massless: set[str] = set()
    links = {link.get("name"): link for link in robot.findall("link")}
    incoming = {joint.find("child").get("link"): joint for joint in robot.findall("joint")}
    inertials = {name: _read_inertial(link, file) for name, link in links.items()}
    for carrier, link in links.items():
        if carrier in incoming and incoming[carrier].get("type") == "fixed":
            continue
        poses = _rigid_group(carrier, robot, file)
        moves = carrier in incoming or base_moves
        if not moves:
            for name in poses:  # the world's own parts: their inertia never matters
                _write_inertial(links[name], None)
            massless.update(poses)
            continue
        own = inertials[carrier]
        offenders = [name for name in poses if name != carrier and _offends(inertials[name])]
        total = _lump(carrier, offenders, poses, inertials)
        if total is not None and total.complaint():
            offenders = [name for name in poses if name != carrier and inertials[name] is not None]
            total = _lump(carrier, offenders, poses, inertials)
        if total is not None:
            complaint = total.complaint()
            if complaint and not repair:
                raise SceneError(
                    complaint,
                    file=file,
                    element=f"link {carrier!r}",
                    remedy="correct its <inertial>, or load with repair_inertia=True to use the nearest possible one",
                )
            if total is not own or complaint or _too_small(total):
                _write_inertial(link, total.nearest_possible())
        else:
            _write_inertial(link, None)
            if _massless(poses, links, inertials):
                inner = any(
                    joint.get("type") != "fixed" and joint.find("parent").get("link") in poses
                    for joint in incoming.values()
                )
                _give_placeholder(carrier, link, inner, file, repair)
        frames = [
            name for name in poses if name != carrier and (part := inertials[name]) is not None and part.mass == 0
        ]
        for name in {*offenders, *frames}:  # MuJoCo wants no <inertial> on what has no mass
            _write_inertial(links[name], None)
            massless.add(name)
    return massless


def _offends(inertial: Inertial | None) -> bool:
    if inertial is None:
        return False
    return bool(inertial.complaint()) or (inertial.mass > 0 and _too_small(inertial))


def _too_small(inertial: Inertial) -> bool:
    return bool(np.linalg.eigvalsh(inertial.inertia)[0] < _SMALLEST_MOMENT) or inertial.mass < _SMALLEST_MOMENT


def _lump(
    carrier: str, parts: Sequence[str], poses: dict[str, pin.SE3], inertials: dict[str, Inertial | None]
) -> Inertial | None:
    total = inertials[carrier]
    for name in parts:
        part = inertials[name]
        assert part is not None
        total = (total or _NOTHING) + part.moved(poses[name])
    if total is not None and total.mass == 0 and not total.inertia.any():
        return None
    return total


def _massless(poses: dict[str, pin.SE3], links: dict[str, Any], inertials: dict[str, Inertial | None]) -> bool:
    """Nothing in the group has mass, nor a shape to infer it from."""
    weight = any((inertial := inertials[name]) is not None and inertial.mass > 0 for name in poses)
    return not weight and all(links[name].find("collision") is None for name in poses)


def _give_placeholder(name: str, link: Any, inner: bool, file: object, repair: bool) -> None:
    """A link without mass between two joints is a way to write a joint of more axes: let it weigh next to nothing."""
    if not inner and not repair:
        raise SceneError(
            "it moves, but has neither mass nor a collision shape to infer it from",
            file=file,
            element=f"link {name!r}",
            remedy="give it an <inertial>, make its joint fixed, or load with repair_inertia=True to let it weigh 1 g",
        )
    mass, moment = (1e-9, 1e-9) if inner else (1e-3, 1e-6)
    _write_inertial(link, Inertial(mass, np.zeros(3), moment * np.eye(3)))


def _rigid_group(carrier: str, robot: Any, file: object) -> dict[str, pin.SE3]:
    """The carrier and every link fixed to it, with their poses in the carrier's frame."""
    poses = {carrier: pin.SE3.Identity()}
    pending = [carrier]
    while pending:
        parent = pending.pop()
        for joint in robot.findall("joint"):
            if joint.get("type") == "fixed" and joint.find("parent").get("link") == parent:
                child = joint.find("child").get("link")
                poses[child] = poses[parent] * _origin(joint, file, f"joint {joint.get('name')!r}")
                pending.append(child)
    return poses


def _read_inertial(link: Any, file: object) -> Inertial | None:
    element = f"link {link.get('name')!r}"
    tag = link.find("inertial")
    if tag is None or tag.find("mass") is None:
        return None
    mass = _numbers(tag.find("mass").get("value", "0"), 1, file, element)[0]
    if mass < 0:
        raise SceneError(f"its mass is negative ({mass:g})", file=file, element=element, remedy="correct its <mass>")
    inertia = np.zeros((3, 3))
    entries = tag.find("inertia")
    if entries is not None:
        for (i, j), key in zip(_SYMMETRIC, ("ixx", "iyy", "izz", "ixy", "ixz", "iyz"), strict=True):
            entries.set(key, entries.get(key, "0"))  # MuJoCo insists on all six
            inertia[i, j] = inertia[j, i] = _numbers(entries.get(key), 1, file, element)[0]
    pose = _origin(tag, file, element)
    return Inertial(float(mass), np.zeros(3), inertia).moved(pose)


_SYMMETRIC = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))


def _write_inertial(link: Any, inertial: Inertial | None) -> None:
    tag = link.find("inertial")
    if tag is not None:
        link.remove(tag)
    if inertial is None:
        return
    tag = etree.SubElement(link, "inertial")
    etree.SubElement(tag, "origin", xyz=" ".join(repr(float(x)) for x in inertial.com))
    etree.SubElement(tag, "mass", value=repr(float(inertial.mass)))
    entries = zip(("ixx", "iyy", "izz", "ixy", "ixz", "iyz"), _SYMMETRIC, strict=True)
    etree.SubElement(tag, "inertia", {key: repr(float(inertial.inertia[i, j])) for key, (i, j) in entries})


def _origin(parent: Any, file: object, element: str) -> pin.SE3:
    tag = parent.find("origin")
    if tag is None:
        return pin.SE3.Identity()
    xyz = _numbers(tag.get("xyz", "0 0 0"), 3, file, element)
    rpy = _numbers(tag.get("rpy", "0 0 0"), 3, file, element)
    return pin.SE3(pin.rpy.rpyToMatrix(*rpy), xyz)


def _numbers(text: str, count: int, file: object, element: str) -> Array:
    try:
        values = np.array([float(word) for word in text.split()])
    except ValueError:
        values = np.array([np.nan])
    if len(values) != count or not np.isfinite(values).all():
        what = "a finite number" if count == 1 else f"{count} finite numbers"
        raise SceneError(f"{text!r} should be {what}", file=file, element=element, remedy="correct the number")
    return values
