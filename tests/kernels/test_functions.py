"""Kernels, subroutines and inline functions compute what their Python says, and are compiled once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from tangens.dynamics.rotations import quat_exp, quat_multiply
from tangens.kernels import store
from tangens.kernels.build import all_kernels

PACKAGE = """
import sys
import numpy as np
from numba.core import event
from tangens.kernels import fixed_floats, floats, inline, integer, kernel, subroutine

@inline
def squared(x):
    return x * x

@subroutine
def total(x):
    out = 0.0
    for i in range(x.shape[0]):
        out += squared(x[i])
    return out

@kernel(fixed_floats(1), integer)
def scaled(x, n):
    return n * total(x)
"""
MAIN = """
import numpy as np
from numba.core import event
import stranger
recorder = event.RecordingListener()
event.register("numba:compile", recorder)
x = np.arange(4.0)
fixed = x.copy()
fixed.flags.writeable = False
print(stranger.scaled(x, 3), stranger.scaled(fixed, 3), len(recorder.buffer) // 2)
"""


def run(folder: Path, source: str) -> tuple[float, float, int]:
    """The kernel's answers for two arrays, in a process of its own, and how many functions were compiled."""
    (folder / "stranger.py").write_text(source, encoding="utf-8")
    settings = os.environ | {"TANGENS_CACHE_DIR": str(folder / "cache"), "TANGENS_KERNEL_WORKER": "1",
                             "PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}  # fmt: skip
    command = [sys.executable, "-c", MAIN]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    one, two, compiled = done.stdout.split()
    return float(one), float(two), int(compiled)


def test_a_second_process_compiles_nothing_and_an_edit_only_what_it_touches(tmp_path: Path) -> None:
    assert run(tmp_path, PACKAGE) == (42.0, 42.0, 3)
    assert run(tmp_path, PACKAGE) == (42.0, 42.0, 0)
    # Inside of the inline function: the subroutine is compiled again with it, the kernel calls it where it stands.
    assert run(tmp_path, PACKAGE.replace("x * x", "-x * x")) == (-42.0, -42.0, 2)
    # Another type of result: whoever calls it is compiled again, too.
    assert run(tmp_path, PACKAGE.replace("out = 0.0", "out = 0").replace("squared(x[i])", "1")) == (12.0, 12.0, 2)


def test_a_damaged_file_is_compiled_again(tmp_path: Path) -> None:
    run(tmp_path, PACKAGE)
    for path in (tmp_path / "cache" / "kernels").glob("*.kernel"):
        path.write_bytes(path.read_bytes()[:100])
    assert run(tmp_path, PACKAGE) == (42.0, 42.0, 3)


def test_every_kernel_of_the_package_is_compiled_ahead_of_time() -> None:
    kernels = all_kernels()
    assert {"step", "differentiate", "linearize", "reverse"} <= {one.__name__ for one in kernels}
    assert all(one.is_kept() for one in kernels), "run `make venv`, or python -m tangens.kernels.build"


def test_inline_functions_can_be_called_from_python() -> None:
    turn, product = np.empty(4), np.empty(4)
    quat_exp(np.array([0.0, 0.0, np.pi]), turn)
    quat_multiply(turn, turn, product)
    assert np.allclose(product, [-1.0, 0.0, 0.0, 0.0], atol=1e-15)


def test_numba_is_the_version_whose_private_parts_we_know() -> None:
    assert numba.__version__.startswith("0.68.")


@pytest.mark.skipif(not store.runs_x86_64_v3(), reason="this processor has code of its own")
def test_kernels_do_not_depend_on_which_x86_64_v3_processor_compiled_them() -> None:
    assert store.worker_settings()["NUMBA_CPU_NAME"] == store.processors()[0] == "x86-64-v3"
