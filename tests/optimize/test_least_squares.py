"""The methods find minima, say why they stopped, and keep the best point when a simulation fails."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

import tangens as tg
from tangens.optimize import Iteration, LeastSquares, by_differences, gauss_newton, gradient_descent

Array = NDArray[np.float64]


def rosenbrock() -> LeastSquares:
    return LeastSquares(
        lambda x: np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]]),
        lambda x: np.array([[-20 * x[0], 10.0], [-1.0, 0.0]]),
        2,
    )


def linear(A: Array, b: Array) -> LeastSquares:
    return LeastSquares(lambda x: A @ x - b, lambda x: A, A.shape[1])


class TestGaussNewton:
    @pytest.mark.parametrize("problem", [rosenbrock(), by_differences(rosenbrock())])
    def test_it_walks_down_a_curved_valley(self, problem: LeastSquares) -> None:
        result = gauss_newton(problem, [-1.2, 1.0])
        assert result.converged
        np.testing.assert_allclose(result.x, [1, 1], atol=1e-8)
        assert (np.diff(result.errors) < 0).all()

    @given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 6))
    def test_linear_problems_end_at_the_least_squares_solution(self, seed: int, rows: int, columns: int) -> None:
        rng = np.random.default_rng(seed)
        A, b = rng.normal(size=(rows, columns)), rng.normal(size=rows)
        result = gauss_newton(linear(A, b), rng.normal(size=columns), gradient_tolerance=1e-10)
        best = np.linalg.norm(A @ np.linalg.lstsq(A, b)[0] - b)
        assert result.error == pytest.approx(best, rel=1e-6, abs=1e-6)

    def test_without_damping_a_linear_problem_takes_one_step(self) -> None:
        A = np.array([[2.0, 1.0], [0.0, 3.0]])
        result = gauss_newton(linear(A, np.array([1.0, 2.0])), [5.0, 5.0], damping=0.0)
        assert result.iterations == 1

    def test_an_unknown_without_effect_stays(self) -> None:
        result = gauss_newton(linear(np.array([[1.0, 0.0]]), np.array([2.0])), [0.0, 7.0])
        assert result.converged
        np.testing.assert_allclose(result.x, [2.0, 7.0], atol=1e-9)

    def test_noise_in_the_jacobian_does_not_throw_it_far_off(self) -> None:
        """A column of rounding noise, as differences make of an unknown without effect."""
        A = np.array([[1.0, 0.0], [0.5, 0.0]])
        noise = np.array([[0, 1e-10], [0, -3e-10]])
        noisy = LeastSquares(lambda x: A @ x - [1.0, 0.5], lambda x: A + noise, 2)
        result = gauss_newton(noisy, [0.0, 0.0])
        assert result.converged
        assert abs(result.x[1]) < 1e-3

    def test_a_fit_under_noise_ends_as_a_minimum(self) -> None:
        """The residual stays as large as the noise; no step lowers it further, and that is success."""
        rng = np.random.default_rng(3)
        t = np.linspace(0.0, 2.0, 40)
        measured = 1.5 * np.exp(-0.7 * t) + 0.05 * rng.normal(size=40)

        def slope(x: Array) -> Array:
            return np.stack([np.exp(-x[1] * t), -x[0] * t * np.exp(-x[1] * t)], axis=1)

        result = gauss_newton(
            LeastSquares(lambda x: x[0] * np.exp(-x[1] * t) - measured, slope, 2), [1.0, 0.1], gradient_tolerance=0.0
        )
        assert result.converged, result.message
        assert "minimum" in result.message
        assert result.error > 0.1
        gradient = slope(result.x).T @ (result.x[0] * np.exp(-result.x[1] * t) - measured)
        assert np.abs(gradient).max() < 1e-7

    @given(st.integers(0, 2**32 - 1))
    def test_no_point_beyond_the_bounds_is_ever_tried(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        A, b, low = rng.normal(size=(5, 3)), rng.normal(size=5), rng.normal(size=3)
        high, tried = low + rng.uniform(0.1, 1.0, size=3), list[Array]()

        def residual(x: Array) -> Array:
            tried.append(x.copy())
            return A @ x - b

        result = gauss_newton(LeastSquares(residual, lambda x: A, 3), rng.normal(size=3), bounds=(low, high))
        assert (np.array(tried) >= low).all()
        assert (np.array(tried) <= high).all()
        best = lsq_linear(A, b, (low, high)).cost
        assert result.cost == pytest.approx(best, rel=1e-6, abs=1e-9)

    def test_bounds_that_leave_no_room_are_refused(self) -> None:
        with pytest.raises(tg.OptionError, match="no room"):
            gauss_newton(rosenbrock(), [0.0, 0.0], bounds=(1.0, [2.0, 0.5]))


def test_gradient_descent_gets_there_slowly() -> None:
    result = gradient_descent(rosenbrock(), [-1.2, 1.0], max_iterations=50)
    assert not result.converged
    assert result.message == "not there after 50 iterations"
    assert result.cost < 0.2 * result.history[0].cost
    assert gauss_newton(rosenbrock(), [-1.2, 1.0]).cost < 1e-6 * result.cost


class TestHistory:
    def test_it_counts_what_it_did(self) -> None:
        seen: list[tuple[Iteration, Array]] = []
        result = gauss_newton(
            by_differences(rosenbrock()), [-1.2, 1.0], callback=lambda entry, x: seen.append((entry, x))
        )
        assert tuple(entry for entry, _ in seen) == result.history
        np.testing.assert_array_equal(seen[-1][1], result.x)
        first, last = result.history[0], result.history[-1]
        assert first.evaluations == 1 + 4  # the residual, and central differences by two unknowns
        assert first.step_length == 0.0
        assert last.cost == result.cost
        assert all(entry.seconds >= 0 for entry in result.history)
        assert result.iterations == len(seen) - 1

    def test_a_callback_may_stop_it(self) -> None:
        result = gauss_newton(rosenbrock(), [-1.2, 1.0], callback=lambda entry, x: entry.evaluations > 3)
        assert result.message == "the callback asked to stop"
        assert not result.converged

    def test_a_bar_can_be_shown(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert gauss_newton(rosenbrock(), [-1.2, 1.0], progress=True).converged

    def test_a_result_prints_what_matters(self) -> None:
        assert "the residual is within" in repr(gauss_newton(rosenbrock(), [-1.2, 1.0]))


class TestTrouble:
    def test_points_that_cannot_be_simulated_are_avoided(self) -> None:
        def residual(x: Array) -> Array:
            if x[0] > 1.5:
                raise tg.SolverError("too far")
            return np.array([x[0] ** 2 - 1.0])

        result = gauss_newton(LeastSquares(residual, lambda x: np.array([[2 * x[0]]]), 1), [0.2], damping=0.0)
        assert result.converged
        assert result.x[0] == pytest.approx(1.0)

    def test_where_nothing_is_better_the_best_point_is_kept_and_the_failure_told(self) -> None:
        def residual(x: Array) -> Array:
            if x[0] != 0.0:
                raise tg.SolverError("beyond the edge")
            return np.array([1.0])

        result = gauss_newton(LeastSquares(residual, lambda x: np.ones((1, 1)), 1), [0.0])
        assert not result.converged
        assert result.x[0] == 0.0
        assert "beyond the edge" in result.message

    def test_a_missing_derivative_ends_it_with_the_best_point(self) -> None:
        def jacobian(x: Array) -> Array:
            if x[0] > 0.5:
                raise tg.NotDifferentiable("a face on a face")
            return np.ones((1, 1))

        result = gauss_newton(LeastSquares(lambda x: x**3 - 1.0, jacobian, 1), [0.0])
        assert not result.converged
        assert result.x[0] > 0.5
        assert "a face on a face" in result.message
        assert result.history[-1].gradient_norm == np.inf

    def test_nan_in_a_trial_counts_as_failure_and_nan_in_the_jacobian_ends_it(self) -> None:
        gone = LeastSquares(lambda x: np.where(x > 0.3, np.nan, x - 1.0), lambda x: np.ones((1, 1)), 1)
        result = gauss_newton(gone, [0.0])
        assert np.isfinite(result.cost)
        assert 0.0 < result.x[0] <= 0.3
        bad = gauss_newton(LeastSquares(lambda x: x - 1.0, lambda x: np.full((1, 1), np.nan), 1), [0.0])
        assert "jacobian(x)[0, 0] is not finite" in bad.message

    def test_a_start_that_fails_is_the_callers(self) -> None:
        with pytest.raises(tg.SolverError, match=r"residual\(x\)\[0\] is not finite"):
            gauss_newton(LeastSquares(lambda x: x * np.nan, lambda x: np.eye(1), 1), [1.0])


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        ({"x0": [1.0]}, tg.StateError, "x0 must have 2 entries"),
        ({"x0": [1.0, np.nan]}, tg.StateError, r"x0\[1\] is nan"),
        ({"problem": "cube"}, tg.OptionError, "expected a tangens.optimize.LeastSquares"),
        ({"max_iterations": -1}, tg.OptionError, "max_iterations=-1"),
        ({"max_iterations": 2.5}, tg.OptionError, "max_iterations=2.5"),
        ({"tolerance": np.nan}, tg.OptionError, "tolerance=nan"),
        ({"damping": -1.0}, tg.OptionError, "damping=-1.0"),
        ({"problem": LeastSquares(lambda x: np.eye(2), lambda x: np.eye(2), 2)}, tg.OptionError, "one-dimensional"),
        ({"problem": LeastSquares(lambda x: np.ones(3), lambda x: np.eye(2), 2)}, tg.OptionError, r"shape \(3, 2\)"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(arguments: dict, error: type[Exception], complaint: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(error, match=complaint):
        gauss_newton(**({"problem": rosenbrock(), "x0": [0.0, 0.0]} | arguments))


def test_bad_rates_and_steps_are_named() -> None:
    with pytest.raises(tg.OptionError, match="rate=0"):
        gradient_descent(rosenbrock(), [0.0, 0.0], rate=0)
    with pytest.raises(tg.OptionError, match="step=-1"):
        by_differences(rosenbrock(), step=-1)
