"""Fingers that let go: paths through free space while the object rests, and places near it to go to.

A transfer has three legs. The fingers *retract* until all of them are clear of everything, *move*, straight or
around what is in the way, and *approach* the new grasp as they would retract from it, backwards. Distances are those
of MuJoCo.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.errors import OptionError
from tangens.scene import Scene

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_DIRECTIONS = 64  # ways to retract that are tried
_SUBGOALS = 500  # of the random trees
_SHORTCUTS = 30


class Transfer:
    """Finds paths of some coordinates of q along which nothing comes closer than `clearance` [m].

    Args:
        scene: what is there.
        fingers: addresses in q of the coordinates that move; all others rest.
        lower: least values of these.
        upper: largest values.
        clearance: least distance while moving; retracting and approaching lead to and from it.
        stride: longest step of a path.

    """

    def __init__(
        self, scene: Scene, fingers: Indices, lower: Array, upper: Array, *, clearance: float, stride: float
    ) -> None:
        m = scene.model
        m.geom_gap[:] = clearance  # every contact nearer than the clearance is found
        m.geom_margin[:] = 0.0
        self._m, self._d = m, mujoco.MjData(m)
        self._fingers, self._lower, self._upper, self._clearance = fingers, lower, upper, clearance
        self._stride = stride
        self._moving = _carried(m, fingers)

    def path(self, q: Array, grasp: Array, rng: np.random.Generator) -> Array | None:
        """Waypoints of the fingers from where they are in q to `grasp`, shape (k, nu), or None if none was found."""
        away, back = self.retracted(q, q[self._fingers], rng), self.retracted(q, grasp, rng)
        if away is None or back is None:
            return None
        move = self._move(q, away, back, rng)
        return None if move is None else self._finely([q[self._fingers], *move, grasp])

    def _move(self, q: Array, a: Array, b: Array, rng: np.random.Generator) -> list[Array] | None:
        """Corners of a free way from a to b: straight, or where two random trees meet (RRT-Connect), made shorter."""
        if self._free(q, a, b):
            return [a, b]
        trees = [[(a, -1)], [(b, -1)]]
        for attempt in range(_SUBGOALS):
            one, two = attempt % 2, (attempt + 1) % 2
            if self._grow(q, trees[one], rng.uniform(self._lower, self._upper), self._stride):
                new = trees[one][-1][0]
                if self._grow(q, trees[two], new, np.inf):
                    way = _back(trees[0])[::-1] + _back(trees[1])[1:]
                    return self._shortened(q, way, rng)
        return None

    def _grow(self, q: Array, tree: list[tuple[Array, int]], target: Array, most: float) -> bool:
        """Add a node in the direction of a target, at most so far away; whether that worked."""
        points = np.array([point for point, _ in tree])
        nearest = int(np.linalg.norm(points - target, axis=1).argmin())
        step = target - points[nearest]
        new = points[nearest] + min(1.0, most / max(float(np.linalg.norm(step)), 1e-12)) * step
        if not self._free(q, points[nearest], new):
            return False
        tree.append((new, nearest))
        return True

    def _shortened(self, q: Array, way: list[Array], rng: np.random.Generator) -> list[Array]:
        for _ in range(_SHORTCUTS):
            i, j = sorted(rng.choice(len(way), 2, replace=False)) if len(way) > 2 else (0, 1)
            if j > i + 1 and self._free(q, way[i], way[j]):
                way = way[: i + 1] + way[j:]
        return way

    def distance(self, q: Array, fingers: Array) -> float:
        """How close the fingers are to each other and to all else, counted up to the clearance; negative inside."""
        m, d = self._m, self._d
        d.qpos[:] = q
        d.qpos[self._fingers] = fingers
        mujoco.mj_kinematics(m, d)
        mujoco.mj_collision(m, d)
        near = d.contact.dist[self._moving[d.contact.geom].any(axis=1)]
        return float(min(near.min(), self._clearance)) if len(near) else self._clearance

    def retracted(self, q: Array, fingers: Array, rng: np.random.Generator) -> Array | None:
        """A place nearby that is clear, and that is reached by moving away from everything all the time."""
        here = self.distance(q, fingers)
        if here >= self._clearance:
            return fingers
        for _ in range(_DIRECTIONS):
            direction = rng.normal(size=len(fingers))
            away = fingers + 3 * self._clearance * direction / np.linalg.norm(direction)
            if (away < self._lower).any() or (away > self._upper).any():
                continue
            halfway, there = (self.distance(q, fingers + t * (away - fingers)) for t in (0.3, 1.0))
            if there >= self._clearance and halfway > here:
                return away
        return None

    def _free(self, q: Array, a: Array, b: Array) -> bool:
        """Whether nothing is near on the way from a to b."""
        count = int(np.ceil(np.linalg.norm(b - a) / (2 * self._clearance)))
        return all(self.distance(q, a + t * (b - a)) >= self._clearance for t in _bisected(count))

    def _finely(self, corners: list[Array]) -> Array:
        """The corners after the first, with waypoints between those that are more than a stride apart."""
        out = list[Array]()
        for a, b in pairwise(corners):
            count = max(int(np.ceil(np.linalg.norm(b - a) / self._stride)), 1)
            out += [a + (i + 1) / count * (b - a) for i in range(count)]
        return np.array(out)


@lru_cache(maxsize=1024)
def _bisected(count: int) -> tuple[float, ...]:
    """1/count, 2/count ... 1, in an order that halves what is left: what is in the way is seldom near the ends."""
    order = np.argsort([int(f"{i:016b}"[::-1], 2) for i in range(count)])
    return tuple((order + 1) / max(count, 1))


def _back(tree: list[tuple[Array, int]]) -> list[Array]:
    """From the last node to the root."""
    out, node = list[Array](), len(tree) - 1
    while node >= 0:
        point, node = tree[node]
        out.append(point)
    return out


def _carried(m: mujoco.MjModel, fingers: Indices) -> NDArray[np.bool_]:
    """Whether a geom moves with the fingers, for each geom."""
    joints = [j for j in range(m.njnt) if m.jnt_qposadr[j] in fingers]
    bodies = np.zeros(m.nbody, dtype=bool)
    bodies[m.jnt_bodyid[joints]] = True
    for b in range(1, m.nbody):  # parents come first
        bodies[b] |= bodies[m.body_parentid[b]]
    return bodies[m.geom_bodyid]


class FingertipGrasps:
    """Draws grasps: each fingertip comes in from a random side, towards a random point of the object, and stops short.

    Args:
        scene: what is there.
        body: name of the object.
        fingertips: names of geoms, one for each finger, on bodies whose slides are driven by position servos.
        gap: how far from the object they stop [m].

    """

    def __init__(self, scene: Scene, body: str, fingertips: Sequence[str], gap: float = 1e-3) -> None:
        m = self._m = scene.model
        self._d = mujoco.MjData(m)
        if body not in scene.body_names[1:]:
            raise OptionError(f"there is no body {body!r}. Known: {', '.join(scene.body_names[1:])}")
        if not np.isfinite(gap) or gap < 0:
            raise OptionError(f"gap={gap!r} must be a number, at least 0")
        solid = (m.geom_contype != 0) | (m.geom_conaffinity != 0)
        self._object = np.flatnonzero((m.geom_bodyid == scene.body_names.index(body)) & solid)
        if not len(self._object):
            raise OptionError(f"body {body!r} has no shape to touch")
        self._gap, self._tips = float(gap), [self._slides_of(scene, name) for name in fingertips]
        self._width = 2 * float(np.linalg.norm(m.geom_pos[self._object], axis=1).max() + m.geom_rbound.max())

    def __call__(self, rng: np.random.Generator, q: Array) -> Array | None:
        """Positions of the fingers, shape (nu,), or None if one of them misses the object."""
        m, d = self._m, self._d
        d.qpos[:] = q
        mujoco.mj_kinematics(m, d)
        out = np.full(m.nu, np.nan)
        for geom, controls, coordinates, joints in self._tips:
            axes = d.xaxis[joints].T
            place = self._landing(rng, geom, axes)
            if place is None:
                return None
            shift = np.linalg.lstsq(axes, place - d.geom_xpos[geom], rcond=None)[0]
            out[controls] = q[coordinates] + shift
        return out

    def _landing(self, rng: np.random.Generator, geom: int, axes: Array) -> Array | None:
        """Where a fingertip nearly touches that comes along a random line in the space of its slides."""
        m, d = self._m, self._d
        own = d.geom_xpos[geom].copy()
        target = int(rng.choice(self._object))
        inside = m.geom_aabb[target, :3] + rng.uniform(-1, 1, 3) * m.geom_aabb[target, 3:]
        span = np.linalg.qr(axes)[0]
        aim = own + span @ span.T @ (d.geom_xpos[target] + d.geom_xmat[target].reshape(3, 3) @ inside - own)
        direction = span @ rng.normal(size=span.shape[1])
        direction /= np.linalg.norm(direction)
        travelled, place = 0.0, None
        while travelled < self._width:
            d.geom_xpos[geom] = aim + (self._width - travelled) * direction
            free = min(mujoco.mj_geomDistance(m, d, geom, g, 2 * self._width, None) for g in self._object) - self._gap
            if free < _TOUCHING:
                place = d.geom_xpos[geom].copy()
                break
            travelled += free
        d.geom_xpos[geom] = own
        return place

    def _slides_of(self, scene: Scene, name: str) -> tuple[int, list[int], list[int], list[int]]:
        """A fingertip's geom, and the controls, coordinates and joints that move it."""
        m = self._m
        if name not in scene.geom_names:
            raise OptionError(f"there is no geom {name!r}. Known: {', '.join(scene.geom_names)}")
        geom = scene.geom_names.index(name)
        joints = [int(j) for j in np.flatnonzero(m.jnt_bodyid == m.geom_bodyid[geom])]
        driven = {int(joint): i for i, joint in enumerate(m.actuator_trnid[:, 0])}
        slide = int(mujoco.mjtJoint.mjJNT_SLIDE)
        if not joints or any(m.jnt_type[j] != slide or j not in driven for j in joints):
            raise OptionError(f"the body of geom {name!r} must have slides, and a position servo on each of them")
        return geom, [driven[j] for j in joints], [int(m.jnt_qposadr[j]) for j in joints], joints


_TOUCHING = 1e-5  # [m]
