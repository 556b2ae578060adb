"""The demonstration behind `tangens demo`: derivatives of motion, and five things they are good for.

The main act is a push found by gradients alone, from a finger that does not touch yet (`demo_push`). Besides:

1. The derivative of one step of an arm, against differences of every size.
2. Swinging up a cartpole: reverse mode through the whole motion feeds a quasi-Newton method.
3. Weighing a tool: the mass that explains a recorded motion of the arm.
4. Contact: how to push a cube off so that it slides to a mark and stops there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from tangens import scenes
from tangens.lab import demo_push
from tangens.lab.bench.timing import interleaved
from tangens.lab.report import environment, new_figure, save_figure
from tangens.simulate import Simulator
from tangens.testing import agreement_with_mujoco, gradient_errors, random_sample

Array = NDArray[np.float64]
SCENES = ("cartpole", "arm", "gyro", "cheetah", "quadruped")


def run(out: Path, advance: Callable[[str], None], main_act: bool = True) -> dict[str, Any]:
    """Run all parts; write figures, report.md and report.html to `out`. The main act takes some minutes."""
    advance("derivatives")
    table = [_judge(name) for name in SCENES]
    sizes, errors = _difference_errors()
    advance("swing-up")
    swing = swing_up()
    advance("weighing")
    weights = weigh_tool()
    advance("contact")
    slides = slide_to((0.25, 0.15))
    advance("push")
    push: dict[str, Any] | None = demo_push.push_from_a_distance() if main_act else None
    advance("report")
    acted = [demo_push.animate(out / "push.gif", push), demo_push.draw(out / "push.png", push)] if push else []
    figures = [
        *acted,
        _plot(out / "demo.png", sizes, errors, swing, weights),
        _plot_slides(out / "contact.png", slides),
    ]
    result: dict[str, Any] = {
        "scenes": table,
        "swing_up": {"iterations": len(swing["losses"]) - 1, "losses": swing["losses"], "final_q": swing["q"][-1]},
        "weighing": weights,
        "contact": {key: slides[key] for key in ("mark", "history", "speed", "law")},
        "push": push and {key: value for key, value in push.items() if key not in ("path", "ncp_path")},
        "figures": [str(figure) for figure in figures],
        "environment": environment(),
    }
    (out / "report.md").write_text(_report(result), encoding="utf-8")
    page = demo_push.html("tangens demo", [_push_text(push)], figures)
    (out / "report.html").write_text(page, encoding="utf-8")
    return result


def _judge(name: str) -> dict[str, Any]:
    """Accuracy and speed of step and Jacobian on one bundled scene."""
    simulator = Simulator(scenes.get(name))
    sample = random_sample(simulator.scene, np.random.default_rng(0))
    timings = interleaved(
        {
            "step": lambda: simulator.step(*sample),
            "jacobian": lambda: simulator.jacobian(*sample),
        },
        trials=7,
    )
    return {
        "scene": name,
        "nv": simulator.scene.nv,
        "mujoco_error": max(agreement_with_mujoco(simulator.scene, sample).values()),
        "gradient_error": max(gradient_errors(simulator, sample).values()),
        "step_us": timings.median("step"),
        "jacobian_us": timings.median("jacobian"),
        # central differences by (q, v, u) need two steps per input, whatever else they cost
        "speedup": 2 * (2 * simulator.scene.nv + simulator.scene.nu) * timings.ratio("step", "jacobian"),
    }


def _difference_errors() -> tuple[Array, Array]:
    """Deviation of plain central differences from our Jacobian, over the size of the difference."""
    simulator = Simulator(scenes.arm())
    sample = random_sample(simulator.scene, np.random.default_rng(1))
    J = simulator.jacobian(*sample, wrt=("q",))["v", "q"]
    scene, (state, u, tau) = simulator.scene, sample
    sizes = np.logspace(-11, -0.5, 22)
    errors = []
    for size in sizes:
        differences = np.zeros_like(J)
        for k, unit in enumerate(np.eye(scene.nv)):
            ends = [
                simulator.step(state.replace(q=scene.integrate(state.q, sign * size * unit)), u, tau).state.v
                for sign in (1, -1)
            ]
            differences[:, k] = (ends[0] - ends[1]) / (2 * size)
        errors.append(np.linalg.norm(differences - J) / np.linalg.norm(J))
    return sizes, np.array(errors)


def swing_up(steps: int = 200, effort: float = 1e-3) -> dict[str, Any]:
    """Find pushes on the cart that take a hanging pole upright and leave it at rest."""
    simulator = Simulator(scenes.cartpole())
    start = simulator.initial_state("hanging")
    # θ enters by 1 − cos θ, so that either way round is as good.
    target_weight = np.array([10.0, 200.0]), np.array([5.0, 10.0])

    def loss_and_gradient(flat: Array) -> tuple[float, Array]:
        u = flat.reshape(steps, 1)
        trajectory = simulator.rollout(start, u)
        (x, angle), v = trajectory.q[-1], trajectory.v[-1]
        (wx, wa), wv = target_weight
        loss = wx * x**2 + wa * (1 - np.cos(angle)) + float(wv @ v**2) + effort * float((u**2).sum())
        gradients = simulator.pullback(trajectory, dq=np.array([2 * wx * x, wa * np.sin(angle)]), dv=2 * wv * v, wrt=())
        return loss, (gradients.controls + 2 * effort * u).ravel()

    first = 0.5 * np.sin(np.linspace(0, 4 * np.pi, steps))  # a nudge: at rest, neither side is better
    losses = [loss_and_gradient(first)[0]]
    found = minimize(
        loss_and_gradient,
        first,
        jac=True,
        method="L-BFGS-B",
        bounds=[(-20.0, 20.0)] * steps,
        options={"maxiter": 200},
        callback=lambda x: losses.append(loss_and_gradient(x)[0]),
    )
    trajectory = simulator.rollout(start, found.x.reshape(steps, 1))
    return {"losses": losses, "q": trajectory.q, "v": trajectory.v, "u": trajectory.u}


def weigh_tool(true_mass: float = 0.9, steps: int = 250) -> dict[str, Any]:
    """Recover the mass of the arm's tool from a motion, by Newton's method on ∂(motion)/∂mass."""
    nominal = scenes.arm()
    tool = nominal.body_names.index("tool")
    start = nominal.initial_state("home")
    controls = np.tile(nominal.shared_model.key_ctrl[0], (steps, 1))
    recorded = Simulator(nominal.replace(mass={"tool": true_mass})).rollout(start, controls)
    mass, history = float(nominal.parameters["mass"][tool]), []
    for _ in range(6):
        simulator = Simulator(nominal.replace(mass={"tool": mass}))
        trajectory = simulator.rollout(start, controls)
        residual = trajectory.q - recorded.q
        history.append({"mass": mass, "misfit": float(np.sqrt((residual**2).mean()))})
        sensitivity = _motion_by_mass(simulator, trajectory.q, trajectory.v, controls, tool)
        mass -= float((sensitivity * residual).sum() / (sensitivity**2).sum())
    return {"true": true_mass, "history": history, "found": mass}


def _motion_by_mass(simulator: Simulator, q: Array, v: Array, controls: Array, body: int) -> Array:
    """∂q(t)/∂mass along a trajectory, by forward mode: one Jacobian per step."""
    from tangens.state import State

    nv = simulator.scene.nv
    dq, dv, out = np.zeros(nv), np.zeros(nv), [np.zeros(nv)]
    for t in range(len(controls)):
        J = simulator.jacobian(State(q[t], v[t]), controls[t], wrt=("q", "v", "mass"))
        dq, dv = (
            J["q", "q"] @ dq + J["q", "v"] @ dv + J["q", "mass"][:, body],
            J["v", "q"] @ dq + J["v", "v"] @ dv + J["v", "mass"][:, body],
        )
        out.append(dq)
    return np.array(out)


def slide_to(mark: tuple[float, float], steps: int = 150) -> dict[str, Any]:
    """Find the velocity with which a cube has to be pushed off to come to rest at a mark, by Newton's method.

    The derivative goes through 150 steps of sliding contact, friction, and the moment at which the cube stops.
    """
    scene = scenes.cube()
    simulator = Simulator(scene, contact="ncp")
    rest = simulator.initial_state("resting")
    push, history, paths = np.array([0.8, 0.8]), list[dict[str, float]](), list[Array]()
    for _ in range(8):
        trajectory = simulator.rollout(rest.replace(v=[*push, 0, 0, 0, 0]), steps)
        path = trajectory.q[:, :2] - rest.q[:2]
        miss = path[-1] - mark
        paths.append(path)
        history.append({"vx": push[0], "vy": push[1], "miss": float(np.linalg.norm(miss))})
        by_push = [simulator.pullback(trajectory, dq=unit, wrt=()).state.v[:2] for unit in np.eye(scene.nv)[:2]]
        push = push - np.linalg.solve(np.array(by_push), miss)
    friction = float(scene.parameters["friction"].max())
    law = float(np.sqrt(2 * friction * 9.81 * np.hypot(*mark)))  # what Coulomb says of continuous time
    return {"mark": mark, "history": history, "paths": paths, "speed": float(np.hypot(*push)), "law": law}


def _plot_slides(file: Path, slides: dict[str, Any]) -> Path:
    figure, axes = new_figure(1, 2, width=11, height=4)
    ways, misses = axes
    for k, path in enumerate(slides["paths"][:5]):
        ways.plot(*path.T, "o-", markevery=[-1], markersize=5, color=f"C{k}", label=f"push {k + 1}")
    ways.plot(*slides["mark"], "x", color="black", markersize=12, label="mark")
    ways.set(title="A cube slides over the floor, seen from above", xlabel="x [m]", ylabel="y [m]", aspect="equal")
    ways.legend()
    misses.semilogy(range(1, len(slides["history"]) + 1), [entry["miss"] for entry in slides["history"]], "o-")
    misses.set(title="Newton's method through contact", xlabel="push", ylabel="distance from the mark [m]")
    for panel in axes.flat:
        panel.grid(alpha=0.3)
    return save_figure(figure, file)


def _plot(file: Path, sizes: Array, errors: Array, swing: dict[str, Any], weights: dict[str, Any]) -> Path:
    figure, axes = new_figure(2, 2, width=11, height=7.5)
    (differences, loss), (pole, mass) = axes
    differences.loglog(sizes, errors, "o-")
    differences.set(
        title="One step of an arm: central differences against our derivative",
        xlabel="size of the difference",
        ylabel="relative deviation",
    )
    loss.semilogy(swing["losses"])
    loss.set(title="Swing-up by reverse mode and L-BFGS", xlabel="iteration", ylabel="loss")
    _draw_swing(pole, swing["q"])
    history = weights["history"]
    mass.plot([entry["mass"] for entry in history], "o-", label="estimate")
    mass.axhline(weights["true"], color="gray", linestyle="--", label="true mass")
    mass.set(title="Weighing the arm's tool by its motion", xlabel="Newton iteration", ylabel="mass [kg]")
    mass.legend()
    for panel in axes.flat:
        panel.grid(alpha=0.3)
    return save_figure(figure, file)


def _draw_swing(axes: Any, q: Array) -> None:
    """Cart and pole at moments of the motion, darker as time goes on."""
    length = 0.6
    chosen = np.linspace(0, len(q) - 1, 24).astype(int)
    for k, t in enumerate(chosen):
        x, angle = q[t]
        shade = 0.15 + 0.85 * k / (len(chosen) - 1)
        axes.plot([x, x + length * np.sin(angle)], [0, length * np.cos(angle)], color="tab:orange", alpha=shade)
        axes.plot(x, 0, "s", color="tab:blue", alpha=shade, markersize=5)
    axes.set(title="The motion found", xlabel="x [m]", ylabel="z [m]", aspect="equal")


def _push_text(push: dict[str, Any] | None) -> str:
    if push is None:
        return "The push from a distance was left out."
    miss, hard = push["error"], push["ncp_error"]
    return (
        "A push found by gradients alone: the finger starts 4.8 cm away from the T, where the gradient of the loss is "
        f"{push['first_gradient']:.0f} under soft contact and {push['ncp_gradient']:.0g} under ncp. The T ends "
        f"{100 * miss[0]:.2f} cm and {np.rad2deg(miss[1]):.1f}° from its goal; replayed in ncp, {100 * hard[0]:.2f} cm "
        f"and {np.rad2deg(hard[1]):.1f}°."
    )


def _report(result: dict[str, Any]) -> str:
    swing, weights, contact = result["swing_up"], result["weighing"], result["contact"]
    lines = [
        "# tangens demo",
        "",
        "Motion of bundled scenes, and what its derivative is good for. Made by `tangens demo`.",
        "",
        _push_text(result["push"]),
        "",
        *(["![push](push.gif)", "", "![push](push.png)", ""] if result["push"] else []),
        "| scene | nv | error vs MuJoCo | error vs differences | step [µs] | Jacobian [µs] | differences / Jacobian |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {r['scene']} | {r['nv']} | {r['mujoco_error']:.1e} | {r['gradient_error']:.1e} | {r['step_us']:.1f} "
        f"| {r['jacobian_us']:.1f} | {r['speedup']:.0f}x |"
        for r in result["scenes"]
    ]
    lines += [
        "",
        f"Swing-up: the loss fell from {swing['losses'][0]:.3g} to {swing['losses'][-1]:.3g} in {swing['iterations']} "
        f"iterations; the pole ends {abs(_wrapped(swing['final_q'][1])):.1e} rad from upright.",
        "",
        f"Weighing: {weights['history'][0]['mass']:g} kg assumed, {weights['true']:g} kg true, "
        f"{weights['found']:.9f} kg found.",
        "",
        "![figures](demo.png)",
        "",
        f"Contact: pushed at {contact['speed']:.4f} m/s, a cube slides {np.hypot(*contact['mark']):.3f} m and stops "
        f"{contact['history'][-1]['miss']:.1e} m from its mark. Coulomb's law asks for {contact['law']:.4f} m/s in "
        "continuous time.",
        "",
        "![contact](contact.png)",
        "",
    ]
    return "\n".join(lines)


def _wrapped(angle: float) -> float:
    return float((angle + np.pi) % (2 * np.pi) - np.pi)
