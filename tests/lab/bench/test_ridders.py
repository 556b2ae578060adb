"""Ridders' method on functions whose derivative is known."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.lab.bench.ridders import IntArray, ridders, step_sizes

Array = NDArray[np.float64]

X = np.array([0.3, 1.1, -0.7])


def _curves(x: Array) -> Array:
    return np.stack([np.sin(3 * x), np.exp(x), 1 / (2 + x)], axis=1)


def _slopes(x: Array) -> Array:
    return np.stack([3 * np.cos(3 * x), np.exp(x), -1 / (2 + x) ** 2], axis=1)


def _quotient(size: float, directions: IntArray) -> Array:
    """Every direction is a point of its own."""
    x = X[directions]
    return (_curves(x + size) - _curves(x - size)) / (2 * size)


def test_smooth_functions_to_nearly_all_digits() -> None:
    found, error = ridders(_quotient, len(X), 0.1)
    true = np.abs(found - _slopes(X)).max(axis=1)
    assert np.all(true < 1e-11)
    assert np.all(error < 1e-10)
    best_central = min(np.abs(_quotient(10.0**-k, np.arange(3)) - _slopes(X)).max() for k in range(1, 12))
    assert true.max() < best_central  # whatever step central differences take


def test_a_cubic_needs_two_steps() -> None:
    """The error of central differences is then x² alone, which the first extrapolation takes away."""
    found, _ = ridders(lambda size, _: np.array([[12.0 + size**2]]), 1, 0.5)
    assert abs(found[0, 0] - 12) < 1e-13


def test_directions_stop_by_themselves() -> None:
    """A line is known at once; noise ends a direction early and its error says so."""
    asked: list[list[int]] = []
    rng = np.random.default_rng(0)

    def quotient(size: float, directions: IntArray) -> Array:
        asked.append(directions.tolist())
        values = {0: 5.0, 1: np.sin(size) / size, 2: 1.0 + 1e-3 * rng.normal()}
        return np.array([[values[i]] for i in directions.tolist()])

    found, error = ridders(quotient, 3, 0.5)
    assert found[0, 0] == 5
    assert error[0] == 0
    assert sum(0 in directions for directions in asked) == 2
    assert abs(found[1, 0] - 1) < 1e-12
    assert abs(found[2, 0] - 1) < 0.01
    assert error[2] > 1e-5
    assert len(asked) <= len(step_sizes(0.5))


def test_a_kink_further_away_than_the_first_step_does_no_harm() -> None:
    """|x − 0.02| around 0."""

    def quotient(size: float, directions: IntArray) -> Array:
        del directions
        return np.array([[(abs(size - 0.02) - abs(-size - 0.02)) / (2 * size)]])

    assert abs(ridders(quotient, 1, 0.019)[0][0, 0] + 1) < 1e-12
