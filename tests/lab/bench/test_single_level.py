"""The bench of single-level steps reports what it promises. Speed is not asserted here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tangens.cli import main
from tangens.lab.bench import single_level, throws


def test_the_command_writes_rows_ratios_and_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(single_level.EFFORTS, "quick", single_level.Effort(3, 1, (1, 2), (1, 4), (2, 1)))
    monkeypatch.setattr(throws, "GEOMS", {"box": throws.GEOMS["box"]})
    file = tmp_path / "single-level.json"
    code = main(["bench", "single-level", "--quick", "--out", str(tmp_path), "--json", str(file)])
    result = json.loads(file.read_text())
    assert code == 3  # no batch of 256 in a quick run
    rows = {(r["system"], r["quantity"], r["tool"]): r for r in result["rows"]}
    ours, theirs = rows["falling block", "step", "tangens"], rows["falling block", "step", "bilevel"]
    gain, slope, share, failures = result["ratios"]
    assert gain["value"] == pytest.approx(theirs["mean_us"] / ours["mean_us"])
    assert theirs["failed"] == ours["failed"] == 0
    assert slope["target"] == "<= 1.1"
    assert share["value"] is None
    assert failures["value"] == 10_000 * rows["throws", "box", "tangens"]["failed"]
    assert {"1 boxes", "2 boxes", "batch of 1", "batch of 4"} <= {quantity for _, quantity, _ in rows}
    assert Path(result["figures"][0]).stat().st_size > 5_000
