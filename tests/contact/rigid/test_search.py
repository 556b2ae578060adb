"""No contact is missed: not by bodies with several geoms, not for forces that act within the step."""

from __future__ import annotations

import itertools
from typing import Any

import mujoco
import numpy as np
import pytest

import tangens as tg
from tangens import robots
from tangens.contact.base import Point
from tangens.testing import random_sample

MODELS = ("ncp", "lcp")
BALL = '<body pos="{} 0 0"><joint type="slide" axis="1 0 0"/><geom size="0.1" mass="{}"/></body>'


def _scene(world: str) -> tg.Scene:
    return tg.load(f'<mujoco><option gravity="0 0 0" timestep="0.01"/><worldbody>{world}</worldbody></mujoco>')


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("extra", ["", '<geom size="0.01" pos="-0.2 0 0" mass="1e-9"/>'])
def test_a_second_geom_on_the_body_hides_no_contact(model: str, extra: str) -> None:
    box = '<joint type="slide" axis="1 0 0"/><geom type="box" size="0.1 0.1 0.1" mass="1"/>'
    scene = _scene(f'<body>{box}{extra}</body><body pos="0.200001 0 0">{box}</body>')
    out = tg.Simulator(scene, model).step(tg.State([0, 0], [1, 0]))
    assert len(out.contacts) == 4
    np.testing.assert_allclose(out.state.v, [0.5, 0.5], atol=1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_a_force_that_acts_within_the_step_drives_nothing_into_a_wall(model: str) -> None:
    scene = _scene('<geom type="box" size="0.1 1 1" pos="0.203 0 0"/>' + BALL.format(0, 0.1))
    out = tg.Simulator(scene, model).step(scene.initial_state(), tau=[20])
    np.testing.assert_allclose(out.state.q, 0.003, atol=1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_a_body_that_is_hit_meets_the_next_one_in_the_same_step(model: str) -> None:
    """The second ball rests: only v⁺ says that it reaches the third, which is further away than margins look."""
    scene = _scene(BALL.format(0, 1) + BALL.format(0.205, 1) + BALL.format(0.43, 1))
    out = tg.Simulator(scene, model).step(tg.State([0, 0, 0], [10, 0, 0]))
    np.testing.assert_allclose(np.diff(out.state.q), [-0.005, -0.025], atol=1e-9)
    assert out.state.v.sum() == pytest.approx(10)


def test_an_explicit_pair_is_seen_coming() -> None:
    balls = BALL.format(0, 1).replace("<geom", '<geom name="a" contype="0" conaffinity="0"') + BALL.format(
        0.205, 1
    ).replace("<geom", '<geom name="b"')
    xml = f"""<mujoco><option gravity="0 0 0" timestep="0.01"/><worldbody>{balls}</worldbody>
      <contact><pair geom1="a" geom2="b"/></contact></mujoco>"""
    out = tg.Simulator(tg.load(xml), "ncp").step(tg.State([0, 0], [1, 0]))
    np.testing.assert_allclose(out.state.q, [0.0075, 0.0025], atol=1e-9)


def _allowed(m: mujoco.MjModel, a: int, b: int) -> bool:
    """Whether two geoms may touch, by MuJoCo's rules."""
    one, two, weld = int(m.geom_bodyid[a]), int(m.geom_bodyid[b]), m.body_weldid
    if weld[one] == weld[two] or tuple(sorted((one, two))) in {(s >> 16, s & 0xFFFF) for s in m.exclude_signature}:
        return False
    parents = [weld[m.body_parentid[weld[body]]] for body in (one, two)]
    filtered = weld[one] != 0 and weld[two] != 0 and (weld[one] == parents[1] or weld[two] == parents[0])
    if filtered and not m.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_FILTERPARENT:
        return False
    return bool(m.geom_contype[a] & m.geom_conaffinity[b] or m.geom_contype[b] & m.geom_conaffinity[a])


def _missed(scene: tg.Scene, seed: int) -> tuple[int, set[tuple[int, int]]]:
    """Pairs within their margins by a brute-force search at two states, and those that the engine does not have."""
    engine: Any = tg.Simulator(scene, "ncp").engine
    rng, seen, missed = np.random.default_rng(seed), 0, set[tuple[int, int]]()
    for sample in (random_sample(scene, rng), random_sample(scene, rng)._replace(state=scene.initial_state())):
        with engine.scratch() as scratch:
            scratch.prepare(Point(*_arrays(sample)), scene.timestep)
            m, d = scratch.model, scratch.data
            found = {tuple(sorted(map(int, pair))) for pair in d.contact.geom}
            for a, b in itertools.combinations(range(m.ngeom), 2):
                reach = m.geom_gap[a] + m.geom_gap[b]
                round_ = m.geom_rbound[[a, b]].all()
                if round_ and np.linalg.norm(d.geom_xpos[a] - d.geom_xpos[b]) > m.geom_rbound[[a, b]].sum() + reach:
                    continue
                if _allowed(m, a, b) and mujoco.mj_geomDistance(m, d, a, b, reach, None) < 0.999 * reach:
                    seen += 1
                    missed |= {(a, b)} - found
    return seen, missed


def _arrays(sample: Any) -> tuple[Any, ...]:
    return sample.state.q, sample.state.v, sample.u, sample.tau


@pytest.mark.parametrize("name", tg.scenes.names())
def test_pairs_of_bundled_scenes_are_those_of_a_brute_force_search(name: str) -> None:
    assert _missed(tg.scenes.get(name), 0)[1] == set()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("go1", "allegro", "dm_stacker") else pytest.mark.slow)
        for name in robots.names()
    ],
)
def test_pairs_of_robots_are_those_of_a_brute_force_search(name: str) -> None:
    assert _missed(robots.get(name), 0)[1] == set()


