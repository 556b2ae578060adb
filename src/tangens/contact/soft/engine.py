"""The soft contact model at work on one scene."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import jax
import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.contact.base import Point
from tangens.contact.jax_engine import JaxEngine
from tangens.contact.jax_model import Inputs
from tangens.contact.soft.derive import Derived, derive
from tangens.contact.soft.limits import JointLimits
from tangens.contact.soft.model import SoftModel
from tangens.contact.soft.options import Soft
from tangens.contact.soft.shapes import SoftGeom, soft_geom
from tangens.contact.soft.table import SoftTable
from tangens.contact.structure import structure
from tangens.errors import NotDifferentiable, OptionError, SceneError
from tangens.geometry.mesh_clouds import CloudFit, mesh_cloud
from tangens.geometry.oriented_points import OrientedPoints
from tangens.scene import Scene
from tangens.scene.support import element_name
from tangens.state import State

Array = NDArray[np.float64]

_MANY = 512
"""Points of a cloud from which on memory matters more than compile time."""


class SoftEngine(JaxEngine):
    """Steps and derivatives of one scene."""

    contact: Soft

    def __init__(self, scene: Scene, contact: Soft) -> None:
        self.method = "newton" if contact.integrator == "implicit" else "explicit"
        m, size = scene.shared_model, scene.parameters["size"]
        self._mesh_points, self._clouds = contact.mesh_points, dict[int, OrientedPoints]()
        self.fits = dict[int, CloudFit]()
        """How well the clouds of meshes fit, by the mesh's number."""
        self.table = SoftTable(m, [self._geom(m, g, size[g], contact.points) for g in range(m.ngeom)])
        self.derived: Derived = derive(
            m, self.table, contact, scene.timestep, scene.parameters["mass"], scene.parameters["friction"]
        )
        """Stiffness, damping and smoothing of each pair."""
        if max((len(g.points) for g in self.table.geoms if g is not None), default=0) > _MANY:
            self.small = 0  # a Jacobian would keep all of this for each of its rows
        super().__init__(scene, contact)

    def _geom(self, m: mujoco.MjModel, g: int, size: Any, points: int) -> SoftGeom | None:
        if not (m.geom_contype[g] or m.geom_conaffinity[g] or g in m.pair_geom1 or g in m.pair_geom2):
            return None
        mesh = int(m.geom_dataid[g]) if m.geom_type[g] == mujoco.mjtGeom.mjGEOM_MESH else -1
        return soft_geom(m, g, np.asarray(size), points, self._mesh(m, mesh, g) if mesh >= 0 else None)

    def _mesh(self, m: mujoco.MjModel, mesh: int, g: int) -> OrientedPoints:
        """The cloud of a mesh, in the frame of its geom."""
        if mesh not in self.fits:
            first, n = m.mesh_vertadr[mesh], m.mesh_vertnum[mesh]
            start, count = m.mesh_faceadr[mesh], m.mesh_facenum[mesh]
            vertices, faces = m.mesh_vert[first : first + n], m.mesh_face[start : start + count]
            try:
                self._clouds[mesh], self.fits[mesh] = mesh_cloud(vertices, faces, self._mesh_points)
            except OptionError as error:
                raise SceneError(
                    str(error),
                    element=element_name(m, mujoco.mjtObj.mjOBJ_GEOM, g),
                    remedy="repair the mesh, or describe the geom with primitives",
                ) from error
        return self._clouds[mesh]

    def key(self) -> tuple[Hashable, ...]:
        """What two scenes have in common that can share a model and its compiled functions."""
        contact = self.contact
        shapes = tuple(None if g is None else (g.kind, len(g.probes), len(g.points)) for g in self.table.geoms)
        return (
            structure(self.scene.shared_model),
            shapes,
            contact.integrator,
            contact.averaging,
            contact.factor,
        )

    def model(self, room: int | None) -> SoftModel:
        """The model of all scenes with this key."""
        del room
        return SoftModel(self.scene, self.contact, self.table)

    def numbers(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parameters of this scene, and the settings."""
        scene, d = self.scene, self.derived
        parameters: dict[str, Any] = {name: scene.parameters[name] for name in self.contact.parameters}
        parameters["clouds"] = self.table.clouds()
        settings = {
            name: getattr(d, name)
            for name in ("stiffness", "dissipation", "stiction", "depth_temperature", "reach", "temperature")
        }
        limits = JointLimits(scene.shared_model).numbers(scene.shared_model, self.contact.integrator, scene.timestep)
        solver = {
            "timestep": np.float64(scene.timestep),
            "tolerance": np.float64(self.contact.tolerance),
            "max_iterations": np.int32(self.contact.max_iterations),
        }
        return parameters, settings | limits | solver

    def check(self, wrt: Sequence[str]) -> None:
        """Refuse sizes where shapes do not come from them."""
        if "size" in wrt and self.table.uses_meshes:
            raise NotDifferentiable("'soft' cannot be differentiated by size: the scene has meshes, which have none")

    def left_out(self, state: State) -> float:
        """A bound on the share of any probe's weights (Eq. 9) that candidate lists leave out.

        Of clouds with many points, each probe looks at those near it only.
        """
        x = Point(state.q, state.v, np.zeros(self.scene.nu), np.zeros(self.scene.nv))
        with jax.enable_x64(True):
            run = self.compiled("left out", self.first_room, lambda model: model.left_out)  # type: ignore[attr-defined]
            return float(run(Inputs(x, self.parameters, self.settings)))

    def inverse_dynamics(self, x: Point, acceleration: Array) -> Array:
        """The tau of a step that ends with this acceleration (Eq. 24)."""
        with jax.enable_x64(True):
            run = self.compiled("inverse", self.first_room, lambda model: model.inverse_dynamics)
            return np.asarray(run(Inputs(x, self.parameters, self.settings), acceleration))
