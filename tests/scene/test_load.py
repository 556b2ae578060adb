"""Loading: every kind of source, and for every defect an error that names file, element, reason and remedy."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tangens as tg
from tangens.scene.support import FEATURES

PENDULUM = """
<mujoco>
  <worldbody>
    <body name="rod"><joint name="pivot"/><geom name="bob" size="0.1" pos="0 0 -1" mass="1"/></body>
  </worldbody>
</mujoco>
"""


def test_path_text_spec_and_model_are_the_same_scene(tmp_path: Path) -> None:
    file = tmp_path / "pendulum.xml"
    file.write_text(PENDULUM)
    sources = (file, str(file), PENDULUM, mujoco.MjSpec.from_string(PENDULUM), mujoco.MjModel.from_xml_string(PENDULUM))
    states = [tg.Simulator(scene := tg.load(source)).step(tg.State([0.3], [0.1])).state for source in sources]
    assert scene.joint_names == ("pivot",)
    assert all(state == states[0] for state in states)


def test_a_given_spec_or_model_is_not_altered() -> None:
    spec = mujoco.MjSpec.from_string(PENDULUM)
    before = spec.to_xml()
    tg.load(spec, ground=True, motors=True)
    assert spec.to_xml() == before
    model = mujoco.MjModel.from_xml_string(PENDULUM.replace("<worldbody>", '<option viscosity="1"/><worldbody>'))
    tg.load(model, ignore=["fluid"])
    assert model.opt.viscosity == 1.0


def test_a_compiled_binary_loads(tmp_path: Path) -> None:
    file = tmp_path / "pendulum.mjb"
    mujoco.mj_saveModel(mujoco.MjModel.from_xml_string(PENDULUM), str(file))
    assert tg.load(file).joint_names == ("pivot",)


def test_motors_do_not_take_over_the_defaults_of_other_actuators() -> None:
    """A file whose actuators are all limited, with ranges of their own, has none for ours."""
    xml = """<mujoco><default><general ctrllimited="true" forcelimited="true" gear="7"/></default><worldbody>
      <body><joint name="driven"/><geom size="0.1"/>
      <body><joint name="free"/><geom size="0.1" pos="1 0 0"/></body></body>
      </worldbody><actuator><motor joint="driven" ctrlrange="-1 1" forcerange="-2 2"/></actuator></mujoco>"""
    scene = tg.load(xml, motors=True)
    state = scene.initial_state()
    sim = tg.Simulator(scene)
    pushed, forced = sim.step(state, u=[0, 3.0]), sim.step(state, tau=[0, 3.0])
    np.testing.assert_allclose(pushed.state.v, forced.state.v)


def test_options_add_base_ground_and_motors() -> None:
    xml = """<mujoco><worldbody><body name="a"><geom size=".1"/><body><joint name="j"/><geom size=".1"/></body></body>
             </worldbody></mujoco>"""
    scene = tg.load(xml, floating_base=True, ground=-0.5, motors=True)
    assert (scene.nq, scene.nv, scene.nu) == (8, 7, 1)
    assert scene.actuator_names == ("j",)
    assert scene.model.geom_pos[scene.geom_names.index("ground"), 2] == -0.5


def test_decoration_is_dropped_even_when_its_files_are_missing() -> None:
    xml = """<mujoco><asset><texture name="t" type="2d" file="missing.png"/>
      <material name="m" texture="t" rgba="1 0 0 1"/></asset><worldbody><camera/><light/>
      <body name="b"><freejoint/><geom size="1" material="m"/></body></worldbody>
      <sensor><framepos objtype="body" objname="b"/></sensor></mujoco>"""
    scene = tg.load(xml)
    assert scene.model.geom_rgba[0].tolist() == [1, 0, 0, 1]
    assert scene.model.nsensor == 0


def slider(rest: str = "", *, joint: str = "", geom: str = "") -> str:
    """A body on a vertical slide, with room for one defect or feature."""
    return f"""<mujoco><worldbody><site name="s"/><body name="b"><joint name="j" type="slide" {joint}/>
        <geom name="g" size="0.1" {geom}/><site name="e"/></body></worldbody>{rest}</mujoco>"""


BROKEN = {
    "unclosed tag": ("<mujoco><worldbody>", "XML"),
    "unknown element": ("<mujoco><wrldbody/></mujoco>", "wrldbody"),
    "empty text": ("<", "no XML element"),
    "not MJCF": ("<html></html>", "."),
    "missing mesh": ('<mujoco><asset><mesh name="m" file="no.stl"/></asset></mujoco>', "no.stl"),
    "missing include": ('<mujoco><include file="no.xml"/></mujoco>', "no.xml"),
    "no mass": ('<mujoco><worldbody><body name="ghost"><joint/></body></worldbody></mujoco>', "'ghost'"),
    "negative mass": (slider(geom='mass="-1"'), "negative"),
    "NaN mass": (slider(geom='mass="nan"'), "NaN"),
    "NaN position": (slider(geom='pos="0 nan 0"'), "NaN|nan"),
    "NaN gravity": (slider('<option gravity="0 0 nan"/>'), "NaN|nan"),
    "negative timestep": (slider('<option timestep="-1"/>'), "timestep"),
    "zero timestep": (slider('<option timestep="0"/>'), "timestep"),
    "impossible inertia": (
        '<mujoco><worldbody><body name="b"><joint/><inertial pos="0 0 0" mass="1" diaginertia="1 1 9"/></body>'
        "</worldbody></mujoco>",
        r"'b'.*A \+ B >= C",
    ),
}


@pytest.mark.parametrize(("xml", "complaint"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_descriptions_say_what_is_wrong(xml: str, complaint: str) -> None:
    with pytest.raises(tg.SceneError, match=complaint) as caught:
        tg.load(xml)
    assert caught.value.remedy
    assert "Remedy" in str(caught.value)


def test_errors_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broken.xml"
    file.write_text("<mujoco><worldbody>")
    with pytest.raises(tg.SceneError) as caught:
        tg.load(file)
    assert caught.value.file == str(file)
    with pytest.raises(tg.SceneError, match="no such file"):
        tg.load(tmp_path / "missing.xml")
    with pytest.raises(tg.SceneError, match="cannot be read"):
        tg.load(tmp_path)
    (tmp_path / "binary.xml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(tg.SceneError, match="not a text file"):
        tg.load(tmp_path / "binary.xml")


def test_altered_models_are_checked_too() -> None:
    model = mujoco.MjModel.from_xml_string(PENDULUM)
    model.body_inertia[1] = [1, 1, 9]
    with pytest.raises(tg.SceneError, match=r"'rod'.*A \+ B >= C"):
        tg.load(model)
    model.body_inertia[1] = 0.0
    model.body_mass[1] = 0.0
    with pytest.raises(tg.SceneError, match=r"'pivot'.*without moving any mass"):
        tg.load(model)
    model.body_mass[1] = np.nan
    with pytest.raises(tg.SceneError, match="mass is not a number"):
        tg.load(model)


def tendon(attributes: str) -> str:
    return f'<tendon><fixed name="t" {attributes}><joint joint="j" coef="1"/></fixed></tendon>'


def actuator(element: str) -> str:
    return f"<actuator>{element}</actuator>"


UNSUPPORTED = {
    "fluid": slider('<option density="1000"/>'),
    "spatial tendon": slider(
        '<tendon><spatial name="t" stiffness="9"><site site="s"/><site site="e"/></spatial></tendon>'
        + actuator('<motor tendon="t"/>')
    ),
    "muscle": slider(actuator('<muscle name="m" joint="j" lengthrange="0 1"/>')),
    "activation": slider(actuator('<position name="a" joint="j" timeconst="0.1"/>')),
    "actuator law": slider(actuator('<general name="a" joint="j" gaintype="user"/>')),
    "transmission": slider(actuator('<motor name="a" site="e" refsite="s"/>')),
    "turning transmission": slider(actuator('<motor name="a" site="e"/>')),
    "tendon armature": slider(tendon('armature="1"')),
    "tendon force limit": slider(tendon('actuatorfrcrange="-1 1"')),
    "plastic spring": slider(joint='stiffness="1" springyield="1"'),
    "adhesion": slider(geom='adhesion="1"'),
    "surface velocity": slider(geom='surfacevel="1 0 0 0 0 0"'),
}


@pytest.mark.parametrize("feature", UNSUPPORTED)
def test_unsupported_physics_is_refused_by_name_or_switched_off(feature: str) -> None:
    with pytest.raises(tg.SceneError, match=f"{feature} is not supported") as caught:
        tg.load(UNSUPPORTED[feature])
    assert caught.value.element
    assert f'ignore=("{feature}",)' in str(caught.value)
    # Without the feature, the slider falls or rests as if it had never been there.
    scene = tg.load(UNSUPPORTED[feature], ignore=[feature])
    out = tg.Simulator(scene).step(tg.State([0.1], [0.2]), u=np.ones(scene.nu))
    spring = -0.1 if feature == "plastic spring" else 0.0
    mass = scene.parameters["mass"][1]
    assert out.state.v[0] == pytest.approx(0.2 + scene.timestep * (-9.81 + spring / mass), rel=1e-12)


def test_flex_is_refused() -> None:
    xml = """<mujoco><worldbody><flexcomp name="cloth" type="grid" count="3 3 1" spacing=".1 .1 .1" dim="2" mass="1"/>
             </worldbody></mujoco>"""
    with pytest.raises(tg.SceneError, match="flex is not supported"):
        tg.load(xml)


def test_a_feature_to_ignore_must_exist() -> None:
    with pytest.raises(tg.OptionError, match="fluid"):
        tg.load(PENDULUM, ignore=["friction"])
    assert len({feature.name for feature in FEATURES}) == len(FEATURES)


def test_options_that_change_the_description_need_one() -> None:
    with pytest.raises(tg.OptionError, match="MjSpec"):
        tg.load(mujoco.MjModel.from_xml_string(PENDULUM), ground=0.0)
    with pytest.raises(tg.OptionError, match="height"):
        tg.load(PENDULUM, ground="a")  # type: ignore[arg-type]
    with pytest.raises(tg.OptionError, match="floating_base"):
        tg.load(PENDULUM, floating_base=True)


# ---------------------------------------------------------------------- anything at all

words = st.sampled_from(
    [
        "nan",
        "inf",
        "-1",
        "0",
        "1e308",
        "-1e308",
        "1e-320",
        "b",
        "j",
        "g",
        "free",
        "ball",
        "slide",
        "hinge",
        "box",
        "mesh",
        "plane",
        "''",
        "true",
        "1,2",
        "0x10",
        "∞",
    ]
)
numbers = st.lists(st.one_of(words, st.floats().map(repr), st.integers(-5, 5).map(str)), max_size=5).map(" ".join)
attributes = st.dictionaries(
    st.sampled_from(
        [
            "name",
            "type",
            "size",
            "mass",
            "pos",
            "quat",
            "axis",
            "range",
            "stiffness",
            "damping",
            "armature",
            "diaginertia",
            "file",
            "class",
            "gear",
        ]
    ),
    numbers,
    max_size=4,
)
tags = st.sampled_from(
    [
        "worldbody",
        "body",
        "joint",
        "freejoint",
        "geom",
        "inertial",
        "actuator",
        "motor",
        "tendon",
        "fixed",
        "option",
        "default",
    ]
)


def _element(tag: str, attrs: dict[str, str], children: list[str]) -> str:
    text = "".join(f' {key}="{value}"'.replace("<", "&lt;") for key, value in attrs.items())
    return f"<{tag}{text}>{''.join(children)}</{tag}>"


documents = st.recursive(
    st.builds(_element, tags, attributes, st.just([])),
    lambda inner: st.builds(_element, tags, attributes, st.lists(inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.one_of(
        st.text(max_size=60),
        st.builds(_element, st.sampled_from(["mujoco", "robot"]), attributes, st.lists(documents, max_size=4)),
    )
)
def test_any_text_ends_in_a_scene_that_steps_or_in_our_error(text: str) -> None:
    try:
        scene = tg.load(text)
        out = tg.Simulator(scene).step(scene.initial_state())
    except tg.Error:
        return
    assert np.isfinite(out.state.v).all()


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    field=st.sampled_from(
        ["mass", "size", "pos", "quat", "stiffness", "damping", "armature", "timestep", "gravity", "axis"]
    ),
    value=numbers,
)
def test_any_number_in_a_pendulum_ends_in_a_finite_step_or_in_our_error(field: str, value: str) -> None:
    geom = f'{field}="{value}"' if field in ("mass", "size", "pos", "quat") else ""
    joint = f'{field}="{value}"' if field in ("stiffness", "damping", "armature", "axis") else ""
    option = f'{field}="{value}"' if field in ("timestep", "gravity") else ""
    size = "" if field == "size" else 'size="0.1"'
    xml = (
        f"<mujoco><option {option}/><worldbody><body><joint {joint}/><geom {size} {geom}/></body></worldbody></mujoco>"
    )
    try:
        scene = tg.load(xml)
        out = tg.Simulator(scene).step(tg.State([0.3], [0.4]))
    except tg.Error:
        return
    assert np.isfinite(out.state.v).all()


@given(st.one_of(st.none(), st.integers(), st.binary(), st.lists(st.integers()), st.dictionaries(st.text(), st.text())))
def test_other_objects_are_no_scenes(thing: object) -> None:
    with pytest.raises(tg.SceneError):
        tg.load(thing)
