"""Which probes are tested against which surface, in groups that are computed in one go.

A pair of geoms gives one or two rows: the probes of one geom against the surface of the other, and the other way round.
Rows with arrays of the same lengths form a group. Lists of points are numbers, not structure: scenes whose geoms have
other shapes, but as many points, share what is compiled, and a batch may have many shapes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.contact.geom_pairs import touching_geoms
from tangens.contact.soft.shapes import ONE, Kind, SoftGeom, bucket, padded

Array = NDArray[np.float64]
Ints = NDArray[np.int_]


class Group(NamedTuple):
    """Rows that are computed together; all index arrays have a length of the number of rows."""

    kind: Kind
    """Of the surface."""
    probes: str
    """Which stack of lists of probes."""
    probe_at: Ints
    points: str
    """Which stack of lists of oriented points; "" if the surface is no cloud."""
    point_at: Ints
    is_round: bool
    """Whether probes have a radius."""
    probe_geom: Ints
    surface_geom: Ints
    pair: Ints


class SoftTable:
    """The rows of a scene. Fixed structure."""

    def __init__(self, m: mujoco.MjModel, geoms: list[SoftGeom | None]) -> None:
        self.geoms = geoms
        found = [pair for pair in touching_geoms(m) if all(geoms[g] is not None for g in pair)]
        kinds = [{geoms[g].kind for g in pair} for pair in found]  # type: ignore[union-attr]
        self.pairs: Ints = np.array([p for p, k in zip(found, kinds, strict=True) if k != {"plane"}], int).reshape(
            -1, 2
        )
        self._stacks: dict[str, dict[int, tuple[Array, ...]]] = defaultdict(dict)
        self.groups = self._group()

    def _group(self) -> tuple[Group, ...]:
        rows: dict[tuple[str, str, str, bool], list[tuple[int, ...]]] = defaultdict(list)
        for pair, (one, two) in enumerate(self.pairs.tolist()):
            for probe, surface in self._directions(one, two):
                a, b = self._known(probe), self._known(surface)
                probes, at = self._probes(probe)
                points, where = self._points(surface) if b.kind == "cloud" else ("", 0)
                key = (b.kind, probes, points, a.kind == "segment")
                rows[key].append((at, where, probe, surface, pair))
        groups = []
        for (kind, probes, points, is_round), members in rows.items():
            at, where, probe_geom, surface_geom, pair_of = np.array(members).T
            groups.append(
                Group(kind, probes, at, points, where, is_round, probe_geom, surface_geom, pair_of)  # type: ignore[arg-type]
            )
        return tuple(groups)

    def _known(self, geom: int) -> SoftGeom:
        found = self.geoms[geom]
        assert found is not None
        return found

    def _directions(self, one: int, two: int) -> list[tuple[int, int]]:
        """(probes of, surface of) for a pair; two segments see the same in both directions if one is a sphere."""
        a, b = self._known(one), self._known(two)
        if a.kind == "plane":
            return [(two, one)]
        if b.kind == "plane" or (a.kind == b.kind == "segment" and len(a.probes) == 1):
            return [(one, two)]
        if a.kind == b.kind == "segment" and len(b.probes) == 1:
            return [(two, one)]
        return [(one, two), (two, one)]

    def _probes(self, geom: int) -> tuple[str, int]:
        probes = self._known(geom).probes
        length = bucket(len(probes))
        return self._kept(f"probes_{length}", geom, padded(probes, length))

    def _points(self, geom: int) -> tuple[str, int]:
        g = self._known(geom)
        length = bucket(len(g.points))
        points, bias = padded(g.points, length)
        return self._kept(f"points_{length}", geom, (points, padded(g.normals, length)[0], bias))

    def _kept(self, name: str, geom: int, arrays: tuple[Array, ...]) -> tuple[str, int]:
        stack = self._stacks[name]
        stack.setdefault(geom, arrays)
        return name, list(stack).index(geom)

    def clouds(self) -> dict[str, tuple[Array, ...]]:
        """Lists of points, stacked by length: probes and their logits' bias; points, normals and bias."""
        return {
            name: tuple(np.stack(column) for column in zip(*stack.values(), strict=True))
            for name, stack in self._stacks.items()
        }

    @property
    def uses_meshes(self) -> bool:
        """Whether the shape of some geom does not come from its size."""
        return any(g is not None and ONE in g.scale for g in self.geoms)
