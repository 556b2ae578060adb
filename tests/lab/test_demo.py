"""The demo's parts do what the report says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tangens.lab import demo, demo_push


def test_the_pole_is_swung_up() -> None:
    result = demo.swing_up(steps=150)
    assert result["losses"][-1] < 0.1 * result["losses"][0]
    assert np.cos(result["q"][-1, 1]) > 0.98
    assert np.abs(result["u"]).max() <= 20.0


def test_the_tool_is_weighed() -> None:
    weights = demo.weigh_tool(steps=60)
    assert weights["found"] == pytest.approx(weights["true"], rel=1e-8)


def test_report_and_figure_are_written(tmp_path: Path) -> None:
    parts: list[str] = []
    result = demo.run(tmp_path, parts.append, main_act=False)
    assert parts == ["derivatives", "swing-up", "weighing", "contact", "push", "report"]
    text = (tmp_path / "report.md").read_text()
    assert all(name in text for name in demo.SCENES)
    assert all(row["gradient_error"] < 1e-6 and row["mujoco_error"] < 1e-9 for row in result["scenes"])
    assert all((tmp_path / name).stat().st_size > 20_000 for name in ("demo.png", "contact.png"))
    assert result["contact"]["history"][-1]["miss"] < 1e-9
    # A step that ends at rest covers no way: in steps of h, a slide is shorter by about v h / 2.
    assert result["contact"]["speed"] == pytest.approx(result["contact"]["law"], rel=0.03)


@pytest.mark.slow
def test_a_push_is_found_from_a_distance(tmp_path: Path) -> None:
    push = demo_push.push_from_a_distance()
    assert push["first_gradient"] > 1.0
    assert push["ncp_gradient"] < 1e-6
    assert push["error"][0] < 0.01
    assert push["error"][1] < np.deg2rad(3)
    assert push["ncp_error"][0] < 0.03
    assert push["ncp_error"][1] < np.deg2rad(10)
    assert demo_push.draw(tmp_path / "push.png", push).stat().st_size > 20_000
    assert demo_push.animate(tmp_path / "push.gif", push).stat().st_size > 20_000
