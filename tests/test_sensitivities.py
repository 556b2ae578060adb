"""Forward sensitivities agree with reverse mode, with differences of whole rollouts, and with checkpoints."""

from __future__ import annotations

import numpy as np
import pytest

import tangens as tg

SCENE = tg.scenes.ball().replace(restitution=0.0)  # it slides on one contact, so nothing is left open
SIM = tg.Simulator(SCENE, contact="ncp")
START = tg.State([0, 0, 0.1, 1, 0, 0, 0], [1.5, 0.1, 0, 0, 0, 2.0])
T = 12


def trajectory(checkpoint: int | None = None) -> tg.Trajectory:
    tau = np.random.default_rng(0).normal(scale=0.1, size=(T, 6))
    return SIM.rollout(START, T, tau=tau, checkpoint=checkpoint)


def test_they_are_the_transpose_of_reverse_mode() -> None:
    traj, rng = trajectory(), np.random.default_rng(1)
    S = SIM.sensitivities(traj, wrt=("q", "v", "tau", "mass", "friction"))
    dq, dv = rng.normal(size=(T + 1, 6)), rng.normal(size=(T + 1, 6))
    back = SIM.pullback(traj, dq=dq, dv=dv, wrt=("mass", "friction"))

    def carried(name: str) -> np.ndarray:
        return np.einsum("ti,ti...->...", dq, S["q", name]) + np.einsum("ti,ti...->...", dv, S["v", name])

    for name, expected in (
        ("q", back.state.q), ("v", back.state.v), ("tau", back.tau), ("mass", back.parameters["mass"]),
        ("friction", back.parameters["friction"]),
    ):  # fmt: skip
        np.testing.assert_allclose(carried(name), expected, rtol=1e-9, atol=1e-12)
    assert S.converged == back.converged
    assert S.unique == back.unique


def test_they_agree_with_differences_of_whole_rollouts() -> None:
    traj, h = trajectory(), 1e-6
    S = SIM.sensitivities(traj, wrt=("v", "friction"))
    direction = np.random.default_rng(2).normal(size=6)
    ends = [SIM.rollout(tg.State(START.q, START.v + s * h * direction), T, tau=traj.tau).v[-1] for s in (1, -1)]
    np.testing.assert_allclose(S["v", "v"][-1] @ direction, (ends[0] - ends[1]) / (2 * h), rtol=1e-5, atol=1e-8)
    ends = []
    for s in (1, -1):
        scene = SCENE.replace(friction=SCENE.parameters["friction"] + s * h)
        ends.append(tg.Simulator(scene, contact="ncp").rollout(START, T, tau=traj.tau).v[-1])
    by_all = S["v", "friction"][-1].sum(axis=-1)
    np.testing.assert_allclose(by_all, (ends[0] - ends[1]) / (2 * h), rtol=1e-5, atol=1e-8)


def test_steps_without_tapes_are_taken_again() -> None:
    kept, retraced = (SIM.sensitivities(trajectory(c), wrt=("q", "mass")) for c in (None, 5))
    assert all(np.array_equal(kept[key], retraced[key]) for key in kept)
    assert len(kept) == 4


def test_unknown_inputs_and_blocks_are_named() -> None:
    with pytest.raises(tg.Error, match="colour"):
        SIM.sensitivities(trajectory(), wrt=("colour",))
    with pytest.raises(KeyError, match="there is q and v by"):
        SIM.sensitivities(trajectory())["force", "q"]
