"""Impacts inside the time step: energy, bodies that have no part in them, derivatives with the time of impact."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import tangens as tg
from tangens.testing import Sample, contact_agreement, gradient_errors, parameter_errors

RESOLVED = tg.Lcp(bounce="resolved", tolerance=1e-13)
FLOOR = '<geom name="floor" type="plane" size="5 5 1"/>'
BALL = '<body pos="{} 0 {}"><freejoint/><geom size="0.1" mass="{}"/></body>'
PENDULUM = """<geom type="plane" size="5 5 1" pos="-0.12 0 0" zaxis="1 0 0"/>
  <body pos="0 0 1"><joint axis="0 1 0" damping="0.3"/><geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.4" mass="1"
    contype="0" conaffinity="0"/>
    <body pos="0 0 -0.4"><joint axis="0 1 0" stiffness="3"/><geom size="0.1" pos="0 0 -0.3" mass="0.5"/></body>
  </body>"""


def scene_of(world: str, timestep: float = 0.01, gravity: float = -9.81) -> tg.Scene:
    option = f'<option timestep="{timestep}" gravity="0 0 {gravity}"/>'
    return tg.load(f"<mujoco>{option}<worldbody>{world}</worldbody></mujoco>")


def resting(scene: tg.Scene, state: tg.State) -> Sample:
    return Sample(state, np.zeros(scene.nu), np.zeros(scene.nv))


@pytest.mark.parametrize("height", [0.3, 1e-3])
@pytest.mark.parametrize("timestep", [0.002, 0.01])
def test_an_elastic_ball_keeps_its_energy(height: float, timestep: float) -> None:
    """That of Euler's method, whose v is half a step behind: m·w²/2 + m·g·z with w = v − h·g/2."""
    scene = scene_of(FLOOR + BALL.format(0, 0.1 + height, 1), timestep).replace(restitution=1.0)
    traj = tg.Simulator(scene, RESOLVED).rollout(scene.initial_state(), round(2 / timestep))
    energy = 0.5 * (traj.v[:, 2] - 0.5 * timestep * 9.81) ** 2 + 9.81 * (traj.q[:, 2] - 0.1)
    np.testing.assert_allclose(energy, energy[0], rtol=1e-8)
    assert traj.q[:, 2].min() > 0.1 - 1e-9


def test_a_ball_that_bounces_comes_to_rest() -> None:
    scene = scene_of(FLOOR + BALL.format(0, 0.12, 1), 0.002).replace(restitution=0.6)
    traj = tg.Simulator(scene, RESOLVED).rollout(scene.initial_state(), 300)
    assert traj.v[-1] == pytest.approx(np.zeros(6), abs=1e-12)
    assert traj.q[-1, 2] == pytest.approx(0.1, abs=1e-9)
    assert len(traj.steps[-1].tape.pieces) == 1


def test_who_has_no_part_in_an_impact_does_not_notice() -> None:
    """A ball that flies by and a box at rest, next to one that bounces."""
    box = '<body pos="2 0 0.1"><freejoint/><geom name="box" type="box" size="0.1 0.1 0.1" mass="1"/></body>'
    scene = scene_of(FLOOR + BALL.format(0, 0.103, 1) + BALL.format(1, 1, 1) + box)
    scene = scene.replace(restitution=np.array([0, 0.8, 0.8, 0]))
    start = scene.initial_state().replace(v=[0, 0, -1, 0, 0, 0, 1, 0, -2, 1, 2, 3, 0, 0, 0, 0, 0, 0])
    out = tg.Simulator(scene, RESOLVED).step(start)
    free = tg.Simulator(scene).step(start)
    assert len(out.tape.pieces) == 3
    np.testing.assert_allclose(out.state.v[6:12], free.state.v[6:12], atol=1e-12)
    np.testing.assert_allclose(out.state.q[7:14], free.state.q[7:14], atol=1e-12)
    np.testing.assert_allclose(out.state.q[14:], start.q[14:], atol=1e-12)


def test_forces_of_a_step_with_impacts_explain_its_motion() -> None:
    scene = scene_of(FLOOR + BALL.format(0, 0.105, 1)).replace(restitution=0.7, friction=0.4)
    start = scene.initial_state().replace(v=[1, 0.2, -1, 1, 2, 3])
    out = tg.Simulator(scene, RESOLVED).step(start)
    change = out.contacts.force.sum(axis=0) - 9.81 * np.eye(3)[2]
    np.testing.assert_allclose(out.state.v[:3] - start.v[:3], 0.01 * change, atol=1e-9)