def test_boxes_that_lie_on_each_other_crosswise_keep_their_contacts() -> None:
    """A tilt of what solvers leave is none: MuJoCo would find a single contact, of two edges."""
    world = """<geom type="box" size="0.01 0.015 0.05"/>
      <body pos="0.03 0 0.01" euler="{} 0 0"><freejoint/><geom type="box" size="0.02 0.02 0.02" mass="1"/></body>"""
    for angle, expected in ((0, 4), (30, 6)):
        scene = _scene(world.format(angle))
        for seed in range(20):
            tilt = np.append(np.zeros(3), 1e-11 * np.random.default_rng(seed).normal(size=3))
            state = tg.State(scene.integrate(scene.initial_state().q, tilt), [-0.1, 0, 0, 0, 0, 0])
            assert len(tg.Simulator(scene, "ncp").step(state).contacts) == expected, (angle, seed)


def _explained(m: mujoco.MjModel, q: Any, v: Any, h: float) -> float:
    """How far geoms may sink in where contacts are planes within a step: by an angle θ times what slides and turns.

    A translation keeps the plane of a contact between two convex shapes. A turn by θ does not: what slid by s is inside
    by s·θ, and a corner at a distance r from its contact by r·θ².
    """
    d, moving = mujoco.MjData(m), np.zeros((m.ngeom, 6))
    d.qpos[:], d.qvel[:] = q, v
    for stage in (mujoco.mj_kinematics, mujoco.mj_comPos, mujoco.mj_comVel):
        stage(m, d)
    for g in range(m.ngeom):
        mujoco.mj_objectVelocity(m, d, mujoco.mjtObj.mjOBJ_GEOM, g, moving[g], 0)
    turn, slide = (2 * h * np.linalg.norm(part, axis=1).max() for part in (moving[:, :3], moving[:, 3:]))
    return float(turn * (slide + m.geom_rbound.max() * turn) + 1e-8)


@pytest.mark.parametrize("pushes", [10, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ["push_t", "fingertips", "gripper"])
def test_random_pushes_leave_no_overlap_that_the_timestep_does_not_explain(name: str, model: str, pushes: int) -> None:
    scene = tg.scenes.get(name)
    sim, m, h = tg.Simulator(scene, model), scene.model, scene.timestep
    low, high = m.actuator_ctrlrange.T
    for seed in range(pushes):
        rng, start = np.random.default_rng(seed), scene.initial_state()
        traj = sim.rollout(start, np.repeat(rng.uniform(low, high, (10, scene.nu)), 20, axis=0))
        for t in range(1, len(traj)):
            overlap = -traj.contacts[t].distance.min(initial=0.0)
            if overlap > 1e-8:  # where the step before led, by its v⁺
                assert overlap <= _explained(m, traj.q[t - 1], traj.v[t], h), (seed, t)
