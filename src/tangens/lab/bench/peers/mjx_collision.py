"""MJX's collision detection between two creatures, each a body of convex meshes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import mujoco

from tangens.dynamics.mjx_model import mjx
from tangens.geometry.superquadric_fits import Parameters
from tangens.lab.creatures import convex_parts

SETTINGS = (
    "mjx.collision after mjx.kinematics, one convex mesh of 26 vertices for each superquadric, model and data closed over, "
    "vmap and jit, single precision"
)


def creature_model(one: Parameters, two: Parameters) -> mujoco.MjModel:
    """Two free bodies; geoms of one body do not meet."""
    spec = mujoco.MjSpec()
    for b, parameters in enumerate((one, two)):
        body = spec.worldbody.add_body(name=f"creature {b}")
        body.add_freejoint()
        for k, corners in enumerate(convex_parts(parameters)):
            name = f"{b}-{k}"
            spec.add_mesh(name=name, uservert=corners.ravel())
            body.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname=name, mass=0.1)
    model: mujoco.MjModel = spec.compile()
    return model


def collisions(model: mujoco.MjModel) -> Callable[[Any], Any]:
    """q (14,) -> distances, positions, normals, of single poses."""
    with jax.enable_x64(False):
        there, data = mjx.put_model(model), mjx.make_data(model)

    def of(q: Any) -> Any:
        contact = mjx.collision(there, mjx.kinematics(there, data.replace(qpos=q)))._impl.contact
        return contact.dist, contact.pos, contact.frame[:, 0]

    return of
