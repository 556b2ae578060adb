"""Via points and CMA-ES."""

from __future__ import annotations

import numpy as np
import pytest

import tangens as tg
from tangens.optimize.via_points import through


def test_the_curve_starts_and_ends_at_rest_and_passes_all_points() -> None:
    points = np.array([[0.1, 0.2], [0.3, -0.1], [0.2, 0.0]])
    curve = through([0.0, 0.0], points, 300)
    np.testing.assert_allclose(curve[[99, 199, 299]], points, atol=1e-12)
    assert np.abs(curve[0]).max() < 1e-3
    assert np.abs(curve[-1] - curve[-2]).max() < 1e-4


def test_it_finds_a_way_around_a_wall() -> None:
    def cost(u: np.ndarray) -> float:
        inside = (np.abs(u[:, 0]) < 0.1) & (u[:, 1] < 0.3)  # the straight way crosses it
        return float(np.sum((u[-1] - [0.5, 0.0]) ** 2) + 10 * inside.mean() + 0.01 * np.sum(np.diff(u, axis=0) ** 2))

    found = tg.optimize.via_point_search(
        cost, [-0.5, 0.0], [-1, -1], [1, 1], steps=50, via_points=3, max_iterations=80, seed=1
    )
    assert found.cost < 0.02
    assert (np.diff(found.history) <= 0).all()
    assert found.controls.shape == (50, 2)


def test_bad_limits_are_refused() -> None:
    with pytest.raises(tg.OptionError, match="lower < upper"):
        tg.optimize.via_point_search(lambda u: 0.0, [0.0], [1.0], [-1.0], steps=3)
