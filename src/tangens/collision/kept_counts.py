"""How many vertices and edges a manifold should keep, found by trying (paper 4, Supp. II-A).

Two solids are thrown together at random, so that they overlap a little; counted are vertices that are deeper than all
their neighbours, and pairs of edges that are each other's nearest. Quantiles of the counts are what `vertices_kept` and
`edges_kept` have to be, for so many of the contacts to be found.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tangens.collision.edge_edge import edge_edge
from tangens.collision.sides import Pose, evaluate, placed
from tangens.dynamics.tangent_jax import exp_matrix
from tangens.errors import OptionError
from tangens.geometry.solids import Solid

Array = NDArray[np.float64]

_DEEP = 0.02
"""Of the smaller solid's size: overlaps are up to this deep."""
_HALVINGS = 24
_SHARP = 1e-6
_BLOCK = 64


class SelectionSizes(NamedTuple):
    """What to keep of two solids."""

    vertices: int
    """`vertices_kept`: the larger number of both solids."""
    edges: int
    """`edges_kept`."""
    deepest_vertices: NDArray[np.int_]
    """Of each trial, for both solids, (samples, 2)."""
    nearest_pairs: NDArray[np.int_]
    """Of each trial, (samples,)."""


def selection_sizes(
    solids: tuple[Solid, Solid], samples: int = 50, quantile: float = 0.95, seed: int = 0
) -> SelectionSizes:
    """Numbers that suffice in a share `quantile` of random overlaps."""
    if not (isinstance(samples, int) and samples >= 1 and 0 < quantile <= 1):
        raise OptionError(f"samples must be 1 or more, and quantile within (0, 1]; got {samples!r} and {quantile!r}")
    if not all(len(solid.vertices) for solid in solids):
        raise OptionError("a plane has no vertices to choose from: both solids need some")
    rng, one, two = np.random.default_rng(seed), *solids
    size = min(float(np.ptp(np.asarray(s.vertices), axis=0).max() + 2 * float(s.radius)) for s in solids)
    reach = sum(float(np.linalg.norm(np.asarray(s.vertices), axis=1).max() + float(s.radius)) for s in solids)
    vertices, pairs = [], []
    with jax.enable_x64(True):
        depths = jax.jit(partial(_depths, one, two))
        for _ in range(samples):
            turn, way, wanted = rng.normal(size=3), rng.normal(size=3), rng.uniform(0, _DEEP) * size
            way /= np.linalg.norm(way)
            place = _overlapping(depths, turn, way, wanted, reach)
            found = [np.asarray(depth) for depth in depths(place, turn)]
            vertices.append([_local_maxima(depth, solid.edges) for depth, solid in zip(found, solids, strict=True)])
            pairs.append(_best_buddies(solids, found, np.asarray(place), turn))
    counts, buddies = np.array(vertices), np.array(pairs)
    return SelectionSizes(
        max(1, int(np.ceil(np.quantile(counts.max(1), quantile)))),
        max(1, int(np.ceil(np.quantile(buddies, quantile)))),
        counts,
        buddies,
    )


def _depths(one: Solid, two: Solid, place: Any, turn: Any) -> tuple[Any, Any]:
    """How deep vertices of each solid are in the other; solid 1 is in place."""
    still, moved = Pose(jnp.zeros(3), jnp.eye(3)), Pose(place, exp_matrix(turn))
    first, second = placed(one, still, _SHARP), placed(two, moved, _SHARP)
    deep1, deep2 = -evaluate(second, one.vertices, _SHARP)[0], -evaluate(first, second.vertices, _SHARP)[0]
    return deep1 + one.radius, deep2 + two.radius


def _overlapping(depths: Any, turn: Array, way: Array, wanted: float, reach: float) -> Array:
    """Where solid 2 is on its way from far so that vertices are as deep as wanted, by halving."""
    near, far = 0.0, reach
    for _ in range(_HALVINGS):
        middle = (near + far) / 2
        deepest = max(float(jnp.max(depth)) for depth in depths(middle * way, turn))
        near, far = (middle, far) if deepest > wanted else (near, middle)
    return near * way


def _local_maxima(depth: Array, edges: Any) -> int:
    """Vertices inside the other solid that are deeper than all their neighbours."""
    highest = np.full(len(depth), -np.inf)
    if edges:
        a, b = np.array(edges).T
        np.maximum.at(highest, a, depth[b])
        np.maximum.at(highest, b, depth[a])
    return int(((depth > 0) & (depth >= highest)).sum())


def _best_buddies(solids: tuple[Solid, Solid], depths: list[Array], place: Array, turn: Array) -> int:
    """Pairs of edges that are each other's nearest and cross, among those that reach into the other solid or nearly."""
    ends = []
    for k, (solid, depth) in enumerate(zip(solids, depths, strict=True)):
        at = np.array(solid.edges, int).reshape(-1, 2)
        x = np.asarray(solid.vertices)
        x = x if k == 0 else x @ np.asarray(exp_matrix(jnp.asarray(turn))).T + place
        long = np.linalg.norm(x[at[:, 1]] - x[at[:, 0]], axis=1)
        ends.append(x[at[depth[at].max(1) > -long / 2]])
    one, two = ends
    if not len(one) or not len(two):
        return 0
    near, apart = (np.asarray(x) for x in _pairs()(_padded(one, 1e3), _padded(two, -1e3)))
    near, apart = near[: len(one), : len(two)], apart[: len(one), : len(two)]
    return int((near & (apart <= apart.min(0, keepdims=True)) & (apart <= apart.min(1, keepdims=True))).sum())


def _padded(edges: Array, far: float) -> Array:
    """With edges that are nobody's nearest, up to a multiple of 64: few sizes are compiled."""
    more = np.full((-len(edges) % _BLOCK, 2, 3), far)
    more[:, 1, 0] += 1.0
    return np.concatenate([edges, more])


@cache
def _pairs() -> Any:
    def run(one: Any, two: Any) -> Any:
        shape = (len(one), len(two), 2, 3)
        found = edge_edge(jnp.broadcast_to(one[:, None], shape), jnp.broadcast_to(two[None], shape), 1e-9, 0)
        return found.crossing > 0, jnp.sqrt(jnp.sum((found.point1 - found.point2) ** 2, -1))

    return jax.jit(run)
