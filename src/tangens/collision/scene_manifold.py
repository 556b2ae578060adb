"""Contact manifolds of many pairs of geoms at once: pairs of one kind are one batch, so that little is compiled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.collision.deepest_points import deepest_points
from tangens.collision.pair_manifold import Manifold, Pose, Smoothing, pair_manifold
from tangens.dynamics.spatial import SpatialKinematics
from tangens.errors import OptionError, SceneError
from tangens.geometry.geoms import hull_vertices
from tangens.geometry.solids import Solid, solid_of_geom
from tangens.scene.support import element_name

Array = jax.Array
Ints = NDArray[np.int_]

_MANY_EDGES = 200
"""Pairs of edges that are looked at without a selection: two boxes have 144."""


class Choices(NamedTuple):
    """Which contacts are looked at, see `pair_manifold`."""

    edges: bool = True
    both_sides: bool = True
    vertices_kept: int | None = None
    edges_kept: int = 16
    projections: int = 0
    points: int | None = None
    """If given, so many of the deepest vertices of a pair are all its contacts, see `deepest_points`."""


class Group(NamedTuple):
    """Pairs of the same two kinds: which of each kind, and their geoms."""

    kind1: int
    kind2: int
    index1: Ints
    index2: Ints
    pair: Ints
    """Numbers of the pairs, (n,)."""


class SceneManifold:
    """The pairs of geoms of a scene. Fixed structure; sizes, described solids and poses are arguments."""

    def __init__(
        self,
        model: mujoco.MjModel,
        pairs: Sequence[tuple[int, int]],
        described: Mapping[int, Solid],
        choices: Choices,
    ) -> None:
        self._model, self._choices = model, choices
        wanted = sorted({g for pair in pairs for g in pair})
        members: dict[Hashable, list[int]] = defaultdict(list)
        for g in wanted:
            members[self._kind(g, described)].append(g)
        self._kinds = list(members.items())
        place = {g: (k, i) for k, (_, geoms) in enumerate(self._kinds) for i, g in enumerate(geoms)}
        self._meshes = {m: hull_vertices(model, m) for m in {int(model.geom_dataid[g]) for g in wanted} if m >= 0}
        self._frames = _frames(model, described)
        solids = self.solids(model.geom_size, described)
        ordered = [tuple(sorted(pair, key=lambda g: place[g])) for pair in pairs]
        kept = [pair for pair in ordered if any(solids[place[g][0]].vertices.shape[1] for g in pair)]  # no two planes
        self.pairs: Ints = np.array(kept, int).reshape(-1, 2)
        """The geoms of each pair, (n, 2)."""
        self.groups = self._grouped(place)
        counts = [np.repeat(group.pair, self._count(group, solids)) for group in self.groups]
        self.pair_of: Ints = np.concatenate([np.zeros(0, int), *counts])
        """Which pair each contact belongs to."""

    def _kind(self, g: int, described: Mapping[int, Solid]) -> Hashable:
        m = self._model
        if g in described:
            leaves, tree = jax.tree.flatten(described[g])
            return tree, tuple(np.shape(leaf) for leaf in leaves)
        return int(m.geom_type[g]), int(m.geom_dataid[g])

    def _grouped(self, place: Mapping[int, tuple[int, int]]) -> tuple[Group, ...]:
        found: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
        for number, (one, two) in enumerate(self.pairs):
            (k1, i1), (k2, i2) = place[int(one)], place[int(two)]
            found[k1, k2].append((i1, i2, number))
        return tuple(Group(*kinds, *np.array(rows, int).T) for kinds, rows in found.items())

    def solids(self, size: Any, described: Mapping[int, Solid]) -> list[Solid]:
        """The solids of each kind, stacked."""
        return [self._stacked(geoms, jnp.asarray(size), described) for _, geoms in self._kinds]

    def _stacked(self, geoms: list[int], size: Array, described: Mapping[int, Solid]) -> Solid:
        kind, mesh = (int(getattr(self._model, name)[geoms[0]]) for name in ("geom_type", "geom_dataid"))
        if geoms[0] in described:
            solids = [described[g] for g in geoms]
        elif mesh >= 0 and kind == mujoco.mjtGeom.mjGEOM_MESH:
            solids = [self._checked(geoms[0], kind, size[0], self._meshes[mesh])] * len(geoms)
        else:
            self._checked(geoms[0], kind, self._model.geom_size[geoms[0]], None)
            return jax.vmap(lambda s: solid_of_geom(kind, s))(size[np.array(geoms)])
        return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *solids)

    def _checked(self, g: int, kind: int, size: Any, vertices: Any) -> Solid:
        try:
            return solid_of_geom(kind, size, vertices)
        except OptionError as error:
            raise SceneError(
                str(error),
                element=element_name(self._model, mujoco.mjtObj.mjOBJ_GEOM, g),
                remedy='use primitives or meshes, or contype="0" conaffinity="0" if it touches nothing',
            ) from error

    def poses(self, kin: SpatialKinematics) -> Pose:
        """Where all geoms are, (ngeom, ...)."""
        position, rotation = (jnp.asarray(a, kin.position.dtype) for a in self._frames)
        body = self._model.geom_bodyid
        turn = kin.rotation[body]
        return Pose(kin.position[body] + jnp.einsum("gij,gj->gi", turn, position), turn @ rotation)

    def sizes(self, solids: list[Solid]) -> Array:
        """How large the solids of pairs are [m], (n,): the smaller one counts most; smooth in all sizes."""
        each = [jax.vmap(_extent)(solid) for solid in solids]
        out = jnp.zeros(len(self.pairs))
        for g in self.groups:
            both = each[g.kind1][g.index1] ** -2 + each[g.kind2][g.index2] ** -2
            out = out.at[g.pair].set(both**-0.5)
        return out

    def __call__(self, solids: list[Solid], poses: Pose, smoothing: Smoothing) -> Manifold:
        """All contacts; the numbers of `smoothing` are arrays over pairs."""
        parts = list[Manifold]()
        for g in self.groups:
            first, second = self.pairs[g.pair].T
            one, two = (
                jax.tree.map(lambda leaf, i=i: leaf[i], solids[k])
                for k, i in ((g.kind1, g.index1), (g.kind2, g.index2))
            )
            at1, at2 = (Pose(poses.position[i], poses.rotation[i]) for i in (first, second))
            own = Smoothing(*(leaf[g.pair] for leaf in smoothing))
            found = jax.vmap(self._run(g))(one, two, at1, at2, own)
            parts.append(jax.tree.map(lambda rows: rows.reshape(-1, *rows.shape[2:]), found))
        return jax.tree.map(lambda *rows: jnp.concatenate(rows), *parts)

    def _run(self, group: Group) -> Any:
        c = self._choices

        def run(one: Solid, two: Solid, pose1: Pose, pose2: Pose, smoothing: Smoothing) -> Manifold:
            if c.points is not None:
                return deepest_points(one, two, pose1, pose2, smoothing, c.points)
            many = len(one.edges) * len(two.edges) > _MANY_EDGES
            return pair_manifold(
                one,
                two,
                pose1,
                pose2,
                smoothing,
                edges=c.edges,
                both_sides=c.both_sides or not len(one.vertices),
                vertices_kept=c.vertices_kept,
                edges_kept=c.edges_kept if many else None,
                projections=c.projections,
            )

        return run

    def _count(self, group: Group, solids: list[Solid]) -> int:
        """Contacts of each pair of a group."""
        one, two = (jax.tree.map(lambda leaf: leaf[0], solids[k]) for k in (group.kind1, group.kind2))
        still, smoothing = Pose(jnp.zeros(3), jnp.eye(3)), Smoothing(*(jnp.ones(()) for _ in Smoothing._fields))
        return int(jax.eval_shape(self._run(group), one, two, still, still, smoothing).distance.shape[0])


def _extent(solid: Solid) -> Array:
    """How large a solid is [m]: twice its vertices' mean distance from their middle, in the sense of squares."""
    if not len(solid.vertices):
        return jnp.full((), jnp.inf)
    off = solid.vertices - jnp.mean(solid.vertices, 0)
    return 2 * (jnp.sqrt(jnp.mean(jnp.sum(off**2, -1)) + 1e-24) + solid.radius)


def _frames(m: mujoco.MjModel, described: Mapping[int, Solid]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Positions and axes of all geoms on their bodies.

    MuJoCo moves the frames of meshes to their middles. A solid that the user described is in the frame of the MJCF.
    """
    position, turn = m.geom_pos.copy(), np.zeros((m.ngeom, 9))
    for g in range(m.ngeom):
        quaternion = m.geom_quat[g].copy()
        if g in described and m.geom_type[g] == mujoco.mjtGeom.mjGEOM_MESH:
            mesh, back, turn_back = m.geom_dataid[g], np.zeros(3), np.zeros(4)
            mujoco.mju_negPose(back, turn_back, m.mesh_pos[mesh], m.mesh_quat[mesh])
            mujoco.mju_mulPose(position[g], quaternion, m.geom_pos[g], m.geom_quat[g], back, turn_back)
        mujoco.mju_quat2Mat(turn[g], quaternion)
    return position, turn.reshape(-1, 3, 3)
