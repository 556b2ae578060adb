"""A MuJoCo model as MJX takes it, for the smooth dynamics alone."""

from __future__ import annotations

import contextlib
import copy
import io
from typing import Any

import mujoco
import numpy as np
from mujoco import mjtBias, mjtDyn, mjtGain, mjtObj, mjtTrn
from mujoco import mjtDisableBit as Off

from tangens.dynamics.forces_jax import coupled
from tangens.errors import SceneError

with contextlib.redirect_stdout(io.StringIO()):  # it prints that it has no use for a GPU library
    from mujoco import mjx

__all__ = ["mjx", "refuse_unsupported", "to_mjx"]

_ON_JOINT = (int(mjtTrn.mjTRN_JOINT), int(mjtTrn.mjTRN_JOINTINPARENT))


def to_mjx(model: mujoco.MjModel) -> tuple[Any, Any]:
    """Hand the tree of bodies to MJX, hiding what it refuses and what we do not ask of it."""
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
    mjx_model = mjx.put_model(m, impl="jax")
    data = mjx.make_data(mjx_model)
    # Where a body's mass matrix is diagonal, as a ball's is, MuJoCo keeps the diagonal only. Other values of `com`
    # and `inertia` fill it, so MJX must keep all that the tree allows.
    row, column = np.nonzero(np.tril(coupled(m)))
    count = np.bincount(row, minlength=m.nv)
    sparsity = {"M_rownnz": count, "M_rowadr": np.cumsum(count) - count, "M_colind": column}
    # Geoms and sites move with their bodies; a mocap body stands where the model puts it.
    return mjx_model.replace(ngeom=0, nsite=0, nmocap=0, **sparsity), data


def refuse_unsupported(m: mujoco.MjModel) -> None:
    """Raise a `SceneError` for the first thing that would change the motion and is not reproduced."""
    if m.nv == 0:
        raise SceneError("the scene has no joints, so nothing in it can move")
    if m.nflex:
        raise SceneError("flexible bodies (flex) are not supported by the dynamics in JAX")
    if m.opt.density > 0 or m.opt.viscosity > 0:
        raise SceneError("a fluid (option density, viscosity) is not supported by the dynamics in JAX")
    spatial = m.wrap_type[m.tendon_adr] != mujoco.mjtWrap.mjWRAP_JOINT
    springs = m.tendon_stiffness.astype(bool) | m.tendon_stiffnesspoly.any(axis=1)
    dampers = m.tendon_damping.astype(bool) | m.tendon_dampingpoly.any(axis=1) | m.tendon_armature.astype(bool)
    on_site, on_tendon = m.actuator_trntype == mjtTrn.mjTRN_SITE, m.actuator_trntype == mjtTrn.mjTRN_TENDON
    on_spatial = on_tendon & np.array(
        [t and spatial[i] for t, i in zip(on_tendon, m.actuator_trnid[:, 0], strict=True)], bool
    )
    gains, biases = (mjtGain.mjGAIN_FIXED, mjtGain.mjGAIN_AFFINE), (mjtBias.mjBIAS_NONE, mjtBias.mjBIAS_AFFINE)
    for kind, feature, present in (
        (mjtObj.mjOBJ_BODY, "plugin", m.body_plugin >= 0),
        (mjtObj.mjOBJ_JOINT, "springyield", m.jnt_plasticadr >= 0),
        (mjtObj.mjOBJ_TENDON, "springyield", m.tendon_plasticadr >= 0),
        (mjtObj.mjOBJ_TENDON, "spring, damper or armature of a spatial tendon", spatial & (springs | dampers)),
        (mjtObj.mjOBJ_ACTUATOR, "plugin", m.actuator_plugin >= 0),
        (mjtObj.mjOBJ_ACTUATOR, "dyntype (a state of its own)", m.actuator_dyntype != mjtDyn.mjDYN_NONE),
        (mjtObj.mjOBJ_ACTUATOR, "delay", m.actuator_delay != 0),
        (mjtObj.mjOBJ_ACTUATOR, "gaintype", ~np.isin(m.actuator_gaintype, gains)),
        (mjtObj.mjOBJ_ACTUATOR, "biastype", ~np.isin(m.actuator_biastype, biases)),
        (mjtObj.mjOBJ_ACTUATOR, "transmission", ~(np.isin(m.actuator_trntype, _ON_JOINT) | on_tendon | on_site)),
        (mjtObj.mjOBJ_ACTUATOR, "refsite", on_site & (m.actuator_trnid[:, 1] >= 0)),
        (mjtObj.mjOBJ_ACTUATOR, "transmission by a spatial tendon", on_spatial),
    ):
        for i in np.flatnonzero(present):
            name = mujoco.mj_id2name(m, kind, int(i)) or f"number {i}"
            what = kind.name.removeprefix("mjOBJ_").lower()
            raise SceneError(f"{what} {name!r}: its {feature} is not supported by the dynamics in JAX")
