"""A scene can be varied but not changed, and knows its names, parameters and keyframes."""

from __future__ import annotations

import pickle

import mujoco
import numpy as np
import pytest

import tangens as tg


def test_replace_leaves_the_original_alone() -> None:
    scene = tg.scenes.cube()
    before = {name: value.copy() for name, value in scene.parameters.items()}
    varied = scene.replace(friction=0.3, mass={"cube": 2.0}, gravity=[0, 0, -1.6], timestep=0.01, restitution=0.5)
    for name, value in scene.parameters.items():
        np.testing.assert_array_equal(value, before[name])
    assert varied.parameters["friction"].tolist() == [0.3] * len(scene.geom_names)
    assert varied.parameters["mass"][1] == 2.0
    assert varied.parameters["gravity"].tolist() == [0, 0, -1.6]
    assert varied.parameters["restitution"].tolist() == [0.5] * len(scene.geom_names)
    assert varied.timestep == 0.01


def test_parameters_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        tg.scenes.cube().parameters["mass"][0] = 1.0
    with pytest.raises(TypeError):
        tg.scenes.cube().parameters["mass"] = np.zeros(2)  # type: ignore[index]


def test_the_model_is_a_copy() -> None:
    scene = tg.scenes.cube()
    scene.model.body_mass[1] = 99.0
    assert scene.parameters["mass"][1] != 99.0


def test_inertia_survives_the_round_trip_through_principal_axes() -> None:
    scene = tg.scenes.polytope()
    skewed = scene.parameters["inertia"].copy()
    skewed[1] += [0, 0, 0, 1e-4, -2e-4, 1.5e-4]
    np.testing.assert_allclose(scene.replace(inertia=skewed).parameters["inertia"], skewed, atol=1e-15)


def test_a_free_body_may_move_its_centre_of_mass() -> None:
    # MuJoCo compiles a free body centred on its frame to a diagonal mass matrix; ours must not stay diagonal.
    scene = tg.scenes.cube().replace(com={"cube": [0.01, 0.0, 0.0]})
    m, d = scene.model, mujoco.MjData(scene.model)
    mujoco.mj_forward(m, d)
    M = np.zeros((6, 6))
    mujoco.mj_fullM(m, d, M)
    mass = scene.parameters["mass"][1]
    assert M[1, 5] == pytest.approx(0.01 * mass)


def test_a_compiled_model_with_a_fixed_centre_of_mass_says_so() -> None:
    xml = '<mujoco><worldbody><body name="b"><freejoint/><geom size=".1"/></body></worldbody></mujoco>'
    scene = tg.load(mujoco.MjModel.from_xml_string(xml))
    with pytest.raises(tg.SceneError, match=r"'b'.*fixed centre of mass"):
        scene.replace(com={"b": [0.1, 0, 0]})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"mass": {"cubee": 1.0}}, "Did you mean 'cube'"),
        ({"mass": -1.0}, "at least 0"),
        ({"mass": np.nan}, "finite"),
        ({"mass": "heavy"}, "does not fit"),
        ({"mass": [1.0, 2.0, 3.0]}, "does not fit"),
        ({"restitution": 1.5}, "between 0 and 1"),
        ({"gravity": {"cube": 1.0}}, "as a whole"),
        ({"colour": 1.0}, "no parameter 'colour'"),
        ({"inertia": {"cube": [1, 1, 3, 0, 0, 0]}}, "belong to no body"),
        ({"timestep": 0.0}, "timestep"),
        ({"timestep": "a"}, "timestep"),
        ({"timestep": np.nan}, "timestep"),
        ({"mass": 0.0}, "without moving any mass"),
    ],
)
def test_impossible_parameters_are_refused(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(tg.Error, match=complaint):
        tg.scenes.cube().replace(**change)  # type: ignore[arg-type]


def test_joint_names_reach_their_degrees_of_freedom() -> None:
    scene = tg.scenes.gyro()
    ball = next(name for name in scene.joint_names if name)
    damping = scene.replace(damping={ball: 0.7}).parameters["damping"]
    assert (damping == 0.7).sum() == 3


def test_keyframes_by_name_and_number() -> None:
    scene = tg.scenes.cube()
    assert scene.initial_state("resting") == scene.initial_state(scene.keyframe_names.index("resting"))
    with pytest.raises(tg.OptionError, match="'resting'"):
        scene.initial_state("flying")
    with pytest.raises(tg.OptionError, match="out of range"):
        scene.initial_state(17)


def test_restitution_comes_from_the_custom_tuple() -> None:
    scene = tg.scenes.ball()
    assert scene.parameters["restitution"][scene.geom_names.index("ball")] == 0.8


def test_a_wrong_restitution_tuple_is_refused() -> None:
    xml = """<mujoco><worldbody><geom name="g" size="1"/></worldbody><custom><tuple name="restitution">
             <element objtype="geom" objname="g" prm="2"/></tuple></custom></mujoco>"""
    with pytest.raises(tg.SceneError, match="restitution"):
        tg.load(xml)


def test_scenes_survive_pickling() -> None:
    scene = tg.scenes.ball().replace(mass={"ball": 0.123})
    copy = pickle.loads(pickle.dumps(scene))
    assert copy.parameters["mass"].tolist() == scene.parameters["mass"].tolist()
    assert copy.parameters["restitution"].tolist() == scene.parameters["restitution"].tolist()
    assert tg.Simulator(copy).step(copy.initial_state()).state == tg.Simulator(scene).step(scene.initial_state()).state
