"""Steps of models in JAX are values: same calls, same bits; copies and pickles; batches; what is compiled, and kept."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tangens as tg
from tangens.contact.base import Point
from tangens.contact.compiling import FUNCTIONS
from tangens.contact.interior.engine import InteriorEngine
from tangens.contact.structure import structure

pytestmark = pytest.mark.xdist_group("interior")  # compiled functions are shared within a process
START = tg.State([0, 0, 0.05, 1, 0, 0, 0], [0.5, 0.1, 0, 0, 0, 1])


@pytest.fixture(scope="module")
def cube() -> tg.Simulator:
    return tg.Simulator(tg.scenes.cube(), contact=tg.SingleLevel(relaxation=1e-4))


def engine_of(simulator: tg.Simulator) -> InteriorEngine:
    assert isinstance(simulator.engine, InteriorEngine)
    return simulator.engine


def test_steps_have_the_same_bits_in_any_order_and_thread(cube: tg.Simulator) -> None:
    rng = np.random.default_rng(0)
    states = [tg.State(START.q, 0.3 * rng.normal(size=6)) for _ in range(20)]
    first = [cube.step(state).state for state in states]
    again = [cube.step(state).state for state in reversed(states)][::-1]
    with ThreadPoolExecutor(4) as threads:
        parallel = list(threads.map(lambda state: cube.step(state).state, states))
    assert first == again == parallel


def test_copies_and_pickles_go_on_as_the_original(cube: tg.Simulator) -> None:
    out, traj = cube.step(START), cube.rollout(START, 3)
    J, back = cube.jacobian(out), cube.pullback(traj, dv=np.ones(6))
    for again in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        sim, step, trajectory = again(cube), again(out), again(traj)
        assert step.state == out.state
        assert sim.step(START).state == out.state
        assert np.array_equal(step.contacts.force, out.contacts.force)
        assert np.array_equal(sim.jacobian(step)["v", "q"], J["v", "q"])
        assert np.array_equal(sim.pullback(trajectory, dv=np.ones(6)).state.q, back.state.q)


def test_a_checkpointed_rollout_has_the_same_gradient(cube: tg.Simulator) -> None:
    for warm in (False, True):
        sim = cube if warm else tg.Simulator(cube.scene, tg.SingleLevel(relaxation=1e-4, warm_start=False))
        full, sparse = sim.rollout(START, 6), sim.rollout(START, 6, checkpoint=2)
        assert sparse.steps[0].tape is None
        assert (full.steps[0].guess is not None) == warm
        ours, again = (sim.pullback(traj, dv=np.ones(6)).state.q for traj in (full, sparse))
        assert np.array_equal(ours, again)


def test_a_step_that_fails_says_so_and_has_no_contacts(cube: tg.Simulator) -> None:
    out = cube.engine.step(Point(START.q, START.v, np.zeros(0), np.full(6, 1e300)))
    assert out.failed
    assert out.solver.residual == np.inf
    assert len(out.contacts) == 0
    with pytest.raises(tg.SolverError, match="not finite"):
        cube.step(START, tau=np.full(6, 1e300))


def test_a_batch_takes_the_steps_of_its_states(cube: tg.Simulator) -> None:
    """In portions of four lanes, the last of them not full; each state with a mass of its own."""
    rng, n = np.random.default_rng(1), 6
    x = Point(np.tile(START.q, (n, 1)), 0.3 * rng.normal(size=(n, 6)), np.zeros((n, 0)), np.zeros((n, 6)))
    mass = np.array([[0.0, m] for m in np.linspace(0.5, 1.0, n)])
    engine = engine_of(cube)
    many = engine.steps(x, parameters={"mass": mass}, lanes=4)
    blocks = engine.jacobians(many, ("v", "mass"), tg.Relaxed(1e-3))
    assert many.converged.all()
    assert not many.failed.any()
    for i in range(n):
        sim = tg.Simulator(cube.scene.replace(mass=mass[i]), cube.contact, gradient=tg.Relaxed(1e-3))
        out = sim.step(tg.State(x.q[i], x.v[i]))
        np.testing.assert_allclose(many.v[i], out.state.v, atol=1e-10)
        np.testing.assert_allclose(many.contacts(i).force, out.contacts.force, atol=1e-6)
        J = sim.jacobian(out, wrt=("v", "mass"))
        for name in ("v", "mass"):
            np.testing.assert_allclose(blocks[name][i], np.stack([J["q", name], J["v", name]]), atol=1e-6)
    with pytest.raises(tg.OptionError, match="mass must have shape"):
        engine.steps(x, parameters={"mass": mass[0]})


@pytest.mark.parametrize(
    "change",
    [
        {"com": {"cube": [0.01, 0.0, 0.0]}},
        {"inertia": {"cube": [0.001, 0.0012, 0.0014, 1e-5, 0, 0]}},
        {"size": {"cube": [0.05, 0.04, 0.05]}},
        {"mass": 2.0, "friction": 0.1, "gravity": [0, 0, -1.6], "timestep": 0.004, "damping": 0.1, "armature": 0.1},
    ],
)
def test_another_number_compiles_nothing(cube: tg.Simulator, change: dict[str, Any]) -> None:
    cube.step(START)
    kept = len(FUNCTIONS)
    scene = cube.scene.replace(**change)
    assert structure(scene.shared_model) == structure(cube.scene.shared_model)
    model = tg.SingleLevel(relaxation=1e-3, tolerance=0.01, sharpness=2.0, max_iterations=90)
    assert tg.Simulator(scene, model).step(START).solver.converged
    assert len(FUNCTIONS) == kept


def test_scenes_from_xml_that_differ_in_a_centre_of_mass_share_their_structure() -> None:
    inertial = '<inertial pos="{1}" mass="1" diaginertia="1 1 1"/>'
    text = f'<mujoco><worldbody><body pos="{{0}}"><freejoint/>{inertial}<geom size="0.1"/></body></worldbody></mujoco>'
    one, two, moved = (
        structure(tg.load(text.format(*at)).shared_model)
        for at in (("0 0 0", "0 0 0"), ("0 0 0", "0.1 0 0"), ("0.1 0 0", "0 0 0"))
    )
    assert one == two != moved


MANY = """
import sys
import tangens as tg
from tangens.contact.compiling import FUNCTIONS