def test_an_impact_at_the_very_end_of_a_step_leaves_a_last_piece() -> None:
    scene = scene_of(FLOOR + BALL.format(0, 0.11, 1), gravity=0.0).replace(restitution=1.0)
    sim = tg.Simulator(scene, RESOLVED)
    for end in (0.0, 1e-17, -1e-17, 1e-15, -1e-15):
        out = sim.step(scene.initial_state().replace(v=[0, 0, -(1 + 1e-15) + end, 0, 0, 0]))
        assert sim.jacobian(out).switch.distance > 0.1
        assert np.isfinite(out.contacts.force).all()
        assert out.state.q[2] == pytest.approx(0.1, abs=1e-9)


class TestDerivatives:
    @pytest.mark.parametrize("case", ["balls", "pendulum", "row"])
    def test_they_agree_with_differences(self, case: str) -> None:
        scene, state = _scene_and_state(case)
        sim = tg.Simulator(scene, RESOLVED)
        out = sim.step(state)
        assert sum(piece.kind == "impact" for piece in out.tape.pieces) == (1 if case == "pendulum" else 2)
        assert sim.jacobian(out).switch.distance > 0.05
        errors = gradient_errors(sim, resting(scene, state), ("q", "v", "tau"), step=1e-6)
        assert max(errors.values()) < 2e-6, errors
        names = ("restitution", "mass", "size", "damping")
        found = parameter_errors(sim, resting(scene, state), names, np.random.default_rng(0), 1, step=1e-5)
        assert max(found.values()) < 2e-5, found

    @pytest.mark.parametrize("case", ["balls", "pendulum"])
    def test_an_impact_at_the_very_beginning_is_one_a_moment_later(self, case: str) -> None:
        scene, state = _scene_and_state(case)
        sim, up = tg.Simulator(scene, RESOLVED), {"balls": np.eye(12)[2], "pendulum": -np.eye(2)[0]}[case]

        def gap(lift: float) -> float:
            contacts = sim.step(state.replace(q=scene.integrate(state.q, lift * up))).contacts
            return float(contacts.distance[0])

        lift = 0.0
        for _ in range(20):  # Newton's method, to where it touches
            lift -= gap(lift) / ((gap(lift + 1e-6) - gap(lift - 1e-6)) / 2e-6)
        here, later = (sim.step(state.replace(q=scene.integrate(state.q, x * up))) for x in (lift, lift + 3e-9))
        assert [out.tape.pieces[0].kind for out in (here, later)] == ["arrival", "flight"]
        ours, reference = (sim.jacobian(out, wrt=("q", "v", "tau", "size", "mass")) for out in (here, later))
        for key, block in reference.items():
            scale = np.abs(block).max()
            np.testing.assert_allclose(ours[key], block, rtol=1e-5, atol=1e-5 * scale + 1e-9, err_msg=str(key))

    @pytest.mark.parametrize("model", [tg.Ncp(tolerance=1e-13), tg.Lcp(tolerance=1e-13), RESOLVED])
    @pytest.mark.parametrize("shape", ['type="box" size="0.1 0.07 0.05"', 'type="capsule" size="0.05 0.1"'])
    def test_along_a_fall_they_agree_where_no_switch_is_near(self, model: tg.ContactModel, shape: str) -> None:
        body = f'<body pos="0 0 0.2"><freejoint/><geom {shape} mass="1"/></body>'
        scene = scene_of(FLOOR + body, 0.005).replace(restitution=0.5, friction=0.6)
        sim, rng = tg.Simulator(scene, model), np.random.default_rng(3)
        start = tg.State(scene.integrate(scene.initial_state().q, [0, 0, 0, 1, 0.5, 0.2]), rng.normal(size=6))
        traj = sim.rollout(start, 250)
        found = [contact_agreement(sim, resting(scene, traj.state(t)), rng, 2) for t in range(0, 250, 5)]
        compared, agree = np.sum(found, axis=0)
        assert compared >= 40
        assert agree == compared

    def test_what_bounces_and_lies_still_is_on_a_switch(self) -> None:
        """A gap that opens, however little, lets it fall."""
        scene = scene_of(FLOOR + BALL.format(0, 0.1, 1)).replace(restitution=0.5)
        for model in (tg.Ncp(), tg.Lcp(), RESOLVED):
            assert tg.Simulator(scene, model).jacobian(scene.initial_state()).switch.distance == 0.0

    def test_several_contacts_in_one_impact_are_on_a_switch(self) -> None:
        row = "".join(
            f'<body pos="{x} 0 0"><joint type="slide"/><geom size="0.1" mass="1"/></body>' for x in (0, 0.2, 1)
        )
        scene = scene_of(row.replace('type="slide"', 'type="slide" axis="1 0 0"'), gravity=0.0).replace(restitution=1.0)
        sim = tg.Simulator(scene, RESOLVED)
        assert sim.jacobian(tg.State([-1e-3, 0, 0], [1, 0, 0])).switch.distance > 0.1
        close = tg.State([-1e-3, 0, -0.6], [1, 0, 0])
        assert sim.jacobian(close).switch.distance == 0.0

    def test_tapes_travel(self) -> None:
        scene, state = _scene_and_state("balls")
        sim = tg.Simulator(scene, RESOLVED)
        out = sim.step(state)
        there = pickle.loads(pickle.dumps((sim, out)))
        np.testing.assert_array_equal(there[0].jacobian(there[1])["q", "q"], sim.jacobian(out)["q", "q"])


