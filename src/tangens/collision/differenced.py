"""How a contact moves with its two geoms, by differences of MuJoCo's own collision detection: the last resort.

`motion` knows contacts between faces, edges, corners and curved surfaces. Of some that MuJoCo adds to a patch it cannot
say what they are made of; these are found again with one geom moved a little, six ways. A contact that jumps or bends
there has no derivative by its bodies.
"""

from __future__ import annotations

from contextlib import nullcontext

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.collision.contact_rows import rotation_of
from tangens.collision.nearest import without_patches

Array = NDArray[np.float64]

_STEP = 1e-6  # [m, rad]
_NEAR = 1e-3  # a contact that moves further for such a step is another one [m]
_BEND = 0.1  # by which its slopes to both sides may differ: less than jumps make, more than curvature and rounding do


class DifferencedContacts:
    """Differences of the contacts of one scene."""

    def __init__(self, m: mujoco.MjModel) -> None:
        self._m, self._d = m, mujoco.MjData(m)

    def response(self, q: Array, geom: tuple[int, int], index: int, alone: bool = False) -> Array | None:
        """D (7, 6) as `contact_response` gives it, of the index-th contact of two geoms at q; None if it has none.

        A contact that is alone is where its geoms are nearest: MuJoCo's patch may have been replaced, see `nearest`.
        """
        with without_patches(self._m) if alone else nullcontext():
            return self._response(q, geom, index)

    def _response(self, q: Array, geom: tuple[int, int], index: int) -> Array | None:
        m, d = self._m, self._d
        d.qpos[:] = q
        mujoco.mj_kinematics(m, d)
        mujoco.mj_comPos(m, d)
        moving = geom[1]
        place, turn = d.geom_xpos[moving].copy(), d.geom_xmat[moving].copy().reshape(3, 3)
        here = self._find(geom, index)
        if here is None:
            return None
        p, n = here[:3], here[3:6]
        D = np.empty((7, 6))
        for k, twist in enumerate(_STEP * np.eye(6)):
            ends = []
            for sign in (1.0, -1.0):
                R = rotation_of(sign * twist[3:])
                d.geom_xpos[moving] = p + R @ (place - p) + sign * twist[:3]
                d.geom_xmat[moving] = (R @ turn).ravel()
                end = self._find(geom, index)
                if end is None or np.abs(end[:3] - p).max() > _NEAR:
                    return None
                ends.append(end)
            if np.abs(ends[0] + ends[1] - 2.0 * here).max() > _BEND * _STEP:
                return None
            change = (ends[0] - ends[1]) / (2.0 * _STEP)
            D[:3, k], D[3:6, k], D[6, k] = change[:3], np.cross(n, change[3:6]), change[6]
        return D

    def _find(self, geom: tuple[int, int], index: int) -> Array | None:
        """Position, normal and gap."""
        d = self._d
        mujoco.mj_collision(self._m, d)
        own = np.flatnonzero((d.contact.geom == geom).all(axis=1))
        if index >= len(own):
            return None
        c = own[index]
        return np.array([*d.contact.pos[c], *d.contact.frame[c, :3], d.contact.dist[c]])
