"""The closest problem that can be solved, where overlaps or errors cannot be undone within the step.

Each row asks for a velocity: J·v + target ≥ 0, or = 0 for an equality. Where bodies are held so that no velocity v does
what all rows ask for, those that ask for something (target < 0, or an equality's error) are relieved by as little as
possible:

    minimise ½·|s|²   so that   J·v + target + s ≥ 0 for those that ask,   J·v + target ≥ 0 for the others

The others never give way: nothing is pushed into what it only touches. The relief s depends on the rows and targets
alone, neither on masses nor on forces. It is unique, continuous, and zero where there is nothing to relieve.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

_STIFF = 1e-4  # how little rows that ask for nothing give way, before the last digits are found
_STILL = 1e-5  # weight of v, which keeps the problem strictly convex
_HOLDS = 1e-9  # a multiplier this small, relative to the largest, is none


class Relief(NamedTuple):
    """The relief of each row, with what its derivative needs."""

    s: Array
    """What is added to targets [m/s, rad/s]; zero for rows that ask for nothing."""
    v: Array
    """A velocity that does what is left."""
    multiplier: Array
    """s of rows that ask; of the others, how hard they hold."""
    asks: Flags
    """Rows that are relieved."""
    holds: Flags
    """Rows that ask for nothing and hold the others."""
    asked: float
    """The largest velocity that was asked for [m/s, rad/s]."""


def relieve(J: Array, target: Array, equality: Flags) -> Relief:
    """The least relief of rows J (n, nv) with their targets."""
    wants = equality | (target < 0.0)
    weight = np.where(wants, 1.0, _STIFF)
    A = np.vstack([J.T / _STILL, np.diag(weight)])
    b = np.concatenate([np.zeros(J.shape[1]), -target / weight])
    lower = np.where(equality, -np.inf, 0.0)
    y = np.asarray(lsq_linear(A, b, bounds=(lower, np.inf), method="bvls", tol=1e-15).x, dtype=np.float64)
    pushes = np.abs(y) > _HOLDS * np.abs(y).max(initial=1e-300)
    asks, holds = wants & (pushes | equality), ~wants & pushes
    s, v, multiplier = (part[:, 0] for part in solve_rows(J, asks, holds, -target[:, None], np.zeros((J.shape[1], 1))))
    return Relief(s, v, multiplier, asks, holds, float(np.abs(target[wants]).max(initial=0.0)))


def solve_rows(J: Array, asks: Flags, holds: Flags, right: Array, force: Array) -> tuple[Array, Array, Array]:
    """s, v and multipliers of J·v + s = right (without s where rows hold), Jᵀ·multiplier = force, for many columns."""
    n, nv = J.shape
    a, b = int(asks.sum()), int(holds.sum())
    K = np.zeros((a + b + nv, a + nv + b))
    K[:a, :a], K[:a, a : a + nv], K[a : a + b, a : a + nv] = np.eye(a), J[asks], J[holds]
    K[a + b :, :a], K[a + b :, a + nv :] = J[asks].T, J[holds].T
    x = np.linalg.lstsq(K, np.vstack([right[asks], right[holds], force]), rcond=1e-11)[0]
    s, multiplier = np.zeros((n, right.shape[1])), np.zeros((n, right.shape[1]))
    s[asks] = multiplier[asks] = x[:a]
    multiplier[holds] = x[a + nv :]
    return s, x[a : a + nv], multiplier
