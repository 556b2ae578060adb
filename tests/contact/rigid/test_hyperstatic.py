"""Redundant contacts: stacks, walls, heaps and large mass ratios converge, cold, and the work of a step is bounded."""

from __future__ import annotations

import numpy as np
import pytest

import tangens as tg

PATIENT = tg.Ncp(tolerance=1e-8)


def _scene(bodies: str, timestep: float = 0.002) -> tg.Scene:
    return tg.load(f"""<mujoco><option timestep="{timestep}"/><worldbody><geom type="plane" size="5 5 1"/>{bodies}
      </worldbody></mujoco>""")


def _box(x: float, z: float, size: str, mass: float) -> str:
    return f'<body pos="{x} 0 {z}"><freejoint/><geom type="box" size="{size}" mass="{mass}"/></body>'


def _stack(n: int, ratio: float = 1.0) -> tg.Scene:
    masses = np.geomspace(1, ratio, n)
    return _scene("".join(_box(0, 0.05 + 0.1 * i, "0.05 0.05 0.05", mass) for i, mass in enumerate(masses)))


def _wall(rows: int, columns: int) -> tg.Scene:
    bricks = [(0.2 * c + 0.1 * (r % 2), 0.05 + 0.1 * r) for r in range(rows) for c in range(columns)]
    return _scene("".join(_box(x, z, "0.0999 0.05 0.05", 1.0) for x, z in bricks))


SCENES = {
    "20 boxes": _stack(20),
    "heavy on light": _stack(5, 1e4),
    "light on heavy": _stack(5, 1e-4),
    "wall": _wall(5, 5),
}


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("speed", [0.0, 0.01])
def test_redundant_contacts_converge_within_100_iterations_from_nothing(name: str, speed: float) -> None:
    scene = SCENES[name]
    v = speed * np.random.default_rng(0).normal(size=scene.nv)
    out = tg.Simulator(scene, PATIENT).step(tg.State(scene.model.qpos0, v))
    assert out.solver.converged, out.solver
    assert out.solver.iterations <= 100, out.solver


def random_pile(seed: int) -> tuple[tg.Scene, tg.State]:
    """A stack of 20, or of masses over four decades, or a wall: crooked, moving, of any friction."""
    rng = np.random.default_rng(seed)
    friction, crooked, speed = rng.choice([0.3, 0.6, 1.0]), rng.choice([0.0, 0.01]), rng.choice([0.0, 1e-3, 0.01, 0.1])
    if seed % 4 == 3:
        rows, columns = rng.integers(3, 6, 2)
        places = [(0.2 * c + 0.1 * (r % 2), 0.05 + 0.1 * r) for r in range(rows) for c in range(columns)]
        masses, size = np.ones(len(places)), "0.0999 0.05 0.05"
    else:
        n = 20 if seed % 4 == 0 else int(rng.integers(3, 8))
        masses, size = np.geomspace(1, (1, 1e4, 1e-4)[seed % 4], n), "0.05 0.05 0.05"
        places = [(crooked * rng.uniform(-1, 1), 0.05 + 0.1 * i) for i in range(n)]
    bodies = (_box(x, z, size, mass) for (x, z), mass in zip(places, masses, strict=True))
    scene = _scene("".join(bodies)).replace(friction=friction)
    return scene, tg.State(scene.model.qpos0, speed * rng.normal(size=scene.nv))


# Constants of the solvers were tuned on other piles than these.
@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(100, 160), marks=pytest.mark.slow)])
def test_random_piles_converge_within_100_iterations_from_nothing(seeds: range) -> None:
    slow = []
    for seed in seeds:
        scene, state = random_pile(seed)
        report = tg.Simulator(scene, PATIENT).step(state).solver
        if not report.converged or report.relaxed or report.iterations > 100:
            slow.append((seed, report.iterations, report.residual))
    assert len(slow) <= 0.05 * len(seeds), slow


@pytest.mark.parametrize("name", ["quadruped", "gripper", "stack"])
@pytest.mark.parametrize("model", ["ncp", "lcp"])
def test_a_motion_that_diverges_comes_to_an_end(model: str, name: str) -> None:
    """At speeds of 1e5 no step is right, but each returns: it says so, or raises."""
    scene = tg.scenes.get(name)
    sim, rng = tg.Simulator(scene, model), np.random.default_rng(0)
    for _ in range(3):
        state = tg.State(scene.model.qpos0, 1e5 * rng.normal(size=scene.nv))
        try:
            iterations = sim.step(state).solver.iterations
        except tg.SolverError:
            continue
        assert iterations < 5000


@pytest.mark.slow
def test_a_heap_of_100_contacts_converges() -> None:
    rng = np.random.default_rng(0)
    shapes = ('type="box" size="0.06 0.05 0.04"', 'size="0.06"', 'type="capsule" size="0.04 0.06"')
    bodies = "".join(
        f'<body pos="{x} {y} {0.1 + 0.05 * i}" euler="{a} {b} 0"><freejoint/><geom {shapes[i % 3]}/></body>'
        for i, (x, y, a, b) in enumerate(rng.uniform((-0.1, -0.1, 0, 0), (0.1, 0.1, 90, 90), (30, 4)))
    )
    walls = "".join(
        f'<geom type="box" size="{a} {b} 1" pos="{x} {y} 1"/>'
        for a, b, x, y in ((0.02, 1, 0.25, 0), (0.02, 1, -0.25, 0), (1, 0.02, 0, 0.25), (1, 0.02, 0, -0.25))
    )
    scene = _scene(walls + bodies, 0.005)
    sim = tg.Simulator(scene, PATIENT)
    state, most, flagged, slow = scene.initial_state(), 0, 0, 0
    for _ in range(120):
        out = sim.step(state)
        state = out.state
        most = max(most, len(out.contacts))
        flagged += not out.solver.converged or out.solver.relaxed > 0.0
        slow += out.solver.iterations > 100
    assert most >= 95
    assert flagged <= 6
    assert slow <= 18
