"""From any mesh to few primitives that contact manifolds are quick on: superquadrics, polyhedra, or a point cloud.

`decompose` tries them in this order, and mixes the first two: superquadrics first; where those leave an error, convex
polyhedra in their place; a point cloud if both together miss the accuracy that was asked for. Results are kept by
content, in the user's cache folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.cache import writable_folder
from tangens.errors import MissingExtra, OptionError
from tangens.geometry.cloud_fields import cloud_field
from tangens.geometry.collision_meshes import SurfaceMesh, evenly_meshed, field_values, solid, surface_mesh
from tangens.geometry.convex_parts import convex_parts, polyhedra_field, polyhedron_distances
from tangens.geometry.decomposition_files import digest, read, write_kept
from tangens.geometry.field_unions import Union
from tangens.geometry.mesh_clouds import mesh_cloud
from tangens.geometry.mesh_repair import needed
from tangens.geometry.oriented_points import OrientedPoints
from tangens.geometry.primitive_fits import Estimator, PrimitiveFit, measure
from tangens.geometry.signed_grids import Inertial, MeshSample, inertial, sample_mesh, signed_grid
from tangens.geometry.solids import Solid
from tangens.geometry.superquadric_fits import Parameters, distances
from tangens.geometry.superquadric_search import search

Array = NDArray[np.float64]
Kind = Literal["auto", "superquadrics", "polyhedra", "cloud"]
Advance = Callable[[str, int, int], None]

KINDS = ("auto", "superquadrics", "polyhedra", "cloud")
_CELLS = 40_000
_MOST_KEPT = 300
_CLOUD_POINTS = 2000
_SWALLOWED = 0.8
"""Of its volume: a superquadric that is inside polyhedra this far is not needed beside them."""
_LARGEST = 0.02
"""Of the diagonal: a point cloud may be this far off somewhere, whatever primitives are."""


@dataclass(frozen=True, eq=False)
class Decomposition:
    """Primitives in the frame of the mesh."""

    superquadrics: Parameters | None
    polyhedra: tuple[Array, ...]
    """Corners of each [m], (n, 3)."""
    cloud: OrientedPoints | None
    """If given, it stands for the whole surface, and the primitives are for tools that know no clouds."""
    fit: PrimitiveFit
    inertial: Inertial
    low: Array
    """Corners of the box around mesh and primitives [m]."""
    high: Array
    _surface: dict[str, SurfaceMesh] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return (0 if self.superquadrics is None else len(self.superquadrics.axes)) + len(self.polyhedra)

    @property
    def diagonal(self) -> float:
        """Of the bounding box [m]."""
        return float(np.linalg.norm(self.high - self.low))

    @property
    def smoothing(self) -> float:
        """τ [m] that surfaces are made with."""
        return 1e-3 * self.diagonal

    @property
    def field(self) -> Any:
        """The signed distance of everything, see `signed_distances`."""
        return _field(self.superquadrics, self.polyhedra, self.cloud)

    def surface(self) -> SurfaceMesh:
        """A fine mesh of the zero level set."""
        if "fine" not in self._surface:
            self._surface["fine"] = surface_mesh(self.field, self.low, self.high, self.smoothing)
        return self._surface["fine"]

    def solid(self, vertices: int = 300) -> Solid:
        """A solid for contact manifolds: the field, and about so many vertices, all of them on its surface."""
        return solid(self.field, evenly_meshed(self.surface(), self.field, self.smoothing, vertices), self.smoothing)


def decompose(
    vertices: ArrayLike,
    faces: ArrayLike,
    *,
    accuracy: float = 0.005,
    most: int = 20,
    kind: Kind = "auto",
    advance: Advance | None = None,
) -> Decomposition:
    """Primitives for a mesh of triangles [m]; OptionError, with the reason, for a mesh without an inside.

    Stops at the first union whose mean distance from the mesh is `accuracy` times the diagonal, and at `most`
    primitives. `advance` hears what is being done, how much of it, and of how much.
    """
    if kind not in KINDS:
        raise OptionError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")
    if not (isinstance(most, int) and most >= 1) or not 0 < accuracy < 1:
        raise OptionError(f"most must be 1 or more, and accuracy between 0 and 1; got {most!r} and {accuracy!r}")
    at, triangles = np.ascontiguousarray(vertices, float), np.ascontiguousarray(faces, np.int64)
    file = writable_folder("decompositions", _MOST_KEPT) / f"{digest(at, triangles, accuracy, most, kind)}.npz"
    kept = read(file)
    if kept is None:
        kept = _decompose(at, triangles, accuracy, most, kind, advance or _silent)
        write_kept(file, kept)
    return Decomposition(**kept)


def _silent(what: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def _decompose(at: Array, triangles: Any, accuracy: float, most: int, kind: Kind, advance: Advance) -> dict[str, Any]:
    needed("skimage.measure", "a decomposition", "scikit-image")  # before any work is done
    started = time.perf_counter()
    advance("signed distances", 0, 1)
    mesh = sample_mesh(at, triangles)
    grid = signed_grid(mesh, _CELLS)
    judge, found = Estimator(mesh, grid), Choice(None, (), None, ())
    if kind in ("auto", "superquadrics"):
        found = replace(found, superquadrics=search(mesh, grid, 0.9 * accuracy, most, advance).superquadrics)
    if kind == "polyhedra":
        advance("convex polyhedra", 0, 1)
        found = replace(found, polyhedra=convex_parts(mesh, accuracy, most))
    if kind == "auto" and _error(mesh, judge, found) > accuracy:
        found = _mixed(mesh, judge, found, accuracy, most, advance)
    if kind == "cloud" or (kind == "auto" and _error(mesh, judge, found) > accuracy):
        advance("point cloud", 0, 1)
        found = _with_cloud(mesh, judge, found, kind == "cloud")
    advance("report", 0, 1)
    low, high = _bounds(mesh, found)
    fit = replace(
        measure(mesh, grid, found.field, low, high),
        seconds=time.perf_counter() - started,
        notes=(*mesh.notes, *found.notes),
    )
    return {
        "superquadrics": found.superquadrics, "polyhedra": found.polyhedra, "cloud": found.cloud, "fit": fit,
        "inertial": inertial(grid), "low": low, "high": high,
    }  # fmt: skip


def _bounds(mesh: MeshSample, found: Choice) -> tuple[Array, Array]:
    """The box around the mesh and everything that stands for it."""
    points = [mesh.vertices, *found.polyhedra]
    if found.superquadrics is not None:
        points += found.superquadrics.corners()
    return np.min([p.min(0) for p in points], 0), np.max([p.max(0) for p in points], 0)


@dataclass(frozen=True, eq=False)
class Choice:
    """Primitives while they are searched for."""

    superquadrics: Parameters | None
    polyhedra: tuple[Array, ...]
    cloud: OrientedPoints | None
    notes: tuple[str, ...]

    @property
    def field(self) -> Any:
        """Their signed distance."""
        return _field(self.superquadrics, self.polyhedra, self.cloud)

    def __len__(self) -> int:
        return (0 if self.superquadrics is None else len(self.superquadrics.axes)) + len(self.polyhedra)


def _field(superquadrics: Parameters | None, polyhedra: tuple[Array, ...], cloud: OrientedPoints | None) -> Any:
    if cloud is not None:
        return cloud_field(cloud)
    fields: list[Any] = [] if superquadrics is None else [superquadrics.field()]
    if polyhedra:
        fields.append(polyhedra_field(polyhedra))
    return fields[0] if len(fields) == 1 else Union(tuple(fields))


def _mixed(mesh: MeshSample, judge: Estimator, start: Choice, accuracy: float, most: int, advance: Advance) -> Choice:
    """Polyhedra where superquadrics fit worst, in their place, until the accuracy is reached."""
    advance("convex polyhedra", 0, 1)
    try:
        parts = convex_parts(mesh, accuracy, 2 * most)
    except MissingExtra as missing:
        return replace(start, notes=(*start.notes, f"convex polyhedra were not tried: {missing}"))
    p = start.superquadrics
    assert p is not None
    round_ = distances(p, judge.points)
    flat = np.stack([polyhedron_distances(part, judge.points) for part in parts], 1)
    on = slice(len(mesh.points))
    misfit, nearest = np.abs(round_[on].min(1)), np.abs(flat[on]).argmin(1)
    order = np.argsort(-np.bincount(nearest, misfit, len(parts)))
    best, error = start, judge(round_.min(1)).error
    for count in range(1, len(parts) + 1):
        chosen = order[:count]
        left = np.flatnonzero(~_swallowed(p, [parts[k] for k in chosen]))
        found = judge(np.concatenate([round_[:, left], flat[:, chosen]], 1).min(1)).error
        if len(left) + count <= most and found < error:
            superquadrics = p.take(left) if len(left) else None
            best, error = replace(start, superquadrics=superquadrics, polyhedra=tuple(parts[k] for k in chosen)), found
        if error <= accuracy:
            break
    return best


def _swallowed(p: Parameters, parts: list[Array]) -> NDArray[np.bool_]:
    """Which superquadrics are inside polyhedra, but for a little, (n,)."""
    rng, out = np.random.default_rng(0), np.zeros(len(p.axes), bool)
    for k in range(len(p.axes)):
        one = p.take([k])
        x = one.position[0] + (rng.uniform(-1, 1, (500, 3)) * one.axes[0]) @ one.rotation[0].T
        x = x[distances(one, x)[:, 0] < 0]
        covered = np.min([polyhedron_distances(part, x) for part in parts], 0) < 0 if len(x) else np.ones(1, bool)
        out[k] = covered.mean() >= _SWALLOWED
    return out


def _with_cloud(mesh: MeshSample, judge: Estimator, found: Choice, anyway: bool) -> Choice:
    """A point cloud in place of primitives, where it is nearer to the mesh, and nowhere much farther.

    Between the two sides of a part that is thinner than its points are apart, planes of both sides mix, and surfaces
    appear in the open.
    """
    cloud = mesh_cloud(mesh.vertices, mesh.faces, _CLOUD_POINTS)[0]
    chosen = replace(found, cloud=cloud)
    if anyway:
        return chosen
    new, old = (judge(field_values(c.field, judge.points, 1e-3 * mesh.diagonal)[0]) for c in (chosen, found))
    if new.error < old.error and new.largest <= max(old.largest, _LARGEST):
        return chosen
    if new.error < old.error:
        note = f"a point cloud was not taken: it is off by {new.largest:.1%} of the diagonal where the mesh is thin"
        return replace(found, notes=(*found.notes, note))
    return found


def _error(mesh: MeshSample, judge: Estimator, found: Choice) -> float:
    return judge(field_values(found.field, judge.points, 1e-3 * mesh.diagonal)[0]).error
