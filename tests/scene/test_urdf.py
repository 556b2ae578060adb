"""URDF from the wild: paths, meshes, inertias and trees as people really write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st

import tangens as tg
from tangens.scene.inertials import Inertial

GOOD = '<inertial><mass value="1"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>'


def link(name: str, inside: str = GOOD) -> str:
    return f'<link name="{name}">{inside}</link>'


def joint(name: str, parent: str, child: str, kind: str = "revolute", inside: str = "") -> str:
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
        f'<axis xyz="0 0 1"/><limit lower="-1" upper="1" effort="5" velocity="1"/>{inside}</joint>'
    )


def inertial(mass: float, moments: tuple[float, float, float], xyz: str = "0 0 0") -> str:
    x, y, z = moments
    return (
        f'<inertial><origin xyz="{xyz}"/><mass value="{mass}"/>'
        f'<inertia ixx="{x}" iyy="{y}" izz="{z}" ixy="0" ixz="0" iyz="0"/></inertial>'
    )


def robot(*parts: str) -> str:
    return f'<robot name="r">{"".join(parts)}</robot>'


def collision(mesh: str, scale: str = "") -> str:
    return f'<collision><geometry><mesh filename="{mesh}" {scale}/></geometry></collision>'


def write_mesh(file: Path, kind: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    content = trimesh.creation.box(extents=(0.2, 0.4, 0.6)).export(file_type=kind)
    file.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.mark.parametrize(
    "uri",
    [
        "package://my_robot/meshes/box.stl",
        "package:///my_robot/meshes/box.stl",
        "../meshes/box.stl",
        "file://{root}/my_robot/meshes/box.stl",
    ],
)
def test_mesh_paths_are_found(tmp_path: Path, uri: str) -> None:
    write_mesh(tmp_path / "my_robot" / "meshes" / "box.stl", "stl")
    file = tmp_path / "my_robot" / "urdf" / "robot.urdf"
    file.parent.mkdir()
    file.write_text(robot(link("base", collision(uri.format(root=tmp_path)))))
    assert tg.load(file).model.nmesh == 1


def test_packages_are_found_where_the_user_says(tmp_path: Path) -> None:
    write_mesh(tmp_path / "elsewhere" / "parts" / "box.stl", "stl")
    text = robot(link("base", collision("package://parts/box.stl")))
    with pytest.raises(tg.SceneError, match="package_dirs") as caught:
        tg.load(text)
    assert caught.value.element == "link 'base'"
    assert tg.load(text, package_dirs=[tmp_path / "elsewhere"]).model.nmesh == 1


@pytest.mark.parametrize("kind", ["dae", "obj", "stl", "stl_ascii", "ply"])
def test_mesh_formats_keep_the_shape(tmp_path: Path, kind: str) -> None:
    name = f"box.{kind.removesuffix('_ascii')}"
    write_mesh(tmp_path / name, kind)
    (tmp_path / "r.urdf").write_text(robot(link("base", collision(name, 'scale="1 1 2"'))))
    m = tg.load(tmp_path / "r.urdf").model
    extents = np.ptp(m.mesh_vert, axis=0)
    np.testing.assert_allclose(np.sort(extents), [0.2, 0.4, 1.2], atol=1e-6)


def test_meshes_of_one_name_in_two_folders_stay_apart(tmp_path: Path) -> None:
    write_mesh(tmp_path / "a" / "m.stl", "stl")
    trimesh.creation.icosphere(radius=2.0).export(tmp_path / "m.stl")
    (tmp_path / "r.urdf").write_text(
        robot(link("base", collision("a/m.stl") + collision("m.stl") + collision("m.stl", 'scale="2 2 2"')))
    )
    m = tg.load(tmp_path / "r.urdf").model
    assert m.nmesh == 3
    lengths = sorted(
        float(np.ptp(m.mesh_vert[a : a + n], axis=0).max()) for a, n in zip(m.mesh_vertadr, m.mesh_vertnum, strict=True)
    )
    assert lengths == pytest.approx([0.6, 4.0, 8.0], rel=1e-6)


def test_meshes_of_many_thousand_vertices_load(tmp_path: Path) -> None:
    trimesh.creation.icosphere(subdivisions=6).export(tmp_path / "fine.stl")
    (tmp_path / "r.urdf").write_text(robot(link("base", collision("fine.stl"))))
    assert tg.load(tmp_path / "r.urdf").model.nmeshvert > 40_000


def test_a_broken_mesh_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.dae").write_text("this is no mesh")
    with pytest.raises(tg.SceneError, match=r"bad\.dae"):
        tg.load(robot(link("base", collision(f"file://{tmp_path}/bad.dae"))))


def test_visuals_are_dropped_with_their_missing_files() -> None:
    visual = '<visual><geometry><mesh filename="package://nowhere/shiny.dae"/></geometry></visual>'
    assert tg.load(robot(link("base", GOOD + visual))).model.nmesh == 0


def test_links_on_fixed_joints_keep_their_names() -> None:
    scene = tg.load(robot(link("base"), link("tool", ""), joint("weld", "base", "tool", "fixed")))
    assert scene.body_names == ("world", "base", "tool")


def test_mimic_joints_become_equalities() -> None:
    text = robot(
        link("base"), link("a"), link("b"), joint("j1", "base", "a"),
        joint("j2", "a", "b", inside='<mimic joint="j1" multiplier="2" offset="0.1"/>'),
    )  # fmt: skip
    m = tg.load(text).model
    assert m.neq == 1
    assert m.eq_data[0, :2].tolist() == [0.1, 2.0]


def test_motors_take_the_joints_effort_as_their_limit() -> None:
    scene = tg.load(robot(link("base"), link("a"), joint("j", "base", "a")), motors=True)
    assert scene.actuator_names == ("j",)
    assert scene.model.actuator_ctrlrange[0].tolist() == [-5, 5]


def test_missing_inertials_are_inferred_from_collision_shapes() -> None:
    shape = '<collision><geometry><box size="0.1 0.1 0.1"/></geometry></collision>'
    scene = tg.load(robot(link("base"), link("a", shape), joint("j", "base", "a")))
    assert scene.parameters["mass"][2] == pytest.approx(1.0)  # a litre of water


def test_massless_links_between_joints_make_a_compound_joint() -> None:
    tilted = '<origin rpy="1.2 0 0"/>'
    chain = robot(
        link("base"),
        link("virtual", ""),
        link("arm", inertial(1, (0.1, 0.1, 0.1), "0 0 1")),
        joint("j1", "base", "virtual"),
        joint("j2", "virtual", "arm", inside=tilted),
    )
    assert tg.load(chain).nv == 2


def test_a_massless_end_link_that_moves_is_an_error_with_a_way_out() -> None:
    text = robot(link("base"), link("ghost", ""), joint("j", "base", "ghost"))
    with pytest.raises(tg.SceneError, match=r"link 'ghost'.*neither mass"):
        tg.load(text)
    assert tg.load(text, repair_inertia=True).parameters["mass"][2] == pytest.approx(1e-3)


def test_an_impossible_part_is_carried_by_its_link_without_changing_the_motion() -> None:
    """A camera exported with nonsense inertia: the sum with the link it sits on is what moves."""
    camera = link("camera", inertial(0.2, (1e-5, 1e-5, 9e-4), "0.1 0 0"))
    carrier = link("arm", inertial(2.0, (0.05, 0.06, 0.07), "0 0.1 0"))
    placed = '<origin xyz="0 0.2 0.3" rpy="0.3 0.2 0.1"/>'
    scene = tg.load(robot(link("base"), carrier, camera, joint("j", "base", "arm"),
                          joint("mount", "arm", "camera", "fixed", placed)))  # fmt: skip
    import pinocchio as pin

    total = Inertial(2.0, np.array([0, 0.1, 0]), np.diag([0.05, 0.06, 0.07])) + Inertial(
        0.2, np.array([0.1, 0, 0]), np.diag([1e-5, 1e-5, 9e-4])
    ).moved(pin.SE3(pin.rpy.rpyToMatrix(0.3, 0.2, 0.1), np.array([0, 0.2, 0.3])))
    arm = scene.body_names.index("arm")
    assert scene.parameters["mass"][arm] == pytest.approx(total.mass)
    assert scene.parameters["mass"][scene.body_names.index("camera")] == 0.0
    np.testing.assert_allclose(scene.parameters["com"][arm], total.com, atol=1e-12)
    np.testing.assert_allclose(scene.parameters["inertia"][arm, :3], total.inertia.diagonal(), rtol=1e-9)


def test_a_part_whose_mass_is_carried_elsewhere_is_not_weighed_again_by_its_shape() -> None:
    box = '<collision><geometry><box size="1 1 1"/></geometry></collision>'
    parts = {"camera": inertial(0.2, (1e-5, 1e-5, 9e-4)), "frame": inertial(0.0, (0, 0, 0))}
    mounted = [link(name, inside + box) + joint(f"to_{name}", "arm", name, "fixed") for name, inside in parts.items()]
    scene = tg.load(robot(link("base"), link("arm"), joint("j", "base", "arm"), *mounted))
    assert scene.parameters["mass"][2:].sum() == pytest.approx(1.2)


def test_a_massless_end_link_is_not_excused_by_a_frame_on_it() -> None:
    links, hinge = link("base") + link("ghost", "") + link("tip", ""), joint("j", "base", "ghost")
    text = robot(links, hinge, joint("f", "ghost", "tip", "fixed"))
    with pytest.raises(tg.SceneError, match="link 'ghost'"):
        tg.load(text)


def test_an_impossible_moving_link_is_an_error_or_repaired_on_request() -> None:
    text = robot(link("base"), link("a", inertial(1, (0.1, 0.1, 0.9))), joint("j", "base", "a"))
    with pytest.raises(tg.SceneError, match=r"link 'a'.*A \+ B >= C") as caught:
        tg.load(text)
    assert "repair_inertia=True" in str(caught.value)
    moments = tg.load(text, repair_inertia=True).parameters["inertia"][2, :3]
    np.testing.assert_allclose(moments, [0.45, 0.45, 0.9], rtol=1e-6)


def test_inertia_of_what_cannot_move_does_not_matter() -> None:
    assert tg.load(robot(link("base", inertial(1, (1, 1, 9))))).nv == 0
    with pytest.raises(tg.SceneError, match="link 'base'"):
        tg.load(robot(link("base", inertial(1, (1, 1, 9)))), floating_base=True)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (robot(), "no links"),
        (robot(link("a"), link("a")), "share a name"),
        (robot(link("a"), link("b")), "2 root links"),
        (robot(link("a"), joint("j", "a", "b")), "joint 'j'.*'b' does not exist"),
        (robot(link("a"), link("b"), joint("j", "a", "b"), joint("k", "b", "a")), "cycle"),
        (robot(link("a"), link("b"), link("c"), joint("j", "a", "c"), joint("k", "b", "c")), "child of two joints"),
        (robot(link("a", inertial(-1, (1, 1, 1)))), "mass is negative"),
        (robot(link("a", inertial(float("nan"), (1, 1, 1)))), "finite number"),
        (robot(link("a"), link("b"), joint("j", "a", "b", inside='<origin xyz="1 2"/>'))[:-9], "broken XML"),
    ],
)
def test_broken_trees_and_numbers_are_named(text: str, complaint: str) -> None:
    with pytest.raises(tg.SceneError, match=complaint):
        tg.load(text)


@settings(max_examples=200)
@given(st.lists(st.floats(-1, 1), min_size=6, max_size=6), st.floats(0, 10))
def test_the_nearest_possible_inertia_is_possible(entries: list[float], mass: float) -> None:
    matrix = np.zeros((3, 3))
    matrix[np.triu_indices(3)] = entries
    given_one = Inertial(mass, np.zeros(3), matrix + np.triu(matrix, 1).T)
    mended = given_one.nearest_possible()
    low, middle, high = np.linalg.eigvalsh(mended.inertia)
    assert low > 0
    assert high <= (low + middle) * (1 + 1e-6)
    if not given_one.complaint() and mass > 0:
        np.testing.assert_allclose(mended.inertia, given_one.inertia, atol=1e-6)
