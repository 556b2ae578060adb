"""Beyond the paper: what second derivatives of contact are good for. A finger pushes a puck to a mark, off its centre.

Dynamic programming by iLQR takes the motion as linear; with `sim.hessian` it knows how the motion bends, and takes
Newton's steps. Both start from controls of zero, with a finger that does not touch.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tangens.contact import Soft
from tangens.lab.papers.result_rows import Row, at_most, info
from tangens.lab.report import new_figure, save_figure
from tangens.optimize import ControlProblem, ControlResult, Effort, TargetState, ilqr
from tangens.scene import load
from tangens.simulate import Simulator

XML = """<mujoco><option timestep="0.01" gravity="0 0 0"/>
<default><joint type="slide" damping="1.5"/></default><worldbody>
<body name="finger"><joint name="fx" axis="1 0 0"/><joint name="fy" axis="0 1 0"/><geom size="0.02" mass="0.3"/></body>
<body name="puck" pos="0.1 0.015 0"><joint name="px" axis="1 0 0"/><joint name="py" axis="0 1 0"/>
<geom size="0.04" mass="0.5" friction="0.3"/></body></worldbody>
<actuator><motor joint="fx"/><motor joint="fy"/></actuator></mujoco>"""
MARK = 0.15, 0.05
"""Where the puck should come to rest, from where it is [m]."""
STEPS, HOLD = 80, 4
REACH = 0.005
"""ε₃ [m]."""


def problem() -> ControlProblem:
    """The push, each control held for 40 ms."""
    scene = load(XML)
    sim = Simulator(scene, Soft(smoothing=(None, None, REACH), stiction=0.02))
    weights = {"q_weight": [0, 0, 1e4, 1e4], "v_weight": [0, 0, 1e2, 1e2]}
    target = TargetState(scene, [0, 0, *MARK], **weights)
    return ControlProblem(sim, scene.initial_state(), STEPS, running=Effort(0.05), final=target, hold=HOLD)


def run(effort: str, out: Path) -> tuple[list[Row], list[Path]]:
    """Both methods, until the gradient is a millionth of the first one."""
    del effort
    push = problem()
    start = np.zeros((push.intervals, push.nu))
    found = {
        name: ilqr(push, start, second_order=second, max_iterations=150, gradient_tolerance=1e-8, cost_tolerance=0.0)
        for name, second in (("Gauss-Newton (iLQR)", False), ("Newton (with Hessians)", True))
    }
    gauss, newton = found.values()
    rows = [
        row
        for name, result in found.items()
        for row in (
            info(f"pushing a puck, {name}: iterations", float(len(result.history) - 1)),
            info(f"pushing a puck, {name}: cost", result.cost),
            info(f"pushing a puck, {name}: gradient / first gradient", _slopes(result)[-1]),
        )
    ]
    share = _steps_to(newton, 1e-6) / max(_steps_to(gauss, 1e-6), 1)
    rows.append(at_most("pushing a puck: Newton's steps / those of Gauss-Newton, to 1e-6 of the gradient", share, 1.0))
    figure, (cost, slope) = new_figure(1, 2, width=10, height=3.8)
    least = min(gauss.cost, newton.cost)
    for name, result in found.items():
        cost.semilogy([max(entry.cost - least, 1e-12) for entry in result.history], ".-", label=name)
        slope.semilogy(_slopes(result), ".-", label=name)
    cost.set(title="Cost above the lowest found", xlabel="iteration")
    slope.set(title="Gradient, over the first one", xlabel="iteration")
    for panel in (cost, slope):
        panel.grid(alpha=0.3)
        panel.legend()
    return rows, [save_figure(figure, out / "second_order.png")]


def _slopes(result: ControlResult) -> list[float]:
    return [entry.gradient_norm / result.history[0].gradient_norm for entry in result.history]


def _steps_to(result: ControlResult, share: float) -> float:
    """Iterations until the gradient is this share of the first one; infinite if it never is."""
    return next((float(k) for k, slope in enumerate(_slopes(result)) if slope <= share), np.inf)
