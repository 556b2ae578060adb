"""The bench of contact manifolds reports what it promises. Speed is not asserted here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tangens.cli import main
from tangens.lab.bench import manifold


@pytest.mark.slow
def test_the_command_writes_rows_ratios_and_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("qpax")
    pytest.importorskip("optimistix")
    monkeypatch.setitem(manifold.EFFORTS, "quick", manifold.Effort(1, (1, 8), (1,), (2,)))
    monkeypatch.setattr(manifold, "BATCHES", {"batches of 5 x 5": 1})
    file = tmp_path / "manifold.json"
    systems = "vertex-face, edge-edge, one pose, batches of 5 x 5"
    main(["bench", "manifold", "--quick", "--only", systems, "--out", str(tmp_path), "--json", str(file)])
    result = json.loads(file.read_text())
    assert {r["tool"] for r in result["rows"]} >= {"tangens", "qpax", "L-BFGS", "mjx"}
    excess = [r["mean_excess_distance"] for r in result["rows"] if "mean_excess_distance" in r]
    assert max(map(abs, excess)) < 0.02  # all tools find the nearest points
    assert any(ratio["name"] == "1 x 1, batch of 2: MJX / tangens" for ratio in result["ratios"])
    assert Path(result["figures"][0]).stat().st_size > 5_000


def test_poses_are_the_same_for_both_tools() -> None:
    x = manifold.poses(3)
    q = manifold.configurations(x)
    np.testing.assert_allclose(q.reshape(-1, 7)[:, :3], x.reshape(-1, 6)[:, :3])
    np.testing.assert_allclose(np.linalg.norm(q.reshape(-1, 7)[:, 3:], axis=1), 1.0)


def test_a_part_alone_has_to_exist(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("qpax")
    pytest.importorskip("optimistix")
    assert main(["bench", "manifold", "--only", "one nose"]) == 1
    assert "it has 'vertex-face', 'edge-edge', 'one pose'" in capsys.readouterr().err
    assert main(["bench", "start", "--only", "ncp"]) == 1
    assert "leave out --only" in capsys.readouterr().err
