"""Pairs of several kinds as one array: all have as many rows and as many ε as the largest of them.

Only a shape's own rows depend on what kind of shape it is. They are evaluated shape by shape, all shapes of a kind at
once (`seen`); everything after that is done for all pairs of a group at once. So a step has few operations, however
many kinds of pairs there are. Rows that only fill up read −ℓ ≤ 0, and fill-up ε do not move.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tangens.collision.growth import Growth, Seen, Side, embedding, side_at
from tangens.contact.interior.pair import Bodies, Pair, Unknowns, places
from tangens.geometry import Shape

Array = jax.Array
Indices = NDArray[np.intp]
Tree = TypeVar("Tree")

_FEW, _WIDER = 16, 4
"""Up to so many rows, pairs share a group; above, those with up to 4, 16, ... times as many: a hull of a hundred faces
would make all others as slow as itself."""


class PairKind(NamedTuple):
    """Pairs of one kind, stacked."""

    shape1: Shape
    shape2: Shape
    pairs: Pair


class Group(NamedTuple):
    """Pairs of several kinds, stacked in the order of their kinds."""

    pairs: Pair
    shapes: tuple[tuple[Shape, Shape], ...]
    """First and second shapes of each kind of pairs, stacked."""

    @property
    def dim(self) -> int:
        """2 in the plane, 3 in space."""
        return self.shapes[0][0].dim


def size_class(rows: int) -> int:
    """So many rows, rounded up generously."""
    size = _FEW
    while size < rows:
        size *= _WIDER
    return size


def grouped(kinds: Sequence[PairKind]) -> tuple[Group, ...]:
    """Groups of pairs of similar size."""
    classes: dict[int, list[PairKind]] = defaultdict(list)
    for kind in kinds:
        classes[size_class(kind.pairs.rows.shape[-1])].append(kind)
    return tuple(_group(classes[size]) for size in sorted(classes))


def _group(kinds: Sequence[PairKind]) -> Group:
    shapes = tuple((kind.shape1, kind.shape2) for kind in kinds)
    widest = _Width.of(shapes)

    def wide(kind: PairKind) -> Pair:
        rows, inner = widest.places(kind.shape1, kind.shape2)
        p = kind.pairs
        return p._replace(
            rows=_filled(p.rows, rows, widest.rows, 0.0),
            inner=_filled(p.inner, inner, widest.inner, 0.0),
            positive=_filled(p.positive, inner, widest.inner, False),
        )

    return Group(joined([wide(kind) for kind in kinds]), shapes)


def by_kind(group: Group) -> Iterator[tuple[Shape, Shape, slice]]:
    """The shapes of each kind of pairs, and where its pairs are."""
    first = 0
    for shape1, shape2 in group.shapes:
        last = first + _count(shape1)
        yield shape1, shape2, slice(first, last)
        first = last


def widened(group: Group, kinds: Sequence[Growth]) -> list[Growth]:
    """Growth problems of each kind of pairs, as wide as the group; what fills up has the products of the rest."""
    widest, length = _Width.of(group.shapes), group.pairs.length

    def wide(x: Growth, shape1: Shape, shape2: Shape, which: slice) -> Growth:
        rows, inner = widest.places(shape1, shape2)
        slack = _filled(x.slack, rows, widest.rows, length[which, None])
        dual = _filled(x.dual, rows, widest.rows, (x.slack[:, :1] * x.dual[:, :1]) / length[which, None])
        return x._replace(inner=_filled(x.inner, inner, widest.inner, 0.0), slack=slack, dual=dual)

    return [wide(x, *kind) for x, kind in zip(kinds, by_kind(group), strict=True)]


def joined(trees: Sequence[Tree]) -> Tree:
    """Stacks as one."""
    stack: Tree = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *trees)
    return stack


def seen(group: Group, x: Unknowns, bodies: Bodies) -> Seen:
    """All shapes at an iterate, stacked: those of a kind are evaluated at once, whichever pairs they belong to."""
    widest, g = _Width.of(group.shapes), x.growth
    both = jax.vmap(places)(group.pairs, bodies)
    members: dict[Hashable, list[tuple[tuple[int, int], Any]]] = defaultdict(list)
    for number, (*shapes, which) in enumerate(by_kind(group)):
        for side, (shape, place) in enumerate(zip(shapes, both, strict=True)):
            rows, inner = (slice(first, first + n) for first, n in widest.of_side(shape, side))
            own = (place, g.point, g.scale, g.inner[:, inner], g.dual[:, rows])
            arguments = shape, *jax.tree.map(lambda leaf, which=which: leaf[which], own)
            members[_kind(shape)].append(((side, number), arguments))
    parts: dict[tuple[int, int], Side] = {}
    for names, arguments in (zip(*kind, strict=True) for kind in members.values()):
        together = jax.vmap(side_at)(*joined(arguments))
        ends = np.cumsum([_count(shape) for shape, *_ in arguments])
        for name, first, last in zip(names, (0, *ends), ends, strict=False):
            own = jax.tree.map(lambda leaf, first=first, last=last: leaf[first:last], together)
            parts[name] = _wide_side(own, widest.rows_of[name[0]], 1 + group.dim + widest.inner_of[name[0]])
    side1, side2 = (joined([parts[side, i] for i in range(len(group.shapes))]) for side in (0, 1))
    lift, m = embedding(group.dim), widest.rows_of[0]
    real1, real2 = group.pairs.rows[:, :m], group.pairs.rows[:, m:-1]

    def filled_up(side: Side, real: Array) -> Side:
        rows = real * side.rows - (1 - real) * group.pairs.length[:, None]
        return side._replace(rows=rows, by=real[:, :, None] * side.by)

    axes1, axes2 = (place.rotation @ lift for place in both)
    return Seen(filled_up(side1, real1), filled_up(side2, real2), axes1, axes2)


class _Width(NamedTuple):
    """Most rows and most ε of first and of second shapes."""

    rows_of: tuple[int, int]
    inner_of: tuple[int, int]

    @classmethod
    def of(cls, shapes: Sequence[tuple[Shape, Shape]]) -> _Width:
        rows = [max(shape.n_rows for shape in side) for side in zip(*shapes, strict=True)]
        inner = [max(shape.n_inner for shape in side) for side in zip(*shapes, strict=True)]
        return cls((rows[0], rows[1]), (inner[0], inner[1]))

    @property
    def rows(self) -> int:
        """Of both shapes, and of α ≥ 0."""
        return sum(self.rows_of) + 1

    @property
    def inner(self) -> int:
        return sum(self.inner_of)

    def of_side(self, shape: Shape, side: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Where a shape's rows and its ε begin, and how many there are."""
        return (side * self.rows_of[0], shape.n_rows), (side * self.inner_of[0], shape.n_inner)

    def places(self, shape1: Shape, shape2: Shape) -> tuple[Indices, Indices]:
        """Where the rows and the ε of a pair are."""
        one, two = self.of_side(shape1, 0), self.of_side(shape2, 1)
        rows, inner = (
            np.concatenate([first + np.arange(n) for first, n in both]) for both in zip(one, two, strict=True)
        )
        return np.append(rows, self.rows - 1), inner.astype(np.intp)


def _wide_side(side: Side, rows: int, columns: int) -> Side:
    """The same with zeros for what fills up."""
    m, z = rows - side.by.shape[1], columns - side.by.shape[2]
    return Side(
        jnp.pad(side.rows, ((0, 0), (0, m))),
        jnp.pad(side.by, ((0, 0), (0, m), (0, z))),
        jnp.pad(side.curvature, ((0, 0), (0, z), (0, z))),
    )


def _filled(values: Array, where: Indices, size: int, filling: Array | float | bool) -> Array:
    """An array whose last axis has this size, with `values` where they belong."""
    if values.shape[-1] == size:
        return values
    wide = jnp.broadcast_to(jnp.asarray(filling, values.dtype), (*values.shape[:-1], size))
    return wide.at[..., where].set(values)


def _count(shape: Shape) -> int:
    return len(jax.tree.leaves(shape)[0])


def _kind(shape: Shape) -> Hashable:
    """What stacks of shapes share that one function serves."""
    leaves, structure = jax.tree.flatten(shape)
    return structure, tuple((leaf.shape[1:], leaf.dtype) for leaf in leaves)
