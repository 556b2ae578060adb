"""A MuJoCo model as MJX takes it, for the smooth dynamics alone."""

from __future__ import annotations

import contextlib
import copy
import io
from typing import Any

import mujoco
import numpy as np
from mujoco import mjtDisableBit as Off

from tangens.dynamics.spatial import Ancestry
from tangens.errors import SceneError

with contextlib.redirect_stdout(io.StringIO()):  # it prints that it has no use for a GPU library
    from mujoco import mjx

__all__ = ["mjx", "to_mjx"]


def to_mjx(model: mujoco.MjModel, ancestry: Ancestry) -> tuple[Any, Any]:
    """Hand the tree of bodies to MJX, hiding what it refuses and what we do not ask of it."""
    if model.nv == 0:
        raise SceneError("the scene has no joints, so nothing in it can move")
    if model.nflex:  # switched off or not: MJX looks at their number
        raise SceneError("flex is not supported: MJX takes no model with deformable bodies, even where they do nothing")
    m = copy.copy(model)
    m.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    m.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    m.opt.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL
    m.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    m.opt.enableflags = 0
    m.opt.disableflags |= Off.mjDSBL_CONSTRAINT | Off.mjDSBL_CONTACT | Off.mjDSBL_SENSOR
    # Spheres that never touch: MJX knows every pair of them, and prepares no mesh for collision.
    m.geom_type[:] = mujoco.mjtGeom.mjGEOM_SPHERE
    m.geom_contype[:] = m.geom_conaffinity[:] = 0
    m.eq_type[:] = mujoco.mjtEq.mjEQ_CONNECT
    m.sensor_type[:] = mujoco.mjtSensor.mjSENS_JOINTPOS
    m.wrap_type[:] = mujoco.mjtWrap.mjWRAP_JOINT
    m.actuator_trntype[:], m.actuator_trnid[:] = mujoco.mjtTrn.mjTRN_JOINT, 0
    mjx_model = mjx.put_model(m, impl="jax")
    data = mjx.make_data(mjx_model)
    # Where a body's mass matrix is diagonal, as a ball's is, MuJoCo keeps the diagonal only. Other values of `com`
    # and `inertia` fill it, so MJX must keep all that the tree allows.
    row, column = np.nonzero(np.tril(ancestry.coupled))
    count = np.bincount(row, minlength=m.nv)
    sparsity = {"M_rownnz": count, "M_rowadr": np.cumsum(count) - count, "M_colind": column}
    # Geoms and sites move with their bodies; a mocap body stands where the model puts it.
    return mjx_model.replace(ngeom=0, nsite=0, nmocap=0, **sparsity), data
