"""Gradients of the cost terms are those of their values, in the tangent space; Hessians are those of Gauss-Newton."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

import tangens as tg
from tangens.optimize import Cost, Effort, Position, TargetState

Array = NDArray[np.float64]
STEP = 1e-6
TIP = """
<mujoco><worldbody><body><joint name="hinge" axis="0 1 0"/><geom size=".1"/>
  <body pos="1 0 0"><joint type="ball"/><geom size=".1" pos=".2 0 0"/><site name="tip" pos="0.5 0 0.2"/></body>
</body></worldbody><actuator><motor joint="hinge"/></actuator></mujoco>
"""


def moved(scene: tg.Scene, state: tg.State, dx: Array) -> tg.State:
    return tg.State(scene.integrate(state.q, dx[: scene.nv]), state.v + dx[scene.nv :])


def somewhere(scene: tg.Scene, rng: np.random.Generator) -> tuple[tg.State, Array]:
    q = scene.integrate(scene.initial_state().q, rng.normal(size=scene.nv))
    return tg.State(q, rng.normal(size=scene.nv)), rng.normal(size=scene.nu)


def terms() -> list[tuple[str, tg.Scene, Cost]]:
    rng = np.random.default_rng(1)
    quadruped, drone = tg.scenes.quadruped(), tg.scenes.drone()
    tip = tg.load(TIP)
    goal, _ = somewhere(quadruped, rng)
    w = rng.uniform(size=quadruped.nv)
    return [
        ("state", quadruped, TargetState(quadruped, goal.q, goal.v, q_weight=w, v_weight=2 * w)),
        ("body", quadruped, Position(quadruped, [0.1, 0.2, 0.3], weight=[1, 0, 2], body=quadruped.body_names[4])),
        ("center_of_mass", quadruped, Position(quadruped, [0, 0, 1], center_of_mass=quadruped.body_names[1])),
        ("site", tip, Position(tip, [1.0, 1.0, 0.5], site="tip")),
        ("effort", drone, Effort(0.3, target=9.81)),
    ]


@pytest.mark.parametrize(("name", "scene", "term"), terms(), ids=lambda value: value if isinstance(value, str) else "")
def test_gradients_are_those_of_the_values(name: str, scene: tg.Scene, term: Cost) -> None:
    state, u = somewhere(scene, np.random.default_rng(0))
    e = term.expansion(3, state, u)
    by_x = [
        (term.value(3, moved(scene, state, d), u) - term.value(3, moved(scene, state, -d), u)) / (2 * STEP)
        for d in STEP * np.eye(2 * scene.nv)
    ]
    by_u = [(term.value(3, state, u + d) - term.value(3, state, u - d)) / (2 * STEP) for d in STEP * np.eye(scene.nu)]
    np.testing.assert_allclose(e.x, by_x, atol=1e-7)
    np.testing.assert_allclose(e.u, by_u, atol=1e-7)


@pytest.mark.parametrize(("name", "scene", "term"), terms(), ids=lambda value: value if isinstance(value, str) else "")
def test_hessians_are_positive_and_symmetric(name: str, scene: tg.Scene, term: Cost) -> None:
    e = term.expansion(0, *somewhere(scene, np.random.default_rng(2)))
    H = np.block([[e.xx, e.ux.T], [e.ux, e.uu]])
    np.testing.assert_allclose(H, H.T, atol=1e-12)
    assert np.linalg.eigvalsh(H).min() > -1e-9
    assert np.abs(H).max() > 0


def test_at_the_target_a_quadratic_in_the_tangent_space_is_exact() -> None:
    scene = tg.scenes.cube()
    goal, _ = somewhere(scene, np.random.default_rng(3))
    cost = TargetState(scene, goal.q, goal.v, q_weight=2.0, v_weight=3.0)
    dx = 0.3 * np.random.default_rng(4).normal(size=12)
    H = cost.expansion(0, goal, np.zeros(0)).xx
    assert cost.value(0, moved(scene, goal, dx), np.zeros(0)) == pytest.approx(0.5 * dx @ H @ dx)


def test_targets_may_change_with_time() -> None:
    scene = tg.scenes.cartpole()
    state, u = scene.initial_state("upright"), np.zeros(1)
    cost = TargetState(scene, [[0, 0], [2, 0], [4, 0]])
    assert [cost.value(t, state, u) for t in range(3)] == [0.0, 2.0, 8.0]
    assert [Effort(target=[[1.0], [3.0]]).value(t, state, u) for t in range(2)] == [0.5, 4.5]
    with pytest.raises(tg.OptionError, match="q has 3 rows: there is none for step 3"):
        cost.value(3, state, u)


@pytest.mark.parametrize(
    ("make", "error", "complaint"),
    [
        (lambda s: TargetState(s, [1.0]), tg.StateError, "q must have 7 entries"),
        (lambda s: TargetState(s, np.zeros(7)), tg.StateError, "length 1"),
        (lambda s: TargetState(s, v=np.zeros((3, 2))), tg.StateError, "v must have 6 entries"),
        (lambda s: TargetState(s, q_weight=-1), tg.OptionError, "q_weight"),
        (lambda s: TargetState(s, v_weight=[1, 2]), tg.OptionError, "v_weight must be a number or 6"),
        (lambda s: TargetState(s, v=[np.nan] * 6), tg.OptionError, "v has entries that are not finite"),
        (lambda s: Effort(-1.0), tg.OptionError, "weight=-1.0"),
        (lambda s: Effort("much"), tg.OptionError, "weight is not an array of numbers"),
        (lambda s: Effort(target=np.zeros((1, 1, 1))), tg.OptionError, "at most two dimensions"),
        (lambda s: Position(s, [0, 0, 0]), tg.OptionError, "name one point"),
        (lambda s: Position(s, [0, 0, 0], body="cube", site="x"), tg.OptionError, "name one point"),
        (lambda s: Position(s, [0, 0, 0], body="cup"), tg.OptionError, "body='cup': the scene has no such body"),
        (lambda s: Position(s, [0, 0], body="cube"), tg.StateError, "target must have 3 entries"),
    ],
)  # fmt: skip
def test_bad_terms_are_named(make: Callable[[tg.Scene], Cost], error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        make(tg.scenes.cube())
