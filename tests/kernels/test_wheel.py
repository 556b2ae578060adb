"""A wheel brings its kernels along: in a read-only folder, without a home or a cache, nothing is compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tangens.kernels.build import build
from tangens.lab.bench.start import first_calls, installed_wheel

COUNTING = """
from numba.core import event
recorder = event.RecordingListener()
event.register("numba:compile", recorder)
import numpy as np
import tangens as tg
for model in ("ncp", "lcp"):
    sim = tg.Simulator(tg.scenes.cube(), contact=model)
    out = sim.step(sim.initial_state("resting"))
    sim.jacobian(out, wrt=("q", "v", "u", "tau", *sim.contact.parameters))
    sim.pullback(sim.rollout(out.state, 3), dq=np.ones(6))
print(tg.__file__, len(recorder.buffer))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with installed_wheel(tmp_path_factory.mktemp("wheel") / "site-packages") as place:
        assert place is not None
        yield place


def test_nothing_is_compiled(wheel: Path, tmp_path: Path) -> None:
    settings = os.environ | {"PYTHONPATH": str(wheel), "HOME": str(tmp_path), "TANGENS_CACHE_DIR": "/proc/nowhere"}
    settings["PYTHONDONTWRITEBYTECODE"] = "1"
    files = {file: file.stat().st_mtime_ns for file in wheel.rglob("*")}
    command = [sys.executable, "-c", COUNTING]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    file, compiled = done.stdout.split()
    assert Path(file).is_relative_to(wheel)
    assert int(compiled) == 0
    # who runs the tests as root can write to read-only folders: nothing was
    assert {file: file.stat().st_mtime_ns for file in wheel.rglob("*")} == files


@pytest.mark.parametrize("model", ["ncp", "lcp"])
def test_the_bits_are_those_of_the_checkout(wheel: Path, tmp_path: Path, model: str) -> None:
    checkout = Path(__file__).parents[2] / "src"
    ours, theirs = first_calls(model, checkout, tmp_path / "ours"), first_calls(model, wheel, tmp_path / "theirs")
    assert all(ours[name] == theirs[name] for name in ("v", "J", "mass"))


def test_nothing_is_missing_after_make_venv(tmp_path: Path) -> None:
    assert build(tmp_path, 1, lambda *_: None) == 0
