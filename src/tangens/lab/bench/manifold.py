"""Contact manifolds: witness points against quadratic programming, whole manifolds against MJX's collision detection.

One core, single precision, which is MJX's. Every function is compiled by `jax.jit` with JAX's own settings and called
once before the clock starts; time to compile is in its own column. Tools take turns.

vertex-face, edge-edge: paper 4, Fig. 6.
one pose, batches of 5 x 5, batches of 18 x 18: Fig. 7, two bodies of 1 to 18 superquadrics at random places where they
    touch or nearly do. As in the paper, all vertices of both (about 300 each) are contacts, and one edge for each
    superquadric is kept; MJX gets one convex mesh for each superquadric. The gradient is that of the mean distance by
    the twelve coordinates of both poses.
simplified: Fig. 8, without edges, and with vertices of one body only.

Large batches are worked off in blocks by `jax.lax.map`, for tangens of 16 poses, whose intermediate results stay in a
core's cache (twice as quick as all 256 at once, gradients three times), for MJX of as many as memory allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.collision.pair_manifold import Pose, Smoothing, pair_manifold
from tangens.dynamics.tangent_jax import exp_matrix
from tangens.lab.bench import witness
from tangens.lab.bench.peers import mjx_collision, witness_peers
from tangens.lab.bench.request import OURS, BenchRequest, Report, Table, at_least, at_most, measure_all
from tangens.lab.bench.timing import first_call, interleaved
from tangens.lab.creatures import MOST, creature, creature_solid
from tangens.lab.report import new_figure, save_figure

Array = NDArray[np.float64]

ONE_POSE, SIMPLIFIED = "one pose", "simplified"
BATCHES = {f"batches of {parts} x {parts}": parts for parts in (5, 18)}
SYSTEMS = (witness.VERTEX_FACE, witness.EDGE_EDGE, ONE_POSE, *BATCHES, SIMPLIFIED)
GRADIENT, NO_EDGES, ONE_SIDE = "tangens, gradient", "tangens, no edges", "tangens, no edges, one side"
JUDGED, GAIN, SLOWER = 256, 10.0, 3.0
LONG = 10.0
"""Seconds of all trials of a function: where they would take longer, there are fewer."""
AT_ONCE = 16
"""Poses of a batch that tangens works on at once; 4 to 32 take about as long."""
TAU = 1e-3
"""Smoothing of distances [m]: 0.3 % of a creature."""
SPREAD = 0.12
"""Centres of the two creatures are this far apart along each axis, at most [m]."""


class Effort(NamedTuple):
    """How much is measured."""

    trials: int
    queries: tuple[int, ...]
    parts: tuple[int, ...]
    """Superquadrics of each body, one pair of bodies at a time."""
    batched: tuple[int, ...]
    """Sizes of batches."""


EFFORTS = {
    "quick": Effort(3, (1, 100_000), (1, 5, 18), (16,)),
    "normal": Effort(5, (1, 100, 10_000, 100_000), (1, 5, 18), (16, 256)),
    "full": Effort(
        11, (1, 10, 100, 1000, 10_000, 100_000, 1_000_000), (1, 2, 3, 5, 7, 9, 12, 15, 18),
        (4, 16, 64, 256, 1024),
    ),
}  # fmt: skip


def run(request: BenchRequest) -> dict[str, Any]:
    """Measure all of it."""
    witness_peers.peers()  # before any work is done
    facts = {"peers": {"mjx": mjx_collision.SETTINGS, **witness_peers.SETTINGS}}
    file = request.out / "manifold.png"
    return measure_all(request, SYSTEMS, _measure, lambda rows: _plot(rows, file), facts)


def _measure(name: str, request: BenchRequest) -> Report:
    report, effort = Report(name), EFFORTS[request.effort]
    with jax.enable_x64(False):
        if name == ONE_POSE:
            for parts in effort.parts:
                _measure_creatures(report, parts, (1,), effort.trials)
        elif name in BATCHES:
            _measure_creatures(report, BATCHES[name], effort.batched, effort.trials)
        elif name == SIMPLIFIED:
            _measure_simplified(report, effort)
        else:
            witness.measure(report, name, effort.queries, effort.trials)
    return report


def manifold_of(parts: int, **options: Any) -> Callable[[Any], Any]:
    """Poses (12,) -> contacts of two creatures, as in the paper: all vertices, one edge for each superquadric."""
    solids = [jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), creature_solid(parts, seed)) for seed in (0, 1)]
    smoothing = Smoothing(TAU)

    def of(x: Any) -> Any:
        one, two = (Pose(p[:3], exp_matrix(p[3:])) for p in (x[:6], x[6:]))
        return pair_manifold(solids[0], solids[1], one, two, smoothing, edges_kept=parts, **options)

    return of


def poses(count: int, seed: int = 0) -> Array:
    """Positions and rotation vectors of both bodies, near each other and anyhow turned, (count, 12)."""
    rng = np.random.default_rng(seed)
    turn = rng.normal(size=(count, 2, 3))
    turn *= rng.uniform(0, np.pi, (count, 2, 1)) / np.linalg.norm(turn, axis=2, keepdims=True)
    return np.concatenate([rng.uniform(-SPREAD / 2, SPREAD / 2, (count, 2, 3)), turn], 2).reshape(count, 12)


def configurations(x: Array) -> Array:
    """The same as MuJoCo's q, (count, 14)."""
    q = np.zeros((len(x), 2, 7))
    for row, pose in zip(q.reshape(-1, 7), x.reshape(-1, 6), strict=True):
        angle = float(np.linalg.norm(pose[3:]))
        row[:3] = pose[:3]
        mujoco.mju_axisAngle2Quat(row[3:], pose[3:] / max(angle, 1e-12), angle)
    return q.reshape(-1, 14)


