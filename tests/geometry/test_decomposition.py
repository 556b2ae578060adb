"""From meshes to primitives and back: fits, collision meshes, MJCF for other tools, what is kept, what is refused."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
import trimesh
from numpy.typing import NDArray

import tangens as tg
from tangens.cli import main
from tangens.geometry.collision_meshes import evenly_meshed, field_values
from tangens.geometry.convex_parts import polyhedra_field
from tangens.geometry.decomposition import decompose
from tangens.geometry.decomposition_files import mjcf
from tangens.geometry.primitive_fits import Estimator
from tangens.geometry.signed_grids import inertial, sample_mesh, signed_grid
from tangens.geometry.superquadric_fits import Parameters, Targets, distances, fit_one

pytestmark = pytest.mark.xdist_group("decomposition")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tangens.geometry.decomposition.writable_folder", lambda name, most: tmp_path)


def dumbbell(holes: bool = False) -> Any:
    """Two ellipsoids and a bar; some triangles are missing where it has holes."""
    parts = [trimesh.creation.icosphere(3, 1.0) for _ in range(2)]
    for sign, part in zip((-1, 1), parts, strict=True):
        part.apply_scale([0.04, 0.06, 0.05])
        part.apply_translation([0.1 * sign, 0, 0])
    bar = trimesh.creation.box([0.2, 0.02, 0.02])
    mesh = trimesh.util.concatenate([*parts, bar])
    if holes:
        mesh.update_faces(np.random.default_rng(0).uniform(size=len(mesh.faces)) > 0.03)
    return mesh


@cache
def found() -> tg.geometry.Decomposition:
    mesh = dumbbell()
    return decompose(mesh.vertices, mesh.faces, accuracy=0.005, most=6, kind="superquadrics")


class TestFit:
    def test_one_superquadric_finds_itself(self) -> None:
        rng = np.random.default_rng(0)
        turn = trimesh.transformations.random_rotation_matrix(rng.uniform(size=3))[:3, :3]
        true = Parameters(*(np.array([x]) for x in ([0.1, 0.06, 0.04], [0.4, 0.8], [0.02, 0.01, 0.03], turn)))
        x = rng.uniform(-0.2, 0.2, (1500, 3))
        start = true._replace(axes=np.full((1, 3), 0.06), exponents=np.ones((1, 2)), position=np.zeros((1, 3)))
        fitted, cost = fit_one(start, Targets(x, distances(true, x)[:, 0], np.ones(len(x)), 0.05), 100)
        assert cost < 1e-10
        np.testing.assert_allclose(fitted.axes, true.axes, rtol=1e-2)

    def test_few_superquadrics_cover_a_dumbbell(self) -> None:
        f = found()
        assert f.fit.error < 0.005
        assert len(f) <= 6
        assert f.fit.volume == pytest.approx(1.0, abs=0.03)

    def test_mass_and_inertia_are_those_of_the_mesh(self) -> None:
        box = trimesh.creation.box([0.1, 0.2, 0.3])
        of = inertial(signed_grid(sample_mesh(box.vertices, box.faces), 20_000))
        assert of.volume == pytest.approx(box.volume, rel=0.01)
        np.testing.assert_allclose(of.inertia, box.moment_inertia, atol=0.02 * np.abs(box.moment_inertia).max())

    def test_an_estimate_sees_what_stands_out(self) -> None:
        """The surface itself is 0 away; a knob beside it hardly counts in the mean, and in the largest distance."""
        box = trimesh.creation.box([0.1, 0.2, 0.3])
        mesh = sample_mesh(box.vertices, box.faces)
        judge = Estimator(mesh, signed_grid(mesh, 20_000))
        true = mesh.distance(judge.points)
        assert judge(true).error < 1e-9
        knob = np.linalg.norm(judge.points - [0, 0, 0.155], axis=1) - 0.015
        found = judge(np.minimum(true, knob))
        assert found.error < 0.01
        assert 0.03 < found.largest < 0.06  # 2 cm of 37


class TestCollisionMesh:
    def test_all_vertices_are_on_the_surface(self) -> None:
        f = found()
        surface = f.surface()
        even = evenly_meshed(surface, f.field, f.smoothing, 200)
        assert 100 < len(even.vertices) < 400
        for mesh in (surface, even):
            assert np.abs(field_values(f.field, mesh.vertices, f.smoothing)[0]).max() < 1e-5 * f.diagonal
        assert trimesh.Trimesh(surface.vertices, surface.faces).volume > 0  # triangles face outwards

    def test_a_solid_touches_the_floor(self) -> None:
        solid = found().solid(200)
        assert len(solid.edges) > len(solid.vertices)
        floor = tg.geometry.Solid(jnp.zeros((0, 3)), jnp.zeros(()), tg.geometry.PlaneField())
        still = [1.0, 0.0, 0.0, 0.0]
        lowest = float(np.asarray(solid.vertices)[:, 2].min())
        contacts = tg.collision.manifold((floor, solid), (([0, 0, 0], still), ([0, 0, -lowest - 1e-3], still)))
        assert float(np.asarray(contacts.distance).min()) == pytest.approx(-1e-3, abs=1e-6)


class TestFiles:
    def test_plain_mujoco_loads_the_mjcf(self) -> None:
        f = found()
        model = mujoco.MjModel.from_xml_string(mjcf(f, "dumbbell", 500.0))
        assert model.ngeom == len(f)
        assert model.body_mass[1] == pytest.approx(500 * f.inertial.volume, rel=1e-6)
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        scene = tg.load(mjcf(f, "dumbbell"))
        assert len(scene.geom_names) == len(f)

    def test_results_are_kept_by_content(self, tmp_path: Path) -> None:
        mesh = trimesh.creation.box([0.1, 0.2, 0.1])
        first = decompose(mesh.vertices, mesh.faces, kind="superquadrics", most=1, accuracy=0.02)
        assert len(list(tmp_path.glob("*.npz"))) == 1
        again = decompose(mesh.vertices, mesh.faces, kind="superquadrics", most=1, accuracy=0.02)
        assert first.superquadrics is not None
        assert again.superquadrics is not None
        np.testing.assert_array_equal(first.superquadrics.axes, again.superquadrics.axes)
        assert first.fit.seconds == again.fit.seconds

    def test_the_command_writes_model_and_picture(self, tmp_path: Path) -> None:
        trimesh.creation.box([0.1, 0.2, 0.1]).export(tmp_path / "box.stl")
        out = tmp_path / "out"
        assert main(["decompose", str(tmp_path / "box.stl"), "--accuracy", "0.02", "--out", str(out)]) == 0
        assert (out / "box.png").stat().st_size > 10_000
        assert mujoco.MjModel.from_xml_path(str(out / "box.xml")).ngeom == 1


class TestBadMeshes:
    def test_holes_do_not_matter(self) -> None:
        mesh = dumbbell(holes=True)
        assert not mesh.is_watertight
        f = decompose(mesh.vertices, mesh.faces, accuracy=0.01, most=4, kind="superquadrics")
        assert f.fit.error < 0.01
        assert f.fit.notes

    def test_a_sheet_is_refused_with_a_reason(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        x, y = (a.reshape(-1) for a in np.meshgrid(np.linspace(0, 1, 8), np.linspace(0, 1, 8)))
        faces = [[8 * i + j, 8 * i + j + 1, 8 * i + j + 9] for i in range(7) for j in range(7)]
        sheet = trimesh.Trimesh(np.column_stack([x, y, 0.1 * x * y]), faces, process=False)
        with pytest.raises(tg.OptionError, match=r"not closed|no inside"):
            decompose(sheet.vertices, sheet.faces)
        sheet.export(tmp_path / "sheet.stl")
        assert main(["decompose", str(tmp_path / "sheet.stl"), "--out", str(tmp_path)]) == 1
        assert "error:" in capsys.readouterr().err

    @pytest.mark.parametrize("options", [{"kind": "voxels"}, {"most": 0}, {"accuracy": 2.0}])
    def test_options_without_sense(self, options: dict[str, Any]) -> None:
        with pytest.raises(tg.OptionError, match=next(iter(options))):
            decompose(np.zeros((4, 3)), np.zeros((4, 3), int), **options)


class TestPolyhedra:
    def _l_shape(self) -> Any:
        low = trimesh.creation.box([0.2, 0.05, 0.05])
        high = trimesh.creation.box([0.05, 0.05, 0.2])
        high.apply_translation([-0.075, 0, 0.125])
        return trimesh.util.concatenate([low, high])

    def test_a_union_of_hulls(self) -> None:
        mesh: NDArray[np.float64] = np.asarray(self._l_shape().vertices)
        field = polyhedra_field([mesh[:8], mesh[8:]])
        x = np.array([[0, 0, 0], [-0.075, 0, 0.2], [0.05, 0, 0.1]])
        np.testing.assert_allclose(field_values(field, x, 0)[0], [-0.025, -0.025, 0.075], atol=1e-6)

    @pytest.mark.slow
    def test_coacd_cuts_it_in_few(self) -> None:
        pytest.importorskip("coacd")
        ball = trimesh.creation.icosphere(2, 0.05)
        mesh = trimesh.util.concatenate([ball, ball.copy().apply_translation([0.15, 0, 0])])
        f = decompose(mesh.vertices, mesh.faces, kind="polyhedra", accuracy=0.02, most=8)
        assert f.superquadrics is None
        assert 2 <= len(f) <= 8
        assert f.fit.error < 0.02
