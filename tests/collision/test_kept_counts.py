"""How many vertices and edges to keep, by trying."""

from __future__ import annotations

import numpy as np
import pytest

import tangens as tg

BOX = tg.geometry.solid_of_geom(6, np.array([0.05, 0.04, 0.03]))


def test_two_boxes_need_few() -> None:
    found = tg.collision.selection_sizes((BOX, BOX), samples=20)
    assert found.deepest_vertices.shape == (20, 2)
    assert 1 <= found.vertices <= 4  # a box that overlaps by 2 % reaches in with a corner, seldom with more
    assert 1 <= found.edges <= 8
    assert (found.deepest_vertices.sum(1) + found.nearest_pairs > 0).all()
    again = tg.collision.selection_sizes((BOX, BOX), samples=20)
    np.testing.assert_array_equal(found.nearest_pairs, again.nearest_pairs)


def test_refusals() -> None:
    floor = tg.geometry.solid_of_geom(0, np.zeros(3))
    with pytest.raises(tg.OptionError, match="vertices"):
        tg.collision.selection_sizes((floor, BOX))
    with pytest.raises(tg.OptionError, match="quantile"):
        tg.collision.selection_sizes((BOX, BOX), quantile=0.0)
