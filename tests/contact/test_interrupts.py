"""Ctrl-C gets through while a step is at work, however long that takes."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

# Bricks side by side and on top of each other, hundreds of contacts: a step of ncp takes longer than the test waits
# for it, and one of lcp about as long, so that many are taken.
CHILD = """
import signal, sys
import numpy as np, tangens as tg
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
brick = '<body pos="{} 0 {}"><freejoint/><geom type="box" size="0.1 0.05 0.05" mass="1"/></body>'
bricks = "".join(brick.format(0.2 * c + 0.1 * (r % 2), 0.05 + 0.1 * r) for r in range(9) for c in range(9))
scene = tg.load(f'<mujoco><worldbody><geom type="plane" size="9 9 1"/>{bricks}</worldbody></mujoco>')
small = tg.scenes.cube()
tg.Simulator(small, sys.argv[1]).step(small.initial_state())  # nothing is left to compile
sim, state = tg.Simulator(scene, sys.argv[1]), tg.State(scene.model.qpos0, 0.1 * np.ones(scene.nv))
print("begins", flush=True)
try:
    sim.rollout(state, 1000) if sys.argv[2] == "rollout" else sim.step(state)
    print("ended", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize(("model", "what"), [("ncp", "step"), ("ncp", "rollout"), ("lcp", "rollout")])
def test_an_interrupt_gets_through(model: str, what: str) -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD, model, what], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "begins\n"
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(1.0)  # by then it is inside of compiled code
            child.send_signal(signal.SIGINT)
            assert child.wait(10.0) in (0, 130)  # all of it would take minutes
            assert child.stdout.read() == "interrupted\n"
        finally:
            child.kill()
