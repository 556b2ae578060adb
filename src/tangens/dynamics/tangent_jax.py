"""Configurations as a manifold, in JAX: q ⊕ δ, its inverse, and how both move.

A perturbation δ of a configuration has nv entries: plain differences for slides, hinges and the position of a
free joint, a rotation vector in body axes for each quaternion. `tangent` holds the same in compiled code.

Derivatives of every order flow through every argument, at zero rotation and identity orientation too: what
depends on an angle is a function of its square, a power series where the closed form would divide by zero.
The logarithm jumps at half a turn, where two rotation vectors name one rotation; there, the derivatives are
those of the side with w ≥ 0. A quaternion of any length but zero is read as the rotation it points at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import factorial

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tangens.dynamics.layout import JointLayout

# Series are used below this squared angle [rad²], and this squared tangent of half the angle: wide enough for
# the closed forms to keep their digits when differentiated twice, narrow enough for the series to reach 1e-17.
_SMALL_ANGLE = 0.25
_SMALL_TANGENT = 0.01

_BERNOULLI = (1 / 6, 1 / 30, 1 / 42, 1 / 30, 5 / 66, 691 / 2730, 7 / 6, 3617 / 510)  # |B₂|, |B₄|, ...
_COSINE_HALF = [(-0.25) ** k / factorial(2 * k) for k in range(8)]  # cos(x/2)
_SINE_HALF = [0.5 * (-0.25) ** k / factorial(2 * k + 1) for k in range(8)]  # sin(x/2) / x
_SINE = [(-1.0) ** k / factorial(2 * k + 1) for k in range(8)]  # sin(x) / x
_VERSINE = [(-1.0) ** k / factorial(2 * k + 2) for k in range(8)]  # (1 - cos(x)) / x²
_SINE_GAP = [(-1.0) ** k / factorial(2 * k + 3) for k in range(8)]  # (x - sin(x)) / x³
_COTANGENT_GAP = [b / factorial(2 * k + 2) for k, b in enumerate(_BERNOULLI)]  # (1 - x/2 cot(x/2)) / x²
_ARCTANGENT = [(-1.0) ** k / (2 * k + 1) for k in range(9)]  # atan(x) / x


def integrate(joints: JointLayout, q: jax.Array, dv: jax.Array) -> jax.Array:
    """Return the configuration q ⊕ dv, as MuJoCo's `mj_integratePos(q, dv, 1)`."""
    q, dv = _same_dtype(q, dv)
    moved = q[_plain(joints.euclid_q)] + dv[_plain(joints.euclid_v)]
    at_q, at_v = _blocks(joints.quat_q, 4), _blocks(joints.quat_v, 3)
    turned = jax.vmap(lambda quat, w: quat_multiply(_unit(quat), quat_exp(w)))(q[at_q], dv[at_v])
    return _arranged(joints, moved, turned)


def difference(joints: JointLayout, q1: jax.Array, q2: jax.Array) -> jax.Array:
    """Return the δ with q2 = q1 ⊕ δ, as MuJoCo's `mj_differentiatePos` with a time step of 1."""
    q1, q2 = _same_dtype(q1, q2)
    at_q, at_v = _blocks(joints.quat_q, 4), _blocks(joints.quat_v, 3)
    out = jnp.zeros(joints.nv, q1.dtype).at[_plain(joints.euclid_v)].set((q2 - q1)[_plain(joints.euclid_q)])
    return out.at[at_v].set(jax.vmap(quat_difference)(q1[at_q], q2[at_q]))


