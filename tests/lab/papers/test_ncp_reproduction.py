"""The reproduction of the ncp paper at small sizes: its parts measure what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tangens as tg
from tangens.cli import main
from tangens.lab import papers
from tangens.lab.papers import gradient_accuracy, motions, ncp, poses
from tangens.lab.papers.ncp import inverse, physics, tables
from tangens.lab.papers.result_rows import at_least, at_most, info
from tangens.testing import Sample


def test_rows_judge_numbers_and_nan_misses() -> None:
    assert at_most("a", 1.0, 1.0)["ok"]
    assert not at_most("a", 1.1, 1.0)["ok"]
    assert not at_most("a", np.nan, 1.0)["ok"]
    assert at_least("a", 2.0, 1.0)["ok"]
    assert not at_least("a", np.nan, 1.0)["ok"]
    assert info("a", 1.0)["ok"] is None
    assert (
        info("a", 1.0).keys()
        == at_least("a", 1.0, 1.0).keys()
        == {"why", "name", "paper", "ours", "unit", "target", "ok"}
    )


class TestInverseProblems:
    @pytest.mark.parametrize("by", ["velocity", "impulse"])
    def test_gauss_newton_is_precise_and_gradient_descent_is_not(self, by: str) -> None:
        curves = inverse.solve_all(*inverse.thrown_cube(by, 20), 8)
        rows = inverse._rows("cube", curves, 1e-8)
        assert all(row["ok"] is not False for row in rows), rows

    @pytest.mark.parametrize("mass", [0.0, 10.0])
    def test_go1_touches_with_its_feet_alone_and_is_held(self, mass: float) -> None:
        scene, state = poses.go1_standing(mass)
        simulator = tg.Simulator(scene, contact="ncp")
        contacts = simulator.step(state).contacts
        assert np.abs(np.sort(np.abs(contacts.distance))[:4]).max() < 1e-12
        problem = tg.optimize.inverse_dynamics(simulator, state)
        assert tg.optimize.gauss_newton(problem, np.zeros(problem.size)).error < 1e-5

    def test_a_load_adds_its_mass_and_inertia(self) -> None:
        scene = tg.scenes.cube()
        loaded = poses.with_load(scene, "cube", 0.5, (0.0, 0.0, 0.1))
        before, after = scene.parameters, loaded.parameters
        assert after["mass"][1] == pytest.approx(1.0)
        np.testing.assert_allclose(after["com"][1], [0, 0, 0.05])
        added = 0.5 * 0.05**2 * 2
        np.testing.assert_allclose(after["inertia"][1] - before["inertia"][1], [added, added, 0, 0, 0, 0], atol=1e-12)

    def test_a_hand_stand_is_balanced(self) -> None:
        scene, state = poses.go1_hand_stand()
        problem = tg.optimize.inverse_dynamics(tg.Simulator(scene, contact="ncp"), state)
        assert tg.optimize.gauss_newton(problem, np.zeros(problem.size)).error < 1e-5


class TestAccuracy:
    def test_a_robot_is_judged(self) -> None:
        verdict = gradient_accuracy.judge(motions.robot("half_cheetah"), tg.Ncp(tolerance=gradient_accuracy.TIGHT), 3)
        assert len(verdict.errors) == 3
        assert np.median(verdict.errors) < gradient_accuracy.TOLERANCE

    def test_states_asked_for_in_contact_are(self) -> None:
        simulator = tg.Simulator(motions.robot("hopper"), contact="ncp")
        for sample in gradient_accuracy.in_contact(simulator, 3, np.random.default_rng(1)):
            assert set(simulator.step(*sample).contacts.mode) - {"breaking"}

    def test_a_wrong_derivative_is_not_excused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A ball that just reaches the floor within the step sits on a kink; one in flight does not."""
        simulator = tg.Simulator(tg.scenes.ball(), contact="ncp")
        scene = simulator.scene
        fall = 9.81 * scene.timestep**2  # how far a step of free fall leads
        touching, flying = (
            Sample(_raised(scene, height), np.zeros(scene.nu), np.zeros(scene.nv)) for height in (fall, 0.1)
        )
        assert gradient_accuracy.on_switch(simulator, touching)
        right = simulator.jacobian

        def wrong(*args: Any, **kwargs: Any) -> dict[tuple[str, str], np.ndarray]:
            return {key: 1.01 * block for key, block in right(*args, **kwargs).items()}

        assert gradient_accuracy.on_switch(simulator, flying)  # nothing misses
        monkeypatch.setattr(simulator, "jacobian", wrong)
        assert not gradient_accuracy.on_switch(simulator, flying)


def _raised(scene: tg.Scene, height: float) -> tg.State:
    state = scene.initial_state("resting")
    return state.replace(q=scene.integrate(state.q, height * np.eye(scene.nv)[2]))


class TestPhysics:
    def test_laws_hold(self) -> None:
        assert physics.slope(0.3, steps=50) < 1e-6
        assert physics.slope(0.6, steps=50) < 1e-6
        assert physics.rolling(50) < 1e-6
        assert max(physics.box_at_rest(0.2)) < 1e-6
        assert max(physics.collisions(10)) < 1e-9
        assert physics.stack(2, 0.1)[0] < 1e-6

    def test_residuals_are_those_of_each_step(self) -> None:
        residuals = physics.residuals_of(motions.robot("half_cheetah"), 50, 0)
        assert len(residuals) == 50
        assert residuals.max() <= physics.RESIDUAL


class TestTables:
    def test_go1_has_the_papers_numbers(self) -> None:
        scene = tables.system("go1")
        assert scene is not None
        assert (scene.nv, scene.shared_model.ngeom, tables.pairs(scene)) == tables.PAPER["go1"][:3]

    def test_pairs_are_those_that_may_touch(self) -> None:
        assert tables.pairs(tg.scenes.cube()) == 1
        assert tables.pairs(tg.scenes.stack()) == 4 + 6

    def test_timings_order_as_they_should(self) -> None:
        scene = tables.system("half_cheetah")
        assert scene is not None
        times = tables.measure(scene, 2, 2)
        assert times.median("finite differences") > times.median("simulation") > 0


def test_the_command_prints_and_writes_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def good(effort: str, out: Path) -> tuple[list[dict], list[Path]]:  # type: ignore[type-arg]
        assert effort == "quick"
        return [info("size", 3, paper=4), at_most("error", 0.5, 1.0)], [out / "figure.png"]

    def bad(effort: str, out: Path) -> tuple[list[dict], list[Path]]:  # type: ignore[type-arg]
        return [at_most("other error", 2.0, 1.0, why="it is a long way")], []

    arguments = ["reproduce", "ncp", "--quick", "--out", str(tmp_path), "--json", str(tmp_path / "r.json")]
    monkeypatch.setattr(ncp, "PARTS", {"good": good})
    assert main(arguments) == 0
    monkeypatch.setattr(ncp, "PARTS", {"good": good, "bad": bad})
    assert main(arguments) == 3
    printed = " ".join(capsys.readouterr().out.split())
    assert "1 of 2 targets met" in printed
    assert "missed: other error, 2, <= 1: it is a long way" in printed
    result = json.loads((tmp_path / "r.json").read_text())
    assert [row["ok"] for row in result["results"]] == [None, True, False]
    assert result["figures"] == [str(tmp_path / "ncp" / "figure.png")]
    assert result["environment"]["packages"]["mujoco"]


def test_the_command_knows_every_paper() -> None:
    from tangens.cli.reproduce import NAMES

    assert tuple(papers.PAPERS) == NAMES
