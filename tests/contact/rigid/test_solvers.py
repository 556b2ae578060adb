"""Whatever the problem, the solvers come to an answer, and say how good it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tangens as tg
from tangens import robots


class TestSolvers:
    def test_both_solve_the_same_problem(self) -> None:
        scene = tg.scenes.cube().replace(friction=0.5)
        q = scene.integrate(scene.initial_state("resting").q, [0, 0, 0.0268, 0.3, 0.4, 0.5])
        ends = [
            tg.Simulator(scene, contact=tg.Ncp(solver=solver)).step(tg.State(q, [0.4, 0.2, -1, 0.3, 0.2, 0.1]))
            for solver in ("newton", "admm")
        ]
        assert all(end.solver.converged for end in ends)
        np.testing.assert_allclose(ends[0].state.v, ends[1].state.v, atol=1e-8)

    @pytest.mark.parametrize("size", [0.01, 10.0])
    @pytest.mark.parametrize("ratio", [1e-4, 1e4])
    def test_mass_ratios_and_sizes(self, size: float, ratio: float) -> None:
        xml = f"""<mujoco><worldbody><geom type="plane" size="50 50 1"/>
          <body pos="0 0 {size}"><freejoint/><geom type="box" size="{size} {size} {size}" mass="1"/></body>
          <body pos="0 0 {3 * size}"><freejoint/><geom type="box" size="{size} {size} {size}" mass="{ratio}"/></body>
          </worldbody></mujoco>"""
        simulator = tg.Simulator(tg.load(xml), contact="ncp")
        trajectory = simulator.rollout(simulator.initial_state(), 100)
        assert all(report.residual <= 1e-8 for report in trajectory.solver)
        np.testing.assert_allclose(trajectory.q[-1], trajectory.q[0], atol=1e-5 * size)
        # Hard contacts may rock by micrometres, so that the floor carries the weight on average.
        floor = [contacts.force[(contacts.geom == 0).any(axis=1)].sum(axis=0)[2] for contacts in trajectory.contacts]
        assert np.mean(floor) == pytest.approx(9.81 * (1 + ratio), rel=1e-2)

    def test_an_overlap_that_cannot_be_undone_is_left(self) -> None:
        """A ball wedged between two walls that are too close: no velocity satisfies both."""
        xml = """<mujoco><option gravity="0 0 0"/><worldbody><geom type="box" size="1 1 1" pos="-1.099 0 0"/>
          <geom type="box" size="1 1 1" pos="1.099 0 0"/><body><freejoint/><geom size="0.1" mass="1"/></body>
          </worldbody></mujoco>"""
        out = tg.Simulator(tg.load(xml), contact="ncp")
        end = out.step(out.initial_state())
        assert end.solver.residual <= 1e-8
        np.testing.assert_allclose(end.state.v, 0.0, atol=1e-9)

    def test_contacts_are_read_where_mujoco_puts_them(self) -> None:
        """The engine reads MuJoCo's memory by itself: it must be where it was in the first step, field by field."""
        scene = robots.get("ant")
        simulator = tg.Simulator(scene, contact="ncp")
        engine: Any = simulator.engine
        state = simulator.initial_state()
        rng, seen = np.random.default_rng(0), 0
        for _ in range(200):
            out = simulator.step(state, rng.uniform(-1, 1, size=scene.nu))
            with engine.scratch() as scratch:
                found = scratch.data.contact
            seen += len(found.dist)
            np.testing.assert_array_equal(out.contacts.position, found.pos.reshape(-1, 3))
            np.testing.assert_array_equal(out.contacts.normal, found.frame.reshape(-1, 9)[:, :3])
            np.testing.assert_array_equal(out.contacts.distance, found.dist)
            np.testing.assert_array_equal(out.contacts.geom, found.geom.reshape(-1, 2))
            state = out.state
        assert seen > 100

    def test_a_diverged_motion_does_not_spoil_the_next(self) -> None:
        scene = tg.scenes.quadruped()
        simulator = tg.Simulator(scene, contact="ncp")
        state = scene.initial_state("home")
        expected = simulator.step(state).state.v
        wild = state.replace(v=1e6 * np.random.default_rng(0).normal(size=scene.nv))
        for _ in range(3):
            try:
                wild = simulator.step(wild).state
            except tg.SolverError:
                break
        np.testing.assert_allclose(simulator.step(state).state.v, expected, atol=1e-8)
