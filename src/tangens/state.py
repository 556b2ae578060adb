"""The state of a scene: where everything is and how fast it moves."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.errors import StateError
from tangens.kernels import fixed_floats, kernel

Array = NDArray[np.float64]


class State:
    """Configuration `q` and velocity `v`, in MuJoCo's layout. Immutable: its arrays are read-only copies.

    Sizes and quaternions are checked against the scene when a simulator first sees the state.
    """

    __slots__ = ("q", "v")
    q: Array
    v: Array

    def __init__(self, q: ArrayLike, v: ArrayLike) -> None:
        _set_q(self, as_vector("q", q))
        _set_v(self, as_vector("v", v))

    @classmethod
    def trusted(cls, q: Array, v: Array) -> Self:
        """A state of arrays known to be fresh, finite, float64 and read-only: a step's result, made without checks."""
        state = object.__new__(cls)
        _set_q(state, q)
        _set_v(state, v)
        return state

    def replace(self, q: ArrayLike | None = None, v: ArrayLike | None = None) -> State:
        """A new state with another q or v."""
        return State(self.q if q is None else q, self.v if v is None else v)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a State cannot be changed: use state.replace({name}=...)")

    def __reduce__(self) -> tuple[type[State], tuple[Array, Array]]:
        return State, (self.q, self.v)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and np.array_equal(self.q, other.q) and np.array_equal(self.v, other.v)

    def __hash__(self) -> int:
        return hash((self.q.tobytes(), self.v.tobytes()))

    def __repr__(self) -> str:
        def numbers(x: Array) -> str:
            return np.array2string(x, precision=4, threshold=12)

        return f"State(q={numbers(self.q)}, v={numbers(self.v)})"


# The slots' own setters: State refuses plain assignment.
_set_q: Any = vars(State)["q"].__set__
_set_v: Any = vars(State)["v"].__set__


def as_vector(name: str, value: ArrayLike, size: int | None = None) -> Array:
    """A finite, read-only float64 copy of `value`, or a StateError that says what is wrong with it."""
    try:
        if np.iscomplexobj(value):
            raise TypeError("complex numbers")
        vector = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise StateError(f"{name} is not an array of real numbers ({error}); got {type(value).__name__}") from error
    if vector.ndim != 1:
        raise StateError(f"{name} must be one-dimensional; got shape {vector.shape}")
    if size is not None and len(vector) != size:
        raise StateError(f"{name} must have {size} entries; got {len(vector)}")
    bad = np.flatnonzero(~np.isfinite(vector))
    if len(bad):
        raise StateError(f"{name}[{bad[0]}] is {vector[bad[0]]}: every entry must be finite")
    vector.flags.writeable = False
    return vector


@kernel(fixed_floats(1))
def all_finite(x: Array) -> bool:
    """Whether no entry is NaN or infinite, quicker than NumPy."""
    for entry in x:  # noqa: SIM110  (a plain loop compiles to the quickest code)
        if not np.isfinite(entry):
            return False
    return True
