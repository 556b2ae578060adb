"""Nimble: its forward pass, and on top of it its Jacobians.

It runs in an environment of its own, made here at the first call, because it needs numpy 1. Its compiled core is all
that is installed: PyTorch serves only Nimble's wrappers. It simulates its own half-cheetah, and Atlas with the same box
colliders as ours on the box that its ground.urdf is (ours is a plane; the numbers of contacts are in the notes).
`forwardPass` leaves the world as it was. Jacobians are asked for in sets, each after a forward pass of its own, so that
nothing that Nimble keeps serves two sets. Where several sets hold what is wanted, the quicker counts: the blocks one by
one, or the whole state and action Jacobian.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tangens.lab.bench.peers import PeerUnavailable
from tangens.lab.bench.peers.process import ask
from tangens.lab.bench.situations import robots_folder

FORWARD, JACOBIANS = "Nimble forwardPass", "Nimble Jacobians"
SYSTEMS = ("half_cheetah", "atlas")
REQUIREMENTS = ("numpy<2", "nimblephysics==0.10.52.1")
BLOCKS = {
    ("q", "q"): "getPosPosJacobian",
    ("v", "q"): "getPosVelJacobian",
    ("q", "v"): "getVelPosJacobian",
    ("v", "v"): "getVelVelJacobian",
    ("v", "tau"): "getControlForceVelJacobian",
}
WHOLE = ("getStateJacobian", "getActionJacobian")
VELOCITY_SETS = {"blocks": tuple(BLOCKS["v", name] for name in ("q", "v", "tau")), "whole": WHOLE}
SETTINGS = (
    f"{', '.join(REQUIREMENTS)} in its own environment, its C++ core called from Python; along its own trajectory in "
    "contact under small random forces; the quicker of the blocks wanted one by one (getPosVelJacobian, ...) and "
    f"({', '.join(WHOLE)})"
)
_FOLDER = Path(".cache") / "peers" / "nimble"
_SCRIPT = Path(__file__).with_name("nimble_script.py")
_TIMEOUT = 300.0


def measure(
    system: str, states: int, passes: int, sets: Mapping[str, Sequence[str]], clock: str = "perf_counter_ns"
) -> dict[str, Any]:
    """Times in ns, by a clock of Python's `time`: `forward`, and in `sets` those of each set of Jacobians.

    Besides, the numbers of `states`, of `contacts` and of `dofs`.
    """
    folder = robots_folder()
    if system == "half_cheetah":
        files = [folder / "nimble" / "half_cheetah.skel"]
    else:
        files = [folder / "atlas" / name for name in ("atlas_v3_box_colliders.urdf", "ground.urdf")]
    for file in files:
        if not file.is_file():
            raise PeerUnavailable(f"{file.name} is not at hand (set TANGENS_ROBOTS to the folder of robots)")
    paths = [str(f.resolve()) for f in files]
    question = {"system": system, "files": paths, "states": states, "passes": passes, "sets": sets, "clock": clock}
    return ask(environment(), _SCRIPT, question, _TIMEOUT)


class Turns:
    """Its times pass by pass, for benches in which tools take turns; or why there are none."""

    def __init__(self, system: str, states: int, sets: Mapping[str, Sequence[str]], clock: str) -> None:
        self._system, self._states, self._sets, self._clock = system, states, sets, clock
        self.times: dict[str, list[int]] = {name: [] for name in ("forward", *sets)}
        """[ns], of the forward pass and of each set."""
        self.facts: dict[str, Any] = {}
        self.missing = ""

    def take(self) -> None:
        """One pass over its states; none, once it could not be had."""
        if self.missing:
            return
        try:
            answer = measure(self._system, self._states, 1, self._sets, self._clock)
        except PeerUnavailable as reason:
            self.missing = str(reason)
            return
        self.facts = {key: answer[key] for key in ("states", "contacts", "dofs")}
        for name, times in (answer["sets"] | {"forward": answer["forward"]}).items():
            self.times[name] += times


def environment() -> Path:
    """The Python of Nimble's environment, made if it is not there."""
    ready, python = _FOLDER / ".ready", _FOLDER / "bin" / "python"
    if ready.is_file() and ready.read_text(encoding="utf-8") == "\n".join(REQUIREMENTS):
        return python.absolute()
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    for command in ([sys.executable, "-m", "venv", "--clear", str(_FOLDER)], [*pip, *REQUIREMENTS]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PeerUnavailable(f"its environment could not be made: {error}") from None
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [""])[-1]
            raise PeerUnavailable(f"its environment could not be made: {last[:300]}")
    ready.write_text("\n".join(REQUIREMENTS), encoding="utf-8")
    return python.absolute()
