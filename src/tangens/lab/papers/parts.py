"""A reproduction is a list of parts, run one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tangens.lab.papers.result_rows import Row
from tangens.lab.report import environment

Part = Callable[[str, Path], tuple[list[Row], list[Path]]]
Advance = Callable[[str, int, int], None]


def run_parts(parts: Mapping[str, Part], effort: str, out: Path, advance: Advance) -> dict[str, Any]:
    """Run all parts; figures go to `out`."""
    results: list[Row] = []
    figures: list[Path] = []
    for done, (name, part) in enumerate(parts.items()):
        advance(name, done, len(parts))
        rows, drawn = part(effort, out)
        results += rows
        figures += drawn
    advance("done", len(parts), len(parts))
    return {"results": results, "figures": [str(figure) for figure in figures], "environment": environment()}
