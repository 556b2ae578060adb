"""Experiments of the papers behind the contact models, run again: `tangens reproduce NAME`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tangens.lab.papers import convex, lcp, ncp, single_level, soft
from tangens.lab.papers.parts import Advance

Reproduction = Callable[[str, Path, Advance], dict[str, Any]]

PAPERS: dict[str, Reproduction] = {
    "ncp": ncp.run,
    "lcp": lcp.run,
    "single-level": single_level.run,
    "soft": soft.run,
    "convex": convex.run,
}
"""By contact model: each takes the effort (quick, normal, full), the folder for figures and a callback that hears the
part at work and how many of how many are done. It returns `results` (rows as in `rows.py`), `figures` and
`environment`."""
