"""The bench reports what it promises: rows, ratios with targets, a figure. Speed itself is not asserted here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tangens.cli import bench as command
from tangens.lab.bench import BENCHES, BenchRequest, dynamics
from tangens.lab.bench.timing import interleaved


def test_rows_and_ratios_have_the_promised_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamics, "SYSTEMS", ("half_cheetah",))
    monkeypatch.setitem(dynamics.TRIALS, "quick", 2)
    result = BENCHES["dynamics"].run(BenchRequest("quick", tmp_path))
    assert {"system", "quantity", "tool", "median_us", "trials", "compile_s"} <= result["rows"][0].keys()
    assert {"name", "value", "target", "ok"} <= result["ratios"][0].keys()
    assert all(row["median_us"] > 0 for row in result["rows"])
    assert Path(result["figures"][0]).stat().st_size > 5_000


def test_medians_order_work_by_its_size() -> None:
    timings = interleaved({"small": lambda: sum(range(10)), "large": lambda: sum(range(10_000))}, trials=3)
    assert timings.median("small") < timings.median("large")
    assert timings.ratio("large", "small") > 1


def test_the_command_knows_all_benches_and_their_peers() -> None:
    assert tuple(BENCHES) == command.NAMES
    assert {name: bench.peers for name, bench in BENCHES.items() if bench.peers} == command.PEERS
