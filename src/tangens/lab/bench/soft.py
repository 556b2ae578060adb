"""The soft step: against MJX on push-T, against points, contacts and batches, in memory and from cold.

One core. Steps are the paper's explicit Euler steps, ours and MJX's, as functions of (q, v, u) with all else closed
over, compiled with JAX's own settings, in single precision, which is MJX's; MJX solves as its scene says. Whoever takes
one step waits for it, so steps run where they are called (`jax_cpu_enable_async_dispatch` off); with JAX's default,
which hands each of them to a thread and costs a small step most, they are listed, too. Time per step is measured at
both ends: nothing touches, and everything does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tangens import scenes
from tangens.contact import Soft
from tangens.lab.bench import soft_meshes
from tangens.lab.bench.request import OURS, BenchRequest, Report, at_least, at_most, measure_all
from tangens.lab.bench.timing import interleaved
from tangens.lab.report import new_figure, save_figure
from tangens.simulate import Simulator

PUSH, BATCH, MEMORY, COLD, MESHES = "push-T", "batch", "memory", "cold", "meshes"
FEW, MANY = 10, 2000
"""Points asked for on each of the T's two boxes: 28 in total, the least that grids allow from the paper's 26 on, and
about 4,000."""


class Effort(NamedTuple):
    """How much is measured."""

    trials: int
    points: tuple[int, ...]
    batches: tuple[int, ...]
    memory: int


EFFORTS = {
    "quick": Effort(5, (FEW, MANY), (1, 16), 1024),
    "normal": Effort(15, (FEW, 96, 500, MANY), (1, 16, 64), 4000),
    "full": Effort(40, (FEW, 96, 500, MANY), (1, 16, 64, 256), 4000),
}


def run(request: BenchRequest) -> dict[str, Any]:
    """Measure all of it."""
    facts = {"peers": {"mjx": "jit of mjx.step, model and data closed over, single precision, Newton, 2 ms"}}
    file = request.out / "soft.png"
    return measure_all(request, (PUSH, BATCH, MEMORY, COLD, MESHES), _measure, lambda rows: _plot(rows, file), facts)


def _measure(name: str, request: BenchRequest) -> Report:
    report = Report(name)
    measures = {PUSH: _push, BATCH: _batch, MEMORY: _memory, COLD: _cold, MESHES: _meshes}
    measures[name](report, EFFORTS[request.effort])
    return report


def _push(report: Report, effort: Effort) -> None:
    times, ratios = dict[bool, dict[str, float]](), dict[bool, dict[str, float]]()
    for waits in (True, False):
        question = {"what": "steps", "waits": waits, "trials": effort.trials, "points": effort.points}
        found: Any = ask(question)
        times[waits], ratios[waits] = found["times"], found["ratios"]
    few, many, n = str(FEW), str(MANY), effort.trials
    for waits, where in ((True, ""), (False, ", dispatched to a thread")):
        report.add(f"step{where}", "mjx", times[waits]["mjx"], n)
        for points in effort.points:
            report.add(f"euler step, {points_on_t(points)} points{where}", OURS, times[waits][str(points)], n)
            if waits:
                report.rows[-1]["number"] = points_on_t(points)
    report.add(f"implicit step, {points_on_t(FEW)} points", OURS, times[True]["implicit"], n)
    report.notes = {"ratios as JAX dispatches by default": ratios[False]}
    report.ratios += [
        at_least(f"push-T: MJX / soft, Euler, {points_on_t(FEW)} points", ratios[True][few], 4.0),
        at_least("push-T: MJX / soft, Euler, 4,000 points", ratios[True][many], 1.0),
        at_most(f"push-T: all contacts / none, {points_on_t(FEW)} points", ratios[True][f"{few} apart"], 1.2),
        at_most("push-T: all contacts / none, 4,000 points", ratios[True][f"{many} apart"], 1.2),
    ]


def points_on_t(asked: int) -> int:
    """How many points the T has where so many are asked for on each of its boxes."""
    engine: Any = Simulator(scenes.push_t(), Soft(points=asked)).engine
    return int(sum((geom.bias == 0).sum() for geom in engine.table.geoms))


def steps(trials: int, points: Sequence[int]) -> dict[str, dict[str, float]]:
    """Median times of steps on push-T [µs], MJX's over them, and those that touch over those that do not."""
    import jax

    scene = scenes.push_t()
    apart, touching = scene.initial_state("home"), scene.initial_state("touching")
    lifted = [0, 0.2, 1.0, *apart.q[3:]]
    with jax.enable_x64(False):
        calls: dict[str, Callable[[], object]] = {"mjx": mjx_step(scene.model, touching.q)}
        for n in points:
            calls[f"{n}"] = soft_step(n, "euler", touching.q)
            calls[f"{n} apart"] = soft_step(n, "euler", lifted)
        calls["implicit"] = soft_step(FEW, "implicit", touching.q)
        timings = interleaved(calls, trials)
    ratios = {name: timings.ratio("mjx", name) for name in calls}
    ratios |= {f"{n} apart": timings.ratio(f"{n}", f"{n} apart") for n in points}
    return {"times": {name: timings.median(name) for name in calls}, "ratios": ratios}


