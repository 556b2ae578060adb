"""The command line: results on screen and as JSON, errors without tracebacks, honest exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tangens as tg
from tangens.cli import build_parser, main


def run(*arguments: object, json_file: Path) -> tuple[int, dict]:  # type: ignore[type-arg]
    code = main([*map(str, arguments), "--json", str(json_file)])
    return code, json.loads(json_file.read_text())


def test_simulate_writes_the_trajectory(tmp_path: Path) -> None:
    options = ["--steps", 10, "--controls", "random", "--plot", tmp_path / "p.png"]
    code, result = run("simulate", "arm", *options, json_file=tmp_path / "r.json")
    assert code == 0
    assert len(result["q"]) == 11
    assert result["environment"]["packages"]["mujoco"]
    assert (tmp_path / "p.png").stat().st_size > 5_000


def test_simulate_takes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(tg.scenes.path("ball")), "--keyframe", "dropped", "--duration", "0.02"]) == 0
    assert "10 steps of 0.002 s" in capsys.readouterr().out


def test_gradient_judges_itself(tmp_path: Path) -> None:
    options = ["--random", 1, "--wrt", "q,v,u,tau,mass,gravity", "--check"]
    code, result = run("gradient", "quadruped", *options, json_file=tmp_path / "g.json")
    assert code == 0
    assert result["ok"]
    assert max(result["errors"].values()) < 1e-6
    assert len(result["blocks"]["v/mass"]) == 18


def test_check_compares_a_robot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result = run("check", "half_cheetah", json_file=tmp_path / "c.json")
    assert "load [s]" in capsys.readouterr().out  # brackets are units, not markup
    assert code == 0
    assert result["results"][0]["physics"] < 1e-9


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["simulate", "no_such_scene"], "no bundled scene"),
        (["simulate", "missing.xml"], "no such file"),
        (["simulate", "arm", "--contact", "glue"], "unknown contact model"),
        (["simulate", "arm", "--keyframe", "nope"], "keyframe"),
        (["simulate", "arm", "--duration", "nan"], "--duration"),
        (["simulate", "arm", "--timestep", "-1"], "timestep"),
        (["gradient", "arm", "--wrt", "friction"], "no derivative by 'friction'"),
        (["simulate", "arm", "--steps", "1", "--json", "/proc/no/such/file"], "cannot write"),
    ],
)
def test_errors_are_sentences(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 1
    streams = capsys.readouterr()
    assert complaint in streams.err
    assert "Traceback" not in streams.err


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(tg.SceneError):
        main(["simulate", "missing.xml", "--debug"])


def test_wrong_usage_exits_with_two() -> None:
    with pytest.raises(SystemExit) as caught:
        main(["simulate"])
    assert caught.value.code == 2


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["--help"])
    text = capsys.readouterr().out
    for command in ("demo", "simulate", "gradient", "check", "decompose", "bench"):
        assert command in text


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tangens", "--version"], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == f"tangens {tg.__version__}"
