"""Which probes are tested against which surface, in groups that are computed in one go.

A pair of geoms gives one or two rows: the probes of one geom against the surface of the other, and the other way round.
Rows of one kind form a group, if not too much of it is there only to make lists equally long. Lists of points are
numbers, not structure: scenes whose geoms have other shapes, but as many points, share what is compiled, and a batch
may have many shapes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.contact.geom_pairs import touching_geoms
from tangens.contact.soft.shapes import ONE, Kind, SoftGeom, padded, point_bucket, probe_bucket

Array = NDArray[np.float64]
Ints = NDArray[np.int_]

_FILLING = 4096
"""Planes that a group may look at in vain: some ten µs, as long as a group of its own takes to start."""
_FORCE = 8
"""What the force of a probe costs, in planes that are looked at."""


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


class Row(NamedTuple):
    """The probes of one geom against the surface of another, with lengths of the lists that hold them."""

    probes: int
    points: int
    probe: int
    surface: int
    pair: int

    @property
    def cost(self) -> int:
        """Planes that are looked at."""
        return self.probes * max(_FORCE, self.points)


def merged(rows: list[Row]) -> list[list[Row]]:
    """Rows of one kind in groups, each filled up to its longest lists: few groups compile and start fast."""
    found = list[list[Row]]()
    for row in sorted(rows, key=lambda row: (-row.cost, row.pair)):
        for group in found:
            probes, points = (max(r[k] for r in (*group, row)) for k in (0, 1))
            filled = probes * max(_FORCE, points) * (len(group) + 1)
            if filled - sum(r.cost for r in (*group, row)) <= _FILLING:
                group.append(row)
                break
        else:
            found.append([row])
    return found


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
        rows: dict[tuple[str, bool], list[Row]] = defaultdict(list)
        for pair, (one, two) in enumerate(self.pairs.tolist()):
            for probe, surface in self._directions(one, two):
                a, b = self._known(probe), self._known(surface)
                is_round = a.kind == "segment"
                # a cloud looks twice where probes are round; other surfaces take probes with and without a radius
                key = (b.kind, is_round if b.kind == "cloud" else True)
                lengths = probe_bucket(len(a.probes)), point_bucket(len(b.points)) if b.kind == "cloud" else 0
                rows[key].append(Row(*lengths, probe, surface, pair))
        return tuple(
            self._made(kind, is_round, alike)  # type: ignore[arg-type]
            for (kind, is_round), members in rows.items()
            for alike in merged(members)
        )

    def _made(self, kind: Kind, is_round: bool, rows: list[Row]) -> Group:
        probes, points = (max(column) for column in list(zip(*rows, strict=True))[:2])
        probe_at = [self._probes(row.probe, probes) for row in rows]
        point_at = [self._points(row.surface, points) if points else 0 for row in rows]
        probe_geom, surface_geom, pair = np.array([row[2:] for row in rows]).T
        names = f"probes_{probes}", f"points_{points}" if points else ""
        at = np.array(probe_at), np.array(point_at)
        return Group(kind, names[0], at[0], names[1], at[1], is_round, probe_geom, surface_geom, pair)

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

    def _probes(self, geom: int, length: int) -> int:
        points, bias = padded(self._known(geom).probes, length)
        return self._kept(f"probes_{length}", geom, (points.T, bias))

    def _points(self, geom: int, length: int) -> int:
        g = self._known(geom)
        (points, bias), (normals, _) = padded(g.points, length), padded(g.normals, length)
        bias[: len(g.bias)] += g.bias
        return self._kept(f"points_{length}", geom, (points.T, normals.T, bias))

    def _kept(self, name: str, geom: int, arrays: tuple[Array, ...]) -> int:
        stack = self._stacks[name]
        stack.setdefault(geom, arrays)
        return list(stack).index(geom)

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
