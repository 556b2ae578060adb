"""Tangents depend on the normal alone, and turn with it as their derivative says."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from tangens.collision.contact_rows import rotation_of
from tangens.contact.rigid.assembly.tangents import set_tangents, spin_of_tangents

coordinates = st.lists(st.floats(-1, 1), min_size=3, max_size=3)


def frame_of(normal: np.ndarray) -> np.ndarray:
    frame = np.concatenate([normal, np.zeros(6)])
    set_tangents(frame)
    return frame


@given(direction=coordinates)
def test_frames_are_right_handed(direction: list[float]) -> None:
    length = np.linalg.norm(direction)
    assume(length > 0.1)
    R = frame_of(np.array(direction) / length).reshape(3, 3)
    np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(R) > 0


@given(direction=coordinates, turn=coordinates)
def test_the_frame_of_a_turned_normal_turns_by_the_rule(direction: list[float], turn: list[float]) -> None:
    length = np.linalg.norm(direction)
    assume(length > 0.1)
    normal, w, step = np.array(direction) / length, np.array(turn), 1e-6
    assume(abs(abs(normal[0]) - 0.8) > 1e-3)  # where the rule takes another axis
    frame = frame_of(normal)
    y = np.array(spin_of_tangents(frame))
    omega = w + (y @ w) * normal
    ends = [frame_of(rotation_of(sign * step * w) @ normal).reshape(3, 3) for sign in (1, -1)]
    change = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(change, np.cross(omega, frame.reshape(3, 3)), atol=1e-7)
