"""q ⊕ δ and its inverse in JAX: MuJoCo's values, right derivatives of both orders, no NaN anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from tangens.dynamics import tangent_jax as tangent
from tangens.dynamics.layout import JointLayout

MODEL = mujoco.MjModel.from_xml_string("""<mujoco><worldbody>
  <body><freejoint/><geom size="1"/>
    <body><joint type="ball"/><geom size="1"/><body><joint type="slide"/><joint/><geom size="1"/></body></body></body>
  <body><joint type="ball"/><geom size="1"/></body></worldbody></mujoco>""")
JOINTS = JointLayout.from_model(MODEL)

# Each function runs a few times only: compile quickly rather than well.
jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False})
integrate = jit(tangent.integrate, static_argnums=0)
difference = jit(tangent.difference, static_argnums=0)
integrate_jacobians = jit(tangent.integrate_jacobians, static_argnums=0)
difference_jacobians = jit(tangent.difference_jacobians, static_argnums=0)


def plus(q: np.ndarray, dv: np.ndarray) -> np.ndarray:
    q = np.array(q)
    mujoco.mj_integratePos(MODEL, q, dv, 1.0)
    return q


def minus(q2: np.ndarray, q1: np.ndarray) -> np.ndarray:
    dv = np.zeros(MODEL.nv)
    mujoco.mj_differentiatePos(MODEL, dv, 1.0, q1, q2)
    return dv


def cases(count: int = 40) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Configurations with perturbations from nothing to almost half a turn."""
    rng = np.random.default_rng(0)
    for size in [0.0, *10 ** rng.uniform(-12, np.log10(3.1), count)]:
        dv = rng.normal(size=MODEL.nv)
        for start in JOINTS.quat_v:
            dv[start : start + 3] *= size / np.linalg.norm(dv[start : start + 3])
        yield plus(MODEL.qpos0, 2 * rng.normal(size=MODEL.nv)), dv


def central(f: Callable[[np.ndarray], np.ndarray], size: int, step: float = 1e-6) -> np.ndarray:
    """∂f/∂δ at δ = 0, column by column."""
    return np.stack([(f(step * e) - f(-step * e)) / (2 * step) for e in np.eye(size)], axis=-1)


def test_the_layout_lists_each_number_once() -> None:
    assert sorted((*JOINTS.euclid_q, *(q + i for q in JOINTS.quat_q for i in range(4)))) == list(range(MODEL.nq))
    assert sorted((*JOINTS.euclid_v, *(v + i for v in JOINTS.quat_v for i in range(3)))) == list(range(MODEL.nv))
    assert hash(JOINTS) == hash(JointLayout.from_model(MODEL))


def test_integrate_and_difference_are_mujocos() -> None:
    for q, dv in cases():
        end = plus(q, dv)
        np.testing.assert_allclose(integrate(JOINTS, q, dv), end, rtol=0, atol=1e-14)
        np.testing.assert_allclose(difference(JOINTS, q, end), minus(end, q), rtol=0, atol=1e-14)


def test_turns_of_more_than_a_half_come_back_the_short_way() -> None:
    turn = np.zeros(MODEL.nv)
    turn[JOINTS.quat_v[1]] = 2 * np.pi - 0.3
    back = difference(JOINTS, MODEL.qpos0, plus(MODEL.qpos0, turn))
    np.testing.assert_allclose(back[JOINTS.quat_v[1]], -0.3, atol=1e-14)


def test_a_quaternion_and_its_negative_are_one_orientation() -> None:
    (q, dv), *_ = cases()
    negative = q.copy()
    for start in JOINTS.quat_q:
        negative[start : start + 4] *= -1
    np.testing.assert_allclose(difference(JOINTS, q, negative), 0, atol=1e-15)
    np.testing.assert_allclose(difference(JOINTS, q, plus(negative, dv)), dv, atol=1e-14)


