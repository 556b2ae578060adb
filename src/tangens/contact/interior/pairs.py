"""Which shapes of a scene can touch, grouped by kind, and which of them are near enough to matter."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.collision.growth import Place, embedding, length_of
from tangens.contact.geom_pairs import EARTH, is_frictionless, pair_friction, touching_geoms, tree_masses
from tangens.contact.interior.groups import PairKind, size_class
from tangens.contact.interior.pair import Pair
from tangens.errors import SceneError
from tangens.geometry import HalfSpace, Polytope, Shape, centred, kind, parts
from tangens.geometry.geoms import shapes_of
from tangens.scene import Scene
from tangens.scene.support import element_name

Array = jax.Array


class Group(NamedTuple):
    """Pairs of one kind: indices into the parts of each side's kind, and the geoms they belong to."""

    kind1: int
    kind2: int
    index1: NDArray[np.int_]
    index2: NDArray[np.int_]
    geoms: NDArray[np.int_]
    """(n, 2)."""


class Kind(NamedTuple):
    """All shapes of one kind: which part of which geom, and how many rows it has.

    Polytopes with about as many faces are of one kind: rows of zeros fill the smaller ones up.
    """

    geom: NDArray[np.int_]
    part: NDArray[np.int_]
    rows: NDArray[np.int_]


class PairTable:
    """The pairs of a scene. Fixed structure; `pairs` fills in the numbers of given parameters."""

    def __init__(self, scene: Scene, torsion: bool) -> None:
        self._scene, self._model = scene, scene.shared_model
        self._torsion = torsion
        shapes = self._shapes(self._model.geom_size, scene.shapes)
        members: dict[Hashable, list[tuple[int, int, int]]] = defaultdict(list)
        for geom, pieces in enumerate(shapes):
            for index, piece in enumerate(pieces):
                size = (
                    kind(piece) if not isinstance(piece, Polytope) else (Polytope, piece.dim, size_class(piece.n_rows))
                )
                members[size].append((geom, index, piece.n_rows))
        self.dim = self._check_dimension(shapes)
        self._kinds = [Kind(*np.array(group).T) for group in members.values()]
        place = {tuple(who[:2]): (k, i) for k, group in enumerate(members.values()) for i, who in enumerate(group)}
        self.groups = self._group(shapes, place)

    def _shapes(self, size: Any, described: Mapping[str, Shape]) -> list[tuple[Shape, ...]]:
        """The convex parts of each geom's shape; none for geoms that touch nothing."""
        names, geoms = self._scene.geom_names, shapes_of(self._model, size)
        chosen = [described.get(names[g], shape) if names[g] else shape for g, shape in enumerate(geoms)]
        return [() if shape is None else parts(shape) for shape in chosen]

    def _check_dimension(self, shapes: list[tuple[Shape, ...]]) -> int:
        dims = {shape.dim: g for g, pieces in enumerate(shapes) for shape in pieces}
        if len(dims) > 1:
            names = " and ".join(
                f"{element_name(self._model, mujoco.mjtObj.mjOBJ_GEOM, g)} (dim {dim})" for dim, g in dims.items()
            )
            raise SceneError(
                f"planar and spatial shapes in one scene: {names}",
                file=self._scene.source,
                remedy="give all geoms that touch planar shapes (scene.with_shapes), or none",
            )
        return next(iter(dims), 3)

    def _group(
        self, shapes: list[tuple[Shape, ...]], place: Mapping[tuple[int, ...], tuple[int, int]]
    ) -> tuple[Group, ...]:
        found: dict[tuple[int, int], list[tuple[int, int, int, int]]] = defaultdict(list)
        for one, two in touching_geoms(self._model):
            for first, second in itertools.product(range(len(shapes[one])), range(len(shapes[two]))):
                if isinstance(shapes[one][first], HalfSpace) and isinstance(shapes[two][second], HalfSpace):
                    continue
                a, b = sorted([(*place[one, first], one), (*place[two, second], two)])
                found[a[0], b[0]].append((a[1], b[1], a[2], b[2]))
        return tuple(
            Group(k1, k2, np.array(rows)[:, 0], np.array(rows)[:, 1], np.array(rows)[:, 2:])
            for (k1, k2), rows in found.items()
        )

    def reach(self, size: Any, described: Mapping[str, Shape]) -> NDArray[np.float64]:
        """Radii of balls around all shapes [m], kind by kind: found once, since corners are dear to find."""
        shapes = self._shapes(size, described)
        return np.array(
            [float(centred(shapes[g][p])[0].reach) for k in self._kinds for g, p, _ in zip(*k, strict=True)]
        )

    def pairs(self, parameters: Mapping[str, Any], all_reach: Array, sharpness: Array) -> tuple[PairKind, ...]:
        """All pairs, stacked by kind, with the numbers of these parameters."""
        reach = jnp.split(jnp.asarray(all_reach), np.cumsum([len(k.geom) for k in self._kinds])[:-1])
        m = self._model
        shapes = self._shapes(parameters["size"], parameters["shapes"])
        stacks = [self._stack(shapes, k) for k in self._kinds]
        friction = jnp.asarray(parameters["friction"])
        restitution = jnp.asarray(parameters.get("restitution", np.zeros(m.ngeom)))
        spin, mass = jnp.asarray(m.geom_friction[:, 1]), tree_masses(m, parameters["mass"])
        result = []
        for group in self.groups:
            (s1, p1), (s2, p2) = (
                jax.tree.map(lambda leaf, i=i: leaf[i], stacks[k])
                for k, i in ((group.kind1, group.index1), (group.kind2, group.index2))
            )
            one, two = group.geoms.T
            slides = jnp.asarray(~is_frictionless(m, one, two), float)
            joint = [slides * pair_friction(m, f, one, two) for f in (friction, spin)]
            torsion = joint[1][:, None] if self._torsion else jnp.zeros((len(one), 0))
            bounce = jnp.maximum(restitution[one], restitution[two])
            body1, body2 = (jnp.asarray(m.geom_bodyid[g]) for g in (one, two))
            balls = jnp.stack([reach[group.kind1][group.index1], reach[group.kind2][group.index2]], 1)
            lighter = jnp.minimum(mass[body1], mass[body2])
            sharp, geoms = sharpness * EARTH * lighter, jnp.asarray(group.geoms)
            length = jax.vmap(length_of)(s1, s2)
            real = [self._kinds[k].rows[i] for k, i in ((group.kind1, group.index1), (group.kind2, group.index2))]
            rows, inner, positive = _own_rows(s1, s2, *real)
            numbers = Pair(
                p1, p2, body1, body2, geoms, balls, sharp, length, lighter, joint[0], torsion,
                bounce, jnp.zeros_like(length), rows, inner, positive,
            )  # fmt: skip
            result.append(PairKind(s1, s2, numbers))
        return tuple(result)

    def _stack(self, shapes: list[tuple[Shape, ...]], members: Kind) -> tuple[Shape, Place]:
        """All shapes of a kind as one, and where each sits on its body."""
        m, pieces, places = self._model, list[Shape](), list[Place]()
        for geom, part, _ in zip(*members, strict=True):
            # A part scales about its own middle: seen from afar, a part off the origin might be out of reach.
            shape, centre = centred(shapes[geom][part])
            position, turn = geom_frame(m, geom, described=self._scene.geom_names[geom] in self._scene.shapes)
            pieces.append(_filled_up(shape, members.rows.max()))
            places.append(Place(jnp.asarray(position) + turn @ embedding(self.dim) @ centre, jnp.asarray(turn)))
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *pieces), jax.tree.map(
            lambda *leaves: jnp.stack(leaves), *places
        )


