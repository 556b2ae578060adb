"""Rotations: exp and log undo each other, and their Jacobians are their derivatives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tangens.dynamics import rotations as rot

vectors = st.lists(st.floats(-1.8, 1.8), min_size=3, max_size=3).map(np.array)
tiny = st.lists(st.floats(-1e-7, 1e-7), min_size=3, max_size=3).map(np.array)
any_vector = st.one_of(vectors, tiny, vectors.map(lambda w: 1e-2 * w))


def exp(w: np.ndarray) -> np.ndarray:
    out = np.empty(4)
    rot.quat_exp(w, out)
    return out


def log(q: np.ndarray) -> np.ndarray:
    out = np.empty(3)
    rot.quat_log(q, out)
    return out


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = np.empty(4)
    rot.quat_multiply(a, b, out)
    return out


def matrix(function: object, w: np.ndarray) -> np.ndarray:
    out = np.empty((3, 3))
    function(w, out)  # type: ignore[operator]
    return out


@given(any_vector)
def test_log_undoes_exp(w: np.ndarray) -> None:
    if np.linalg.norm(w) < np.pi - 1e-3:
        np.testing.assert_allclose(log(exp(w)), w, atol=1e-14)


@given(any_vector)
def test_a_quaternion_and_its_negative_are_one_rotation(w: np.ndarray) -> None:
    if np.linalg.norm(w) < np.pi - 1e-3:
        np.testing.assert_allclose(log(-exp(w)), w, atol=1e-12)


@given(any_vector)
def test_both_ways_to_a_rotation_matrix_agree(w: np.ndarray) -> None:
    R = matrix(rot.exp_matrix, w)
    np.testing.assert_allclose(R, matrix(rot.quat_to_matrix, exp(w)), atol=1e-14)
    np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-14)


@given(any_vector)
def test_right_jacobian_is_the_derivative_of_exp(w: np.ndarray) -> None:
    J = matrix(rot.right_jacobian, w)
    step, back = 1e-6, exp(-w)
    for k, unit in enumerate(np.eye(3)):
        ends = [log(multiply(back, exp(w + sign * step * unit))) for sign in (1, -1)]
        np.testing.assert_allclose(J[:, k], (ends[0] - ends[1]) / (2 * step), atol=1e-9)


@given(any_vector)
def test_inverse_jacobian_is_the_inverse(w: np.ndarray) -> None:
    product = matrix(rot.right_jacobian, w) @ matrix(rot.right_jacobian_inverse, w)
    np.testing.assert_allclose(product, np.eye(3), atol=1e-12)


@pytest.mark.parametrize("angle", [0.0, 1e-300, 1e-9, 0.99e-2, 1.01e-2, 3.0])
def test_nothing_breaks_at_the_seam_of_the_series(angle: float) -> None:
    w = angle * np.array([0.6, 0.0, 0.8])
    for function in (rot.exp_matrix, rot.right_jacobian, rot.right_jacobian_inverse):
        assert np.isfinite(matrix(function, w)).all()
    near = [matrix(rot.right_jacobian_inverse, s * 1e-2 * np.array([0.6, 0.0, 0.8])) for s in (1 - 1e-9, 1 + 1e-9)]
    np.testing.assert_allclose(near[0], near[1], atol=1e-10)
