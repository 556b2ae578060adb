"""Decompositions on disk: kept by content, and written as MJCF for other tools."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from tangens.cache import write
from tangens.geometry.oriented_points import OrientedPoints
from tangens.geometry.primitive_fits import PrimitiveFit
from tangens.geometry.signed_grids import Inertial
from tangens.geometry.superquadric_fits import Parameters

if TYPE_CHECKING:
    from tangens.geometry.decomposition import Decomposition

Array = NDArray[np.float64]

_VERSION = b"4"  # of what is kept on disk


def digest(vertices: Array, faces: NDArray[np.int64], *settings: object) -> str:
    """The name of a decomposition: all that it depends on."""
    out = hashlib.sha256(_VERSION + repr(settings).encode())
    for part in (np.array(vertices.shape), vertices, faces):
        out.update(part.tobytes())
    return out.hexdigest()[:32]


def read(file: Path) -> dict[str, Any] | None:
    """What was kept, or None."""
    try:
        with np.load(file) as data:
            notes = tuple(data["notes"].tolist())
            error, largest, volume, seconds = map(float, data["fit"])
            cloud = [data[f"cloud_{name}"] for name in ("points", "normals", "vertices", "quads")]
            split = np.split(data["corners"], np.cumsum(data["counts"])[:-1]) if len(data["counts"]) else []
            shapes = Parameters(*(data[f"superquadric_{name}"] for name in Parameters._fields))
            return {
                "superquadrics": shapes if len(shapes.axes) else None,
                "polyhedra": tuple(split),
                "cloud": OrientedPoints(*cloud) if len(cloud[0]) else None,
                "fit": PrimitiveFit(error, largest, volume, seconds, notes),
                "inertial": Inertial(float(data["volume"]), data["centre"], data["inertia"]),
                "low": data["low"],
                "high": data["high"],
            }
    except (OSError, KeyError, ValueError, EOFError):
        return None


def write_kept(file: Path, found: dict[str, Any]) -> None:
    """Keep a decomposition; where that is not allowed, it is made again next time."""
    none = Parameters(np.zeros((0, 3)), np.zeros((0, 2)), np.zeros((0, 3)), np.zeros((0, 3, 3)))
    shapes, fit, cloud, parts = found["superquadrics"] or none, found["fit"], found["cloud"], found["polyhedra"]
    content = {f"superquadric_{name}": value for name, value in shapes._asdict().items()}
    for name in ("points", "normals", "vertices", "quads"):
        content[f"cloud_{name}"] = np.zeros((0, 3)) if cloud is None else getattr(cloud, name)
    content |= {
        "corners": np.concatenate([np.zeros((0, 3)), *parts]),
        "counts": np.array([len(part) for part in parts], int),
        "fit": np.array([fit.error, fit.largest, fit.volume, fit.seconds]),
        "notes": np.array(fit.notes, dtype=str),
        "low": found["low"],
        "high": found["high"],
    } | found["inertial"]._asdict()
    with suppress(OSError):
        write(file, lambda half: np.savez(half, **content))


def mjcf(found: Decomposition, name: str, density: float = 1000.0) -> str:
    """A body of convex geoms as MJCF that plain MuJoCo loads: superquadrics become polyhedra with corners on them.

    Mass and inertia are those of the mesh, not of the geoms, which overlap. A point cloud has no counterpart.
    """
    root = ElementTree.Element("mujoco", model=name)
    asset = ElementTree.SubElement(root, "asset")
    body = ElementTree.SubElement(ElementTree.SubElement(root, "worldbody"), "body", name=name)
    ElementTree.SubElement(body, "freejoint")
    volume, centre, inertia = found.inertial
    moments = density * inertia[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
    ElementTree.SubElement(
        body, "inertial", pos=_text(centre), mass=f"{density * volume:.9g}", fullinertia=_text(moments)
    )
    corners = list(found.polyhedra)
    if found.superquadrics is not None:
        corners = [*found.superquadrics.corners(), *corners]
    for k, points in enumerate(corners):
        ElementTree.SubElement(asset, "mesh", name=f"{name}_{k}", vertex=_text(points.reshape(-1)))
        ElementTree.SubElement(body, "geom", name=f"{name}_{k}", type="mesh", mesh=f"{name}_{k}", mass="0")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _text(values: Array) -> str:
    return " ".join(f"{x:.9g}" for x in values)
