"""Running a peer's script in another process: arguments and answer are JSON."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tangens.lab.bench.peers import PeerUnavailable


def ask(
    python: str | Path, script: Path, question: dict[str, Any], timeout: float, variables: dict[str, str] | None = None
) -> dict[str, Any]:
    """What the script prints as its last line, or why it did not."""
    command = [str(python), str(script), json.dumps(question)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, check=False, env=os.environ | (variables or {})
        )
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"no result within {timeout:g} s") from None
    except OSError as error:
        raise PeerUnavailable(f"cannot start {Path(python).name}: {error.strerror}") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise PeerUnavailable(last[:300])
    try:
        answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise PeerUnavailable("its script printed no result") from None
    return answer
