"""MJX's collision detection between two creatures, each a body of convex meshes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import mujoco
import numpy as np

from tangens.geometry.superquadric_fits import Parameters
from tangens.lab.bench.peers.mjx_quietly import mjx
from tangens.lab.creatures import convex_parts

SETTINGS = (
    "mjx.collision after mjx.kinematics, a convex mesh of 26 vertices in the place of each superquadric, all of one "
    "kind, model and data closed over, vmap and jit; as many poses at once as 1.5 GB have room for, single precision"
)
_BYTES = 2.6e5
"""Measured, for each pair of meshes in each pose."""
_ROOM = 1.5e9


def at_once(parts: int) -> int:
    """Poses that MJX gets at once; larger batches are run one part after the other, which takes it no longer."""
    return int(2 ** np.floor(np.log2(_ROOM / (_BYTES * parts**2))))


def creature_model(one: Parameters, two: Parameters) -> mujoco.MjModel:
    """Two free bodies; geoms of one body do not meet.

    MJX runs one function for each pair of kinds of meshes, in turn, and compiles each: 324 of them, for many minutes,
    if all 18 superquadrics of both bodies differ. What it does depends on how many corners meshes have and not on where
    those are, so that its meshes are of one kind here, each placed and turned as its superquadric is.
    """
    spec = mujoco.MjSpec()
    for b, parameters in enumerate((one, two)):
        body = spec.worldbody.add_body(name=f"creature {b}")
        body.add_freejoint()
        alone = parameters.take([0])._replace(position=np.zeros((1, 3)), rotation=np.eye(3)[None])
        spec.add_mesh(name=f"part of {b}", uservert=convex_parts(alone)[0].ravel())
        for position, rotation in zip(parameters.position, parameters.rotation, strict=True):
            turn = np.zeros(4)
            mujoco.mju_mat2Quat(turn, rotation.ravel())
            kind = mujoco.mjtGeom.mjGEOM_MESH
            body.add_geom(type=kind, meshname=f"part of {b}", pos=position, quat=turn, mass=0.1)
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
