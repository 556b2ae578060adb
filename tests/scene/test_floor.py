"""A floor is put under a robot, and its poses stand on it."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

import tangens as tg
from tangens import robots
from tangens.scene.floor import lowest_point

GEOMS = {
    "sphere": '<geom type="sphere" size="0.2" mass="1"/>',
    "box": '<geom type="box" size="0.1 0.2 0.3" mass="1"/>',
    "capsule": '<geom type="capsule" size="0.1 0.3" mass="1"/>',
    "cylinder": '<geom type="cylinder" size="0.1 0.3" mass="1"/>',
    "ellipsoid": '<geom type="ellipsoid" size="0.1 0.2 0.3" mass="1"/>',
    "two": '<geom type="sphere" size="0.1" pos="0.3 0 0" mass="1"/><geom type="box" size="0.2 0.1 0.1" mass="1"/>',
}


@pytest.mark.parametrize("geoms", GEOMS.values(), ids=GEOMS)
def test_the_floor_just_touches_the_lowest_geom(geoms: str) -> None:
    text = f'<mujoco><worldbody><body pos="0 0 -1" euler="20 40 60"><freejoint/>{geoms}</body></worldbody></mujoco>'
    scene = tg.load(text, ground=True)
    m, d = scene.model, mujoco.MjData(scene.model)
    mujoco.mj_forward(m, d)
    floor = scene.geom_names.index("ground")
    gaps = [mujoco.mj_geomDistance(m, d, floor, g, 9.0, np.zeros(6)) for g in range(m.ngeom) if g != floor]
    assert min(gaps) == pytest.approx(0.0, abs=1e-6)  # MuJoCo's general search stops at 1e-6


@pytest.mark.parametrize("name", ["go1", "solo12", "talos"])
def test_poses_of_legged_robots_stand_on_the_floor(name: str) -> None:
    scene = robots.get(name, ground=True)
    height = float(scene.model.geom("ground").pos[2])
    for pose in robots.poses(name):
        assert lowest_point(scene.model, scene.initial_state(pose).q) == pytest.approx(height, abs=1e-9)
    assert lowest_point(scene.model, scene.initial_state().q) == pytest.approx(height, abs=1e-9)


def test_a_pose_with_an_unknown_joint_is_refused() -> None:
    with pytest.raises(tg.OptionError, match="no hinge or slide 'antenna'"):
        tg.load(tg.scenes.path("arm"), poses={"up": {"antenna": 1.0}})


def test_a_name_in_place_of_a_path_leads_to_the_robots() -> None:
    with pytest.raises(tg.SceneError, match=r"tangens\.robots\.get\('go1'\)"):
        tg.load("go1")
