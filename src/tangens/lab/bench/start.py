"""Seconds to the first step and the first derivative, in a process of its own: cold and warm, from checkout and wheel.

Cold has no compiled code at all: sources alone, an empty cache folder. Warm is the same once more. The wheel brings its
kernels along, so it has no cold start in the exact world; models in JAX compile where they have not been before.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tangens
from tangens.contact import CONTACT_MODELS
from tangens.lab.bench.request import BenchRequest, Table, at_most, not_measured, row
from tangens.lab.report import environment, new_figure, save_figure

QUANTITIES = ("import", "step", "derivative")
_WHEEL_TARGET, _WARM_TARGET = 2.0, 2.0
_EXACT = ("ncp", "lcp")
_SCRIPT = """
import json, sys, time
start = time.perf_counter()
import numpy as np
import tangens as tg
imported = time.perf_counter()
sim = tg.Simulator(tg.scenes.cube(), contact=sys.argv[1])
out = sim.step(sim.initial_state("resting"))
stepped = time.perf_counter()
wrt = ("q", "v", "u", "tau", *(name for name in ("mass", "friction") if name in sim.contact.parameters))
J = sim.jacobian(out, wrt=wrt)
grads = sim.pullback(sim.rollout(out.state, 3), dq=np.ones(6), wrt=wrt[4:])
ended = time.perf_counter()
print(json.dumps({"import": imported - start, "step": stepped - imported, "derivative": ended - stepped,
                  "v": out.state.v.tolist(), "J": J["v", "q"].tolist(), "mass": grads.parameters["mass"].tolist()}))
"""


def run(request: BenchRequest) -> dict[str, Any]:
    """Measure all models; `--quick` leaves out those in JAX."""
    models = _EXACT if request.effort == "quick" else CONTACT_MODELS
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, installed_wheel(Path(folder) / "wheel") as wheel:
        places = {"checkout": sources_alone(Path(folder) / "sources")} | ({"wheel": wheel} if wheel else {})
        total = len(models) * len(places)
        for index, (model, place) in enumerate((m, p) for m in models for p in places):
            request.advance(index, total)
            cache = Path(folder) / "cache" / place / model
            for state in ("cold", "warm"):
                took = first_calls(model, places[place], cache)
                rows += [row(model, f"{state} {name}", place, 1e6 * took[name], 1) for name in QUANTITIES]
        request.advance(total, total)
    return {"rows": rows, "ratios": _ratios(rows, models), "figures": [str(_plot(rows, request.out / "start.png"))],
            "environment": environment() | {"peers": {}}}  # fmt: skip


def first_calls(model: str, place: Path, cache: Path) -> dict[str, Any]:
    """Seconds of the first calls in a new process that finds tangens in a folder, and what they returned."""
    settings = os.environ | {"TANGENS_CACHE_DIR": str(cache), "PYTHONPATH": str(place), "HOME": str(cache)}
    for name in ("JAX_COMPILATION_CACHE_DIR", "NUMBA_CACHE_DIR"):
        settings.pop(name, None)
    command = [sys.executable, "-c", _SCRIPT, model]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=True, timeout=1200)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def sources_alone(place: Path) -> Path:
    """A folder with the package as it is in a fresh clone."""
    package = Path(tangens.__file__).parent
    shutil.copytree(package, place / "tangens", ignore=shutil.ignore_patterns("_kernels", "__pycache__"))
    return place


@contextmanager
def installed_wheel(place: Path) -> Iterator[Path | None]:
    """A read-only folder with the package as the wheel of this checkout installs it; None outside of a checkout."""
    root = Path(tangens.__file__).parents[2]
    if not (root / "hatch_build.py").exists():
        yield None
        return
    dist = place.with_name("dist")

    def python(*arguments: str) -> None:
        subprocess.run([sys.executable, "-m", *arguments], check=True, stdout=subprocess.DEVNULL, cwd=root)

    python("tangens.kernels.build")
    python("hatchling", "build", "-t", "wheel", "-d", str(dist))
    pip = "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"
    python(*pip, "--target", str(place), *map(str, dist.glob("*.whl")))
    folders = [path for path in (place, *place.rglob("*")) if path.is_dir()]
    for path in folders:
        path.chmod(0o555)
    try:
        yield place
    finally:
        for path in folders:
            path.chmod(0o755)


def table(rows: Any) -> Table:
    """Seconds, a line for each model and place."""
    places = dict.fromkeys((r["system"], r["tool"]) for r in rows)
    columns = [f"{state} {name}" for state in ("cold", "warm") for name in QUANTITIES]
    found = {(r["system"], r["tool"], r["quantity"]): r["median_us"] / 1e6 for r in rows}
    cells = [[*place, *(f"{found[(*place, column)]:.2f}" for column in columns)] for place in places]
    return Table("Seconds in a new process", ("model", "from", *columns), cells)


def _ratios(rows: list[dict[str, Any]], models: tuple[str, ...]) -> list[dict[str, Any]]:
    """The waits that are promised: nothing to compile from a wheel, or where the scene has been seen before."""
    found = {(r["system"], r["tool"], r["quantity"]): r["median_us"] / 1e6 for r in rows}
    wheel = [f"cold {name}" for name in QUANTITIES[1:]]
    name = "ncp and lcp from the wheel: seconds to step, derivative and pullback"
    if ("ncp", "wheel", wheel[0]) in found:
        slowest = max(sum(found[model, "wheel", quantity] for quantity in wheel) for model in _EXACT)
        ratios = [at_most(name, slowest, _WHEEL_TARGET)]
    else:
        ratios = [not_measured(name, f"<= {_WHEEL_TARGET:g}", "there is no checkout to build a wheel from")]
    for model in models:
        if model not in _EXACT:
            seconds = found[model, "checkout", "warm step"]
            ratios.append(at_most(f"{model}, second process: seconds to the first step", seconds, _WARM_TARGET))
    return ratios


def _plot(rows: list[dict[str, Any]], file: Path) -> Path:
    figure, panels = new_figure(1, 2, width=11)
    places = list(dict.fromkeys((r["system"], r["tool"]) for r in rows))
    for panel, state in zip(panels, ("cold", "warm"), strict=True):
        bottom = [0.0] * len(places)
        for name in QUANTITIES:
            times = {(r["system"], r["tool"], r["quantity"]): r["median_us"] / 1e6 for r in rows}
            heights = [times[(*place, f"{state} {name}")] for place in places]
            panel.barh([" from ".join(place) for place in places], heights, left=bottom, label=name)
            bottom = [a + b for a, b in zip(bottom, heights, strict=True)]
        for y, total in enumerate(bottom):
            panel.text(total, y, f" {total:.1f}", va="center", fontsize=8)
        panel.set(title=state, xlabel="seconds in a new process", xlim=(0, 1.15 * max(bottom)))
        panel.invert_yaxis()
        panel.legend(fontsize=8)
    return save_figure(figure, file)
