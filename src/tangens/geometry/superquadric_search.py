"""Few superquadrics that cover a solid: the thickest part first, then what is left, and all of them refined together.

After Marching Primitives (Liu et al. 2023): connected regions deep inside the signed distance start a superquadric
each, which grows into the part around it; what it covers is taken away. Here each round chooses between several
starts by what they cover, and refines the whole union, which the original does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from tangens.geometry.signed_grids import MeshSample, SignedGrid
from tangens.geometry.superquadric_fits import Parameters, Targets, distances, fit_one, refine

Array = NDArray[np.float64]
Masks = NDArray[np.bool_]

_LEVELS = (0.75, 0.45, 0.15)
"""Of the largest depth that is left: regions deeper than this are starts."""
_PER_LEVEL = 2
"""Starts of each level: the largest regions."""
_SAMPLES = 2500
"""Points that one superquadric is fitted to, and that all are refined with at each round."""
_WORTH = 0.005
"""Of the error: what lowers it by less is not worth a superquadric."""
_PATIENCE = 2
"""Rounds without such an improvement, after which a search ends."""
_JUDGED = 12_000
"""Cells that a union is judged by."""
_TIPS = 10.0
"""Weight of a point on an axis that is outside: there are few of them."""
_OUTSIDE = 1.5
"""How much worse a cell is that is covered and outside, than one that is inside and not covered."""

Advance = Callable[[str, int, int], None]


class Cover(NamedTuple):
    """What a search has found."""

    superquadrics: Parameters
    error: float
    """Mean distance of the surfaces from each other, over the diagonal: an estimate, see `Judge`."""


def search(mesh: MeshSample, grid: SignedGrid, accuracy: float, most: int, advance: Advance) -> Cover:
    """As many superquadrics as the accuracy needs, and `most` at most.

    Each round adds one, in what is left or by splitting the one that fits worst, whichever brings the union nearer.
    """
    rng = np.random.default_rng(0)
    x, depth = grid.points, grid.values.reshape(-1)
    inside = np.flatnonzero(depth < 0)
    given_up = np.zeros(len(x), bool)
    judge = Judge(mesh, grid, rng)
    found, error = _first(grid, x, depth, rng), np.inf
    idle = 0
    while True:
        found, _ = refine(found, _targets(mesh, grid, found, rng), 12)
        found, error = _trimmed(found, grid, judge)
        advance("superquadrics", len(found.axes), most)
        if error <= accuracy or len(found.axes) >= most:
            break
        open_to = np.zeros(len(x), bool)
        open_to[inside] = distances(found, x[inside]).min(1) > 0.5 * grid.cell
        open_to &= ~given_up
        trials = [_split(judge, found)]
        added = _best(grid, x, depth, open_to, rng)
        if added is not None:
            trials.append(found.join(added))
        refined = [refine(trial, _targets(mesh, grid, trial, rng), 12)[0] for trial in trials]
        errors = [judge(trial) for trial in refined]
        best = int(np.argmin(errors))
        if added is not None and best == 0:  # what was added did not help as much: look elsewhere the next time
            given_up |= distances(added, x)[:, 0] < 0
        idle = 0 if errors[best] < (1 - _WORTH) * error else idle + 1
        if idle > _PATIENCE:
            break
        found = refined[best]
    for _ in range(2):
        found, _ = refine(found, _targets(mesh, grid, found, rng, 4 * _SAMPLES), 20)
    return Cover(*_trimmed(found, grid, judge))


def _trimmed(found: Parameters, grid: SignedGrid, judge: Judge) -> tuple[Parameters, float]:
    """Cut off, along each axis, what stands out of the solid at its ends, where that brings the surfaces nearer."""
    shares = np.linspace(0.2, 1.0, 17)
    error = judge(found)
    for k, j in np.ndindex(len(found.axes), 3):
        way = found.axes[k, j] * found.rotation[k][:, j]
        ends = []
        for sign in (-1.0, 1.0):
            out = grid.interpolated(found.position[k] + sign * shares[:, None] * way) > grid.cell
            ends.append(shares[int(out.argmax())] if out.any() and out[-1] else 1.0)
        if min(ends) == 1.0:
            continue
        axes, position = found.axes.copy(), found.position.copy()
        axes[k, j] *= (ends[0] + ends[1]) / 2
        position[k] += (ends[1] - ends[0]) / 2 * way
        shorter = found._replace(axes=axes, position=position)
        if judge(shorter) < error:
            found, error = shorter, judge(shorter)
    return found, error


class Judge:
    """How far a union's surface is from the mesh's, both ways, to first order; over the diagonal."""

    def __init__(self, mesh: MeshSample, grid: SignedGrid, rng: np.random.Generator) -> None:
        depth = grid.values.reshape(-1)
        cells = rng.permutation(len(depth))[:_JUDGED]
        self._points, self._diagonal, self._cell = mesh.points, mesh.diagonal, grid.cell
        self._cells, self._depth, self._grid = grid.points[cells], depth[cells], grid

    def __call__(self, found: Parameters) -> float:
        """The larger one of the two means."""
        (_, here), (_, there) = self.misfits(found)
        return float(max(here.mean(), there.mean() if len(there) else 0.0)) / self._diagonal

    def misfits(self, found: Parameters) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Whose it is, and how far away: points of the mesh from the union, then cells near the union from the mesh."""
        d, e = distances(found, self._points), distances(found, self._cells)
        near = np.abs(e.min(1)) < self._cell
        tips = np.maximum(self._grid.interpolated(found.along_axes((1.0,))), 0.0)
        apart = np.concatenate([np.abs(self._depth[near] - e[near].min(1)), tips])
        owner = np.concatenate([e[near].argmin(1), np.repeat(np.arange(len(found.axes)), 6)])
        return (d.argmin(1), np.abs(d.min(1))), (owner, apart)


