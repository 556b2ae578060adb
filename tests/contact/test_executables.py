"""Compiled functions on disk: loaded by the next process, and never trusted where they do not run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import tangens as tg
from tangens.contact.executables import KeptFunction, written_key

MADE: list[str] = []


def function(key: str) -> KeptFunction:
    def make() -> object:
        MADE.append(key)
        return lambda x: {"sum": x + 1.0, "solved": jnp.linalg.solve(jnp.diag(x), x)}

    return KeptFunction(("solve", key), make, None)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    MADE.clear()
    monkeypatch.setattr("tangens.contact.executables.writable_folder", lambda name, most: tmp_path)


def test_a_function_is_made_once(tmp_path: Path) -> None:
    x = np.array([1.0, 2.0])
    first, second = function("a")(x), function("a")(x)
    assert MADE == ["a"]
    assert len(list(tmp_path.iterdir())) == 1
    np.testing.assert_array_equal(first["sum"], second["sum"])
    np.testing.assert_array_equal(second["solved"], [1.0, 1.0])
    function("a")(np.ones(3))  # another shape is another function
    assert MADE == ["a", "a"]


def test_what_cannot_be_loaded_is_compiled_again_and_left_alone(tmp_path: Path) -> None:
    x = np.array([1.0, 2.0])
    function("a")(x)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:200])
    np.testing.assert_array_equal(function("a")(x)["sum"], [2.0, 3.0])
    assert MADE == ["a", "a"]
    assert file.stat().st_size == 200


def test_keys_are_the_same_in_every_process_or_not_written() -> None:
    assert written_key((tg.Simulator, "solve", 1, None, b"x")) == "(tangens.simulate.Simulator 'solve' 1 None b'x')"
    assert written_key(("solve", test_a_function_is_made_once.__class__)) is None  # a type that is not ours
    assert written_key(("solve", object())) is None


SECOND = """
import jax, tangens as tg
jax.config.update("jax_compilation_cache_dir", {cache!r})
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
joint = '<joint type="slide" limited="true" range="-1 1"/>'
text = f'<mujoco><worldbody><body>{{joint}}<geom size="0.1"/></body></worldbody></mujoco>'
sim = tg.Simulator(tg.load(text), "single-level")
print(*sim.step(tg.State([0.0], [0.3])).state.v, jax.config.jax_compilation_cache_dir)
"""


@pytest.mark.slow
def test_jax_own_cache_does_no_harm_and_keeps_its_settings(tmp_path: Path) -> None:
    """Executables that come from there cannot be written again: processes that meet such files compile instead."""
    found = set()
    for ours in ("one", "two", "two"):
        settings = os.environ | {"TANGENS_CACHE_DIR": str(tmp_path / ours)}
        script = SECOND.format(cache=str(tmp_path / "jax"))
        done = subprocess.run(
            [sys.executable, "-c", script], env=settings, capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    assert len(found) == 1
    assert str(tmp_path / "jax") in found.pop()
