"""How reliable single-level steps are: bodies of all shapes thrown at the floor, at many time steps and relaxations.

A throw starts just above the floor, in any orientation, with up to 3 m/s and 3 rad/s (of each component), and goes on
for some steps: an impact, and what comes after it. Every step is counted. One that did not converge at the relaxation
asked for is a failure, be it that it was solved at a larger one (and says so), or that it has no result at all. A throw
without a result ends there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.contact import SingleLevel
from tangens.contact.base import Point
from tangens.scene import Scene, load
from tangens.simulate import Simulator

Array = NDArray[np.float64]

GEOMS = {
    "box": 'type="box" size="0.12 0.08 0.06"',
    "cylinder": 'type="cylinder" size="0.08 0.1"',
    "capsule": 'type="capsule" size="0.06 0.1"',
    "cone": 'type="box" size="0.08 0.08 0.08"',
    "ellipsoid": 'type="ellipsoid" size="0.14 0.09 0.06"',
    "bundle": 'type="box" size="0.08 0.08 0.08"',
    "mesh": 'type="mesh" mesh="gem"',
}
TIMESTEPS = (0.001, 0.002, 0.004, 0.01, 0.02)
RELAXATIONS = (1e-3, 1e-4, 1e-6, 1e-8)
_GEM = "0.1 0 0  -0.1 0 0  0 0.1 0  0 -0.1 0  0.06 0.06 0.12  -0.06 -0.06 -0.12"
_SPEEDS = np.array([2, 2, 3, 3, 3, 3.0])


class Count(NamedTuple):
    """What became of the throws of one shape at one time step and relaxation."""

    shape: str
    timestep: float
    relaxation: float
    steps: int
    relieved: int
    """Solved at a larger relaxation, and flagged."""
    failed: int
    """Without a result."""
    iterations: float
    """Per step, on average."""
    slowest: int

    @property
    def failures(self) -> int:
        """Steps that did not converge at the relaxation asked for."""
        return self.relieved + self.failed


class Failure(NamedTuple):
    """A step that did not converge."""

    shape: str
    timestep: float
    relaxation: float
    q: Array
    v: Array


def scene(shape: str) -> Scene:
    """A body of 1 kg above the floor."""
    import jax

    from tangens import geometry as geo

    xml = f"""
    <mujoco><default><geom friction="0.5"/></default><asset><mesh name="gem" vertex="{_GEM}"/></asset>
    <worldbody><geom name="floor" type="plane" size="9 9 0.1"/>
    <body name="body"><freejoint/><inertial pos="0 0 0" mass="1" diaginertia="0.003 0.004 0.005"/>
    <geom name="body" {GEOMS[shape]}/></body></worldbody></mujoco>"""
    with jax.enable_x64(True):
        handle = geo.Placed(geo.box([0.03, 0.03, 0.1]), [0.0, 0.0, -0.04])
        head = geo.Placed(geo.box([0.1, 0.04, 0.03]), [0.0, 0.0, 0.08])
        shapes = {"cone": geo.Cone(0.25, 0.5), "bundle": geo.Bundle([handle, head])}
    return load(xml).with_shapes({"body": shapes[shape]} if shape in shapes else {})


def throw(scene: Scene, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """States whose lowest points are up to a centimetre above the floor."""
    from tangens.lab.papers.single_level.outlines import lowest  # JAX is not imported before it is needed

    turn = rng.normal(size=(n, 4))
    q = np.concatenate([np.zeros((n, 3)), turn / np.linalg.norm(turn, axis=1, keepdims=True)], axis=1)
    v = rng.uniform(-1.0, 1.0, (n, 6)) * _SPEEDS
    v[:, 2] = -np.abs(v[:, 2])
    above = rng.uniform(0.0, 0.01, n)
    q[:, 2] = [gap - lowest(scene, one) for one, gap in zip(q, above, strict=True)]
    return q, v


def count(
    shape: str,
    timesteps: Sequence[float] = TIMESTEPS,
    relaxations: Sequence[float] = RELAXATIONS,
    throws: int = 200,
    steps: int = 60,
    seed: int = 2,
    failures: list[Failure] | None = None,
) -> Iterator[Count]:
    """Throw one shape at all time steps and relaxations, the same throws each time."""
    plain = scene(shape)
    q, v = throw(plain, throws, np.random.default_rng(seed))
    for timestep in timesteps:
        for relaxation in relaxations:
            simulator = Simulator(plain.replace(timestep=timestep), contact=SingleLevel(relaxation=relaxation))
            yield _counted(shape, simulator, q, v, steps, [] if failures is None else failures)


def _counted(shape: str, simulator: Simulator, q: Array, v: Array, steps: int, failures: list[Failure]) -> Count:
    from tangens.contact.interior.engine import InteriorEngine
    from tangens.contact.jax_batch import LANES

    engine, model = simulator.engine, simulator.contact
    assert isinstance(engine, InteriorEngine)
    assert isinstance(model, SingleLevel)
    h, rho, lanes = simulator.scene.timestep, model.relaxation, len(q)
    taken, relieved, failed, iterations, slowest = 0, 0, 0, 0, 0
    for _ in range(steps):
        if not len(q):
            break
        many = engine.steps(Point(q, v, np.zeros((len(q), 0)), np.zeros_like(v)), lanes=min(lanes, LANES))
        taken, failed = taken + len(q), failed + int(many.failed.sum())
        relieved += int((~many.converged & ~many.failed).sum())
        iterations, slowest = iterations + int(many.iterations.sum()), max(slowest, int(many.iterations.max()))
        failures += [Failure(shape, h, rho, q[i], v[i]) for i in np.flatnonzero(~many.converged)]
        q, v = many.q[~many.failed], many.v[~many.failed]
    return Count(shape, h, rho, taken, relieved, failed, iterations / taken, slowest)
