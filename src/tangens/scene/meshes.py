"""Mesh files as robot descriptions name them: found on disk, and converted to what MuJoCo reads."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from tangens.errors import SceneError

_READ_BY_MUJOCO = {".stl", ".obj", ".msh"}


def locate(uri: str, base: Path, package_dirs: Iterable[Path], file: object, element: str) -> Path:
    """The file behind a `package://`, `model://`, `file://` or plain path of a robot description in `base`."""
    tried: list[Path] = []
    for candidate in _candidates(uri, base, package_dirs):
        if candidate.is_file():
            return candidate
        tried.append(candidate)
    shown = ", ".join(str(path) for path in tried[:3])
    raise SceneError(
        f"mesh file {uri!r} not found (looked for {shown}{', ...' if len(tried) > 3 else ''})",
        file=file,
        element=element,
        remedy="put the file there, or name the folder that holds the package with package_dirs=[...]",
    )


def _candidates(uri: str, base: Path, package_dirs: Iterable[Path]) -> Iterator[Path]:
    scheme, separator, rest = uri.partition("://")
    if not separator:
        yield base / uri
        return
    if scheme == "file":
        yield Path(rest)
        return
    rest = rest.lstrip("/")  # some exporters write package:///name
    package, _, inside = rest.partition("/")
    for folder in package_dirs:
        yield folder / rest
        if folder.name == package:
            yield folder / inside
    # A description usually lies inside its own package, or next to the package it names.
    for parent in (base, *base.parents):
        yield parent / rest
        if parent.name == package:
            yield parent / inside
    for variable in ("ROS_PACKAGE_PATH", "AMENT_PREFIX_PATH"):
        for entry in filter(None, os.environ.get(variable, "").split(os.pathsep)):
            yield Path(entry) / rest
            yield Path(entry) / "share" / rest
    yield Path(sysconfig.get_paths()["purelib"]) / "cmeel.prefix" / "share" / rest  # example-robot-data's wheel


def read_for_mujoco(path: Path, file: object, element: str) -> tuple[str, bytes]:
    """File extension and content of a mesh in a format that MuJoCo reads; DAE and others become STL."""
    suffix = path.suffix.lower()
    if suffix in _READ_BY_MUJOCO:
        content = path.read_bytes()
        # MuJoCo tells binary from text STL by the header's first word, which some exporters write into binary files.
        if suffix != ".stl" or not content.startswith(b"solid"):
            return suffix, content
    import trimesh

    try:
        mesh = trimesh.load(path, force="mesh")
        if not len(mesh.faces):
            raise ValueError("it holds no triangles")
        return ".stl", bytes(mesh.export(file_type="stl"))
    except Exception as error:  # trimesh and its readers raise whatever they meet
        raise SceneError(
            f"mesh file {path} cannot be read: {error}",
            file=file,
            element=element,
            remedy="export it again as STL or OBJ",
        ) from error
