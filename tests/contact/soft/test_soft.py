"""The soft contact model beyond the contract: its laws, second derivatives, defaults, integrators, many shapes."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

import tangens as tg
from tangens.contact.base import Point
from tangens.contact.soft.law import Law, dissipation_factor, point_plane

Array = NDArray[np.float64]
pytestmark = pytest.mark.xdist_group("soft")

_spec = importlib.util.spec_from_file_location("rest_scenes", Path(__file__).with_name("rest_scenes.py"))
assert _spec is not None
assert _spec.loader is not None
rest_scenes: Any = importlib.util.module_from_spec(_spec)
__import__("sys").modules["rest_scenes"] = rest_scenes
_spec.loader.exec_module(rest_scenes)

XML = """
<mujoco><option timestep="0.004"/><worldbody>
  <geom name="floor" type="plane" size="5 5 0.1"/>
  <body name="box" pos="0 0 0.1"><freejoint/><geom name="box" type="box" size="0.1 0.08 0.1" mass="1"/></body>
  <body name="ball" pos="0.3 0 0.05"><freejoint/><geom name="ball" size="0.05" mass="0.4" friction="0.6"/></body>
</worldbody></mujoco>"""
SCENE = tg.load(XML)
HOME = SCENE.initial_state()
WIDE = {"smoothing": (1e-3, 5e-3, 5e-3), "stiffness": 2e3, "dissipation": 0.1, "stiction": 0.05}


@cache
def simulator(**options: Any) -> tg.Simulator:
    return tg.Simulator(SCENE, tg.Soft(**options))


def placed(box: Any, ball: Any, v: Any = None) -> tg.State:
    return tg.State(SCENE.integrate(HOME.q, [*box, *ball]), np.zeros(12) if v is None else v)


FLIES = [0, 0, 1.0, 0.2, 0.3, 0.1]


def law(**changes: float) -> Law:
    numbers = {"stiffness": 1e4, "dissipation": 0.1, "stiction": 0.01, "friction": 0.5, "reach": 1e-3, "mass": 1.0}
    return Law(**{name: jnp.asarray(value) for name, value in (numbers | changes).items()})


def force_at(distance: float, velocity: Any, **changes: float) -> Array:
    up, now = jnp.array([0.0, 0.0, 1.0]), jnp.zeros(())
    found = point_plane(law(**changes), jnp.asarray(distance), up, jnp.asarray(velocity), now, jnp.array(False), True)
    return np.asarray(found.force)


class TestLaw:
    def test_it_pushes_and_never_pulls(self) -> None:
        for distance in (-0.01, 0.0, 0.02):
            for speed in (-3.0, -0.1, 0.0, 0.1, 3.0):
                assert force_at(distance, [0.0, 0, speed])[2] >= 0

    def test_at_rest_it_is_a_spring_that_starts_softly(self) -> None:
        assert force_at(0.0, [0.0, 0, 0])[2] == pytest.approx(1e4 * 1e-3 * np.log(2))
        assert force_at(-0.05, [0.0, 0, 0])[2] == pytest.approx(1e4 * 0.05)

    def test_friction_is_coulombs_where_a_contact_slides(self) -> None:
        f = force_at(-0.01, [3.0, 4.0, 0.0])
        np.testing.assert_allclose(f[:2], -0.5 * f[2] * np.array([0.6, 0.8]), rtol=1e-5)

    def test_friction_never_leaves_the_cone(self) -> None:
        for speed in np.logspace(-5, 2, 15):
            f = force_at(-0.01, [speed, 0.0, 0.0])
            assert abs(f[0]) <= 0.5 * f[2]

    def test_both_dissipation_factors_are_one_at_rest_and_fall(self) -> None:
        x = jnp.linspace(-3, 4, 200)
        for smooth in (True, False):
            d, falls = dissipation_factor(x, smooth)
            assert float(dissipation_factor(jnp.zeros(()), smooth)[0]) == pytest.approx(1.0)
            slope = jax.vmap(jax.grad(lambda x, smooth=smooth: dissipation_factor(x, smooth)[0]))(x)
            np.testing.assert_allclose(falls, -slope, atol=1e-12)
            assert (np.diff(d) <= 1e-15).all()

    def test_the_papers_factor_has_no_second_derivative_and_the_smooth_one_has(self) -> None:
        def jump(smooth: bool, at: float) -> float:
            second = jax.grad(jax.grad(lambda x: dissipation_factor(x, smooth)[0]))
            return float(abs(second(at + 1e-6) - second(at - 1e-6)))

        assert jump(False, 0.0) == pytest.approx(0.5)  # Eqs. 16 and 17
        assert jump(False, 2.0) == pytest.approx(0.5)
        assert max(jump(True, 0.0), jump(True, 2.0)) < 1e-5


class TestPhysics:
    def test_a_contact_does_negative_work(self) -> None:
        """With (J_i − J) of Eq. 21 as printed, bodies would be pulled in and gain energy."""
        rng = np.random.default_rng(0)
        sim = simulator()
        for _ in range(20):
            v = np.concatenate([rng.normal(size=6), np.zeros(6)])
            state = placed([0, 0, -1e-4, 0, 0, 0], [0.5, 0, 0.5, 0, 0, 0], v)
            out = sim.step(state)
            m = SCENE.model
            energies = []
            for s in (state, out.state):
                d = mujoco.MjData(m)
                d.qpos[:], d.qvel[:] = s.q, s.v
                mujoco.mj_energyPos(m, d)
                mujoco.mj_forward(m, d)
                mujoco.mj_energyVel(m, d)
                energies.append(d.energy[1])
            # gravity gains m g |v| h at most, elastic energy stored at the start is below m g ε₃
            assert energies[1] <= energies[0] + 9.81 * 1.4 * 0.004 * np.abs(v).max() * 3

    def test_angular_momentum_is_kept(self) -> None:
        scene = SCENE.replace(gravity=[0, 0, 0])
        sim = tg.Simulator(scene, tg.Soft())
        start = placed([0, 0, 1, 0.2, 0.1, 0.3], [-0.14, 0.05, 1.07, 0, 0, 0], [0, 0, 0, 1, 2, 3, -1.0, 0, 0, 0, 0, 0])
        out = sim.rollout(start, 30)
        assert np.abs(out.v[-1, :3]).max() > 0.05, "they never met"
        about = [_angular_momentum(scene, out.state(t)) for t in (0, 10, 20, 30)]
        # q ⊕ h·v⁺ keeps it to first order in h only: that error is there without contact, too
        free = tg.Simulator(scene, None).rollout(start, 30)
        drift = np.abs(_angular_momentum(scene, free.state(30)) - about[0]).max()
        assert max(np.abs(a - about[0]).max() for a in about) < 1e-4 + 3 * drift

    def test_nothing_near_is_motion_without_contact(self) -> None:
        state = placed(FLIES, [0, 0, 2.0, 0, 0, 0], np.arange(12) / 10)
        found, free = (tg.Simulator(SCENE, c).step(state).state for c in (tg.Soft(), None))
        np.testing.assert_allclose(found.v, free.v, atol=1e-12)

    @pytest.mark.parametrize("integrator", ["euler", "rk4"])
    def test_explicit_integrators_rest_too(self, integrator: Any) -> None:
        sim = tg.Simulator(SCENE, tg.Soft(integrator=integrator))
        out = sim.rollout(HOME, 250)
        assert np.abs(out.v[-1]).max() < 1e-2
        assert abs(out.q[-1, 2] - 0.1) < 0.01 * 0.16
        weight = out.contacts[-1].force[:, 2].sum()
        assert weight == pytest.approx(9.81 * 1.4, rel=0.02)


def _angular_momentum(scene: tg.Scene, state: tg.State) -> Array:
    m = scene.model
    d = mujoco.MjData(m)
    d.qpos[:], d.qvel[:] = state.q, state.v
    mujoco.mj_forward(m, d)
    total = np.zeros(3)
    for body in (1, 2):
        v = np.zeros(6)
        mujoco.mj_objectVelocity(m, d, mujoco.mjtObj.mjOBJ_BODY, body, v, 0)
        turn = d.ximat[body].reshape(3, 3)
        total += turn @ np.diag(m.body_inertia[body]) @ turn.T @ v[:3] + m.body_mass[body] * np.cross(
            d.xipos[body], v[3:]
        )
    return total


class TestSecondOrder:
    def test_a_hessian_agrees_with_differences_of_the_gradient(self) -> None:
        sim, rng = simulator(**WIDE), np.random.default_rng(1)
        state = placed([0, 0, 0.002, 0.05, 0.02, 0], [-0.16, 0.01, 0.02, 0, 0, 0], 0.3 * rng.normal(size=12))
        dq, dv = rng.normal(size=12), rng.normal(size=12)
        direction = {"q": rng.normal(size=12), "v": rng.normal(size=12)}
        found = sim.hessian_product(state, direction, dq=dq, dv=dv)
        step = 1e-5
        ends = []
        for sign in (1, -1):
            moved = tg.State(
                SCENE.integrate(state.q, sign * step * direction["q"]), state.v + sign * step * direction["v"]
            )
            J = sim.jacobian(moved, wrt=("v",))
            ends.append(dq @ J["q", "v"] + dv @ J["v", "v"])
        # by v alone: by q, the gradient would have to be carried between tangent spaces, and dq, too
        expected = (ends[0] - ends[1]) / (2 * step)
        scale = np.abs(found["v"]).max()
        only_v = sim.hessian_product(state, direction, dv=dv)["v"]
        ends = []
        for sign in (1, -1):
            moved = tg.State(
                SCENE.integrate(state.q, sign * step * direction["q"]), state.v + sign * step * direction["v"]
            )
            ends.append(dv @ sim.jacobian(moved, wrt=("v",))["v", "v"])
        np.testing.assert_allclose(only_v, (ends[0] - ends[1]) / (2 * step), atol=1e-5 * scale)
        assert np.abs(expected - found["v"]).max() < 1e-2 * scale

    def test_what_has_first_derivatives_only_says_so(self) -> None:
        with pytest.raises(tg.NotDifferentiable, match="first derivatives only"):
            tg.Simulator(tg.scenes.cube(), "ncp").hessian(tg.scenes.cube().initial_state(), dv=np.ones(6))
        with pytest.raises(tg.OptionError, match="scalar"):
            simulator(**WIDE).hessian(HOME)

    @pytest.mark.parametrize(("factor", "jumps"), [("smooth", False), ("paper", True)])
    def test_only_the_papers_factor_jumps_where_a_contact_turns(self, factor: Any, jumps: bool) -> None:
        run, up = _second_derivative(simulator(**WIDE, factor=factor, integrator="euler")), np.eye(12)[2]
        before, after = (run(HOME.q, HOME.v, 0 * up, up, s) for s in (-1e-7, 1e-7))
        assert (np.abs(after - before).max() > 1e-2 * np.abs(before).max()) == jumps


@cache
def _second_derivative(sim: tg.Simulator) -> Any:
    """d²(v⁺)/ds² along q ⊕ s·d, v + s·e."""
    from tangens.dynamics.tangent_jax import integrate

    f = tg.interop.jax.step(sim)

    def second(q: Any, v: Any, dq: Any, dv: Any, s: Any) -> Any:
        def along(s: Any) -> Any:
            return f(None, integrate(SCENE.joint_layout, q, s * dq), v + s * dv, None, None)[1]

        def first(s: Any) -> Any:
            return jax.jvp(along, (s,), (jnp.ones(()),))[1]

        return jax.jvp(first, (s,), (jnp.ones(()),))[1]

    return jax.jit(second)


class TestImplicitStep:
    FAST = placed([0, 0, 0.002, 0.05, 0.02, 0], [-0.16, 0.01, 0.02, 0, 0, 0], np.tile([3.0, -2, 1, 1, 0.5, -4], 2))

    def test_momentum_balances_with_the_forces_at_its_end(self) -> None:
        sim = simulator()
        out = sim.step(self.FAST)
        assert out.solver.converged
        assert out.solver.residual < 1e-10
        left = sim.inverse_dynamics(self.FAST, (out.state.v - self.FAST.v) / SCENE.timestep)
        assert np.abs(left).max() < 1e-8 * np.abs(out.contacts.force).max()

    def test_one_that_is_not_solved_says_so_and_so_do_its_derivatives(self) -> None:
        sim = simulator(max_iterations=1)
        out = sim.step(self.FAST)
        assert not out.solver.converged
        assert out.solver.residual > 1e-7
        assert not sim.jacobian(out).converged
        assert not sim.pullback(sim.rollout(self.FAST, 1), dv=np.ones(12), wrt=()).converged

    def test_each_of_a_batch_speaks_for_itself(self) -> None:
        sim, still = simulator(max_iterations=1), placed([0, 0, 1, 0, 0, 0], [0, 0, 2, 0, 0, 0], np.zeros(12))
        states = (still, self.FAST)
        x = Point(np.stack([s.q for s in states]), np.stack([s.v for s in states]), np.zeros((2, 0)), np.zeros((2, 12)))
        assert sim.engine.steps(x).converged.tolist() == [True, False]


class TestInverseDynamics:
    @pytest.mark.parametrize("integrator", ["implicit", "euler"])
    def test_it_is_the_inverse_of_a_step(self, integrator: Any) -> None:
        sim = simulator(**WIDE, integrator=integrator)
        rng = np.random.default_rng(2)
        state = placed([0, 0, 0.001, 0.01, 0.02, 0], [-0.15, 0.01, 0.0, 0, 0, 0], 0.1 * rng.normal(size=12))
        tau = rng.normal(size=12)
        out = sim.step(state, tau=tau)
        found = sim.inverse_dynamics(state, (out.state.v - state.v) / SCENE.timestep)
        np.testing.assert_allclose(found, tau, atol=1e-6)

    def test_hard_contact_has_none(self) -> None:
        with pytest.raises(tg.OptionError, match="no inverse dynamics"):
            tg.Simulator(tg.scenes.cube(), "ncp").inverse_dynamics(tg.scenes.cube().initial_state(), np.zeros(6))

    def test_without_contact_it_undoes_the_step(self) -> None:
        sim = tg.Simulator(tg.scenes.arm())
        state, tau = sim.initial_state("home"), np.arange(6.0)
        out = sim.step(state, u=state.q, tau=tau)
        found = sim.inverse_dynamics(state, (out.state.v - state.v) / sim.scene.timestep, u=state.q)
        np.testing.assert_allclose(found, tau, atol=1e-9)


QUICK_RESTS = ("box of 1 cm, 10 g", "sphere of 1 m")


class TestDefaults:
    @pytest.mark.parametrize(
        "name",
        [name if name in QUICK_RESTS else pytest.param(name, marks=pytest.mark.slow) for name in rest_scenes.RESTS],
    )
    def test_scenes_that_nobody_tuned_come_to_rest(self, name: str) -> None:
        rest = rest_scenes.RESTS[name]()
        q, v = _five_seconds(rest)
        assert np.isfinite(q).all()
        assert np.abs(v[-200:]).max() < 5e-3
        deepest = min(_depth(rest.scene, q[k]) for k in range(len(q) // 2, len(q), 50))
        assert -deepest <= 0.01 * rest.size

    def test_derived_values_can_be_read_and_overridden(self) -> None:
        derived = simulator().engine.derived  # type: ignore[attr-defined]
        assert derived.stiffness.shape == (3,)
        np.testing.assert_allclose(derived.stiffness * derived.reach * np.log(2), 9.81 * derived.mass)
        other = tg.Simulator(SCENE, tg.Soft(stiffness=123.0)).engine.derived  # type: ignore[attr-defined]
        np.testing.assert_array_equal(other.stiffness, 123.0)

    @pytest.mark.parametrize(
        ("options", "match"),
        [
            ({"smoothing": 1.0}, "smoothing must be"),
            ({"smoothing": (None, -1.0, None)}, r"smoothing\[1\]"),
            ({"stiffness": 0}, "stiffness"),
            ({"integrator": "leapfrog"}, "leapfrog"),
            ({"points": 2}, "points"),
            ({"averaging": "forces"}, "averaging"),
            ({"tolerance": 0.0}, "tolerance"),
            ({"max_iterations": 0}, "max_iterations"),
        ],
    )
    def test_options_that_make_no_sense_are_refused(self, options: Any, match: str) -> None:
        with pytest.raises(tg.OptionError, match=match):
            tg.Soft(**options)


def _five_seconds(rest: Any) -> tuple[Array, Array]:
    f: Any = tg.interop.jax.step(tg.Simulator(rest.scene, "soft"))

    @jax.jit
    def roll(q: Any, v: Any) -> Any:
        def body(x: Any, _: None) -> Any:
            x = f(None, *x, rest.u, None)
            return x, x

        return jax.lax.scan(body, (q, v), None, length=round(5.0 / rest.scene.timestep))[1]

    q, v = roll(rest.start.q, rest.start.v)
    return np.asarray(q), np.asarray(v)


def _depth(scene: tg.Scene, q: Array) -> float:
    """The deepest contact that MuJoCo finds [m], negative."""
    m = scene.model
    d = mujoco.MjData(m)
    d.qpos[:] = q
    mujoco.mj_kinematics(m, d)
    mujoco.mj_collision(m, d)
    return min((float(c.dist) for c in d.contact), default=0.0)


class TestShapes:
    def test_a_batch_of_shapes_gives_the_numbers_of_each(self) -> None:
        sim = simulator(**WIDE)
        f = tg.interop.jax.step(sim)
        own = sim.engine.parameters["clouds"]  # type: ignore[attr-defined]
        rng = np.random.default_rng(0)
        many = {
            name: tuple(jnp.stack([jnp.asarray(a) * s for s in scales]) if k < 1 else jnp.stack([jnp.asarray(a)] * 64)
                        for k, a in enumerate(arrays))
            for name, arrays in own.items() for scales in [rng.uniform(0.8, 1.2, 64)]
        }  # fmt: skip
        state = placed([0, 0, 0, 0.1, 0.05, 0], [-0.15, 0.01, 0.0, 0, 0, 0], 0.1 * rng.normal(size=12))
        step = jax.jit(lambda clouds: f({"clouds": clouds}, state.q, state.v, None, None)[1])
        together = jax.jit(jax.vmap(lambda clouds: f({"clouds": clouds}, state.q, state.v, None, None)[1]))(many)
        alone = [step(jax.tree.map(lambda a, i=i: a[i], many)) for i in range(64)]
        np.testing.assert_allclose(together, np.array(alone), atol=1e-10)
        assert np.ptp(np.array(alone), axis=0).max() > 1e-3, "the shapes make no difference"

    def test_a_ball_rolls_over_a_box_without_bumps(self) -> None:
        """Spheres are exact, and a flat face of a cloud is flat: the force hardly ripples."""
        sim = simulator()
        heights = [0.2 + 0.05 - 2e-5] * 9
        forces = []
        for x, z in zip(np.linspace(-0.05, 0.05, 9), heights, strict=True):
            state = placed([0, 0, 0, 0, 0, 0], [x - 0.3, 0.013, z - 0.05, 0, 0, 0])
            contacts = sim.step(state).contacts
            forces.append(contacts.force[(contacts.geom == 2).any(1)][-1, 2])
        # vertices of the box near the ball take a share of the mean (Eq. 23), though they do not touch it
        np.testing.assert_allclose(forces, forces[0], rtol=0.05)
