"""Manipulation: what fingers can push is near, plans lead where they say, and transfers stay clear."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tangens as tg
from tangens.optimize import FingertipGrasps, Iteration, Manipulation, Plan, contact_rrt, replay
from tangens.optimize.manipulation import least_squares_within
from tangens.optimize.transfer import Transfer

Array = NDArray[np.float64]

SCENE = tg.scenes.fingertips()
STEPS = tg.Simulator(SCENE, contact="ncp")
SMOOTH = tg.Simulator(SCENE, contact=tg.Smoothed(tg.Ncp(), scale_q=2e-3, scale_v=0.0, samples=8))
GRASPS = FingertipGrasps(SCENE, "box", ["left", "right"], gap=2e-4)
BOX, FINGERS = slice(0, 3), slice(3, 7)


def task(goal: Any = (0.1, 0.05, 0.8), keyframe: str = "home", **options: Any) -> Manipulation:
    """Move the box of the bundled scene."""
    region = [-0.2, -0.2, -1.5], [0.2, 0.2, 1.5]
    defaults: dict[str, Any] = {"tolerance": [0.01, 0.01, 0.1], "region": region, "grasp": GRASPS, "smooth": SMOOTH}
    return Manipulation(STEPS, STEPS.initial_state(keyframe), "box", goal, **defaults | options)


@pytest.fixture(scope="module")
def planned() -> tuple[Manipulation, Plan]:
    problem = task()
    return problem, contact_rrt(problem, seed=1, max_iterations=200)


class TestPlan:
    def test_it_reaches_the_goal_when_it_is_replayed(self, planned: tuple[Manipulation, Plan]) -> None:
        problem, plan = planned
        assert plan.converged, plan
        motion = replay(problem, plan)
        assert np.abs(motion.q[-1, BOX] - [0.1, 0.05, 0.8]).max() <= 0.1
        assert problem.miss(motion.q[-1]) == plan.cost <= 1
        assert len(motion) == len(plan.x) * problem.hold
        np.testing.assert_array_equal(motion.q[-1], plan.q[-1])

    def test_edges_and_history_say_what_happened(self, planned: tuple[Manipulation, Plan]) -> None:
        problem, plan = planned
        assert len(plan.q) == len(plan.edges) + 1
        assert {edge.kind for edge in plan.edges} <= {"push", "regrasp"}
        np.testing.assert_array_equal(plan.x, np.concatenate([edge.commands for edge in plan.edges]))
        assert plan.regrasps >= 1  # the fingers begin away from the box
        assert plan.history[0].cost == problem.miss(problem.start)
        assert plan.history[-1].evaluations == plan.nodes
        assert (np.abs(plan.x) <= 0.5).all()

    def test_the_box_rests_while_fingers_change_their_grasp(self, planned: tuple[Manipulation, Plan]) -> None:
        _, plan = planned
        for before, after, edge in zip(plan.q, plan.q[1:], plan.edges, strict=False):
            if edge.kind == "regrasp":
                np.testing.assert_allclose(after[BOX], before[BOX], atol=5e-4)
                np.testing.assert_allclose(after[FINGERS], edge.commands[-1], atol=1e-3)

    def test_the_same_seed_gives_the_same_plan(self, planned: tuple[Manipulation, Plan]) -> None:
        problem, plan = planned
        again = contact_rrt(problem, seed=1, max_iterations=200)
        np.testing.assert_array_equal(again.x, plan.x)
        assert again.nodes == plan.nodes

    def test_momentum_is_left_out_unless_asked_for(self, planned: tuple[Manipulation, Plan]) -> None:
        problem, plan = planned
        free = replay(problem, plan, momentum=True)
        assert np.abs(free.q[-1] - plan.q[-1]).max() > 0
        np.testing.assert_array_equal(free.q[1], replay(problem, plan).q[1])

    def test_it_gives_up(self) -> None:
        plan = contact_rrt(task(), max_iterations=2)
        assert not plan.converged
        assert plan.edges == ()
        assert plan.x.shape == (0, 4)
        assert len(replay(task(), plan)) == 0

    def test_a_callback_stops_it(self) -> None:
        seen = list[tuple[Iteration, Array]]()

        def callback(entry: Iteration, q: Array) -> bool:
            seen.append((entry, q))
            return len(seen) == 3

        plan = contact_rrt(task(), callback=callback)
        assert plan.iterations == 2
        assert seen[0][1].shape == (7,)

    def test_a_goal_that_is_the_start_needs_nothing(self) -> None:
        plan = contact_rrt(task([0, 0, 0]))
        assert plan.converged
        assert plan.iterations == 0

    def test_nothing_of_the_callers_changes(self) -> None:
        goal, tolerance, start = np.array([0.0, 0.0, 0.1]), np.array([0.01, 0.01, 0.05]), SCENE.initial_state("home")
        before = start.q.copy()
        problem = Manipulation(
            STEPS, start, "box", goal, tolerance=tolerance, region=(-0.1, 0.1), grasp=GRASPS, smooth=SMOOTH
        )
        contact_rrt(problem, max_iterations=5)
        np.testing.assert_array_equal(goal, [0.0, 0.0, 0.1])
        np.testing.assert_array_equal(tolerance, [0.01, 0.01, 0.05])
        np.testing.assert_array_equal(start.q, before)

    def test_commands_can_be_held_for_several_steps(self) -> None:
        scene = SCENE.replace(timestep=0.05)
        simulator = tg.Simulator(scene, contact="ncp")
        problem = Manipulation(
            simulator,
            simulator.initial_state("grasped"),
            "box",
            [0.06, 0, 0],
            tolerance=[0.01, 0.01, 0.1],
            region=(-0.1, 0.1),
            hold=4,
        )
        plan = contact_rrt(problem, max_iterations=30)
        assert plan.converged
        assert plan.regrasps == 0
        assert len(replay(problem, plan)) == 4 * len(plan.x)


class TestMetric:
    def test_what_fingers_can_push_is_near(self) -> None:
        problem = task(keyframe="grasped")  # fingers left and right of the box
        near, away = problem.start, problem.start.copy()
        away[FINGERS] = [-0.4, 0.3, 0.4, 0.3]
        found = problem.expand(np.stack([near, away]), np.stack([near[FINGERS], away[FINGERS]]))
        held, free = (one[1] for one in found if one is not None)
        along, unit = np.array([1.0, 0, 0]), np.eye(3)
        assert along @ held.metric @ along < 0.01 * along @ free.metric @ along
        # They push along x harder than friction lets them drag along z.
        assert unit[0] @ held.metric @ unit[0] < unit[1] @ held.metric @ unit[1]

    def test_a_command_towards_a_goal_moves_the_box_there(self) -> None:
        problem = task([0.1, 0, 0], keyframe="grasped")
        stay = problem.start[FINGERS]
        (found,) = problem.expand(problem.start[None], stay[None])
        assert found is not None
        command = problem.command(problem.start, found[1], problem.goal)
        assert np.linalg.norm(command - stay) <= problem.reach * (1 + 1e-9)
        (child,) = problem.expand(problem.start[None], command[None])
        assert child is not None
        assert child[0][0] > 0.005

    @pytest.mark.parametrize("radius", [0.1, 1.0, 100.0])
    def test_least_squares_stay_within_a_radius(self, radius: float) -> None:
        rng = np.random.default_rng(0)
        for _ in range(10):
            B, offset = rng.normal(size=(3, 4)), rng.normal(size=3)
            x = least_squares_within(B, offset, radius)
            assert np.linalg.norm(x) <= radius * (1 + 1e-9)
            for _ in range(100):
                other = rng.normal(size=4)
                other *= radius * rng.random() / np.linalg.norm(other)
                assert np.linalg.norm(B @ x - offset) <= np.linalg.norm(B @ other - offset) + 1e-4


class TestTransfer:
    def test_fingers_stay_clear_on_their_way_around(self) -> None:
        q, clearance = SCENE.initial_state("grasped").q, 0.01
        lower, upper = np.full(4, -0.5), np.full(4, 0.5)
        transfer = Transfer(SCENE, np.arange(3, 7), lower, upper, clearance=clearance, stride=0.05)
        swapped = q[[5, 6, 3, 4]]
        path = transfer.path(q, swapped, np.random.default_rng(0))
        assert path is not None
        np.testing.assert_array_equal(path[-1], swapped)
        points = [q[FINGERS], *path]
        assert max(np.linalg.norm(b - a) for a, b in pairwise(points)) <= 0.05 + 1e-9
        fine = [a + t * (b - a) for a, b in pairwise(points) for t in np.linspace(0, 1, 20)]
        assert min(transfer.distance(q, fingers) for fingers in fine) > -1e-9

    def test_grasps_touch_nearly(self) -> None:
        q, rng = SCENE.initial_state("home").q.copy(), np.random.default_rng(0)
        q[:3] = 0.1, -0.05, 0.7
        limits = np.full(4, -1.0), np.full(4, 1.0)
        transfer = Transfer(SCENE, np.arange(3, 7), *limits, clearance=0.01, stride=0.05)
        for _ in range(20):
            grasp = FingertipGrasps(SCENE, "box", ["left", "right"], gap=1e-3)(rng, q)
            assert grasp is not None
            alone = [np.r_[grasp[:2], 0.9, 0.9], np.r_[0.9, 0.9, grasp[2:]]]
            # fingers approach until they are within 1e-5 m of their gap
            np.testing.assert_allclose([transfer.distance(q, fingers) for fingers in alone], 1e-3, atol=2e-5)


MOTORS = """
<mujoco><worldbody><body name="a"><joint name="a" type="slide"/><geom size=".1"/></body>
<body name="b"><geom size=".1" pos="1 0 0"/></body></worldbody><actuator><motor joint="a"/></actuator></mujoco>
"""


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"goal": [0, 0]}, "goal"),
            ({"goal": [0, 0, np.nan]}, "goal"),
            ({"goal": 0.0}, "goal"),
            ({"tolerance": 0.0}, "tolerance"),
            ({"tolerance": [1, 2]}, "tolerance"),
            ({"region": (0.1, -0.1)}, "region"),
            ({"region": 0.1}, "region"),
            ({"reach": 0.0}, "reach"),
            ({"hold": 0}, "hold"),
            ({"lanes": 0}, "lanes"),
            ({"grasp": 1}, "grasp"),
            ({"lower": 1.0}, "lower"),
            ({"smooth": "ncp"}, "Simulator"),
        ],
    )
    def test_of_the_problem(self, options: dict[str, Any], reason: str) -> None:
        with pytest.raises(tg.OptionError, match=reason):
            task(**options)

    def test_of_the_object(self) -> None:
        with pytest.raises(tg.OptionError, match="no body 'bowl'"):
            Manipulation(STEPS, SCENE.initial_state(), "bowl", [0, 0, 0], tolerance=1, region=(-1, 1))

    def test_actuators_must_be_position_servos(self) -> None:
        simulator = tg.Simulator(tg.load(MOTORS), contact="ncp")
        with pytest.raises(tg.OptionError, match="position servo"):
            Manipulation(simulator, simulator.initial_state(), "a", [0], tolerance=1, region=(-1, 1))

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"goal_bias": 1.5}, "goal_bias"),
            ({"regrasp": -0.1}, "regrasp"),
            ({"clearance": 0.0}, "clearance"),
            ({"pushes": 0}, "pushes"),
            ({"seed": -1}, "seed"),
            ({"max_iterations": -1}, "max_iterations"),
        ],
    )
    def test_of_the_planner(self, options: dict[str, Any], reason: str) -> None:
        with pytest.raises(tg.OptionError, match=reason):
            contact_rrt(task(), **options)

    def test_of_the_grasps(self) -> None:
        with pytest.raises(tg.OptionError, match="no geom"):
            FingertipGrasps(SCENE, "box", ["thumb"])
        with pytest.raises(tg.OptionError, match="no body"):
            FingertipGrasps(SCENE, "bowl", ["left"])
        with pytest.raises(tg.OptionError, match="slides"):
            FingertipGrasps(SCENE, "left", ["box"])
        with pytest.raises(tg.OptionError, match="gap"):
            FingertipGrasps(SCENE, "box", ["left"], gap=-1)
