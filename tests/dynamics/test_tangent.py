"""Configurations as a manifold: ⊕ and its inverse are MuJoCo's, their Jacobians are central differences'."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

import tangens as tg

JOINTS = """<mujoco><worldbody>
  <body><freejoint/><geom size="1"/>
    <body><joint type="ball"/><geom size="1"/><body><joint type="slide"/><joint/><geom size="1"/></body></body></body>
  <body><joint type="ball"/><geom size="1"/></body></worldbody></mujoco>"""


@pytest.fixture(scope="module")
def scene() -> tg.Scene:
    return tg.load(JOINTS)


@pytest.fixture
def points(scene: tg.Scene) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    q = scene.integrate(scene.model.qpos0, rng.normal(size=scene.nv))
    dv = 0.7 * rng.normal(size=scene.nv)
    return q, dv, scene.integrate(q, dv)


def test_integrate_and_difference_are_mujocos(scene: tg.Scene, points: tuple[np.ndarray, ...]) -> None:
    q, dv, end = points
    expected = q.copy()
    mujoco.mj_integratePos(scene.model, expected, dv, 1.0)
    np.testing.assert_allclose(end, expected, atol=1e-14)
    back = np.zeros(scene.nv)
    mujoco.mj_differentiatePos(scene.model, back, 1.0, q, end)
    np.testing.assert_allclose(scene.difference(q, end), back, atol=1e-14)
    np.testing.assert_allclose(back, dv, atol=1e-14)


def test_jacobians_are_differences_on_the_manifold(scene: tg.Scene, points: tuple[np.ndarray, ...]) -> None:
    q, dv, end = points
    step = 1e-6
    moved = scene.integrate_jacobians(q, dv)
    apart = scene.difference_jacobians(q, end)
    for k, unit in enumerate(np.eye(scene.nv)):
        delta = step * unit

        def slope(ends: list[np.ndarray]) -> np.ndarray:
            return (ends[0] - ends[1]) / (2 * step)

        by_q = [scene.difference(end, scene.integrate(scene.integrate(q, s * delta), dv)) for s in (1, -1)]
        by_dv = [scene.difference(end, scene.integrate(q, dv + s * delta)) for s in (1, -1)]
        by_q1 = [scene.difference(scene.integrate(q, s * delta), end) for s in (1, -1)]
        by_q2 = [scene.difference(q, scene.integrate(end, s * delta)) for s in (1, -1)]
        for ours, ends in zip((*moved, *apart), (by_q, by_dv, by_q1, by_q2), strict=True):
            np.testing.assert_allclose(ours[:, k], slope(ends), atol=1e-8)


def test_a_configuration_does_not_differ_from_itself(scene: tg.Scene, points: tuple[np.ndarray, ...]) -> None:
    q, _, _ = points
    np.testing.assert_allclose(scene.difference(q, q), 0.0, atol=1e-15)
    by_q1, by_q2 = scene.difference_jacobians(q, q)
    np.testing.assert_allclose(by_q1, -np.eye(scene.nv), atol=1e-15)
    np.testing.assert_allclose(by_q2, np.eye(scene.nv), atol=1e-15)


def test_wrong_sizes_are_our_errors(scene: tg.Scene) -> None:
    for broken in (lambda: scene.integrate([0.0], [0.0]), lambda: scene.difference(np.zeros(scene.nq), np.zeros(2))):
        with pytest.raises(tg.StateError, match="entries"):
            broken()
