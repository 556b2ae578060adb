"""Boxed complementarity problems: solved exactly where they have a solution, answered and flagged where not."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tangens.contact.rigid.problem.contact_problem import BLOCK, BOX, DRY, EQUALITY, LIMIT
from tangens.contact.rigid.solvers.methods import FALLBACK, GUESS, METHODS, PIVOTING
from tangens.contact.rigid.solvers.pivoting import solve_boxes
from tangens.contact.rigid.solvers.solve import set_scales

Array = NDArray[np.float64]
Records = NDArray[np.void]


def blocks_of(kinds: list[int], bound: float) -> tuple[Records, int]:
    blocks = np.zeros(len(kinds), dtype=BLOCK)
    start = 0
    for block, kind in zip(blocks, kinds, strict=True):
        block["kind"], block["start"], block["width"], block["bound"] = kind, start, 3 if kind == BOX else 1, bound
        start += int(block["width"])
    return blocks, start


def solved(G: Array, g: Array, blocks: Records, guess: Array | None = None) -> tuple[Array, Array, float, int]:
    impulse, sigma = np.zeros(len(g)) if guess is None else guess.copy(), np.zeros(len(g))
    set_scales(G, blocks)
    _, error, method = solve_boxes(G, g, blocks, impulse, sigma, 2000, 1e-9)
    np.testing.assert_allclose(sigma, G @ impulse + g, atol=1e-9)
    return impulse, sigma, error, method


@settings(max_examples=60, deadline=None)
@given(
    kinds=st.lists(st.sampled_from([BOX, BOX, LIMIT, DRY, EQUALITY]), min_size=1, max_size=6),
    friction=st.floats(0.0, 0.7), seed=st.integers(0, 10_000),
)  # fmt: skip
def test_independent_rows_have_an_exact_answer(kinds: list[int], friction: float, seed: int) -> None:
    blocks, n = blocks_of(kinds, friction)
    rng = np.random.default_rng(seed)
    J = rng.normal(size=(n, n + 6))
    G, g = J @ J.T, rng.normal(size=n)
    x, v, error, method = solved(G, g, blocks)
    assert error <= 1e-9, METHODS[method]
    for block in blocks:
        a, kind = int(block["start"]), int(block["kind"])
        if kind == EQUALITY:
            assert abs(v[a]) < 1e-9
        elif kind == DRY:
            _check_between(x[a], v[a], friction)
        else:
            assert x[a] >= -1e-9
            assert v[a] >= -1e-8
            assert abs(x[a] * v[a]) < 1e-7
            for i in range(a + 1, a + int(block["width"])):
                _check_between(x[i], v[i], friction * x[a])


def _check_between(impulse: float, velocity: float, bound: float) -> None:
    """Inside its bounds a row is still; at one of them it moves the other way, if at all."""
    assert abs(impulse) <= bound + 1e-9
    if impulse < bound - 1e-6:
        assert velocity > -1e-6
    if impulse > -bound + 1e-6:
        assert velocity < 1e-6


def test_the_answer_is_its_own_guess() -> None:
    blocks, n = blocks_of([BOX] * 4, 0.5)
    rng = np.random.default_rng(0)
    J = rng.normal(size=(n, 20))
    g = J @ rng.normal(size=20) - 3.0
    first = solved(J @ J.T, g, blocks)
    again = solved(J @ J.T, g, blocks, first[0])
    assert (first[3], again[3]) == (PIVOTING, GUESS)
    np.testing.assert_allclose(again[0], first[0], atol=1e-9)


def test_redundant_rows_share_the_load() -> None:
    """Two contacts that do the same (paper 5, Appendix B): of all answers, the smallest."""
    blocks, _ = blocks_of([LIMIT, LIMIT], 0.0)
    impulse, _, error, _ = solved(np.ones((2, 2)), np.array([-1.0, -1.0]), blocks)
    assert error <= 1e-9
    np.testing.assert_allclose(impulse, 0.5, atol=1e-12)


def test_a_problem_without_solution_is_answered_and_flagged() -> None:
    """Two rows that do opposite things and must both be undone."""
    blocks, _ = blocks_of([LIMIT, LIMIT], 0.0)
    impulse, _, error, method = solved(np.array([[1.0, -1.0], [-1.0, 1.0]]), np.array([-1.0, -1.0]), blocks)
    assert method == FALLBACK
    assert error > 0.1
    assert np.isfinite(impulse).all()


def test_rest_is_no_impulse() -> None:
    blocks, n = blocks_of([BOX, LIMIT, DRY], 0.3)
    impulse, _, error, method = solved(np.eye(n), np.array([1.0, 0.0, 0.0, 2.0, 0.0]), blocks)
    assert error == 0.0
    assert method in (GUESS, PIVOTING)
    np.testing.assert_array_equal(impulse, 0.0)
