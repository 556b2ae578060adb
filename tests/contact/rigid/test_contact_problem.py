"""The contact problem and its solvers, without a robot: problems are built backwards from a solution that is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tangens.contact.rigid.problem.contact_problem import (
    BLOCK,
    BOX,
    BREAKING,
    CONTACT,
    DRY,
    EQUALITY,
    LIMIT,
    SLIDING,
    STICKING,
    project_on_cone,
    residual,
    violations,
)
from tangens.contact.rigid.solvers.solve import SOLVERS, set_scales, solve

Array = NDArray[np.float64]

numbers = st.floats(-10, 10, allow_nan=False)
frictions = st.floats(0.01, 2.0)


def projected(kind: int, bound: float, x: Array) -> Array:
    out = x.copy()
    project_on_cone(kind, bound, out)
    return out


class TestProjection:
    @given(st.tuples(numbers, numbers, numbers), frictions)
    def test_lands_in_the_cone_stays_there_and_leaves_along_its_polar(
        self, x: tuple[float, float, float], mu: float
    ) -> None:
        point = np.array(x)
        p = projected(CONTACT, mu, point)
        slack = 1e-9 * (1 + np.abs(point).max())
        assert p[0] >= 0
        assert math.hypot(p[1], p[2]) <= mu * p[0] + slack
        np.testing.assert_allclose(projected(CONTACT, mu, p), p, atol=slack)
        apart = p - point  # Moreau: orthogonal to the projection, and in the dual cone
        assert abs(apart @ p) <= slack * (1 + np.abs(point).max())
        assert mu * math.hypot(apart[1], apart[2]) <= apart[0] + slack * (1 + mu)

    @given(numbers, st.floats(0, 5))
    def test_of_dry_friction_clips(self, x: float, bound: float) -> None:
        assert projected(DRY, bound, np.array([x]))[0] == np.clip(x, -bound, bound)


class Problem:
    """A random problem with one block of each kind, whose solution has the modes that were asked for."""

    def __init__(self, seed: int, contact_kind: int, redundant: bool = False) -> None:
        rng = np.random.default_rng(seed)
        modes = [STICKING, SLIDING, BREAKING, STICKING, BREAKING, STICKING, SLIDING, STICKING]
        kinds = [contact_kind] * 3 + [LIMIT, LIMIT, DRY, DRY, EQUALITY]
        widths = [3, 3, 3, 1, 1, 1, 1, 2]
        self.blocks: NDArray[np.void] = np.zeros(len(kinds), dtype=BLOCK)
        n = sum(widths)
        self.impulse, self.sigma = np.zeros(n), np.zeros(n)
        start = 0
        for block, kind, mode, width in zip(self.blocks, kinds, modes, widths, strict=True):
            block["kind"], block["start"], block["width"], block["mode"] = kind, start, width, mode
            block["bound"] = 0.6 if kind in (CONTACT, BOX) else 0.5
            rows = slice(start, start + width)
            self.impulse[rows], self.sigma[rows] = self._solution(kind, mode, width, block["bound"], rng)
            start += width
        rank = n - 3 if redundant else n + 2
        J = rng.normal(size=(n, rank))
        self.G = J @ J.T
        self.g = self.sigma - self.G @ self.impulse

    @staticmethod
    def _solution(kind: int, mode: int, width: int, bound: float, rng: Any) -> tuple[Array, Array]:
        """Impulse and velocity of a block in its mode."""
        impulse, sigma = np.zeros(width), np.zeros(width)
        if kind in (CONTACT, BOX) and mode != BREAKING:
            impulse[0] = rng.uniform(0.5, 2)
            slip = rng.normal(size=2)
            if mode == STICKING:
                impulse[1:] = 0.5 * bound * impulse[0] * slip / np.abs(slip).sum()
            else:
                sigma[1:] = slip
                against = slip / np.linalg.norm(slip) if kind == CONTACT else np.sign(slip)
                impulse[1:] = -bound * impulse[0] * against
        elif kind == EQUALITY:
            impulse[:] = rng.normal(size=width)
        elif kind == DRY:
            sigma[0] = rng.normal() if mode == SLIDING else 0.0
            impulse[0] = -bound * np.sign(sigma[0]) if mode == SLIDING else rng.uniform(-0.9, 0.9) * bound
        elif mode == BREAKING:
            sigma[0] = rng.uniform(0.1, 1)
            sigma[1:] = rng.normal(size=width - 1)
        else:
            impulse[0] = rng.uniform(0.5, 2)
        return impulse, sigma


@pytest.mark.parametrize("kind", [CONTACT, BOX])
@pytest.mark.parametrize("seed", range(5))
def test_the_judge_finds_nothing_wrong_with_a_solution_and_something_with_its_neighbours(kind: int, seed: int) -> None:
    problem = Problem(seed, kind)
    set_scales(problem.G, problem.blocks)
    assert residual(problem.blocks, problem.impulse, problem.sigma) < 1e-12
    np.testing.assert_allclose(violations(problem.blocks, problem.impulse, problem.sigma), 0.0, atol=1e-12)
    rng = np.random.default_rng(seed)
    moved = problem.impulse + 1e-3 * rng.normal(size=len(problem.g))
    assert residual(problem.blocks, moved, problem.G @ moved + problem.g) > 1e-5


@pytest.mark.parametrize(("solver", "kind"), [("newton", CONTACT), ("admm", CONTACT), ("pivoting", BOX)])
@pytest.mark.parametrize("redundant", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_solvers_find_velocities_that_obey_the_laws(solver: str, kind: int, redundant: bool, seed: int) -> None:
    """From nothing. Where rows depend on each other, impulses are not unique, and velocities are."""
    problem = Problem(seed, kind, redundant)
    blocks, n = problem.blocks.copy(), len(problem.g)
    impulse, sigma = np.zeros(n), np.zeros(n)
    _, error, _ = solve(problem.G, problem.g, blocks, impulse, sigma, 20_000, 1e-10, SOLVERS.index(solver))
    assert error <= 1e-10
    np.testing.assert_allclose(sigma, problem.G @ impulse + problem.g, atol=1e-9)
    assert residual(blocks, impulse, sigma) <= 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_from_the_solution_newton_takes_no_iteration_and_names_the_modes(seed: int) -> None:
    problem = Problem(seed, CONTACT)
    blocks, n = problem.blocks.copy(), len(problem.g)
    blocks["mode"] = -1
    impulse, sigma = problem.impulse.copy(), np.zeros(n)
    iterations, _, _ = solve(problem.G, problem.g, blocks, impulse, sigma, 100, 1e-10, SOLVERS.index("newton"))
    assert iterations == 0
    np.testing.assert_array_equal(blocks["mode"], problem.blocks["mode"])
