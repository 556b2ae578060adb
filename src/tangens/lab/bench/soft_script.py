"""Run in a process of its own: what a step and its gradient cost, in seconds, from cold, and in memory."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

PAIR = """<mujoco><option timestep="0.002"/><worldbody>
<body pos="0 0 0"><freejoint/><geom type="ellipsoid" size="0.1 0.08 0.06" mass="1"/></body>
<body pos="0 0 0.119"><freejoint/><geom type="ellipsoid" size="0.1 0.08 0.06" mass="1"/></body>
</worldbody></mujoco>"""


def peak_megabytes() -> float:
    """The most memory that this process has used so far; `ru_maxrss` would count what its parent had when it began."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(question: dict[str, Any]) -> dict[str, Any]:
    """Compile and run a step and its Jacobian on push-T, or a step and its gradient on two clouds of many points.

    Or time steps on push-T, run where they are called or handed to a thread.
    """
    import tangens as tg

    if question["what"] == "steps":
        import jax

        from tangens.lab.bench.soft import steps

        jax.config.update("jax_cpu_enable_async_dispatch", not question["waits"])
        return steps(question["trials"], question["points"])
    if question["what"] == "compile":
        sim = tg.Simulator(tg.scenes.push_t(), "soft")
        state = sim.initial_state("touching")
        sim.engine.compiled("warm", 1, lambda model: lambda x: x)(0.0)  # type: ignore[attr-defined]
        started = time.process_time()
        out = sim.step(state)
        stepped = time.process_time()
        sim.jacobian(out)
        return {"step": stepped - started, "jacobian": time.process_time() - stepped}
    sim = tg.Simulator(tg.load(PAIR), tg.Soft(points=question["points"]))
    state = sim.initial_state()
    tg.Simulator(tg.load(PAIR), tg.Soft(points=96)).step(state)  # so that libraries are loaded, and not counted
    before = peak_megabytes()
    started = time.perf_counter()
    out = sim.step(state)
    back = sim.pullback(sim.rollout(state, 1), dv=[1.0] * 12, wrt=())
    assert out.state.q.shape == (14,)
    assert back.state.q.shape == (12,)
    clouds = sim.engine.parameters["clouds"]  # type: ignore[attr-defined]
    points = next(arrays[0].shape[-1] for name, arrays in clouds.items() if name.startswith("points"))
    return {"before": before, "peak": peak_megabytes(), "seconds": time.perf_counter() - started, "points": points}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
