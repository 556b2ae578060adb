"""Compiled code that calls MuJoCo gets what Python gets."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

import tangens as tg
from tangens.dynamics.mujoco_calls import FUNCTIONS, call, call_addresses
from tangens.kernels import ints, kernel


@kernel(ints(1))
def all_calls(calls):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    for k in range(2, calls.shape[0]):
        call(calls[k], calls[0], calls[1])


@pytest.mark.parametrize("name", ["quadruped", "arm", "gripper", "push_t"])
def test_all_functions_fill_the_same_arrays_as_from_python(name: str) -> None:
    m = tg.scenes.get(name).model
    one, two = mujoco.MjData(m), mujoco.MjData(m)
    rng = np.random.default_rng(0)
    for d in (one, two):
        d.qvel[:] = rng.normal(size=m.nv) if d is one else one.qvel
        d.ctrl[:] = 0.1
    all_calls(call_addresses(m, one))
    for function in FUNCTIONS:
        getattr(mujoco, function)(m, two)
    for field in ("xpos", "cdof", "cinert", "M", "qfrc_bias", "qfrc_passive", "qfrc_actuator", "subtree_com"):
        np.testing.assert_array_equal(getattr(one, field), getattr(two, field), err_msg=field)
    assert np.abs(one.qfrc_bias).max() > 0.0
