"""The reproduction of the single-level paper at small sizes: its parts measure what they say.

Compiling a scene takes half a minute, so two are compiled here: that of the drops and the box on the ground.
"""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tangens import geometry as geo
from tangens.contact import SingleLevel
from tangens.lab import papers
from tangens.lab.papers.single_level import PARTS, box_on_ground, cells, drops, scenes, stacks
from tangens.lab.papers.single_level.outlines import lowest, outlines, support


class TestDrops:
    def test_single_level_beats_the_paper_and_nothing_penetrates(self) -> None:
        theirs = cells.reference("drops")
        found = drops.sweep(SingleLevel(max_iterations=drops.MOST), cells.CELLS["quick"], drops.STARTS["quick"])
        for cell, ours in found.items():
            assert ours.failures == 0
            assert ours.iterations <= theirs[cell]["iterations_single_level"]
            assert ours.violation == 0.0

    def test_penetration_is_that_of_the_lowest_corner(self) -> None:
        q = np.array([[0.3, 0.3, 0.0], [0.0, 0.39, np.pi], [0.0, 2.0, 1.0]])
        np.testing.assert_allclose(drops.penetration(q), [0.1, 0.01, 0.0], atol=1e-12)

    def test_the_shape_is_that_of_the_scene(self) -> None:
        q = np.array([0.1, 1.0, 0.7])
        scene = drops.scene()
        assert -drops.penetration(q[None] - [0, 1, 0])[0] + 1 == pytest.approx(lowest(scene, q), abs=1e-6)


class TestStacks:
    def test_the_boxes_just_touch(self) -> None:
        scene, q = stacks.scene(), stacks.starts()
        assert len(q) == 10
        assert lowest(scene, q[0]) == pytest.approx(0.0)
        lower, upper = (points for _, points in outlines(scene, q[-1]))
        assert lower[:, 1].max() == pytest.approx(upper[:, 1].min())
        np.testing.assert_allclose(scene.parameters["mass"][1:], 1.0)

    def test_the_paper_has_a_number_for_each_cell(self) -> None:
        for name in ("drops", "stacks"):
            assert set(cells.reference(name)) == set(cells.CELLS["full"])


class TestBoxOnGround:
    def test_all_targets_hold(self, tmp_path: Path) -> None:
        rows, figures = box_on_ground.run("quick", tmp_path)
        assert len([row for row in rows if row["ok"] is not None]) == 6
        assert all(row["ok"] is not False for row in rows), rows
        assert all(figure.exists() for figure in figures)

    def test_the_papers_solution_solves_its_equations(self) -> None:
        np.testing.assert_allclose(box_on_ground.equations(box_on_ground.solution()), 0.0, atol=1e-15)


class TestScenes:
    def test_support_points_are_on_the_surface_and_farthest(self) -> None:
        rng = np.random.default_rng(0)
        box = geo.box([0.2, 0.1, 0.3])
        with jax.enable_x64(True):
            shapes = [
                box,
                geo.Capsule(0.1, 0.2),
                geo.Cylinder(0.1, 0.2),
                geo.Cone(0.3, 0.5),
                geo.ellipsoid([0.1, 0.2, 0.3]),
                geo.PaddedPolytope(box.A, box.b, 0.05),
                geo.Placed(geo.Cone(0.3, 0.5), [0.1, 0.0, 0.2]),
                geo.MinkowskiSum(box, geo.sphere(0.1)),
            ]
        d = rng.normal(size=(200, 3))
        for shape in shapes:
            points = support(shape, d)
            # Each point is the farthest of all that were found in its own direction.
            heights = d @ points.T
            assert (heights <= np.diag(heights)[:, None] + 1e-9).all()
            assert np.linalg.norm(points, axis=1).max() <= float(shape.reach) + 1e-6
        for shape in shapes[:3]:
            for p in map(jnp.asarray, support(shape, d)[:20]):
                inner = jnp.clip(p[-1:], -0.2, 0.2) if shape.n_inner else jnp.zeros(0)
                assert float(shape.rows(p, jnp.ones(()), inner).max()) == pytest.approx(0.0, abs=1e-6)

    def test_scenes_hold_what_they_say(self) -> None:
        assert len(scenes.PRIMITIVES) == 8
        simple = [(scenes.primitive_scene(name), 1) for name in scenes.PRIMITIVES]
        for scene, moving in (*simple, (scenes.composite_scene(), 3), (scenes.peg_scene(), 1)):
            q = scene.initial_state(0 if scene.keyframe_names else None).q
            assert len(outlines(scene, q)) == moving


def test_it_can_be_asked_for() -> None:
    assert "single-level" in papers.PAPERS
    assert len(PARTS) == 5
