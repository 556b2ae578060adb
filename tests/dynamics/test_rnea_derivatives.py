"""RNEA derivatives against Pinocchio's and against differences of MuJoCo's RNEA, on random trees."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import numpy as np
import pinocchio as pin

from tangens.dynamics.kinematic_tree import pack_tree, propagate_velocities, unpack_tree
from tangens.dynamics.rnea_derivatives import add_rnea_derivatives
from tangens.dynamics.spatial import Ancestry
from tangens.dynamics.tree import build_tree

Tree = tuple[mujoco.MjModel, mujoco.MjData]
STEP = 1e-6


def derivatives(
    m: mujoco.MjModel, d: mujoco.MjData, outside: np.ndarray | None = None, scale: float = 1.0
) -> np.ndarray:
    """By q and by v, (2, nv, nv)."""
    dofs, bodies, _ = unpack_tree(pack_tree(m, np.zeros((m.nv, 3))))
    before, after, out = np.zeros((m.nv, 6)), np.zeros((m.nv, 6)), np.zeros((2, m.nv, m.nv))
    propagate_velocities(dofs, d.cdof, d.qvel, before, after)
    outside = np.zeros((m.nv, 6)) if outside is None else outside
    gravity = m.opt.gravity.copy()
    add_rnea_derivatives(
        dofs, bodies, d.cdof, d.cinert, gravity, before, after, d.qvel, d.qacc, outside, scale, out[0], out[1]
    )  # fmt: skip
    return out


def differences(m: mujoco.MjModel, d: mujoco.MjData, f: Callable[[mujoco.MjData], np.ndarray]) -> np.ndarray:
    """Central differences by q, on its manifold, and by v, (2, nv, nv)."""
    out = np.zeros((2, m.nv, m.nv))
    for k, e in enumerate(np.eye(m.nv)):
        for sign in (1, -1):
            moved, pushed = mujoco.MjData(m), mujoco.MjData(m)
            for other in (moved, pushed):
                other.qpos[:], other.qvel[:], other.qacc[:] = d.qpos, d.qvel, d.qacc
            mujoco.mj_integratePos(m, moved.qpos, e, sign * STEP)
            pushed.qvel[:] += sign * STEP * e
            out[0, :, k] += sign * f(moved) / (2 * STEP)
            out[1, :, k] += sign * f(pushed) / (2 * STEP)
    return out


def test_they_are_pinocchios(random_tree: Tree) -> None:
    m, d = random_tree
    tree = build_tree(m)
    data = tree.model.createData()  # must outlive the results, which are views of it
    theirs = pin.computeRNEADerivatives(tree.model, data, d.qpos[tree.q_order], d.qvel, d.qacc)
    for ours, expected in zip(derivatives(m, d), theirs[:2], strict=True):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-11 * np.abs(expected).max())


def test_they_are_differences_of_mujocos_inverse_dynamics(random_tree: Tree) -> None:
    m, d = random_tree

    def rnea(data: mujoco.MjData) -> np.ndarray:
        force = np.zeros(m.nv)
        mujoco.mj_fwdPosition(m, data)
        mujoco.mj_comVel(m, data)
        mujoco.mj_rne(m, data, 1, force)
        return force

    ours, expected = derivatives(m, d), differences(m, d, rnea)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-7 * np.abs(expected).max())


def test_outside_wrenches_stay_where_they_are(random_tree: Tree) -> None:
    """A wrench on each body, fixed in the world: how its generalised force changes as joints move."""
    m, d = random_tree
    wrench = np.random.default_rng(0).normal(size=(m.nbody, 6))  # torque about the world's origin, force
    wrench[0] = 0.0

    def generalised(data: mujoco.MjData) -> np.ndarray:
        mujoco.mj_fwdPosition(m, data)
        force = np.zeros(m.nv)
        for body in range(1, m.nbody):
            linear, angular = np.zeros((3, m.nv)), np.zeros((3, m.nv))
            mujoco.mj_jac(m, data, linear, angular, np.zeros(3), body)
            force += angular.T @ wrench[body, :3] + linear.T @ wrench[body, 3:]
        return force

    outside, carries = np.zeros((m.nv, 6)), Ancestry(m).bodies > 0
    for body in range(1, m.nbody):
        centre = d.subtree_com[m.body_rootid[body]]
        about_centre = wrench[body] - [*np.cross(centre, wrench[body, 3:]), 0, 0, 0]
        outside[carries[body]] += about_centre
    ours, expected = derivatives(m, d, outside, scale=0.0)[0], differences(m, d, generalised)[0]
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-7 * np.abs(expected).max())


def test_they_are_added_in_proportion(random_tree: Tree) -> None:
    m, d = random_tree
    np.testing.assert_allclose(derivatives(m, d, scale=-0.5), -0.5 * derivatives(m, d), rtol=1e-12, atol=1e-12)
