"""The projected Newton method finds the minimum within limits, and which entries rest at them."""

from __future__ import annotations

import numpy as np
import piqp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tangens.optimize.box_qp import solve_box_qp


@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_it_agrees_with_a_general_solver(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(size, size))
    H, g = root @ root.T + 0.1 * np.eye(size), 3 * rng.normal(size=size)
    lower, upper = -rng.uniform(size=size), rng.uniform(size=size)
    ours = solve_box_qp(H, g, lower, upper, np.zeros(size))
    reference = piqp.DenseSolver()
    reference.setup(H, g, None, None, None, None, None, lower, upper)
    assert reference.solve() == piqp.PIQP_SOLVED
    np.testing.assert_allclose(ours.x, reference.result.x, atol=1e-6)
    slope = H @ ours.x + g
    np.testing.assert_allclose(slope[ours.free], 0.0, atol=1e-9)
    assert (slope[~ours.free & (ours.x == lower)] > 0).all()
    assert (slope[~ours.free & (ours.x == upper)] < 0).all()
    assert np.isin(ours.x[~ours.free], np.concatenate([lower, upper])).all()


def test_entries_at_a_limit_do_not_respond() -> None:
    H, g = np.diag([2.0, 1.0]), np.array([-2.0, -9.0])
    solution = solve_box_qp(H, g, np.full(2, -3.0), np.full(2, 3.0), np.zeros(2))
    np.testing.assert_allclose(solution.x, [1.0, 3.0])
    np.testing.assert_allclose(solution.respond(np.eye(2)), np.diag([-0.5, 0.0]))


def test_without_limits_it_is_newtons_method() -> None:
    H, g = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([1.0, -4.0])
    solution = solve_box_qp(H, g, np.full(2, -np.inf), np.full(2, np.inf), np.zeros(2))
    np.testing.assert_allclose(solution.x, np.linalg.solve(H, -g), atol=1e-12)


def test_a_problem_without_a_minimum_is_refused() -> None:
    with pytest.raises(np.linalg.LinAlgError):
        solve_box_qp(np.diag([1.0, -1.0]), np.ones(2), np.full(2, -np.inf), np.full(2, np.inf), np.zeros(2))