def _scene_and_state(case: str) -> tuple[tg.Scene, tg.State]:
    """Two balls, one above the other, over a floor; a pendulum next to a wall; three balls in a row."""
    if case == "pendulum":
        return scene_of(PENDULUM).replace(restitution=0.7), tg.State([0.01, 0.02], [2.0, 1.0])
    if case == "balls":
        scene = scene_of(FLOOR + BALL.format(0, 0.105, 1) + BALL.format(0.05, 0.32, 0.3))
        state = scene.initial_state().replace(v=[0.1, 0.2, -1, 1, 2, 3, 0, 0.1, -3, 1, 0, 1])
        return scene.replace(restitution=0.7, friction=0.4), state
    body = '<body pos="{} 0 0"><joint type="slide" axis="1 0 0"/><geom size="0.1" mass="{}"/></body>'
    row = "".join(body.format(0.202 * i, m) for i, m in enumerate((1, 2, 0.5)))
    return scene_of(row, gravity=0.0).replace(restitution=0.9), tg.State([0, 0, 0], [1, 0, -1.3])


@pytest.mark.parametrize("model", [tg.Ncp(), tg.Lcp(), tg.Lcp(bounce="resolved")], ids=["ncp", "lcp", "resolved"])
@pytest.mark.parametrize("shape", ["sphere", "box"])
def test_rows_of_elastic_bodies_gain_no_energy(model: tg.ContactModel, shape: str) -> None:
    rng = np.random.default_rng(0)
    for n in range(2, 7):
        masses, gap = 10 ** rng.uniform(-2, 2, n), rng.choice([0.0, 1e-16, 1e-13, 1e-11])
        geom = f'<geom type="{shape}" size="0.1 0.1 0.1" mass="{{}}"/>'
        body = f'<body pos="{{}} 0 0"><joint type="slide" axis="1 0 0"/>{geom}</body>'
        row = "".join(body.format((0.2 + gap) * i, m) for i, m in enumerate(masses))
        scene = scene_of(row, gravity=0.0).replace(restitution=1.0)
        start = tg.State(-rng.uniform(0, 0.005) * np.eye(n)[0], np.eye(n)[0] - rng.random() * np.eye(n)[-1])
        traj = tg.Simulator(scene, model).rollout(start, 30)
        energy = 0.5 * traj.v**2 @ masses
        assert energy.max() <= energy[0] * (1 + 1e-9)
        np.testing.assert_allclose(traj.v @ masses, start.v @ masses, atol=1e-9 * masses.max())


def test_a_step_with_an_impact_and_a_jam_has_no_derivative_and_says_so() -> None:
    """A ball bounces while another one, in a vice, is parted from its walls apart from the laws of contact."""
    vice = "".join(f'<geom type="box" size="1 1 1" pos="{x} 0 5"/>' for x in (3.901, 6.0995))
    jammed = '<body pos="5 0 5"><freejoint/><geom size="0.1" mass="1"/></body>'
    bouncer = '<body pos="0 0 0.102"><freejoint/><geom name="bouncer" size="0.1" mass="1"/></body>'
    scene = scene_of(FLOOR + vice + jammed + bouncer).replace(restitution={"bouncer": 1.0})
    sim, v = tg.Simulator(scene, RESOLVED), np.zeros(12)
    v[8] = -1.0
    out = sim.step(tg.State(scene.model.qpos0, v))
    assert out.state.v[8] > 0
    assert out.solver.relaxed == pytest.approx(0.1)
    with pytest.raises(tg.NotDifferentiable, match="cannot undo"):
        sim.jacobian(out, wrt=("v",))
