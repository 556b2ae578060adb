"""The reproduction of the lcp paper at small sizes: its parts measure what they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tangens.lab import papers
from tangens.lab.papers import motions
from tangens.lab.papers.lcp import PARTS, bounces, drone, jumps, rollouts, time_to_loss
from tangens.lab.papers.poses import g1_crouching, g1_soles, heights, placed


class TestDrone:
    def test_only_complementarity_aware_gradients_lift_it(self) -> None:
        exact = drone.train("exact", 2, steps=100)
        aware = drone.train("complementarity-aware", 14)
        assert exact.losses[-1] == pytest.approx(exact.losses[0])
        assert aware.losses[-1] < 0.5 * aware.losses[0]
        assert aware.heights[-1] > 0.1


class TestBounces:
    def test_all_targets_hold(self, tmp_path: Path) -> None:
        rows, figures = bounces.run("quick", tmp_path)
        assert all(row["ok"] is not False for row in rows), rows
        assert all(figure.exists() for figure in figures)

    def test_the_exact_height_is_that_of_a_parabola(self) -> None:
        assert bounces.exact_height(0.5 * 9.81 * bounces.DURATION**2) == pytest.approx(bounces.RADIUS)


class TestTimeToLoss:
    def test_methods_stop_at_the_loss_or_at_the_end_of_their_time(self) -> None:
        task = time_to_loss.cartpole()
        fast = time_to_loss.attempt(task, "iLQR", 100, 30.0)
        slow = time_to_loss.attempt(task, "stochastic search", 100, 0.2)
        assert fast.reached
        assert fast.curve[1, -1] <= task.target
        assert not slow.reached
        assert slow.seconds >= 0.2
        for one in (fast, slow):
            assert (np.diff(one.curve[1]) <= 0).all()


class TestJumps:
    def test_g1_crouches_on_its_soles(self) -> None:
        scene, state = g1_crouching()
        soles = g1_soles(scene)
        assert len(soles) == 8
        np.testing.assert_allclose(heights(scene, state.q, soles), 0.0, atol=1e-10)
        middle = placed(scene, state.q).geom_xpos[soles].mean(axis=0)
        np.testing.assert_allclose(jumps.centre(scene, state.q)[0], middle[0], atol=1e-10)

    def test_a_little_time_lifts_the_worm_a_little(self) -> None:
        _, result, rise = jumps.jump_worm(2.0, 1)
        assert rise > 0.0
        assert result.cost < result.history[0].cost


class TestRollouts:
    def test_motors_without_rotors_get_them(self) -> None:
        for name, added in (("half_cheetah", 0.0), ("go1", motions.ROTOR)):
            bare = motions.robot(name)
            change = motions.with_rotors(bare).parameters["armature"] - bare.parameters["armature"]
            np.testing.assert_array_equal(change[:3], 0.0)  # the base has no motors
            np.testing.assert_allclose(change[-bare.nu :], added)

    def test_steps_are_counted_by_what_solved_them(self) -> None:
        count = rollouts.tally("half_cheetah", 60)
        assert count["steps"] == 60
        assert count["free"] + count["guess"] + count["pivoting"] + count["fallback"] == 60
        assert count["guess"] > 0
        assert count["lost"] == count["unflagged"] == 0


def test_it_can_be_asked_for() -> None:
    assert "lcp" in papers.PAPERS
    assert len(PARTS) == 6
