"""Shapes of MuJoCo's geoms are the sets that MuJoCo measures distances to."""

from __future__ import annotations

import subprocess
import sys
from itertools import product

import jax
import mujoco
import numpy as np
import pytest

import tangens as tg
from tangens import geometry as geo

WEDGE = " ".join(f"{x} {y} {z}" for x, y, z in [(0, 0, 0), (0.6, 0, 0), (0, 0.5, 0), (0, 0, 0.4), (0.1, 0.1, 0.1)])
CUBE = " ".join(f"{x} {y} {z}" for x, y, z in product([-0.2, 0.3], [-0.1, 0.1], [-0.4, 0.2]))
MODEL = mujoco.MjModel.from_xml_string(f"""<mujoco>
  <asset><mesh name="wedge" vertex="{WEDGE}"/><mesh name="cube" vertex="{CUBE}"/></asset>
  <worldbody>
    <geom name="plane" type="plane" size="1 1 1"/>
    <geom name="sphere" type="sphere" size="0.3"/>
    <geom name="capsule" type="capsule" size="0.2 0.3" euler="10 20 30"/>
    <geom name="ellipsoid" type="ellipsoid" size="0.2 0.3 0.4" pos="1 2 3"/>
    <geom name="cylinder" type="cylinder" size="0.2 0.3" euler="10 20 30"/>
    <geom name="box" type="box" size="0.2 0.3 0.4" euler="10 20 30"/>
    <geom name="wedge" type="mesh" mesh="wedge" euler="10 20 30"/>
    <geom name="cube" type="mesh" mesh="cube"/>
    <geom name="picture" type="box" size="1 1 1" contype="0" conaffinity="0"/>
    <body mocap="true"><geom name="probe" type="sphere" size="1e-4"/></body>
  </worldbody></mujoco>""")
SHAPES = dict(zip([MODEL.geom(g).name for g in range(MODEL.ngeom)], geo.shapes_of(MODEL), strict=True))
NAMES = [name for name in SHAPES if name not in {"probe", "picture"}]


def shape_of(name: str) -> geo.Shape:
    shape = SHAPES[name]
    assert shape is not None
    return shape


rows = jax.jit(lambda shape, p, inner: shape.rows(p, 1.0, inner))


def holds(shape: geo.Shape, p: np.ndarray) -> bool:
    inner = np.clip(p[2:], -shape.half_length, shape.half_length) if isinstance(shape, geo.Capsule) else np.zeros(0)
    return bool(np.all(rows(shape, p, inner) <= 0))


@pytest.mark.parametrize("name", NAMES)
def test_shapes_hold_the_points_that_are_inside_for_mujoco(name: str) -> None:
    data, rng, both = mujoco.MjData(MODEL), np.random.default_rng(0), set()
    geom, probe = MODEL.geom(name).id, MODEL.geom("probe").id
    for p in (2 * float(shape_of(name).girth) or 0.5) * rng.uniform(-1, 1, (40, 3)):
        mujoco.mj_kinematics(MODEL, data)
        data.mocap_pos[0] = data.geom_xpos[geom] + data.geom_xmat[geom].reshape(3, 3) @ p
        mujoco.mj_kinematics(MODEL, data)
        distance = mujoco.mj_geomDistance(MODEL, data, geom, probe, 10.0, None)
        if abs(distance) > 1e-3:
            assert holds(shape_of(name), p) == (distance < 0), (p, distance)
            both.add(distance < 0)
    assert both == {True, False}


def test_what_touches_nothing_has_no_shape() -> None:
    assert SHAPES["picture"] is None


def test_triangles_of_one_face_are_one_row() -> None:
    assert shape_of("cube").n_rows == 6
    assert shape_of("wedge").n_rows == 4


def test_hulls_in_the_plane_have_a_row_for_each_side() -> None:
    corners = np.array([[1, 0], [0, 1], [-1, 0], [0, -1], [0.5, 0.5], [0.1, 0.2]])
    diamond = geo.convex_hull(corners)
    assert (diamond.dim, diamond.n_rows) == (2, 4)
    np.testing.assert_allclose(diamond.b, np.sqrt(0.5))
    np.testing.assert_allclose(
        sorted(map(tuple, geo.corners(diamond.A, diamond.b).round(9))), sorted(map(tuple, corners[:4]))
    )


@pytest.mark.parametrize("name", ["sphere", "capsule", "ellipsoid", "cylinder", "box"])
def test_derivatives_by_size_are_those_of_differences(name: str) -> None:
    kind, size, step = int(MODEL.geom(name).type[0]), np.array([0.2, 0.3, 0.4]), 1e-6
    p, inner = np.array([0.1, 0.2, 0.3]), np.full(shape_of(name).n_inner, 0.1)
    of_size = jax.jit(lambda size: rows(geo.from_geom(kind, size), p, inner))
    slopes = [(of_size(size + step * e) - of_size(size - step * e)) / (2 * step) for e in np.eye(3)]
    np.testing.assert_allclose(jax.jacfwd(of_size)(size), np.stack(slopes, axis=-1), atol=1e-8)


def test_all_sizes_can_be_replaced_at_once() -> None:
    larger = geo.shapes_of(MODEL, 2 * MODEL.geom_size)
    box = larger[MODEL.geom("box").id]
    assert box is not None
    np.testing.assert_allclose(box.reach, 2 * shape_of("box").reach)


def test_words_and_numbers_name_the_same_types() -> None:
    for type_ in ("box", mujoco.mjtGeom.mjGEOM_BOX, int(mujoco.mjtGeom.mjGEOM_BOX)):
        assert geo.kind(geo.from_geom(type_, np.ones(3))) == geo.kind(geo.box(np.ones(3)))


def test_hills_are_refused_by_name() -> None:
    model = mujoco.MjModel.from_xml_string("""<mujoco>
      <asset><hfield name="h" nrow="3" ncol="3" size="1 1 1 1"/></asset>
      <worldbody><geom name="hill" type="hfield" hfield="h"/></worldbody></mujoco>""")
    with pytest.raises(tg.SceneError, match=r"geom 'hill': there is no shape .* 'hfield'") as caught:
        geo.shapes_of(model)
    assert caught.value.remedy


def test_bad_geoms_are_refused() -> None:
    flat, aside = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]), np.eye(4, 3) + 2
    for arguments, complaint in (
        (("blob", np.ones(3)), "Known types"),
        ((99, np.ones(3)), "'99'"),
        (("box", np.ones(2)), "needs 3 sizes"),
        (("sphere", [-1.0]), "radius must be positive"),
        (("mesh", np.ones(3)), "vertices"),
        (("mesh", np.ones(3), flat), "lie in a plane"),
        (("mesh", np.ones(3), aside), "origin inside"),
    ):
        with pytest.raises(tg.OptionError, match=complaint):
            geo.from_geom(*arguments)
    with pytest.raises(tg.OptionError, match="size must have shape"):
        geo.shapes_of(MODEL, np.ones((1, 3)))


def test_importing_tangens_does_not_import_jax() -> None:
    code = "import sys, tangens; assert 'jax' not in sys.modules; tangens.geometry; assert 'jax' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'geometri'"):
        _ = tg.geometri  # type: ignore[attr-defined]
