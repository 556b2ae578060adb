"""The motion of a contact, averaged over random poses near its own (paper 2, randomised smoothing).

At a vertex, on an edge or a face the derivative is blind to what happens once another feature touches: a box that
rolls over its edge. The mean contact under Gaussian changes ξ of the relative pose is smooth, and its derivative is
E[c(x + σξ)·ξᵀ]/σ. Differences of opposite samples remove the even part of its variance, and fitting them by least
squares removes what is left where the contact moves linearly: then 6 samples give the exact derivative. Where it moves
smoothly, the third order is left: an error of O(σ²).

A sample divides the error of its contact by σ, so all are refined (`accuracy.py`).
"""

from __future__ import annotations

import copy
import math

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.collision.accuracy import refine_contact, set_accuracy
from tangens.collision.contact_rows import GEOM, geom_records, rotation_of
from tangens.collision.shapes import BOX, CAPSULE, CYLINDER, ELLIPSOID, MESH, PLANE, SPHERE, Hulls, hull_tables
from tangens.kernels import floats, ints, kernel, named, number, records

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Records = NDArray[np.void]

_LEAST = 6
_KNOWN = (PLANE, SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX, MESH)


class RandomizedContacts:
    """Smoothed derivatives of the contacts between convex geoms of a model, at the sizes they now have.

    `scale` σ is the deviation of the relative pose, in m and in rad; `samples` come in opposite pairs.
    """

    def __init__(self, model: mujoco.MjModel, samples: int = 32, scale: float = 1e-2, seed: int = 0) -> None:
        if samples < _LEAST:
            raise ValueError(f"samples must be at least {_LEAST}, got {samples}")
        if not scale > 0.0:
            raise ValueError(f"scale must be positive, got {scale}")
        self.scale = scale
        self._draws = np.random.default_rng(seed).normal(size=(samples, 6))
        self._m = copy.copy(model)
        set_accuracy(self._m)
        self._d = mujoco.MjData(self._m)
        self._geoms = geom_records(self._m, np.zeros(self._m.ngeom)).view(GEOM)
        self._hulls = hull_tables(self._m)

    def response(
        self, geom: tuple[int, int], xpos: Array, xmat: Array, p: Array, frame: Array
    ) -> Array | None:  # fmt: skip
        """D (6, 6) as `contact_response` gives it, smoothed; None if one of the shapes is not convex.

        xpos (2, 3) and xmat (2, 9) are the poses of the two geoms. Of a patch, the deepest point counts.
        """
        if any(self._m.geom_type[g] not in _KNOWN for g in geom):
            return None
        pair, n = np.array(geom, dtype=np.int64), np.array(frame[:3])
        # Seen from p: the normal is a difference of points over their gap, so they had better be small numbers.
        self._d.geom_xpos[geom[0]], self._d.geom_xmat[geom[0]] = xpos[0] - p, xmat[0]
        arm, R = xpos[1] - p, np.reshape(xmat[1], (3, 3))
        change = np.empty((len(self._draws), 6))
        for k, twist in enumerate(self.scale * self._draws):
            change[k] = self._contact(pair, arm, R, n, twist) - self._contact(pair, arm, R, n, -twist)
        change /= 2.0 * self.scale
        change[:, 3:] = np.cross(n, change[:, 3:])
        return np.asarray(np.linalg.lstsq(self._draws, change, rcond=None)[0].T, dtype=np.float64)

    def _contact(self, geom: IntArray, arm: Array, R: Array, n: Array, twist: Array) -> Array:
        """Point half way between the surfaces and normal, after geom 1 moved by the twist about p."""
        d, ends, out = self._d, np.zeros(6), np.empty(6)
        turn = rotation_of(twist[3:])
        d.geom_xpos[geom[1]], d.geom_xmat[geom[1]] = turn @ arm + twist[:3], (turn @ R).ravel()
        gap = mujoco.mj_geomDistance(self._m, d, geom[0], geom[1], mujoco.mjMAXVAL, ends)
        _refine(self._geoms, self._hulls, geom, d.geom_xpos, d.geom_xmat, ends, gap, n, out)
        return out


@kernel(
    records(GEOM),
    named(Hulls, floats(2), ints(1), floats(2)),
    ints(1),
    floats(2),
    floats(2),
    floats(1),
    number,
    floats(1),
    floats(1),
)
def _refine(
    geoms: Records, hulls: Hulls, geom: IntArray, xpos: Array, xmat: Array, ends: Array, gap: float, n: Array,
    out: Array,
) -> None:  # fmt: skip
    """Fill `out` with the point and the normal of the contact between two `ends`; n if they coincide."""
    frame = np.empty(9)
    length = 0.0
    for i in range(3):
        out[i] = 0.5 * (ends[i] + ends[3 + i])
        frame[i] = math.copysign(1.0, gap) * (ends[3 + i] - ends[i])
        length += frame[i] ** 2
    length = math.sqrt(length)
    for i in range(3):
        frame[i] = frame[i] / length if length > 0.0 else n[i]
    # tangents: across the least entry of the normal, and across both
    k = int(np.argmin(np.abs(frame[:3])))
    i, j = (k + 1) % 3, (k + 2) % 3
    slope = math.sqrt(frame[i] ** 2 + frame[j] ** 2)
    frame[3 + k], frame[3 + i], frame[3 + j] = 0.0, frame[j] / slope, -frame[i] / slope
    frame[6:] = np.cross(frame[:3], frame[3:6])
    refine_contact(geoms, hulls, geom, xpos, xmat, out[:3], frame, gap)
    out[3:] = frame[:3]
