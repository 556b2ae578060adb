"""Configurations as a manifold, for compiled code: q ⊕ δ, its inverse, and how both move.

A perturbation δ of a configuration has nv entries: plain differences for slides, hinges and the position of a free
joint, a rotation vector in body axes for each quaternion. `tangent_jax` holds the same functions in JAX.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tangens.dynamics.layout import JointLayout
from tangens.dynamics.rotations import (
    exp_matrix,
    quat_exp,
    quat_log,
    quat_multiply,
    right_jacobian,
    right_jacobian_inverse,
)
from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]


def integrate(joints: JointLayout, q: Array, dv: Array) -> Array:
    """The configuration q ⊕ dv, as MuJoCo's `mj_integratePos(q, dv, 1)`."""
    out = np.array(q, dtype=np.float64)
    out[list(joints.euclid_q)] += np.asarray(dv, dtype=np.float64)[list(joints.euclid_v)]
    turn, product = np.empty(4), np.empty(4)
    for iq, iv in zip(joints.quat_q, joints.quat_v, strict=True):
        quat_exp(np.ascontiguousarray(dv[iv : iv + 3], dtype=np.float64), turn)
        quat_multiply(out[iq : iq + 4], turn, product)
        out[iq : iq + 4] = product / np.linalg.norm(product)
    return out


def difference(joints: JointLayout, q1: Array, q2: Array) -> Array:
    """The perturbation δ that takes q1 to q2: q2 = q1 ⊕ δ."""
    q1, q2 = np.asarray(q1, dtype=np.float64), np.asarray(q2, dtype=np.float64)
    out = np.zeros(joints.nv)
    out[list(joints.euclid_v)] = (q2 - q1)[list(joints.euclid_q)]
    relative, conjugate = np.empty(4), np.array([1.0, -1.0, -1.0, -1.0])
    for iq, iv in zip(joints.quat_q, joints.quat_v, strict=True):
        quat_multiply(conjugate * q1[iq : iq + 4], q2[iq : iq + 4].copy(), relative)
        quat_log(relative, out[iv : iv + 3])
    return out


def integrate_jacobians(joints: JointLayout, q: Array, dv: Array) -> tuple[Array, Array]:
    """∂(q ⊕ dv)/∂q and ∂(q ⊕ dv)/∂dv, both in the tangent space; they do not depend on q."""
    del q
    by_q, by_dv = np.eye(joints.nv), np.eye(joints.nv)
    block = np.empty((3, 3))
    for iv in joints.quat_v:
        w = np.ascontiguousarray(dv[iv : iv + 3], dtype=np.float64)
        exp_matrix(w, block)
        by_q[iv : iv + 3, iv : iv + 3] = block.T
        right_jacobian(w, block)
        by_dv[iv : iv + 3, iv : iv + 3] = block
    return by_q, by_dv


def difference_jacobians(joints: JointLayout, q1: Array, q2: Array) -> tuple[Array, Array]:
    """∂difference(q1, q2)/∂q1 and /∂q2, in the tangent spaces at q1 and q2."""
    delta = difference(joints, q1, q2)
    by_q1, by_q2 = -np.eye(joints.nv), np.eye(joints.nv)
    block = np.empty((3, 3))
    for iv in joints.quat_v:
        right_jacobian_inverse(delta[iv : iv + 3], block)
        by_q2[iv : iv + 3, iv : iv + 3] = block
        # the left Jacobian is the right one of the opposite rotation
        right_jacobian_inverse(-delta[iv : iv + 3], block)
        by_q1[iv : iv + 3, iv : iv + 3] = -block
    return by_q1, by_q2


@subroutine
def integrate_rows(quat: NDArray[np.void], v: Array, h: float, by_state: Array, by_u: Array) -> None:
    """The rows of q⁺ = q ⊕ h·v⁺, in by_state (3, 2, nv, nv) and by_u (2, nv, nu), from those of v⁺.

    `quat` are records of QUAT.
    """
    nv = v.shape[0]
    for c in range(3):
        for i in range(nv):
            for j in range(nv):
                by_state[c, 0, i, j] = h * by_state[c, 1, i, j]
    for i in range(nv):
        by_state[0, 0, i, i] += 1.0
        for j in range(by_u.shape[2]):
            by_u[0, i, j] = h * by_u[1, i, j]
    if quat.shape[0] == 0:
        return
    turn, slope, dv = np.empty((3, 3)), np.empty((3, 3)), np.empty(3)
    for k in range(quat.shape[0]):
        a = quat[k].v
        for i in range(3):
            dv[i] = h * v[a + i]
        right_jacobian(dv, slope)
        for c in range(3):
            _turn_rows(slope, h, by_state[c, 1, a : a + 3], by_state[c, 0, a : a + 3])
        _turn_rows(slope, h, by_u[1, a : a + 3], by_u[0, a : a + 3])
        exp_matrix(dv, turn)
        for i in range(3):
            for j in range(3):
                by_state[0, 0, a + i, a + j] += turn[j, i]  # ∂q⁺/∂q is the inverse turn


@inline
def _turn_rows(slope: Array, h: float, rows: Array, out: Array) -> None:
    """Out ← h·slope·rows, shapes (3, n)."""
    for j in range(rows.shape[1]):
        x, y, z = h * rows[0, j], h * rows[1, j], h * rows[2, j]
        for i in range(3):
            out[i, j] = slope[i, 0] * x + slope[i, 1] * y + slope[i, 2] * z


@subroutine
def pull_back_integration(quat: NDArray[np.void], v: Array, h: float, dq: Array, to_v: Array, to_q: Array) -> None:
    """Through q⁺ = q ⊕ h·v⁺: add ∂L/∂v⁺ to `to_v`; `to_q`, which holds dq, becomes ∂L/∂q."""
    for i in range(v.shape[0]):
        to_v[i] += h * dq[i]
    block, dv = np.empty((3, 3)), np.empty(3)
    for k in range(quat.shape[0]):
        a = quat[k].v
        for i in range(3):
            dv[i] = h * v[a + i]
        right_jacobian(dv, block)
        for j in range(3):
            to_v[a + j] -= h * dq[a + j]
            for i in range(3):
                to_v[a + j] += h * block[i, j] * dq[a + i]
        exp_matrix(dv, block)
        for j in range(3):
            to_q[a + j] = 0.0
            for i in range(3):
                to_q[a + j] += block[j, i] * dq[a + i]  # ∂q⁺/∂q is the inverse turn
