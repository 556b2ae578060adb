"""The bundled scenes: each has a function of its name, moves as MuJoCo says, and starts where it claims to."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

import tangens as tg
from tangens.cli.check import check_scene

PROMISED = {
    "cube", "slope", "stack", "polytope_planar", "polytope", "peg_in_hole", "push_t", "ball", "cartpole",
    "double_cartpole", "cheetah", "catapult", "worm", "drone", "fingertips",
}  # fmt: skip


def test_the_promised_scenes_are_there() -> None:
    assert set(tg.scenes.names()) >= PROMISED


@pytest.mark.parametrize("name", tg.scenes.names())
def test_each_scene_has_a_documented_function(name: str) -> None:
    function = getattr(tg.scenes, name)
    assert function.__doc__
    assert isinstance(function(), tg.Scene)


@pytest.mark.parametrize("name", tg.scenes.names())
def test_physics_and_derivatives_hold(name: str) -> None:
    errors = check_scene(tg.scenes.get(name), samples=1, seed=0)
    assert errors["ok"], errors["errors"]


@pytest.mark.parametrize("name", tg.scenes.names())
def test_nothing_overlaps_at_the_start(name: str) -> None:
    scene = tg.scenes.get(name)
    m, d = scene.model, mujoco.MjData(scene.model)
    for key in (None, *scene.keyframe_names):
        state = scene.initial_state(key)
        d.qpos[:] = state.q
        mujoco.mj_forward(m, d)
        assert d.ncon == 0 or d.contact.dist[: d.ncon].min() > -1e-6, key


def test_unknown_scenes_get_a_suggestion() -> None:
    with pytest.raises(tg.OptionError, match="'cube'"):
        tg.scenes.get("cub")


def test_the_planar_polytope_is_the_papers() -> None:
    scene = tg.scenes.polytope_planar()
    body = 1
    assert scene.parameters["mass"][body] == pytest.approx(1.0)
    assert scene.parameters["inertia"][body, 1] == pytest.approx(0.2)
    rows = np.array([[1, 0.2], [0, 1], [-1, -0.3], [0, -1], [0.8, -0.8]])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    m = scene.model
    R = np.zeros(9)
    geom = int(np.flatnonzero(m.geom_type == int(mujoco.mjtGeom.mjGEOM_MESH))[0])
    mujoco.mju_quat2Mat(R, m.geom_quat[geom])
    vertices = m.mesh_vert @ R.reshape(3, 3).T + m.geom_pos[geom]
    reach = (vertices[:, [0, 2]] @ rows.T).max(axis=0)
    np.testing.assert_allclose(reach, 0.4, atol=1e-6)  # MuJoCo keeps mesh vertices in single precision
