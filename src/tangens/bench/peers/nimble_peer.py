"""Nimble: its forward pass, and on top of it its Jacobians ∂v⁺/∂(q, v, τ).

It runs in an environment of its own, made here at the first call, because it needs numpy 1. Its compiled core is all
that is installed: PyTorch serves only Nimble's wrappers. It simulates its own half-cheetah, and Atlas with the same box
colliders as ours on the box that its ground.urdf is (ours is a plane; the numbers of contacts are in the notes).
`forwardPass` leaves the world as it was. Of two complete sets of Jacobians, the three blocks for v⁺ or the whole state
and action Jacobian, the quicker counts.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tangens.bench.peers import PeerUnavailable
from tangens.bench.peers.process import ask
from tangens.bench.situations import robots_folder

FORWARD, JACOBIANS = "Nimble forwardPass", "Nimble Jacobians"
SYSTEMS = ("half_cheetah", "atlas")
REQUIREMENTS = ("numpy<2", "nimblephysics==0.10.52.1")
SETTINGS = (
    f"{', '.join(REQUIREMENTS)} in its own environment, its C++ core called from Python; along its own trajectory in "
    "contact under small random forces; the quicker of (getPosVelJacobian, getVelVelJacobian, "
    "getControlForceVelJacobian) and (getStateJacobian, getActionJacobian)"
)
_FOLDER = Path(".cache") / "peers" / "nimble"
_SCRIPT = Path(__file__).with_name("nimble_script.py")
_TIMEOUT = 300.0


def measure(system: str, states: int, passes: int) -> dict[str, Any]:
    """Medians in µs: `forward`, `jacobians`; besides `trials`, `contacts`, `blocks`."""
    folder = robots_folder()
    if system == "half_cheetah":
        files = [folder / "nimble" / "half_cheetah.skel"]
    else:
        files = [folder / "atlas" / name for name in ("atlas_v3_box_colliders.urdf", "ground.urdf")]
    for file in files:
        if not file.is_file():
            raise PeerUnavailable(f"{file.name} is not at hand (set TANGENS_ROBOTS to the folder of robots)")
    question = {"system": system, "files": [str(f.resolve()) for f in files], "states": states, "passes": passes}
    return ask(environment(), _SCRIPT, question, _TIMEOUT)


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
