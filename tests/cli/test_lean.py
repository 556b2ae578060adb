"""Without the extra `lab`, the library and the commands that draw nothing work; the others say what is missing."""

from __future__ import annotations

import subprocess
import sys

# As if the packages were not installed.
BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("matplotlib", "rich"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""


def without_the_extra(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCK + script], capture_output=True, text=True, check=False, timeout=600
    )


def test_the_library_loads_steps_and_optimises() -> None:
    done = without_the_extra("""
import numpy as np
import tangens as tg
sim = tg.Simulator(tg.load(tg.scenes.path("cartpole")))
state = sim.step(sim.initial_state("hanging"), u=[1.0]).state
assert state.v[0] > 0
problem = tg.optimize.LeastSquares(lambda x: x - 2.0, lambda x: np.eye(1), 1)
assert tg.optimize.gauss_newton(problem, [1.0], progress=True).converged
""")
    assert done.returncode == 0, done.stderr
    assert "1 of 50, error" in done.stderr  # a line for each iteration instead of the bar


def test_commands_that_draw_nothing_work() -> None:
    done = without_the_extra("""
from tangens.cli import main
assert main(["simulate", "cartpole", "--steps", "10"]) == 0
assert main(["gradient", "cartpole", "--check"]) == 0
assert main(["check", "cartpole"]) == 0
""")
    assert done.returncode == 0, done.stderr
    for said in ("10 steps of 0.01 s", "agrees with central differences", "load [s]", "1 of 1 agree"):
        assert said in done.stdout


def test_commands_that_draw_name_the_extra() -> None:
    done = without_the_extra("""
from tangens.cli import main
plot = ["simulate", "arm", "--plot", "arm.png"]
for arguments in (["demo"], ["bench", "dynamics"], ["reproduce", "ncp"], plot):
    assert main(arguments) == 1
""")
    assert done.returncode == 0, done.stderr
    need = 'needs matplotlib, which is not installed: pip install "tangens[lab]"'
    commands = ("tangens demo", "tangens bench", "tangens reproduce", "tangens simulate --plot")
    assert done.stderr.splitlines() == [f"error: {command} {need}" for command in commands]