def _first(grid: SignedGrid, x: Array, depth: Array, rng: np.random.Generator) -> Parameters:
    """The one that covers most, or the ellipsoid of everything."""
    best = _best(grid, x, depth, depth < 0, rng)
    return _ellipsoid(x[depth < 0], 0.0) if best is None else best


def _split(judge: Judge, found: Parameters) -> Parameters:
    """With two halves in place of the superquadric whose share of the surfaces fits worst."""
    here, there = judge.misfits(found)
    misfit = sum(np.bincount(owner, apart, len(found.axes)) / max(len(owner), 1) for owner, apart in (here, there))
    k = int(np.argmax(misfit))
    along = int(found.axes[k].argmax())
    axes = np.tile(found.axes[k], (2, 1))
    axes[:, along] *= 0.55
    way = 0.45 * found.axes[k, along] * found.rotation[k][:, along]
    halves = Parameters(
        axes,
        np.tile(found.exponents[k], (2, 1)),
        found.position[k] + np.array([[-1.0], [1.0]]) * way,
        np.tile(found.rotation[k], (2, 1, 1)),
    )
    return found.take(np.arange(len(found.axes)) != k).join(halves)


def _targets(
    mesh: MeshSample, grid: SignedGrid, found: Parameters, rng: np.random.Generator, samples: int = _SAMPLES
) -> Targets:
    """Points of the surface, where the distance is 0, cells on both sides, and points along all axes.

    The last see what stands out between cells: a needle is nowhere else.
    """
    x, depth = grid.points, grid.values.reshape(-1)
    on = mesh.points[rng.choice(len(mesh.points), samples // 2)]
    axes = found.along_axes((0.6, 0.95))[: samples // 4]
    known = grid.interpolated(axes)
    band = np.flatnonzero(np.abs(depth) < 6 * grid.cell)
    near = rng.choice(band, samples // 4 - len(axes) // 2)
    anywhere = rng.choice(len(x), samples - len(on) - len(near) - len(axes))
    cells = np.concatenate([near, anywhere])
    cut = max(3 * grid.cell, 0.03 * mesh.diagonal)
    weight = np.concatenate([np.full(len(on), 2.0), np.ones(len(cells)), np.where(known > 0, _TIPS, 0.0)])
    wanted = np.concatenate([np.zeros(len(on)), depth[cells], known])
    return Targets(np.concatenate([on, x[cells], axes]), wanted, weight, cut)


def _best(grid: SignedGrid, x: Array, depth: Array, open_to: Masks, rng: np.random.Generator) -> Parameters | None:
    """The superquadric that covers most of what is left; None if none covers any of it."""
    best, most = None, -np.inf
    for region, grown in _starts(grid, open_to):
        start = _ellipsoid(x[region], grown)
        near = np.flatnonzero(_box_around(start, x, 2.5, 3 * grid.cell))
        chosen = rng.choice(near, _SAMPLES)
        hidden = (depth < 0) & ~open_to  # covered by others: this one may do as it likes there
        to = Targets(x[chosen], depth[chosen], np.where(hidden[chosen], 0.05, 1.0), max(3 * grid.cell, 1.5 * grown))
        for order in ([0, 1, 2], [1, 2, 0]):  # ε₁ belongs to the last axis: try the longest and the shortest there
            turned = start._replace(axes=start.axes[:, order], rotation=start.rotation[:, :, order])
            fitted, _ = fit_one(turned, to)
            at = np.flatnonzero(_box_around(fitted, x, 1.0, grid.cell))
            covers = at[distances(fitted, x[at])[:, 0] < 0]
            gain = float(open_to[covers].sum()) - _OUTSIDE * float((depth[covers] > 0).sum())
            if open_to[covers].any() and gain > most:
                best, most = fitted, gain
    return best


def _starts(grid: SignedGrid, open_to: Masks) -> list[tuple[NDArray[np.int_], float]]:
    """Connected regions deep inside what is left: their cells, and how deep they are [m]."""
    if not open_to.any():
        return []
    left = open_to.reshape(grid.values.shape)
    deep = ndimage.distance_transform_edt(left)
    found = []
    for level in _LEVELS:
        threshold = level * deep.max()
        labels, count = ndimage.label(deep > threshold)
        if not count:
            continue
        sizes = np.bincount(labels.reshape(-1))[1:]
        for k in np.argsort(-sizes)[:_PER_LEVEL]:
            found.append((np.flatnonzero(labels.reshape(-1) == k + 1), float(threshold * grid.cell)))
    return found


def _ellipsoid(points: Array, grown: float) -> Parameters:
    """The ellipsoid with the moments of points, grown by a length; its longest axis is the last one."""
    middle = points.mean(0)
    second = np.cov(points.T) if len(points) > 3 else np.zeros((3, 3))
    values, axes = np.linalg.eigh(second)
    if np.linalg.det(axes) < 0:
        axes[:, 0] *= -1
    half = np.sqrt(5 * np.maximum(values, 0.0)) + max(grown, 1e-9)
    return Parameters(half[None], np.full((1, 2), 0.9), middle[None], axes[None])


def _box_around(p: Parameters, x: Array, times: float, more: float) -> Masks:
    """Which points are in a superquadric's box, enlarged."""
    local = (x - p.position[0]) @ p.rotation[0]
    return (np.abs(local) < times * p.axes[0] + more).all(1)
