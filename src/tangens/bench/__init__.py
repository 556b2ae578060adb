"""Speed, always as a ratio against a peer measured in the same run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangens.bench import dynamics

Bench = Callable[[str, str, Callable[[int, int], None]], dict[str, Any]]

BENCHES: dict[str, Bench] = {"dynamics": dynamics.run}
"""By name: each takes the effort (quick, normal, full), the folder for figures and a progress callback."""
