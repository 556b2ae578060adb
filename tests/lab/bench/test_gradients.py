"""The contact bench reports what it promises, and says so where it could not measure. Speed is not asserted here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tangens.cli import main
from tangens.cli.bench import chosen_peers
from tangens.errors import OptionError
from tangens.lab.bench import BENCHES, BenchRequest, gradients, published
from tangens.lab.bench.peers import PeerUnavailable, mujoco_peer, nimble_peer
from tangens.lab.bench.peers.process import ask
from tangens.lab.bench.situations import situation


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "SYSTEMS", ("half_cheetah",))
    monkeypatch.setitem(gradients.EFFORTS, "quick", gradients.Effort(states=4, passes=2, stride=2))


@pytest.mark.usefixtures("small")
def test_the_command_writes_rows_ratios_figure_and_settings(tmp_path: Path) -> None:
    file = tmp_path / "gradients.json"
    code = main([
        "bench", "gradients", "--quick", "--peers", "mujoco", "--out", str(tmp_path), "--json", str(file),
    ])  # fmt: skip
    result = json.loads(file.read_text())
    assert code == (0 if all(r["ok"] for r in result["ratios"]) else 3)
    assert all({"system", "quantity", "tool", "median_us", "trials", "compile_s"} <= r.keys() for r in result["rows"])
    assert all({"name", "value", "target", "ok"} <= r.keys() for r in result["ratios"])
    times = {(r["quantity"], r["tool"]): r["median_us"] for r in result["rows"]}
    # 54 steps cost more than one, 24 more of MuJoCo's as well; anything finer would be a timed test
    assert 0 < times["step", "tangens"] < times["differences", "tangens"]
    assert 0 < times["step", mujoco_peer.STEP] < times["differences", mujoco_peer.DIFFERENCES]
    assert times["gradient", published.TOOL] == 14.7
    ratio = next(r for r in result["ratios"] if r["name"] == "half_cheetah: gradient / step")
    assert ratio["value"] == pytest.approx(times["gradient", "tangens"] / times["step", "tangens"])
    assert ratio["target"] == "<= 1.2"
    assert result["environment"]["peers"].keys() == {"mujoco"}
    facts = result["environment"]["systems"]["half_cheetah"]
    assert facts["states"] == 4
    assert facts["contacts_carrying_force"] > 0
    assert facts["mujoco"]["contacts"] > 0  # it sees the contacts that our states hold
    assert Path(result["figures"][0]).stat().st_size > 5_000


@pytest.mark.usefixtures("small")
def test_a_peer_that_fails_is_not_ok(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> dict[str, Any]:
        raise PeerUnavailable("no environment")

    monkeypatch.setattr(nimble_peer, "measure", refuse)
    result = BENCHES["gradients"].run(BenchRequest("quick", tmp_path, ("nimble",)))
    ratio = next(r for r in result["ratios"] if "Nimble" in r["name"])
    assert ratio["value"] is None
    assert not ratio["ok"]
    assert ratio["reason"] == "no environment"
    assert not any("MuJoCo mj" in r["tool"] for r in result["rows"])


def test_states_are_the_same_in_every_run() -> None:
    one, two = (situation("ur5", 2).samples for _ in range(2))
    assert len(one) == 2
    for a, b in zip(one, two, strict=True):
        assert np.array_equal(a.state.q, b.state.q)
        assert np.array_equal(a.state.v, b.state.v)


def test_unknown_peers_are_named() -> None:
    assert chosen_peers("gradients", "nimble, mujoco") == ("nimble", "mujoco")
    assert chosen_peers("gradients", None) == gradients.DEFAULT_PEERS
    with pytest.raises(OptionError, match=r"'bullet'.*mujoco, mjx, nimble"):
        chosen_peers("gradients", "mujoco,bullet")
    with pytest.raises(OptionError, match="leave out --peers"):
        chosen_peers("dynamics", "mujoco")
    with pytest.raises(OptionError, match="empty"):
        chosen_peers("gradients", ",")


def test_a_script_that_fails_says_why(tmp_path: Path) -> None:
    import sys

    script = tmp_path / "script.py"
    script.write_text("raise RuntimeError('no such robot')")
    with pytest.raises(PeerUnavailable, match="no such robot"):
        ask(sys.executable, script, {}, timeout=60)
    script.write_text("import time; time.sleep(60)")
    with pytest.raises(PeerUnavailable, match="within"):
        ask(sys.executable, script, {}, timeout=0.2)
    script.write_text("print('hello')")
    with pytest.raises(PeerUnavailable, match="no result"):
        ask(sys.executable, script, {}, timeout=60)


def test_robots_that_are_not_at_hand_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANGENS_ROBOTS", str(tmp_path))
    with pytest.raises(PeerUnavailable, match=r"half_cheetah\.skel"):
        nimble_peer.measure("half_cheetah", 1, 1, nimble_peer.VELOCITY_SETS)
