"""Limits, dry friction and equalities are constraints of the contact problem, and differentiable like contacts."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

import tangens as tg
from tangens.testing import Sample, gradient_errors


class TestConstraints:
    def test_a_four_bar_linkage_stays_closed(self) -> None:
        scene = tg.scenes.four_bar()
        simulator = tg.Simulator(scene, contact="ncp")
        trajectory = simulator.rollout(simulator.initial_state(), np.full((500, 1), 0.5))
        assert np.abs(trajectory.v[:, 0]).max() > 1.0  # the crank turns
        m, d = scene.model, mujoco.MjData(scene.model)
        d.qpos[:] = trajectory.q[-1]
        mujoco.mj_kinematics(m, d)
        pin = [d.xpos[m.body(n).id] + d.xmat[m.body(n).id].reshape(3, 3) @ m.eq_data[0, 3 * k : 3 * k + 3]
               for k, n in enumerate(("coupler", "rocker"))]  # fmt: skip
        # A step keeps the velocity of closure; the crank's curved way costs h² each time, undone by the next step.
        np.testing.assert_allclose(pin[0], pin[1], atol=2e-4)

    @pytest.mark.parametrize("kind", ["connect", "weld", "joint", "tendon", "ball", "tendon limit"])
    def test_their_derivatives_are_exact(self, kind: str) -> None:
        extra = {
            "connect": '<equality><connect body1="c" body2="f" anchor="0 0 0.2"/></equality>',
            "weld": '<equality><weld body1="c" body2="f"/></equality>',
            "joint": '<equality><joint joint1="a" joint2="b" polycoef="0 0.5 0.3 0.1 0"/></equality>',
            "tendon": '<tendon><fixed name="t"><joint joint="a" coef="1"/><joint joint="b" coef="-0.5"/></fixed>'
            '<fixed name="s"><joint joint="b" coef="2"/></fixed></tendon>'
            '<equality><tendon tendon1="t" tendon2="s" polycoef="0 0.1 0.2 0 0"/></equality>',
            "ball": "",
            "tendon limit": '<tendon><fixed limited="true" range="-0.1 0.1" frictionloss="0.1">'
            '<joint joint="a" coef="1"/><joint joint="b" coef="1"/></fixed></tendon>',
        }[kind]
        xml = f"""<mujoco><worldbody>
          <body><joint name="a" axis="0 1 0"/><geom size="0.02 0.1" type="capsule" pos="0 0 0.1" mass="1"/>
            <body pos="0 0 0.2"><joint name="b" axis="0 1 0"/>
              <geom size="0.02 0.1" type="capsule" pos="0 0 0.1" mass="1"/>
              <body name="c" pos="0 0 0.2"><joint type="ball" range="0 0.5" limited="{str(kind == "ball").lower()}"/>
                <geom size="0.02 0.1" type="capsule" pos="0 0 0.1" mass="1"/></body></body></body>
          <body name="f" pos="0 0 0.7"><freejoint/><geom size="0.1 0.08 0.05" type="box" mass="1"/></body>
          </worldbody>{extra}</mujoco>"""
        scene = tg.load(xml)
        simulator = tg.Simulator(scene, contact=tg.Ncp(tolerance=1e-13, correction_speed=100.0))
        q = scene.integrate(scene.model.qpos0, [0.1, 0.05, 0.4, 0.3, 0.2, 1e-3, 2e-3, 1e-3, 2e-3, 1e-3, 3e-3])
        state = tg.State(q, [0.5, 0.3, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.3, 0.2, 0.1])
        if kind in ("connect", "weld"):  # near where the equality holds: a weld's error counts to first order
            state = state.replace(q=scene.integrate(scene.model.qpos0, [0.0] * 11))
        free = tg.Simulator(scene).step(state).state.v
        assert np.abs(simulator.step(state).state.v - free).max() > 1e-2, "the constraint should act"
        errors = gradient_errors(
            simulator, Sample(state, np.zeros(scene.nu), np.zeros(scene.nv)), ("q", "v", "tau"), step=1e-6
        )
        assert max(errors.values()) < 1e-5, errors

    def test_a_weld_holds_a_body(self) -> None:
        xml = """<mujoco><worldbody>
          <body name="a" pos="0 0 1"><freejoint/><geom size="0.1" mass="1"/></body></worldbody>
          <equality><weld body1="a" body2="world"/></equality></mujoco>"""
        simulator = tg.Simulator(tg.load(xml), contact="ncp")
        last = simulator.rollout(simulator.initial_state(), 200).state(-1)
        np.testing.assert_allclose(last.q, simulator.initial_state().q, atol=1e-9)