def maps():
    return sum(1 for _ in open("/proc/self/maps"))

number, FUNCTIONS.most = map(int, sys.argv[1:])
text = '''<mujoco><worldbody>{floor}<body pos="0 0 {z}"><joint type="slide" axis="0 0 1" range="-0.1 1" limited="true"/>
<geom size="0.1" mass="1"/></body></worldbody></mujoco>'''
simulators, states, found = [], [], []
for i in range(number):
    floor = '<geom type="plane" size="1 1 1"/>' if number > 9 else ""  # of a pendulum's size without contact
    sim = tg.Simulator(tg.load(text.format(z=0.1 + 0.01 * i, floor=floor)), tg.SingleLevel(relaxation=1e-4))
    simulators.append(sim)
    states.append(sim.step(tg.State([-0.01 * i if floor else -0.09], [-0.1])).state)
    found.append(maps())
assert len(FUNCTIONS) == FUNCTIONS.most, len(FUNCTIONS)
# What was given up is compiled again, to the same bits.
assert simulators[0].step(tg.State([0.0 if number > 9 else -0.09], [-0.1])).state == states[0]
print(found)
assert found[-1] < found[FUNCTIONS.most - 1] + 300, found
"""


def _many(number: int, most: int) -> None:
    if sys.platform != "linux":
        pytest.skip("memory maps are counted on Linux")
    run = [sys.executable, "-c", MANY, str(number), str(most)]
    done = subprocess.run(run, capture_output=True, text=True, env=dict(os.environ), check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_functions_that_were_not_used_for_long_are_given_up_and_come_back() -> None:
    _many(4, 2)


@pytest.mark.slow
def test_two_hundred_scenes_in_one_process() -> None:
    """At some 10 s each. Without giving functions up, the process would die at the hundredth or earlier."""
    _many(200, 12)
