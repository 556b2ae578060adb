"""The reproduction of the contact-manifold paper at small sizes: its parts measure what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tangens.geometry.superquadric_fits import distances
from tangens.lab import papers
from tangens.lab.creatures import MOST, convex_parts, creature
from tangens.lab.papers.convex import PARTS, box_on_box, primitives, rollouts, rotating_edge


@pytest.mark.parametrize("part", [primitives, rotating_edge, box_on_box], ids=lambda part: part.__name__.split(".")[-1])
def test_all_targets_hold(part: Any, tmp_path: Path) -> None:
    rows, figures = part.run("quick", tmp_path)
    assert any(row["ok"] is not None for row in rows)
    assert all(row["ok"] is not False for row in rows), rows
    assert all(figure.stat().st_size > 10_000 for figure in figures)


@pytest.mark.slow
def test_creatures_fall_and_come_to_rest(tmp_path: Path) -> None:
    rows, figures = rollouts.run("quick", tmp_path)
    assert all(figure.stat().st_size > 10_000 for figure in figures)
    assert all(row["ok"] is not False for row in rows), rows


def test_creatures_hang_together_and_have_coarse_meshes() -> None:
    whole = creature()
    assert len(whole.axes) == MOST
    assert all(part.shape == (26, 3) for part in convex_parts(whole))
    for k in range(1, MOST):  # each part overlaps one before it
        assert distances(whole.take(slice(k)), whole.take([k]).along_axes((0.5, 0.9, 1.0))).min() < 0


def test_it_can_be_asked_for() -> None:
    assert "convex" in papers.PAPERS
    assert len(PARTS) >= 4
