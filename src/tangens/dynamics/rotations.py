"""Rotations for compiled code: unit quaternions (wxyz) and the derivatives of exp and log on SO(3).

A rotation is perturbed on its right, in body axes: q ⊕ δ = q · exp(δ). The right Jacobian J(w) says how exp moves:
exp(w + δ) ≈ exp(w) · exp(J(w) δ); its inverse says how log moves: log(exp(w) · exp(δ)) ≈ w + J(w)⁻¹ δ.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tangens.kernels import fixed_floats, floats, inline

Array = NDArray[np.float64]

# Below this angle the closed forms lose digits to cancellation; the series there are exact to 1e-16.
_SMALL_ANGLE = 1e-2


@inline(fixed_floats(1), fixed_floats(1), floats(1))
def quat_multiply(a: Array, b: Array, out: Array) -> None:
    """Hamilton product; `out` may be neither `a` nor `b`."""
    out[0] = a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3]
    out[1] = a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2]
    out[2] = a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1]
    out[3] = a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0]


@inline
def quat_rotate(q: Array, x: Array, out: Array) -> None:
    """Out ← x turned by q."""
    tx = 2.0 * (q[2] * x[2] - q[3] * x[1])
    ty = 2.0 * (q[3] * x[0] - q[1] * x[2])
    tz = 2.0 * (q[1] * x[1] - q[2] * x[0])
    out[0] = x[0] + q[0] * tx + q[2] * tz - q[3] * ty
    out[1] = x[1] + q[0] * ty + q[3] * tx - q[1] * tz
    out[2] = x[2] + q[0] * tz + q[1] * ty - q[2] * tx


@inline(fixed_floats(1), floats(1))
def quat_exp(w: Array, out: Array) -> None:
    """Unit quaternion of the rotation vector `w`."""
    angle = math.sqrt(w[0] * w[0] + w[1] * w[1] + w[2] * w[2])
    half = 0.5 * angle
    # sin(half)/angle, by its series near zero
    scale = math.sin(half) / angle if angle > _SMALL_ANGLE else 0.5 * (1.0 - half**2 / 6.0 + half**4 / 120.0)
    out[0] = math.cos(half)
    for i in range(3):
        out[1 + i] = scale * w[i]


@inline(fixed_floats(1), floats(1))
def quat_log(q: Array, out: Array) -> None:
    """Rotation vector of the unit quaternion `q`, of length at most π."""
    sine = math.sqrt(q[1] * q[1] + q[2] * q[2] + q[3] * q[3])
    cosine = q[0]
    sign = 1.0
    if cosine < 0.0:  # q and -q are one rotation: take the short way round
        sign, cosine = -1.0, -cosine
    scale = 2.0 * sign * (math.atan2(sine, cosine) / sine if sine > 1e-12 else 1.0)
    for i in range(3):
        out[i] = scale * q[1 + i]


@inline(fixed_floats(1), floats(2))
def quat_to_matrix(q: Array, out: Array) -> None:
    """Rotation matrix that takes body axes to world axes."""
    w, x, y, z = q[0], q[1], q[2], q[3]
    out[0, 0] = 1.0 - 2.0 * (y * y + z * z)
    out[0, 1] = 2.0 * (x * y - w * z)
    out[0, 2] = 2.0 * (x * z + w * y)
    out[1, 0] = 2.0 * (x * y + w * z)
    out[1, 1] = 1.0 - 2.0 * (x * x + z * z)
    out[1, 2] = 2.0 * (y * z - w * x)
    out[2, 0] = 2.0 * (x * z - w * y)
    out[2, 1] = 2.0 * (y * z + w * x)
    out[2, 2] = 1.0 - 2.0 * (x * x + y * y)


@inline
def _linear_plus_skew(w: Array, skew: float, square: float, out: Array) -> None:
    """Out = I + skew·[w]× + square·[w]×²."""
    ww = w[0] * w[0] + w[1] * w[1] + w[2] * w[2]
    for i in range(3):
        for j in range(3):
            out[i, j] = square * w[i] * w[j]
        out[i, i] += 1.0 - square * ww
    out[0, 1] -= skew * w[2]
    out[0, 2] += skew * w[1]
    out[1, 0] += skew * w[2]
    out[1, 2] -= skew * w[0]
    out[2, 0] -= skew * w[1]
    out[2, 1] += skew * w[0]


@inline(fixed_floats(1), floats(2))
def exp_matrix(w: Array, out: Array) -> None:
    """Rotation matrix of the rotation vector `w` (Rodrigues)."""
    tt = w[0] * w[0] + w[1] * w[1] + w[2] * w[2]
    t = math.sqrt(tt)
    if t < _SMALL_ANGLE:
        a, b = 1.0 - tt / 6.0 + tt * tt / 120.0, 0.5 - tt / 24.0 + tt * tt / 720.0
    else:
        a, b = math.sin(t) / t, (1.0 - math.cos(t)) / tt
    _linear_plus_skew(w, a, b, out)


@inline(fixed_floats(1), floats(2))
def right_jacobian(w: Array, out: Array) -> None:
    """J(w) with exp(w + δ) ≈ exp(w) · exp(J δ)."""
    tt = w[0] * w[0] + w[1] * w[1] + w[2] * w[2]
    t = math.sqrt(tt)
    if t < _SMALL_ANGLE:
        a, b = 0.5 - tt / 24.0 + tt * tt / 720.0, 1.0 / 6.0 - tt / 120.0 + tt * tt / 5040.0
    else:
        a, b = (1.0 - math.cos(t)) / tt, (t - math.sin(t)) / (tt * t)
    _linear_plus_skew(w, -a, b, out)


@inline(fixed_floats(1), floats(2))
def right_jacobian_inverse(w: Array, out: Array) -> None:
    """J(w)⁻¹ with log(exp(w) · exp(δ)) ≈ w + J⁻¹ δ; not defined at a full turn."""
    tt = w[0] * w[0] + w[1] * w[1] + w[2] * w[2]
    t = math.sqrt(tt)
    if t < _SMALL_ANGLE:
        b = 1.0 / 12.0 + tt / 720.0 + tt * tt / 30240.0
    else:  # cot(t/2) written so that it stays finite at a half turn
        b = (1.0 - 0.5 * t * math.cos(0.5 * t) / math.sin(0.5 * t)) / tt
    _linear_plus_skew(w, 0.5, b, out)
