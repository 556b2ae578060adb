"""A State is what it says: finite, its own copy, and unchangeable."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tangens as tg


def test_keeps_a_copy_of_its_arrays() -> None:
    q = np.zeros(2)
    state = tg.State(q, [1, 2])
    q[0] = 5.0
    assert state.q[0] == 0.0
    assert state.v.dtype == np.float64


def test_cannot_be_changed() -> None:
    state = tg.State([0.0], [0.0])
    with pytest.raises(ValueError, match="read-only"):
        state.q[0] = 1.0
    with pytest.raises(AttributeError, match="replace"):
        state.q = np.ones(1)


def test_replace_makes_a_new_state() -> None:
    state = tg.State([0.0], [1.0])
    moved = state.replace(q=[2.0])
    assert (state.q[0], moved.q[0], moved.v[0]) == (0.0, 2.0, 1.0)


def test_equality_hash_and_pickle_go_by_value() -> None:
    a, b = tg.State([1.0], [2.0]), tg.State([1.0], [2.0])
    assert a == b
    assert hash(a) == hash(b)
    assert pickle.loads(pickle.dumps(a)) == a
    assert a != tg.State([1.0], [3.0])


broken_vectors = st.one_of(
    st.none(),
    st.text(),
    st.dictionaries(st.text(), st.integers()),
    st.lists(st.one_of(st.text(max_size=3), st.none(), st.lists(st.integers(), max_size=2)), min_size=1),
    st.complex_numbers(),
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=3)),
    hnp.arrays(np.float64, st.integers(1, 5), elements=st.sampled_from([np.nan, np.inf, -np.inf])),
)


@given(broken_vectors)
def test_broken_input_ends_in_a_state_error(value: object) -> None:
    with pytest.raises(tg.StateError):
        tg.State(value, [0.0])  # type: ignore[arg-type]
    with pytest.raises(tg.StateError):
        tg.State([0.0], value)  # type: ignore[arg-type]
