"""Steps and derivatives read nothing that was freed, and nothing that was not written."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

DIGEST = """
import hashlib, numpy as np, tangens as tg
from tangens import robots
digest, rng = hashlib.sha256(), np.random.default_rng(3)
for scene in (robots.get("xarm7", ground=True), robots.get("go1", ground=True), tg.scenes.cube(), tg.scenes.push_t()):
    for contact in ("ncp", "lcp"):
        sim = tg.Simulator(scene, contact)
        out = tg.State(sim.initial_state().q, 0.3 * rng.normal(size=scene.nv))
        for t in range(9):
            out = sim.step(out)
            digest.update(out.state.v.tobytes())
            if t % 4 == 0:
                J = sim.jacobian(out, wrt=("q", "v", "tau", "mass", "friction", "size"))
                for name in ("q", "v", "tau", "mass", "friction", "size"):
                    digest.update(np.ascontiguousarray(J["v", name]).tobytes())
                digest.update(repr((J.unique, J.switch)).encode())
print(digest.hexdigest())
"""


def _digest(fill: int) -> str:
    """Of steps and derivatives in a process where the C library fills what it frees and hands out with a pattern."""
    environment = {**os.environ, "MALLOC_PERTURB_": str(fill)}
    done = subprocess.run([sys.executable, "-c", DIGEST], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="a feature of glibc")
def test_the_same_bits_whatever_is_in_freed_memory() -> None:
    assert _digest(0) == _digest(165)
