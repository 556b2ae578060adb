"""The checks pass what is right, find what is wrong and say where, and do not judge where there is no derivative."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tangens as tg
from tangens.results import Jacobian
from tangens.testing import check_gradients, check_physics, random_sample, relative_error


@pytest.mark.parametrize("name", ["arm", "quadruped", "gyro"])
def test_bundled_scenes_pass(name: str) -> None:
    scene = tg.load(tg.scenes.path(name))
    physics = check_physics(scene)
    assert physics.ok, str(physics)
    assert physics.errors.keys() == {"mass matrix", "bias force", "body positions", "body rotations", "step"}
    sample = random_sample(scene, np.random.default_rng(1))
    report = check_gradients(tg.Simulator(scene), *sample, wrt=("q", "v", "u", "tau", "mass"))
    assert report.ok, str(report)
    assert list(report.errors)[:5] == ["q/q", "q/v", "q/u", "q/tau", "q/mass"]
    assert not report.notes


@pytest.mark.parametrize(("name", "q", "speed"), [("cube", (0, 0, 0.05), 0.0), ("ball", (0, 0, 0.1), 2.0)])
def test_contacts_pass_sticking_and_sliding(name: str, q: tuple[float, ...], speed: float) -> None:
    # not a cube that slides: its four contacts leave open how they share the load, and ∂v⁺/∂q depends on it
    scene = tg.load(tg.scenes.path(name)).replace(restitution=0.0)
    sim = tg.Simulator(scene, contact=tg.Ncp(tolerance=1e-13))
    state = tg.State([*q, 1, 0, 0, 0], [speed, 0, 0, 0, 0, 0])
    assert set(sim.step(state).contacts.mode) == {"sliding" if speed else "sticking"}
    report = check_gradients(sim, state, wrt=("q", "v", "tau", "friction"))
    assert report.ok, str(report)
    assert "contact ncp" in str(report)


def test_a_wrong_entry_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = tg.scenes.arm()
    sim = tg.Simulator(scene)
    right = sim.jacobian

    def wrong(*args: Any, **options: Any) -> Jacobian:
        J = right(*args, **options)
        blocks = {name: np.stack([J["q", name], J["v", name]]) for name in options["wrt"]}
        blocks["q"][1, 2, 4] *= 1.001
        return Jacobian(blocks)

    monkeypatch.setattr(sim, "jacobian", wrong)
    report = check_gradients(sim, *random_sample(scene, np.random.default_rng(0)))
    assert not report.ok
    assert [name for name, error in report.errors.items() if error > 1e-6] == ["v/q"]
    where = f"v⁺ of {scene.joint_names[2]} by q of {scene.joint_names[4]}"
    assert where in str(report)
    assert "FAILED" in str(report)


def test_a_kink_is_noted_and_not_compared() -> None:
    sim = tg.Simulator(tg.scenes.cartpole())
    limit = sim.scene.shared_model.actuator_ctrlrange[0, 1]
    report = check_gradients(sim, sim.initial_state("hanging"), [limit])
    assert report.ok, str(report)
    assert len(report.notes) == 1
    assert f"u of {sim.scene.actuator_names[0]}" in report.notes[0]
    assert not check_gradients(sim, sim.initial_state("hanging"), [limit - 1e-3]).notes  # shorter differences fit


def test_noise_is_noted_and_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    sim, rng = tg.Simulator(tg.scenes.arm()), np.random.default_rng(0)
    right = sim.step

    def noisy(*args: Any) -> tg.Step:
        out = right(*args)
        v = out.state.v + 1e-8 * rng.normal(size=out.state.v.shape)
        return tg.Step(tg.State(out.state.q, v), out.contacts, out.solver, out.tape, owner=out.owner)

    monkeypatch.setattr(sim, "step", noisy)
    report = check_gradients(sim, *random_sample(sim.scene, rng))
    assert not report.ok
    assert report.notes
    assert all("jump" in note for note in report.notes)


def test_numbers_that_are_none_do_not_pass() -> None:
    assert relative_error(np.array([np.nan]), np.array([1.0])) == np.inf


def test_refusals() -> None:
    scene = tg.scenes.cartpole()
    sim = tg.Simulator(scene)
    with pytest.raises(tg.OptionError, match="samples"):
        check_physics(scene, samples=0)
    with pytest.raises(tg.StateError):
        check_gradients(sim, sim.initial_state(), [1.0, 2.0])
    with pytest.raises(tg.NotDifferentiable, match="friction"):
        check_gradients(sim, sim.initial_state(), wrt=("friction",))


def test_the_room_is_there_without_an_import() -> None:
    assert tg.testing.check_gradients is check_gradients
