"""Contact forces of a whole scene as a function of configuration and velocity."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from tangens.contact.geom_pairs import pair_friction, tree_masses
from tangens.contact.jax_model import Inputs
from tangens.contact.soft.candidates import uses_lists
from tangens.contact.soft.fields import Near
from tangens.contact.soft.law import Law
from tangens.contact.soft.limits import JointLimits
from tangens.contact.soft.options import Soft
from tangens.contact.soft.rows import (
    Pose,
    RowForce,
    Surface,
    depth_logits,
    probe,
    row_force,
    row_force_of_planes,
    share_left_out,
)
from tangens.contact.soft.shapes import ONE, ZERO
from tangens.contact.soft.table import Group, SoftTable
from tangens.dynamics.spatial import Ancestry, SpatialKinematics

Array = jax.Array

NEAR = 10.0
"""Pairs farther apart than so many ε₃ have no force: it is below 1e-4 of that at distance 0."""


class ProbedGroup(NamedTuple):
    """Where the probes of a group are; leading axis: rows."""

    near: Near
    share: Array
    """σ_ε₂(−Φ) of each probe in its pair, (rows, P)."""
    surface: Surface
    on: Pose


class Probed(NamedTuple):
    """Collision detection in one configuration."""

    groups: tuple[ProbedGroup, ...]
    jacobian: Array
    """Relative twist of each row by velocity, (rows, 6, nv)."""


class Contact(NamedTuple):
    """What contacts and joint limits do."""

    force: Array
    """Generalised forces, (nv,)."""
    rate: Array | None
    """How fast they fall with velocity, (nv, nv); only where the step is implicit."""
    rows: RowForce


class SoftForces:
    """The contact forces of scenes of one structure."""

    def __init__(self, m: mujoco.MjModel, ancestry: Ancestry, contact: Soft, table: SoftTable) -> None:
        self.table, self._model = table, m
        self._smooth, self._by_force = contact.factor == "smooth", contact.averaging == "forces"
        self._implicit = contact.integrator == "implicit"
        self._limits = JointLimits(m)
        turns = np.zeros((m.ngeom, 9))
        for turn, quaternion in zip(turns, m.geom_quat, strict=True):
            mujoco.mju_quat2Mat(turn, quaternion)
        self._frames = np.concatenate([turns.reshape(-1, 3, 3), m.geom_pos[:, :, None]], 2)
        nobody = np.zeros(0, int)
        self.probe_geom, self._surface_geom, self.pair = (
            np.concatenate([nobody, *(getattr(group, name) for group in table.groups)])
            for name in ("probe_geom", "surface_geom", "pair")
        )
        rows = np.arange(len(self.pair))
        self._other = np.array(
            [next((k for k in rows if k != r and self.pair[k] == self.pair[r]), r) for r in rows], int
        )
        self._alone = self._other == rows  # a pair has one row or two
        body = m.geom_bodyid
        self._carries = ancestry.bodies[body[self.probe_geom]] - ancestry.bodies[body[self._surface_geom]]
        self._scale = np.array([(ONE,) * 3 if g is None else g.scale for g in table.geoms], int).reshape(-1, 3)
        self._radius = np.array([ZERO if g is None else g.radius for g in table.geoms], int).reshape(-1, 1)

    # ------------------------------------------------------------------ collision

    def probe(self, kin: SpatialKinematics, inputs: Inputs, ahead: Array | None) -> Probed:
        """Where all probes are against the surfaces that they can touch, and which of them are deepest."""
        m, p, s = self._model, inputs.parameters, inputs.settings
        dtype, body = kin.position.dtype, m.geom_bodyid
        turned = kin.rotation[body] @ jnp.asarray(self._frames, dtype)
        turn, place = turned[:, :, :3], kin.position[body] + turned[:, :, 3]
        size = jnp.concatenate([p["size"], jnp.ones((m.ngeom, 1), dtype), jnp.zeros((m.ngeom, 1), dtype)], 1)
        scale, radius = (jnp.take_along_axis(size, columns, 1) for columns in (self._scale, self._radius))
        jacobian = jnp.asarray(self._carries, dtype)[:, None, :] * kin.axes.T
        twist, found, logits = self._split(jacobian @ inputs.x.v), list[Any](), list[Array]()
        views = self._views(Pose(place, turn))
        for group, moving, seen, on in zip(self.table.groups, twist, *views, strict=True):
            probed, bias = self._probe(group, seen, on, scale, radius[:, 0], p["clouds"], s["temperature"])
            found.append(probed)
            depth = partial(depth_logits, ahead=ahead)
            logits.append(jax.vmap(depth)(probed[0], bias, moving, s["depth_temperature"][group.pair]))
        shares = self._shares(logits)
        groups = tuple(ProbedGroup(near, sh, *rest) for (near, *rest), sh in zip(found, shares, strict=True))
        return Probed(groups, jacobian)

    def _views(self, pose: Pose) -> tuple[list[Pose], list[Pose]]:
        """Of each row, group by group: the probes' geom as seen from the surface's, and the latter in the world."""
        of, on = (Pose(*(part[geom] for part in pose)) for geom in (self.probe_geom, self._surface_geom))
        frame = jnp.concatenate([of.rotation, (of.position - on.position)[:, :, None]], 2)
        seen = jnp.einsum("rji,rjk->rik", on.rotation, frame)
        parts = [self._split(part) for part in (seen[:, :, 3], seen[:, :, :3], on.position, on.rotation)]
        return [Pose(*x) for x in zip(*parts[:2], strict=True)], [Pose(*x) for x in zip(*parts[2:], strict=True)]

    def _split(self, rows: Array) -> list[Array]:
        """Rows of all groups, group by group."""
        ends = np.cumsum([len(group.pair) for group in self.table.groups])
        return jnp.split(rows, ends[:-1]) if len(ends) else []

    def _probe(
        self, group: Group, seen: Pose, on: Pose, scale: Array, radius: Array, clouds: Any, temperature: Array
    ) -> tuple[tuple[Near, Surface, Pose], Array]:
        a, b = group.probe_geom, group.surface_geom
        unit, bias = (stack[group.probe_at] for stack in clouds[group.probes])
        surface = Surface()
        if group.kind == "segment":
            balls = (self._scale[b, 2] == ZERO).all()
            surface = Surface(half_length=None if balls else scale[b, 2], thickness=radius[b])
        elif group.kind == "cloud":
            points, normals, skip = (stack[group.point_at] for stack in clouds[group.points])
            normals = normals / scale[b][:, :, None]
            normals /= jnp.sqrt(jnp.sum(normals**2, 1, keepdims=True))
            surface = Surface(None, None, points * scale[b][:, :, None], normals, skip, temperature[b])
        near = jax.vmap(lambda *row: probe(group.kind, *row))(
            unit * scale[a][:, :, None],
            radius[a] if group.is_round else None,
            seen,
            surface,
            on,
        )
        return (near, surface, on), bias

    def _shares(self, logits: list[Array]) -> list[Array]:
        """The softmax of Eq. 23, over the probes of both geoms of a pair."""
        if not logits:
            return []
        largest = jnp.concatenate([jnp.max(jax.lax.stop_gradient(x), axis=1) for x in logits])
        base = self._split(jnp.maximum(largest, largest[self._other]))
        weights = [jnp.exp(x - b[:, None]) for x, b in zip(logits, base, strict=True)]
        sums = jnp.concatenate([jnp.sum(w, 1) for w in weights])
        total = self._split(1 / (sums + jnp.where(self._alone, 0.0, sums[self._other])))
        return [w * t[:, None] for w, t in zip(weights, total, strict=True)]

    def left_out(self, probed: Probed, settings: dict[str, Any]) -> Array:
        """The largest share of a plane's weights that candidate lists leave out, of probes within reach of a force."""
        largest = jnp.zeros(())
        for group, (near, _, surface, on) in zip(self.table.groups, probed.groups, strict=True):
            if group.kind == "cloud" and uses_lists(near.distance.shape[1], surface.points.shape[2]):  # type: ignore[union-attr]
                share = jax.vmap(share_left_out)(near, surface, on)
                reached = near.distance < NEAR * settings["reach"][group.pair][:, None]
                largest = jnp.maximum(largest, jnp.max(jnp.where(reached, share, 0.0)))
        return largest

    # ------------------------------------------------------------------ forces

    def __call__(
        self, probed: Probed, v: Array, inputs: Inputs, ahead: Array | None = None, is_first: Array | None = None
    ) -> Contact:
        """All forces at these velocities; `ahead` and `is_first` are those of `law.point_plane`."""
        force, rate = self._limits(inputs.x.q, v, inputs.settings, ahead, self._smooth)
        if not self.table.groups:
            return Contact(force, jnp.diag(rate) if self._implicit else None, _NO_ROWS)
        rows, J = self._rows(probed, v, self._law(inputs), ahead, is_first), probed.jacobian
        force += jnp.einsum("ran,ra->n", J, rows.wrench)
        if not self._implicit:
            return Contact(force, None, rows)
        return Contact(force, jnp.diag(rate) + jnp.einsum("ram,rab,rbn->mn", J, rows.rate, J), rows)

    def _rows(self, probed: Probed, v: Array, law: Law, ahead: Array | None, is_first: Array | None) -> RowForce:
        found, twists = list[RowForce](), self._split(probed.jacobian @ v)
        of_mean = partial(row_force, ahead=ahead, is_first=is_first, smooth=self._smooth, with_rate=self._implicit)
        of_planes = partial(row_force_of_planes, smooth=self._smooth)
        for group, (near, share, surface, on), twist in zip(self.table.groups, probed.groups, twists, strict=True):
            own = jax.tree.map(lambda leaf, pair=group.pair: leaf[pair], law)
            if self._by_force and group.kind == "cloud":
                found.append(jax.vmap(of_planes)(near, share, twist, own, surface, on))
            else:
                found.append(jax.vmap(of_mean)(near, share, twist, own))
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), *found)

    def _law(self, inputs: Inputs) -> Law:
        m, s = self._model, inputs.settings
        one, two = self.table.pairs.T
        slippery = np.maximum(m.geom_condim[one], m.geom_condim[two]) == 1  # condim="1": the pair has no friction
        friction = jnp.where(slippery, 0.0, pair_friction(m, inputs.parameters["friction"], one, two))
        mass = tree_masses(m, inputs.parameters["mass"])
        lighter = jnp.minimum(mass[m.geom_bodyid[one]], mass[m.geom_bodyid[two]])
        names = ("stiffness", "dissipation", "stiction", "reach")
        return Law(friction=friction, mass=lighter, **{name: s[name] for name in names})


_NO_ROWS = RowForce(*(np.zeros((0, *shape)) for shape in ((6,), (6, 6))))  # type: ignore[arg-type]
