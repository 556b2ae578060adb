"""MJX's collision detection between two creatures, each a body of convex meshes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import mujoco
import numpy as np

from tangens.dynamics.mjx_model import mjx
from tangens.geometry.superquadric_fits import Parameters
from tangens.lab.creatures import convex_parts

SETTINGS = (
    "mjx.collision after mjx.kinematics, a convex mesh of 26 vertices in the place of each superquadric, of as few "
    "kinds as memory allows (1 up to a batch of 16, 3 up to 64, then 6), model and data closed over, vmap and jit, "
    "single precision"
)


def kinds_for(batch: int) -> int:
    """Kinds of meshes: with one, MJX handles all pairs of meshes at once, at 85 MB for each pair of bodies."""
    return 1 if batch <= 16 else 3 if batch <= 64 else 6


def creature_model(one: Parameters, two: Parameters, kinds: int = 1) -> mujoco.MjModel:
    """Two free bodies; geoms of one body do not meet.

    MJX runs one function for each pair of kinds of meshes, in turn, and compiles each: 324 of them, for half an hour,
    if all 18 superquadrics of both bodies differ. What it does depends on how many corners meshes have and not on where
    those are, so that its meshes are of few kinds here, each placed and turned as its superquadric is.
    """
    spec = mujoco.MjSpec()
    for b, parameters in enumerate((one, two)):
        body = spec.worldbody.add_body(name=f"creature {b}")
        body.add_freejoint()
        for k in range(min(kinds, len(parameters.axes))):
            alone = parameters.take([k])._replace(position=np.zeros((1, 3)), rotation=np.eye(3)[None])
            spec.add_mesh(name=f"{b}-{k}", uservert=convex_parts(alone)[0].ravel())
        for k, (position, rotation) in enumerate(zip(parameters.position, parameters.rotation, strict=True)):
            turn = np.zeros(4)
            mujoco.mju_mat2Quat(turn, rotation.ravel())
            kind = mujoco.mjtGeom.mjGEOM_MESH
            body.add_geom(type=kind, meshname=f"{b}-{k % kinds}", pos=position, quat=turn, mass=0.1)
    model: mujoco.MjModel = spec.compile()
    return model


def collisions(model: mujoco.MjModel) -> Callable[[Any], Any]:
    """Q (14,) -> distances, positions, normals, of single poses."""
    with jax.enable_x64(False):
        there, data = mjx.put_model(model), mjx.make_data(model)

    def of(q: Any) -> Any:
        contact = mjx.collision(there, mjx.kinematics(there, data.replace(qpos=q)))._impl.contact
        return contact.dist, contact.pos, contact.frame[:, 0]

    return of
