"""Second derivatives of soft steps: finite and continuous everywhere, and the derivative of the first ones."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import tangens as tg
from tangens.dynamics.tangent_jax import integrate

Array = NDArray[np.float64]
pytestmark = pytest.mark.xdist_group("soft")

SCENE = tg.load("""
<mujoco><option timestep="0.004"/><worldbody>
  <geom name="floor" type="plane" size="5 5 0.1"/>
  <body pos="0 0 0.1"><freejoint/><geom name="box" type="box" size="0.1 0.08 0.1" mass="1"/></body>
  <body pos="0.14 0 0.08"><freejoint/><geom name="ball" size="0.05" mass="0.4" friction="0.6"/></body>
  <body pos="0.16 0 0.17"><freejoint/><geom name="small" size="0.04" mass="0.2"/></body>
</worldbody></mujoco>""")
HOME = SCENE.initial_state()
NV = SCENE.nv
WIDE = tg.Soft(smoothing=(1e-3, 5e-3, 5e-3), stiffness=2e3, dissipation=0.1, stiction=0.05, points=26)
ALONG = np.linspace(-1, 1, 9)
"""Where on a line second derivatives are looked at; the middle is where degenerate lines are degenerate."""
LINES_AT_ONCE = 12
STEPS = 1e-6, 1e-7
"""Along a line: at the centre of a box, second derivatives rise and fall within 1e-4 of it, and a jump would stay."""


@cache
def second_derivatives(contact: tg.Soft) -> Any:
    """(q, v, dq, dv) of several lines, and s of each -> d²v⁺/ds² along q ⊕ s dq, v + s dv: (lines, points, nv)."""
    f = tg.interop.jax.step(tg.Simulator(SCENE, contact))

    def second(q: Any, v: Any, dq: Any, dv: Any, s: Any) -> Any:
        def along(s: Any) -> Any:
            return f(None, integrate(SCENE.joint_layout, q, s * dq), v + s * dv, None, None)[1]

        def first(s: Any) -> Any:
            return jax.jvp(along, (s,), (jnp.ones(()),))[1]

        return jax.jvp(first, (s,), (jnp.ones(()),))[1]

    of_line = jax.vmap(second, (None, None, None, None, 0))
    return jax.jit(jax.vmap(of_line))


def degenerate_states() -> list[tg.State]:
    """Where distances have no gradient, or points fall on each other; everything at rest."""
    box, ball = (HOME.q[7 * k : 7 * k + 3] for k in range(2))
    at = {
        "ball at the centre of the box": {1: box},
        "ball's centre on a face": {1: box + np.array([0.1, 0, 0])},
        "ball's centre on an edge": {1: box + np.array([0.1, 0.08, 0])},
        "ball's centre on a corner": {1: box + np.array([0.1, 0.08, 0.1])},
        "ball's centre on a point of the cloud": {1: box + np.array([0.1, 0.02, 0.025])},
        "concentric balls": {2: ball},
        "balls that touch": {2: ball + np.array([0.09, 0, 0])},
        "concentric balls in the middle of the box": {1: box, 2: box},
        "box half way in the floor": {0: box - np.array([0, 0, 0.1])},
        "ball's centre on the floor": {1: ball * [1, 1, 0]},
    }
    states = []
    for moved in at.values():
        q = np.array(HOME.q)
        for body, place in moved.items():
            q[7 * body : 7 * body + 3] = place
        states.append(tg.State(q, np.zeros(NV)))
    return states


def lines(count: int, stretch: float) -> tuple[Array, ...]:
    """Random lines through contact, every third of them through a degenerate state: q, v, dq, dv."""
    rng, degenerate = np.random.default_rng(0), degenerate_states()
    rows = []
    for k in range(count):
        if k % 3 == 0:
            at = degenerate[k // 3 % len(degenerate)]
        else:
            moves = np.hstack([rng.uniform(-0.02, 0.02, (3, 3)), 0.3 * rng.normal(size=(3, 3))])
            at = tg.State(SCENE.integrate(HOME.q, moves.ravel()), 0.2 * rng.normal(size=NV))
        d = rng.normal(size=(2, NV)) * stretch * np.array([[0.02], [0.3]])
        rows.append((at.q, at.v, *d))
    return tuple(np.array(column) for column in zip(*rows, strict=True))


def jumps(contact: tg.Soft, count: int, stretch: float) -> tuple[Array, Array, Array]:
    """Of each line: how far second derivatives are apart at both STEPS, and how large they are."""
    run, near, nearer, size = second_derivatives(contact), list[Array](), list[Array](), list[Array]()
    columns = lines(count, stretch)
    for first in range(0, count, LINES_AT_ONCE):
        rows = [
            np.resize(column[first : first + LINES_AT_ONCE], (LINES_AT_ONCE, column.shape[1])) for column in columns
        ]
        here, there, close = (
            np.asarray(run(*rows, np.tile(ALONG + step, (LINES_AT_ONCE, 1)))) for step in (0.0, *STEPS)
        )
        near.append(np.abs(there - here).max((1, 2)))
        nearer.append(np.abs(close - here).max((1, 2)))
        size.append(np.abs(here).max((1, 2)))
    return tuple(np.concatenate(parts)[:count] for parts in (near, nearer, size))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("contact", "count", "stretch"),
    [
        pytest.param(WIDE, 36, 1.0, id="wide contact"),
        pytest.param(WIDE, 1000, 1.0, id="wide contact, 1,000 lines", marks=pytest.mark.slow),
        # forces change within a tenth of a millimetre here, so lines are looked at that much more closely
        pytest.param(tg.Soft(points=26), 1000, 0.01, id="default contact, 1,000 lines", marks=pytest.mark.slow),
    ],
)
def test_second_derivatives_are_finite_and_continuous_along_lines(contact: Any, count: int, stretch: float) -> None:
    near, nearer, size = jumps(contact, count, stretch)
    assert np.isfinite(near).all()
    assert np.isfinite(nearer).all()
    # ten times closer, ten times less apart; a jump would stay
    assert (nearer <= 0.2 * near + 1e-6 * size).all()
