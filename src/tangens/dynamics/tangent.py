"""Configurations as a manifold, for compiled code: q ⊕ δ, its inverse, and how both move.

A perturbation δ of a configuration has nv entries: plain differences for slides, hinges and the position of a free
joint, a rotation vector in body axes for each quaternion. `tangent_jax` holds the same functions in JAX.
"""

from __future__ import annotations

import numba
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


@numba.njit(cache=True)
def push_forward_integration(quat: NDArray[np.void], dv: Array, h: float, columns: Array, out: Array) -> None:
    """Out = ∂(q ⊕ h·v)/∂v · columns, shape (nv, n), at dv = h·v; `quat` are records of QUAT."""
    nv, n = columns.shape
    for i in range(nv):
        for j in range(n):
            out[i, j] = h * columns[i, j]
    block = np.empty((3, 3))
    for n_quat in range(quat.shape[0]):
        a = quat[n_quat].v
        right_jacobian(dv[a : a + 3], block)
        for j in range(n):
            for i in range(3):
                total = 0.0
                for k in range(3):
                    total += block[i, k] * columns[a + k, j]
                out[a + i, j] = h * total


@numba.njit(cache=True)
def integrate_rows(quat: NDArray[np.void], v: Array, h: float, by_state: Array, by_u: Array) -> None:
    """The rows of q⁺ = q ⊕ h·v⁺, in by_state (3, 2, nv, nv) and by_u (2, nv, nu), from those of v⁺."""
    nv = v.shape[0]
    dv = np.empty(nv)
    for i in range(nv):
        dv[i] = h * v[i]
    for c in range(3):
        push_forward_integration(quat, dv, h, by_state[c, 1], by_state[c, 0])
    if by_u.shape[2] > 0:
        push_forward_integration(quat, dv, h, by_u[1], by_u[0])
    q_q = by_state[0, 0]
    for i in range(nv):
        q_q[i, i] += 1.0
    block = np.empty((3, 3))
    for k in range(quat.shape[0]):
        a = quat[k].v
        exp_matrix(dv[a : a + 3], block)
        for i in range(3):
            for j in range(3):
                q_q[a + i, a + j] += block[j, i] - (1.0 if i == j else 0.0)


@numba.njit(cache=True)
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
