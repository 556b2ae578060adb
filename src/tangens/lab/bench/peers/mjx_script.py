"""Run in a process of its own: time MJX's step and its jacfwd on given states."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import mjx


def main(question: dict[str, Any]) -> dict[str, Any]:
    """Answer the question that tangens put."""
    m = mujoco.MjModel.from_binary_path(question["model"])
    states = np.load(question["states"])
    model, data = mjx.put_model(m), mjx.make_data(m)

    def step(q: jax.Array, v: jax.Array, u: jax.Array, start: jax.Array) -> Any:
        return mjx.step(model, data.replace(qpos=q, qvel=v, ctrl=u, qacc_warmstart=start)).qvel

    samples = [
        tuple(jnp.asarray(states[name][i]) for name in ("q", "v", "u", "start")) for i in range(len(states["q"]))
    ]
    answer = {"trials": question["passes"] * len(samples)}
    for name, function in (("step", jax.jit(step)), ("jacfwd", jax.jit(jax.jacfwd(step, argnums=(0, 1, 2))))):
        start = time.perf_counter()
        jax.block_until_ready(function(*samples[0]))
        answer[f"{name}_compile"] = time.perf_counter() - start
        times = []
        for _ in range(question["passes"]):
            for sample in samples:
                start = time.perf_counter_ns()
                jax.block_until_ready(function(*sample))
                times.append(time.perf_counter_ns() - start)
        answer[name] = float(np.median(times)) / 1e3
    return answer


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