def _measure_creatures(report: Report, parts: int, batches: tuple[int, ...], trials: int) -> None:
    ours = manifold_of(parts)
    slope = jax.grad(lambda x: jnp.mean(ours(x).distance))
    theirs = mjx_collision.collisions(mjx_collision.creature_model(creature(parts, 0), creature(parts, 1)))
    for n in batches:
        x = poses(n)
        q = configurations(x)
        _measure_batch(report, parts, n, {OURS: (ours, x), GRADIENT: (slope, x), "mjx": (theirs, q)}, trials)


def _measure_simplified(report: Report, effort: Effort) -> None:
    variants = {
        OURS: manifold_of(MOST),
        NO_EDGES: manifold_of(MOST, edges=False),
        ONE_SIDE: manifold_of(MOST, edges=False, both_sides=False),
    }
    for n in (1, *effort.batched):
        _measure_batch(report, MOST, n, {name: (f, poses(n)) for name, f in variants.items()}, effort.trials)


def _measure_batch(report: Report, parts: int, n: int, tools: dict[str, tuple[Any, Array]], trials: int) -> None:
    """Times of all tools on one batch, and the ratios of those that are judged."""
    calls, compile_s = dict[str, Callable[[], object]](), dict[str, float]()
    for tool, (function, rows) in tools.items():
        most = mjx_collision.at_once(parts) if tool == "mjx" else AT_ONCE
        compiled, x = jax.jit(_batched(function, most, n)), jnp.asarray(rows, jnp.float32)
        compile_s[tool], _ = first_call(lambda f=compiled, x=x: f(x))  # type: ignore[misc]
        calls[tool] = lambda f=compiled, x=x: jax.block_until_ready(f(x))  # type: ignore[misc]
    timings = interleaved(calls, trials, most_seconds=LONG)
    what = f"{parts} x {parts}, batch of {n}"
    for tool in calls:
        report.add(what, tool, timings.median(tool), timings.trials, compile_s[tool])
        report.rows[-1] |= {"parts": parts, "batch": n}
    if "mjx" in calls:
        target = GAIN if n == JUDGED and parts == MOST else 1.0
        report.ratios.append(at_least(f"{what}: MJX / tangens", timings.ratio("mjx", OURS), target))
        report.ratios.append(at_most(f"{what}: gradient / forward", timings.ratio(GRADIENT, OURS), SLOWER))


def _batched(function: Callable[[Any], Any], most: int, count: int) -> Callable[[Any], Any]:
    """For a batch, so many at once."""
    if count <= most:
        return jax.vmap(function)
    return lambda x: jax.lax.map(function, x, batch_size=most)


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Times, and seconds to compile."""
    cells = [[r["system"], r["quantity"], r["tool"], f"{r['median_us']:,.1f}", f"{r['compile_s']:.1f}"] for r in rows]
    return Table("Medians", ("system", "quantity", "tool", "µs", "compile s"), cells)


def _plot(rows: list[dict[str, Any]], file: Path) -> Path:
    """A panel for each system that was measured."""
    of = {name: [r for r in rows if r["system"] == name] for name in SYSTEMS}
    one, batch = of[ONE_POSE], ("batch", "poses in a batch")
    panels: list[tuple[str, Any, str, str]] = [
        (f"{name} witness points", of[name], "queries", "queries") for name in (witness.VERTEX_FACE, witness.EDGE_EDGE)
    ]
    panels.append(("two bodies, one pose", one, "parts", "superquadrics of each body"))
    for name, parts in BATCHES.items():
        every = of[name] and of[name] + [r for r in one if r["parts"] == parts]
        panels.append((f"{parts} x {parts} superquadrics", every, *batch))
    panels.append(("simplifications", of[SIMPLIFIED], *batch))
    drawn = [panel for panel in panels if panel[1]]
    columns = min(3, len(drawn))
    lines = -(-len(drawn) // columns)
    figure, axes = new_figure(lines, columns, width=5 * columns, height=4 * lines)
    grid = np.atleast_1d(axes).ravel()
    for panel, (title, data, over, label) in zip(grid, drawn, strict=False):
        _lines(panel, data, over, label)
        panel.set_title(title)
    for panel in grid[len(drawn) :]:
        panel.set_visible(False)
    return save_figure(figure, file)


def _lines(panel: Any, rows: list[dict[str, Any]], over: str, label: str) -> None:
    for tool in dict.fromkeys(r["tool"] for r in rows):
        own = sorted((r[over], r["median_us"]) for r in rows if r["tool"] == tool)
        panel.loglog(*zip(*own, strict=True), "o-", markersize=4, label=tool)
    panel.set(xlabel=label, ylabel="time of a call [µs]")
    measured = sorted({r[over] for r in rows})
    panel.set_xticks(measured, [f"{x:,}" if x < 10_000 else f"$10^{{{round(np.log10(x))}}}$" for x in measured])
    panel.set_xticks([], minor=True)
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8)
