"""Paper 4, Fig. 6: witness points of vertices on triangles and of edges on edges, from 1 to a million queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tangens.collision.edge_edge import edge_edge
from tangens.collision.vertex_face import vertex_face
from tangens.lab.bench.peers.witness_peers import peers
from tangens.lab.bench.request import OURS, Report, at_least, not_measured
from tangens.lab.bench.timing import first_call, interleaved

Function = Callable[..., Any]

VERTEX_FACE, EDGE_EDGE = "vertex-face", "edge-edge"
EXACT = "tangens, no smoothing"
SMOOTHING, RIDGE = 0.02, 1e-3
"""As in `Smoothing`: shares of an edge, and λ."""
TARGETS = {"qpax": 20.0, "L-BFGS": 10.0}
JUDGED = 100_000
LONG = 10.0
"""Seconds of all trials of a function."""


def measure(report: Report, which: str, counts: tuple[int, ...], trials: int) -> None:
    """Times of all tools over the number of queries, and ratios at 10⁵."""
    for count in counts:
        queries = _queries(which, count)
        calls, compile_s, off = dict[str, Callable[[], object]](), dict[str, float](), dict[str, float]()
        for tool, function in _tools(which).items():
            compiled = jax.jit(function)
            compile_s[tool], found = first_call(lambda f=compiled, x=queries: f(*x))  # type: ignore[misc]
            off[tool] = _off(which, queries, found)
            calls[tool] = lambda f=compiled, x=queries: jax.block_until_ready(f(*x))  # type: ignore[misc]
        timings = interleaved(calls, trials, most_seconds=LONG)
        for tool in calls:
            report.add(f"{count} queries", tool, timings.median(tool), timings.trials, compile_s[tool])
            report.rows[-1] |= {"queries": count, "mean_excess_distance": off[tool]}
        if count == JUDGED:
            for peer, target in TARGETS.items():
                report.ratios.append(
                    at_least(f"{which}, 10^5 queries: {peer} / tangens", timings.ratio(peer, OURS), target)
                )
    if JUDGED not in counts:
        for peer, target in TARGETS.items():
            name = f"{which}, 10^5 queries: {peer} / tangens"
            report.ratios.append(not_measured(name, f">= {target:g}", "fewer queries were asked for"))


def _tools(which: str) -> dict[str, Function]:
    own = {
        VERTEX_FACE: (lambda v, t: vertex_face(v, t, SMOOTHING), lambda v, t: vertex_face(v, t, 0)),
        EDGE_EDGE: (lambda a, b: edge_edge(a, b, RIDGE, SMOOTHING)[:2], lambda a, b: edge_edge(a, b, RIDGE, 0)[:2]),
    }[which]
    others = {name: both[which == EDGE_EDGE] for name, both in peers().items()}
    return {OURS: own[0], EXACT: own[1], **others}


def _queries(which: str, count: int) -> tuple[Any, Any]:
    """Uniformly in the unit cube, as in the paper."""
    rng = np.random.default_rng(0)
    shapes = ((count, 3), (count, 3, 3)) if which == VERTEX_FACE else ((count, 2, 3), (count, 2, 3))
    first, second = (jnp.asarray(rng.uniform(size=shape), jnp.float32) for shape in shapes)
    return first, second


def _off(which: str, queries: tuple[Any, Any], found: Any) -> float:
    """How much farther apart the points found are than the nearest ones, on average [of the unit cube]."""
    if which == VERTEX_FACE:
        best, ours = (jnp.linalg.norm(x - queries[0], axis=-1) for x in (vertex_face(*queries, 0), found))
    else:
        best, ours = (jnp.linalg.norm(x[0] - x[1], axis=-1) for x in (edge_edge(*queries, 1e-6, 0), found))
    return float(jnp.mean(ours - best))
