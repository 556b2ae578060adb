"""The mass matrix factored along the tree, against dense linear algebra, on random trees."""

from __future__ import annotations

from typing import NamedTuple

import mujoco
import numpy as np
import pytest

from tangens.dynamics import tree_solve
from tangens.dynamics.kinematic_tree import pack_tree, unpack_tree


class Factored(NamedTuple):
    """M + diag(extra), dense and in factors."""

    dense: np.ndarray
    stored: np.ndarray  # where MuJoCo's M has entries, in the lower triangle
    L: np.ndarray  # dense
    D: np.ndarray
    arguments: tuple[np.ndarray, ...]  # dofs, column, L in M's layout
    inverse_d: np.ndarray


@pytest.fixture
def factored(random_tree: tuple[mujoco.MjModel, mujoco.MjData]) -> Factored:
    m, d = random_tree
    dofs, _, column = unpack_tree(pack_tree(m, np.zeros((m.nv, 3))))
    extra = np.random.default_rng(0).uniform(0, 0.1, m.nv)
    dense, L, inverse_d = np.zeros((m.nv, m.nv)), np.zeros(len(d.M)), np.zeros(m.nv)
    mujoco.mj_fullM(m, d, dense)
    tree_solve.factor(dofs, column, d.M, extra, L, inverse_d)
    unit, stored = np.eye(m.nv), np.eye(m.nv, dtype=bool)
    for k in range(m.nv):
        off_diagonal = slice(m.M_rowadr[k], m.M_rowadr[k] + m.M_rownnz[k] - 1)
        unit[k, column[off_diagonal]] = L[off_diagonal]
        stored[k, column[off_diagonal]] = True
    return Factored(dense + np.diag(extra), stored, unit, 1 / inverse_d, (dofs, column, L), inverse_d)


def vector(f: Factored) -> np.ndarray:
    return np.random.default_rng(1).normal(size=len(f.D))


def assert_close(ours: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-11 * np.abs(expected).max())


def test_the_factors_multiply_to_the_mass_matrix(factored: Factored) -> None:
    assert_close(factored.L.T @ np.diag(factored.D) @ factored.L, factored.dense)
    assert (factored.D > 0).all()


def test_solve(factored: Factored) -> None:
    x = vector(factored)
    expected = np.linalg.solve(factored.dense, x)
    tree_solve.solve(*factored.arguments, factored.inverse_d, x)
    assert_close(x, expected)


def test_half_solve_and_the_other_half(factored: Factored) -> None:
    x = vector(factored)
    half = np.linalg.solve(factored.L.T, x)
    tree_solve.half_solve(*factored.arguments, x)
    assert_close(x, half)
    tree_solve.other_half(*factored.arguments, factored.inverse_d, x)
    assert_close(x, np.linalg.solve(factored.L, half / factored.D))


def test_half_solve_of_columns_gives_the_delassus_matrix(factored: Factored) -> None:
    """X = D^(−1/2)·L⁻ᵀ·Jᵀ has Xᵀ·X = J·M⁻¹·Jᵀ."""
    J = np.stack([vector(factored), vector(factored) ** 2, np.ones(len(factored.D))])
    columns = J.T.copy()
    tree_solve.half_solve_columns(*factored.arguments, factored.inverse_d, columns)
    assert_close(columns.T @ columns, J @ np.linalg.solve(factored.dense, J.T))


def test_square_root(factored: Factored) -> None:
    W = np.full_like(factored.dense, np.nan)
    tree_solve.square_root(*factored.arguments, factored.inverse_d, W)
    assert_close(W @ W.T, np.linalg.inv(factored.dense))
    assert_close(W, np.linalg.solve(factored.L, np.diag(np.sqrt(factored.inverse_d))))
    assert not W[~factored.stored].any()  # no fill-in
