"""URDF as it is found in the wild, made digestible for MuJoCo's own URDF reader.

What is changed: mesh paths are resolved and the meshes handed over in memory, visuals are dropped, and inertias that
a compiler would refuse are moved or mended where that does not change the motion. Links keep their names: bodies on
fixed joints are not fused.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mujoco
from lxml import etree

from tangens.errors import SceneError
from tangens.scene.inertials import mend_inertials
from tangens.scene.meshes import locate, read_for_mujoco


def urdf_spec(
    robot: Any,
    base: Path,
    file: object,
    *,
    floating_base: bool,
    repair_inertia: bool,
    package_dirs: Sequence[Path],
) -> mujoco.MjSpec:
    """Turn the parsed `<robot>` element into an MjSpec."""
    _check_tree(robot, file)
    for visual in [*robot.iter("visual")]:
        visual.getparent().remove(visual)
    massless = mend_inertials(robot, file, base_moves=floating_base, repair=repair_inertia)
    assets = _collect_meshes(robot, base, file, package_dirs)
    _set_compiler(robot)
    spec = mujoco.MjSpec.from_string(etree.tostring(robot, encoding="unicode"), assets=assets)
    for body in spec.bodies:
        if body.name in massless:
            for geom in body.geoms:
                geom.mass = 0.0  # or MuJoCo would weigh the shape as if it were filled with water
    for mesh in spec.meshes:
        # Collision uses the hull; inertia from a real-life mesh's faces often fails on orientation or holes.
        mesh.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_CONVEX
    return spec


def _check_tree(robot: Any, file: object) -> None:
    """Catch broken link and joint structure with messages of our own: MuJoCo reports only some of it."""
    links = [link.get("name") for link in robot.findall("link")]
    if not links:
        raise SceneError("the robot has no links", file=file, element="robot", remedy="add at least one <link>")
    for names, what in ((links, "link"), ([j.get("name") for j in robot.findall("joint")], "joint")):
        for name in names:
            if not name:
                raise SceneError(f"a {what} has no name", file=file, element=what, remedy='add name="..."')
            if names.count(name) > 1:
                raise SceneError(
                    f"two {what}s share a name", file=file, element=f"{what} {name!r}", remedy="rename one of them"
                )
    parent_of: dict[str, str] = {}
    for joint in robot.findall("joint"):
        element = f"joint {joint.get('name')!r}"
        ends: dict[str, str] = {}
        for end in ("parent", "child"):
            tag = joint.find(end)
            ends[end] = tag.get("link", "") if tag is not None else ""
            if ends[end] not in links:
                raise SceneError(
                    f"its {end} link {ends[end]!r} does not exist",
                    file=file,
                    element=element,
                    remedy=f'name an existing link in <{end} link="..."/>',
                )
        if ends["child"] in parent_of:
            raise SceneError(
                f"link {ends['child']!r} is the child of two joints: the robot is not a tree",
                file=file,
                element=element,
                remedy="close the loop with an MJCF equality instead",
            )
        parent_of[ends["child"]] = ends["parent"]
    roots = [link for link in links if link not in parent_of]
    if len(roots) != 1:
        found = f"{len(roots)} root links ({', '.join(roots[:4])})" if roots else "a cycle of joints"
        raise SceneError(
            f"{found}: a robot is one tree", file=file, element="robot", remedy="connect the links by joints"
        )


def _collect_meshes(robot: Any, base: Path, file: object, package_dirs: Sequence[Path]) -> dict[str, bytes]:
    """Load each mesh once per file and scale, and let the XML point at the copy in memory."""
    assets: dict[str, bytes] = {}
    names: dict[tuple[Path, str], str] = {}
    for link in robot.findall("link"):
        for mesh in link.iter("mesh"):
            element = f"link {link.get('name')!r}"
            path = locate(mesh.get("filename", ""), base, package_dirs, file, element)
            key = (path, mesh.get("scale", ""))
            if key not in names:
                suffix, content = read_for_mujoco(path, file, element)
                names[key] = f"{path.stem}-{len(names)}{suffix}"
                assets[names[key]] = content
            mesh.set("filename", names[key])
    return assets


def _set_compiler(robot: Any) -> None:
    """MuJoCo's URDF extension block, with the settings that the rest of the loader relies on."""
    block = robot.find("mujoco")
    if block is None:
        block = etree.SubElement(robot, "mujoco")
    compiler = block.find("compiler")
    if compiler is None:
        compiler = etree.SubElement(block, "compiler")
    for attribute in ("meshdir", "strippath"):
        compiler.attrib.pop(attribute, None)
    compiler.set("fusestatic", "false")
    compiler.set("discardvisual", "false")
