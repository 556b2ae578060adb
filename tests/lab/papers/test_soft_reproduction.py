"""The experiments of soft at small sizes: what they say of other models, and what they search with."""

from __future__ import annotations

import numpy as np

from tangens.lab import push_elsewhere, push_search
from tangens.lab.pushing import Pushing


def test_exact_contact_reports_a_stationary_point_at_a_distance() -> None:
    problem = Pushing.of_t()
    found = push_elsewhere.attempt(problem, np.array([0.03, 0.28, 0.2]), ("ncp",))
    assert found.first_gradient == 0.0
    assert found.iterations == 0
    assert "stationary" in found.message
    assert np.hypot(0.03, 0.08) - 1e-6 < found.error[0] < np.hypot(0.03, 0.08) + 1e-6


def test_an_even_straight_way_does_not_bend() -> None:
    way = np.outer(np.arange(1, 6), [0.02, 0.03]).ravel()
    shape = push_search.way_and_bend(5) @ way
    assert (shape[:10] > 0).all()
    np.testing.assert_allclose(shape[10:], 0.0, atol=1e-12)


def test_searches_begin_with_ways_that_touch_nothing() -> None:
    problem = Pushing.of_t()
    for via in push_search.starts(problem.via_points):
        path = problem.replay(via, "ncp")
        np.testing.assert_allclose(path[:, :7], np.broadcast_to(path[0, :7], (len(path), 7)), atol=1e-6)
        assert np.abs(path[-1, 7:] - via[-1]).max() < 0.02