def geom_frame(m: mujoco.MjModel, geom: int, described: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Position and axes of a geom on its body.

    MuJoCo moves the frames of meshes to their middles. A shape that the user described is in the frame of the MJCF.
    """
    position, quaternion, turn = m.geom_pos[geom].copy(), m.geom_quat[geom].copy(), np.zeros(9)
    if described and m.geom_type[geom] == mujoco.mjtGeom.mjGEOM_MESH:
        mesh, back, turn_back = m.geom_dataid[geom], np.zeros(3), np.zeros(4)
        mujoco.mju_negPose(back, turn_back, m.mesh_pos[mesh], m.mesh_quat[mesh])
        mujoco.mju_mulPose(position, quaternion, m.geom_pos[geom], m.geom_quat[geom], back, turn_back)
    mujoco.mju_quat2Mat(turn, quaternion)
    return position, turn.reshape(3, 3)


def _filled_up(shape: Shape, rows: int) -> Shape:
    """A polytope with so many rows; other shapes as they are."""
    if not isinstance(shape, Polytope) or shape.n_rows == rows:
        return shape
    missing = rows - shape.n_rows
    A, b = jnp.pad(shape.A, ((0, missing), (0, 0))), jnp.pad(shape.b, (0, missing), mode="maximum")
    return jax.tree.unflatten(jax.tree.structure(shape), (A, b))


def _own_rows(
    shape1: Shape, shape2: Shape, rows1: NDArray[np.int_], rows2: NDArray[np.int_]
) -> tuple[Array, Array, Array]:
    """1 for rows of each pair, 0 for those that fill up; the same of its ε; and which of those are to be positive."""
    n, positive = len(rows1), (*shape1.positive_inner, *shape2.positive_inner)
    real = [np.arange(s.n_rows) < rows[:, None] for s, rows in ((shape1, rows1), (shape2, rows2))]
    rows = jnp.asarray(np.concatenate([*real, np.ones((n, 1), bool)], axis=1), float)
    return rows, jnp.ones((n, len(positive))), jnp.broadcast_to(jnp.array(positive, bool), (n, len(positive)))


def distance_bound(shape1: Shape, shape2: Shape, pair: Pair, place1: Place, place2: Place) -> Array:
    """Less than the distance of a pair's shapes [m]: between the balls around them, or from a half-space."""
    apart = place2.position - place1.position
    for shape, place, other, sign in ((shape1, place1, 1, 1.0), (shape2, place2, 0, -1.0)):
        if isinstance(shape, HalfSpace):
            return sign * (place.rotation @ embedding(shape.dim) @ shape.normal) @ apart - pair.reach[other]
    return jnp.sqrt(apart @ apart) - jnp.sum(pair.reach)