@pytest.mark.parametrize(("q", "dv"), cases(10))
def test_jacobians_are_central_differences_on_the_manifold(q: np.ndarray, dv: np.ndarray) -> None:
    end, nv = plus(q, dv), MODEL.nv
    by_q, by_dv = integrate_jacobians(JOINTS, q, dv)
    by_q1, by_q2 = difference_jacobians(JOINTS, q, end)
    np.testing.assert_allclose(by_q, central(lambda d: minus(plus(plus(q, d), dv), end), nv), atol=1e-8)
    np.testing.assert_allclose(by_dv, central(lambda d: minus(plus(q, dv + d), end), nv), atol=1e-8)
    np.testing.assert_allclose(by_q1, central(lambda d: minus(end, plus(q, d)), nv), atol=1e-8)
    np.testing.assert_allclose(by_q2, central(lambda d: minus(plus(end, d), q), nv), atol=1e-8)


def test_to_go_somewhere_and_back_is_to_stay() -> None:
    for q, dv in cases(10):
        _, by_dv = integrate_jacobians(JOINTS, q, dv)
        _, by_q2 = difference_jacobians(JOINTS, q, plus(q, dv))
        np.testing.assert_allclose(by_q2 @ by_dv, np.eye(MODEL.nv), atol=1e-12)


def there_and_there(z: jax.Array) -> jax.Array:
    """From 0 ⊕ a to 0 ⊕ b ⊕ c: through exp, log and the product, where 0 is the model's own configuration."""
    a, b, c = jnp.split(z, 3)
    origin = jnp.asarray(MODEL.qpos0)
    end = tangent.integrate(JOINTS, tangent.integrate(JOINTS, origin, b), c)
    return tangent.difference(JOINTS, tangent.integrate(JOINTS, origin, a), end)


SIZES = (0.0, 1e-9, 1e-3, 0.2, 0.9)
forward, reverse = jit(jax.jacfwd(there_and_there)), jit(jax.jacrev(there_and_there))
second = jit(jax.jacfwd(jax.jacfwd(there_and_there)))


@pytest.mark.parametrize("size", SIZES)
def test_first_derivatives_by_jax_agree_with_the_closed_forms(size: float) -> None:
    a, b, c = z = size * np.random.default_rng(1).normal(size=(3, MODEL.nv))
    q1, q2 = plus(MODEL.qpos0, a), plus(MODEL.qpos0, b)
    by_q1, by_end = difference_jacobians(JOINTS, q1, plus(q2, c))
    by_q2, by_c = integrate_jacobians(JOINTS, q2, c)
    by_a, by_b = (integrate_jacobians(JOINTS, MODEL.qpos0, d)[1] for d in (a, b))
    expected = np.hstack([by_q1 @ by_a, by_end @ by_q2 @ by_b, by_end @ by_c])
    np.testing.assert_allclose(forward(z.ravel()), expected, atol=1e-12)
    np.testing.assert_allclose(reverse(z.ravel()), expected, atol=1e-12)


@pytest.mark.parametrize("size", SIZES)
def test_second_derivatives_by_jax_are_differences_of_the_first(size: float) -> None:
    z = size * np.random.default_rng(2).normal(size=3 * MODEL.nv)
    slope = central(lambda d: np.asarray(forward(z + d)), z.size, step=1e-5)
    np.testing.assert_allclose(second(z), slope, atol=1e-8)


def test_half_a_turn_has_finite_derivatives() -> None:
    half_turns = np.hstack([np.zeros((3, 1)), np.eye(3)])
    np.testing.assert_allclose(jit(jax.vmap(tangent.quat_log))(half_turns), np.pi * np.eye(3), atol=1e-15)
    assert np.isfinite(jit(jax.vmap(jax.jacfwd(jax.jacfwd(tangent.quat_log))))(half_turns)).all()
    assert np.isfinite(jit(jax.vmap(tangent.right_jacobian_inverse))(np.pi * np.eye(3))).all()


def test_single_precision_stays_single_and_a_batch_is_a_loop() -> None:
    qs, dvs = map(np.array, zip(*cases(5), strict=True))
    batch = jit(jax.vmap(partial(tangent.integrate, JOINTS)))
    np.testing.assert_allclose(batch(qs, dvs), [plus(q, dv) for q, dv in zip(qs, dvs, strict=True)], atol=1e-14)
    q, dv = qs[0].astype(np.float32), dvs[0].astype(np.float32)
    for result in (integrate(JOINTS, q, dv), difference(JOINTS, q, q), *integrate_jacobians(JOINTS, q, dv)):
        assert result.dtype == np.float32