def soft_step(points: int, integrator: str, q: Any) -> Callable[[], object]:
    """A step on push-T from here, compiled."""
    from tangens.interop.jax import step

    sim = Simulator(scenes.push_t(), Soft(integrator=integrator, points=points))  # type: ignore[arg-type]
    f = step(sim)
    return _called(lambda q, v, u: f(None, q, v, u, None), sim.scene.model, q)


def mjx_step(model: Any, q: Any) -> Callable[[], object]:
    """MJX's step on the same scene."""
    from tangens.lab.bench.peers.mjx_quietly import mjx

    there, data = mjx.put_model(model), mjx.make_data(model)

    def take(q: Any, v: Any, u: Any) -> Any:
        out = mjx.step(there, data.replace(qpos=q, qvel=v, ctrl=u))
        return out.qpos, out.qvel

    return _called(take, model, q)


def _called(function: Callable[..., Any], model: Any, q: Any) -> Callable[[], object]:
    import jax
    import jax.numpy as jnp

    compiled = jax.jit(function)
    x = jnp.asarray(q, jnp.float32), jnp.zeros(model.nv, jnp.float32), jnp.zeros(model.nu, jnp.float32)
    return lambda: jax.block_until_ready(compiled(*x))


def _batch(report: Report, effort: Effort) -> None:
    import jax
    import jax.numpy as jnp

    from tangens.interop.jax import step

    sim = Simulator(scenes.push_t(), Soft(points=FEW))
    q = sim.initial_state("touching").q
    f = step(sim)
    with jax.enable_x64(False):
        for n in effort.batches:
            compiled = jax.jit(jax.vmap(lambda q, v: f(None, q, v, None, None)))
            x = jnp.tile(jnp.asarray(q, jnp.float32), (n, 1)), jnp.zeros((n, sim.scene.nv), jnp.float32)
            timings = interleaved({"step": lambda g=compiled, x=x: jax.block_until_ready(g(*x))}, effort.trials)  # type: ignore[misc]
            report.add(f"implicit step of {n}, each", OURS, timings.median("step") / n, effort.trials)


def _memory(report: Report, effort: Effort) -> None:
    found = ask({"what": "memory", "points": effort.memory})
    n = f"{found['points']:,.0f}"
    report.add(
        f"step and gradient, {found['points']:.0f} x {found['points']:.0f} points", OURS, 1e6 * found["seconds"], 1
    )
    report.rows[-1]["peak_mb"] = found["peak"]
    report.notes = found
    report.ratios.append(at_most(f"peak memory of a step and its gradient, {n} x {n} points [MB]", found["peak"], 1000))


def _cold(report: Report, effort: Effort) -> None:
    del effort
    found = ask({"what": "compile"})
    report.add("step from cold", OURS, 1e6 * found["step"], 1, found["step"])
    report.add("Jacobian from cold", OURS, 1e6 * found["jacobian"], 1, found["jacobian"])
    report.ratios += [
        at_most("push-T: compile time of a step [s of CPU]", found["step"], 8.0),
        at_most("push-T: compile time of its Jacobian [s of CPU]", found["jacobian"], 12.0),
    ]


def _meshes(report: Report, effort: Effort) -> None:
    del effort
    soft_meshes.measure(report, 4000)


def ask(question: dict[str, Any]) -> dict[str, Any]:
    """An answer from a process that has compiled nothing yet, and finds nothing compiled on disk."""
    script = Path(__file__).with_name("soft_script.py")
    clean = {k: v for k, v in os.environ.items() if k not in ("JAX_COMPILATION_CACHE_DIR", "XLA_FLAGS")}
    with tempfile.TemporaryDirectory() as nothing:
        done = subprocess.run(
            [sys.executable, str(script), json.dumps(question)],
            capture_output=True,
            text=True,
            check=True,
            env=clean | {"TANGENS_CACHE_DIR": nothing},
        )
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def _plot(rows: list[dict[str, Any]], file: Path) -> Path:
    figure, (points, batch) = new_figure(1, 2, width=10, height=4)
    ours = [r for r in rows if r["system"] == PUSH and "number" in r]
    mjx = next(r["median_us"] for r in rows if r["tool"] == "mjx")
    points.semilogx([r["number"] for r in ours], [r["median_us"] for r in ours], "o-", label="soft, Euler")
    points.axhline(mjx, color="0.5", linestyle="--", label="MJX")
    points.set(title="A step on push-T", xlabel="points on the T", ylabel="time [µs]", ylim=(0, None))
    points.legend()
    found = [r for r in rows if r["system"] == BATCH]
    batch.bar([r["quantity"].removeprefix("implicit step of ").removesuffix(", each") for r in found],
              [r["median_us"] for r in found])  # fmt: skip
    batch.set(title="Batches", xlabel="scenes in a batch", ylabel="time per step of one scene [µs]")
    return save_figure(figure, file)
