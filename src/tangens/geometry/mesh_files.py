"""Meshes from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tangens.errors import OptionError


def read_mesh(file: Path) -> tuple[Any, Any]:
    """Vertices and triangles of a file; all parts of a scene together."""
    import trimesh

    if not file.is_file():
        raise OptionError(f"no such file: {file}")
    try:
        mesh = trimesh.load(file, force="mesh", process=False)
    except Exception as error:  # readers raise whatever they like
        raise OptionError(f"{file} cannot be read as a mesh: {error}") from None
    if not hasattr(mesh, "faces") or not len(mesh.faces):
        raise OptionError(f"{file} has no triangles")
    return mesh.vertices, mesh.faces