def integrate_jacobians(joints: JointLayout, q: jax.Array, dv: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return ∂(q ⊕ dv)/∂q and ∂(q ⊕ dv)/∂dv, (nv, nv) each, in the tangent spaces at q and q ⊕ dv."""
    q, dv = _same_dtype(q, dv)
    w = dv[_blocks(joints.quat_v, 3)]
    one = jnp.eye(joints.nv, dtype=dv.dtype)
    # A turn of q reaches q ⊕ dv seen from axes that have turned by dv.
    return _with_blocks(joints, one, jax.vmap(exp_matrix)(-w)), _with_blocks(joints, one, jax.vmap(right_jacobian)(w))


def difference_jacobians(joints: JointLayout, q1: jax.Array, q2: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return ∂difference(q1, q2)/∂q1 and /∂q2, (nv, nv) each, in the tangent spaces at q1 and q2."""
    w = difference(joints, q1, q2)[_blocks(joints.quat_v, 3)]
    one = jnp.eye(joints.nv, dtype=w.dtype)
    inverse = jax.vmap(right_jacobian_inverse)
    return -_with_blocks(joints, one, inverse(-w)), _with_blocks(joints, one, inverse(w))


def quat_multiply(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the product of two quaternions, wxyz."""
    u, v = a[1:], b[1:]
    return jnp.concatenate([(a[0] * b[0] - u @ v)[None], a[0] * v + b[0] * u + jnp.cross(u, v)])


def quat_difference(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the rotation vector [rad], in the axes of a, that turns a into b."""
    return quat_log(quat_multiply(a * jnp.array([1, -1, -1, -1], a.dtype), b))


def quat_exp(w: jax.Array) -> jax.Array:
    """Return the unit quaternion of the rotation vector w [rad]."""
    cosine = _of_square(w @ w, _COSINE_HALF, lambda x: jnp.cos(x / 2))
    sine = _of_square(w @ w, _SINE_HALF, lambda x: jnp.sin(x / 2) / x)
    return jnp.concatenate([cosine[None], sine * w])


def quat_log(quat: jax.Array) -> jax.Array:
    """Return the rotation vector [rad], at most half a turn long, of a quaternion of any length but zero."""
    quat = jnp.where(quat[0] < 0, -quat, quat)  # both are the same rotation: go the short way round
    w, u = quat[0], quat[1:]
    is_small = u @ u < _SMALL_TANGENT * w * w
    near = jnp.where(is_small, w, 1)
    tangent2 = jnp.where(is_small, u @ u, 0) / near**2
    far = jnp.sqrt(jnp.where(is_small, 1, u @ u))
    half_angle = jnp.where(is_small, _series(_ARCTANGENT, tangent2) / near, jnp.arctan2(far, w) / far)
    return 2 * half_angle * u


def exp_matrix(w: jax.Array) -> jax.Array:
    """Return the rotation matrix of the rotation vector w [rad]."""
    sine = _of_square(w @ w, _SINE, lambda x: jnp.sin(x) / x)
    versine = _of_square(w @ w, _VERSINE, lambda x: (1 - jnp.cos(x)) / x**2)
    return _skew_polynomial(w, sine, versine)


def right_jacobian(w: jax.Array) -> jax.Array:
    """Return J(w), how exp turns in body axes as w changes: exp(w + δ) ≈ exp(w) exp(J δ)."""
    versine = _of_square(w @ w, _VERSINE, lambda x: (1 - jnp.cos(x)) / x**2)
    sine_gap = _of_square(w @ w, _SINE_GAP, lambda x: (x - jnp.sin(x)) / x**3)
    return _skew_polynomial(w, -versine, sine_gap)


def right_jacobian_inverse(w: jax.Array) -> jax.Array:
    """Return the inverse of `right_jacobian`, short of a whole turn: log(exp(w) exp(δ)) ≈ w + J⁻¹ δ."""
    gap = _of_square(w @ w, _COTANGENT_GAP, lambda x: (1 - x / 2 / jnp.tan(x / 2)) / x**2)
    return _skew_polynomial(w, 0.5, gap)


def _skew_polynomial(w: jax.Array, linear: jax.Array | float, square: jax.Array) -> jax.Array:
    """Return 1 + linear·W + square·W², where W x = w × x."""
    one = jnp.eye(3, dtype=w.dtype)
    W = jnp.cross(one, w)
    return one + linear * W + square * W @ W


def _of_square(t: jax.Array, series: Sequence[float], closed: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """Evaluate a smooth function of t = x² by a power series in t near zero, a closed form in x elsewhere.

    Each branch sees only arguments that suit it, for JAX differentiates the one that is not taken as well.
    """
    is_small = t < _SMALL_ANGLE
    near, far = jnp.where(is_small, t, 0), jnp.sqrt(jnp.where(is_small, 1, t))
    return jnp.where(is_small, _series(series, near), closed(far))


def _series(coefficients: Sequence[float], t: jax.Array) -> jax.Array:
    """Return coefficients[0] + coefficients[1]·t + ... by Horner's rule."""
    total = jnp.zeros_like(t)
    for c in reversed(coefficients):
        total = total * t + c
    return total


def normalised(joints: JointLayout, q: jax.Array) -> jax.Array:
    """Return the configuration with quaternions of unit length."""
    return _arranged(joints, q[_plain(joints.euclid_q)], jax.vmap(_unit)(q[_blocks(joints.quat_q, 4)]))


def _arranged(joints: JointLayout, euclid: jax.Array, quaternions: jax.Array) -> jax.Array:
    """Return the configuration of these parts: a gather, where a scatter would take longer."""
    where = np.argsort(np.concatenate([_plain(joints.euclid_q), _blocks(joints.quat_q, 4).ravel()]))
    return jnp.concatenate([euclid, quaternions.ravel()])[where]


def _unit(quat: jax.Array) -> jax.Array:
    return quat / jnp.sqrt(quat @ quat)


def _same_dtype(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    dtype = jnp.result_type(a, b, jnp.float32)
    return jnp.asarray(a, dtype), jnp.asarray(b, dtype)


def _plain(addresses: tuple[int, ...]) -> NDArray[np.intp]:
    return np.array(addresses, dtype=np.intp)


def _blocks(addresses: tuple[int, ...], width: int) -> NDArray[np.intp]:
    """Return the indices of the blocks that start at these addresses, (n, width)."""
    return _plain(addresses)[:, None] + np.arange(width)


def _with_blocks(joints: JointLayout, matrix: jax.Array, blocks: jax.Array) -> jax.Array:
    """Return the matrix with one 3x3 diagonal block replaced for each quaternion."""
    at = _blocks(joints.quat_v, 3)
    return matrix.at[at[:, :, None], at[:, None, :]].set(blocks)
