"""The bench of Jacobians reports what it promises. Speed is not asserted here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tangens.cli import main
from tangens.lab.bench import BENCHES, BenchRequest, jacobians
from tangens.lab.bench import published_jacobians as published
from tangens.lab.bench.peers import PeerUnavailable, nimble_peer

BLOCKS = ("dq_dq", "dv_dq", "dq_dv", "dv_dv", "dv_dtau")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jacobians, "SYSTEMS", ("half_cheetah", "worm"))
    monkeypatch.setitem(jacobians.EFFORTS, "quick", jacobians.Effort(states=3, passes=2, stride=2, ridders=1))


@pytest.mark.usefixtures("small")
def test_the_command_writes_rows_ratios_and_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "jacobians.json"
    code = main(["bench", "jacobians", "--quick", "--out", str(tmp_path), "--json", str(file)])
    result = json.loads(file.read_text())
    assert code == (0 if all(r["ok"] for r in result["ratios"]) else 3)
    rows = {(r["system"], r["quantity"], r["tool"]): r for r in result["rows"]}
    for system in ("half_cheetah", "worm"):
        assert rows[system, "step", "tangens"]["median_us"] > 0
        for quantity in ("all", *BLOCKS):
            for tool in ("tangens", jacobians.CENTRAL, jacobians.RIDDERS):
                r = rows[system, quantity, tool]
                assert {"system", "quantity", "tool", "median_us", "trials", "compile_s", "error"} <= r.keys()
                assert r["median_us"] > 0
                assert r["error"] < 1e-5
    title = "half_cheetah: central differences / all Jacobians"
    (ratio,) = (r for r in result["ratios"] if r["name"] == title)
    quotient = rows["half_cheetah", "all", jacobians.CENTRAL]["median_us"]
    assert ratio["value"] == pytest.approx(quotient / rows["half_cheetah", "all", "tangens"]["median_us"])
    assert ratio["target"] == ">= 22"
    facts = result["environment"]["systems"]["worm"]
    assert facts["states"] == 3
    assert facts["contacts_carrying_force"] == 2
    assert sum(facts["solved_by"].values()) == 3
    assert Path(result["figures"][0]).stat().st_size > 5_000
    assert "dv_dtau" in capsys.readouterr().out


@pytest.mark.usefixtures("small")
def test_nimble_is_measured_block_by_block_or_named_as_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(system: str, states: int, passes: int, sets: dict[str, Any], clock: str) -> dict[str, Any]:
        assert system == "half_cheetah"
        assert clock == "thread_time_ns"  # the one that ours are measured with
        assert sets["dv_dq"] == ["getPosVelJacobian"]
        assert len(sets["blocks"]) == 5
        times = {name: [100_000 * len(asked)] * states for name, asked in sets.items()}
        facts = {"states": states, "contacts": 2.0, "dofs": 9}
        return {"forward": [50_000] * states * passes, "sets": times} | facts

    monkeypatch.setattr(jacobians, "SYSTEMS", ("half_cheetah",))
    monkeypatch.setattr(nimble_peer, "measure", answer)
    result = BENCHES["jacobians"].run(BenchRequest("quick", tmp_path, ("nimble",)))
    times = {r["quantity"]: r["median_us"] for r in result["rows"] if r["tool"] == nimble_peer.JACOBIANS}
    assert times == {"all": 200.0} | dict.fromkeys(BLOCKS, 100.0)  # the quicker way to have all five
    assert result["environment"]["systems"]["half_cheetah"]["nimble"]["set"] == "whole"
    ours = next(r["median_us"] for r in result["rows"] if (r["quantity"], r["tool"]) == ("all", "tangens"))
    ratio = next(r for r in result["ratios"] if "Nimble" in r["name"])
    assert ratio["value"] == pytest.approx(200.0 / ours)

    def refuse(*_: Any) -> dict[str, Any]:
        raise PeerUnavailable("no environment")

    monkeypatch.setattr(nimble_peer, "measure", refuse)
    result = BENCHES["jacobians"].run(BenchRequest("quick", tmp_path, ("nimble",)))
    ratio = next(r for r in result["ratios"] if "Nimble" in r["name"])
    assert (ratio["value"], ratio["ok"], ratio["reason"]) == (None, False, "no environment")


def test_the_papers_numbers_give_the_papers_ratios() -> None:
    for system, printed in (("atlas", 87.84), ("half_cheetah", 21.86), ("worm", 14.89), ("catapult", 16.45)):
        times = {(r["quantity"], r["tool"]): r["median_us"] for r in published.rows(system, ("all", *BLOCKS))}
        central = [times[block, published.CENTRAL] for block in BLOCKS]
        assert times["all", published.CENTRAL] / times["all", published.JACOBIANS] == pytest.approx(printed, rel=5e-3)
        assert sum(central) == pytest.approx(times["all", published.CENTRAL], rel=5e-3)
    assert published.rows("g1", ("all", *BLOCKS)) == []
