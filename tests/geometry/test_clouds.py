"""Oriented point clouds: of primitives and of meshes, their repair, their fit, their soft distance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trimesh
from numpy.typing import NDArray

import tangens as tg
from tangens.geometry import flat_kernels, kernel_distance, mesh_cloud, primitive_cloud, soft_distance
from tangens.geometry.mesh_repair import closed_mesh


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tangens.geometry.mesh_clouds.writable_folder", lambda name, most: tmp_path)


SIZES = {"box": [0.1, 0.2, 0.05], "ellipsoid": [0.1, 0.2, 0.15], "cylinder": [0.1, 0.2, 0.0], "sphere": [0.1, 0.0, 0.0]}


@pytest.mark.parametrize(("kind", "size"), SIZES.items())
def test_clouds_of_primitives_lie_on_them_and_face_outwards(kind: str, size: list[float]) -> None:
    cloud = primitive_cloud(kind, np.array(size), 200)
    assert 100 < len(cloud) < 400
    x, n = cloud.points, cloud.normals
    s = np.array(size)
    if kind == "box":
        on = np.abs(x / s).max(1)
    elif kind == "cylinder":
        on = np.maximum(np.hypot(x[:, 0], x[:, 1]) / s[0], np.abs(x[:, 2]) / s[1])
    else:
        on = np.linalg.norm(x / (s if kind == "ellipsoid" else s[0]), axis=1)
    np.testing.assert_allclose(on, 1.0, atol=1e-12)
    assert (np.sum(x * n, 1) > 0).all()
    corners = cloud.vertices[cloud.quads]
    quads = np.cross(corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1])
    quads /= np.linalg.norm(quads, axis=1, keepdims=True)
    assert np.sum(quads * n, 1).min() > 0.9


def test_temperature_goes_from_the_surface_to_an_ellipsoid() -> None:
    cloud = primitive_cloud("box", np.array([0.1, 0.1, 0.1]), 96)
    p, n = jnp.asarray(cloud.points), jnp.asarray(cloud.normals)

    def radius(temperature: float, direction: list[float]) -> float:
        """Where the zero set is along a direction."""
        way = np.array(direction) / np.linalg.norm(direction)
        s = np.linspace(0.01, 0.5, 3000)
        phi = jax.vmap(lambda s: soft_distance(p, n, temperature, s * way))(s)
        return float(s[np.argmax(np.asarray(phi) > 0)])

    sharp = radius(1e-5, [1, 1, 1]) / radius(1e-5, [1, 0, 0])
    round_ = radius(1.0, [1, 1, 1]) / radius(1.0, [1, 0, 0])
    assert sharp == pytest.approx(np.sqrt(3), rel=0.03)
    assert round_ == pytest.approx(1.0, rel=0.05)


def test_gaussian_kernels_that_are_alike_are_the_softmax() -> None:
    cloud = primitive_cloud("ellipsoid", np.array([0.1, 0.2, 0.15]), 96)
    points, normals = jnp.asarray(cloud.points), jnp.asarray(cloud.normals)
    for p in np.random.default_rng(0).normal(scale=0.2, size=(5, 3)):
        round_ = jnp.broadcast_to(jnp.eye(3) / 1e-3, (len(cloud), 3, 3))
        expected = float(soft_distance(points, normals, 1e-3, p))
        assert float(kernel_distance(points, normals, round_, p)) == pytest.approx(expected, rel=1e-9)
        flat = flat_kernels(normals, np.sqrt(1e-3), np.sqrt(1e-3))
        assert float(kernel_distance(points, normals, flat, p)) == pytest.approx(expected, rel=1e-9)


def test_a_mesh_becomes_a_cloud_that_fits_and_is_kept(tmp_path: Path) -> None:
    box = trimesh.creation.box([0.1, 0.2, 0.1])
    cloud, fit = mesh_cloud(box.vertices, box.faces, 600)
    assert fit.distance < 0.02
    assert fit.volume == pytest.approx(1.0, abs=0.02)
    assert fit.notes == ()
    assert len(list(tmp_path.glob("*.npz"))) == 1
    again, same = mesh_cloud(box.vertices, box.faces, 600)
    np.testing.assert_array_equal(again.points, cloud.points)
    assert same.distance == fit.distance


def test_defects_are_repaired_and_named() -> None:
    ball = trimesh.creation.icosphere(2, 0.1)
    flipped = ball.faces.copy()
    flipped[::7] = flipped[::7, ::-1]
    assert "turned" in " ".join(closed_mesh(ball.vertices, flipped).notes)
    inside_out = closed_mesh(ball.vertices, ball.faces[:, ::-1])
    assert "all triangles faced inwards" in " ".join(inside_out.notes)
    holed = closed_mesh(ball.vertices, ball.faces[5:])
    assert "holes" in " ".join(holed.notes)
    assert trimesh.Trimesh(holed.vertices, holed.faces).volume == pytest.approx(ball.volume, rel=0.05)
    two = trimesh.util.concatenate([ball, ball.copy().apply_translation([0.1, 0, 0])])
    assert "inside another part" in " ".join(closed_mesh(two.vertices, two.faces).notes)


def test_what_cannot_be_repaired_is_refused_with_a_reason() -> None:
    sheet = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0.5, 0.5, 0]])
    with pytest.raises(tg.OptionError, match=r"not closed|no inside"):
        closed_mesh(sheet, [[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]])
    with pytest.raises(tg.OptionError, match="4 triangles"):
        closed_mesh(np.zeros((3, 3)), [[0, 1, 2]])
    with pytest.raises(tg.OptionError, match="finite"):
        closed_mesh(np.full((4, 3), np.nan), [[0, 1, 2], [0, 1, 3], [1, 2, 3], [0, 2, 3]])


def test_a_scene_with_a_mesh_rests(tmp_path: Path) -> None:
    # an L-shaped mesh: what MuJoCo would take as its convex hull
    outline = np.array([[-0.05, -0.02], [0.05, -0.02], [0.05, 0.02], [-0.01, 0.02], [-0.01, 0.08], [-0.05, 0.08]])
    mesh = _extruded(outline, 0.06)
    file = tmp_path / "l.stl"
    mesh.export(file)
    scene = tg.load(
        f"""<mujoco><asset><mesh name="l" file="{file}"/></asset><worldbody><geom type="plane" size="1 1 1"/>
        <body pos="0 0 0.03"><freejoint/><geom type="mesh" mesh="l" mass="0.3"/></body></worldbody></mujoco>"""
    )
    sim = tg.Simulator(scene, "soft")
    out = sim.rollout(sim.initial_state(), 400)
    assert np.abs(out.v[-1]).max() < 1e-3
    assert out.contacts[-1].force[0, 2] == pytest.approx(0.3 * 9.81, rel=1e-3)
    assert sim.engine.fits[0].distance < 0.02  # type: ignore[attr-defined]


def _extruded(outline: NDArray[np.float64], depth: float) -> Any:
    """A prism over a polygon in the x-z plane, along y."""
    n = len(outline)
    lower, upper = (np.column_stack([outline[:, 0], np.full(n, y), outline[:, 1]]) for y in (-depth / 2, depth / 2))
    triangles = [[0, 1, 2], [0, 2, 3], [0, 3, 4], [0, 4, 5]]
    caps = [t[::-1] for t in triangles] + [[a + n for a in t] for t in triangles]
    sides = [f for i in range(n) for j in [(i + 1) % n] for f in ([i, j, j + n], [i, j + n, i + n])]
    mesh = trimesh.Trimesh(np.concatenate([lower, upper]), caps + sides)
    mesh.fix_normals()
    return mesh
