"""What a bench is asked for, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def _silent(done: int, total: int) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True)
class BenchRequest:
    """How a bench is to be run."""

    effort: str = "normal"
    """quick, normal or full."""
    out: Path = Path("out/bench")
    """Where figures go."""
    peers: tuple[str, ...] = ()
    """Tools to measure against, of those that the bench knows."""
    advance: Callable[[int, int], None] = _silent
    """Called with the work done and the work there is."""


@dataclass(frozen=True)
class Bench:
    """A bench by name: what runs it and the peers it lets one choose from."""

    run: Callable[[BenchRequest], dict[str, Any]]
    peers: tuple[str, ...] = ()
    default_peers: tuple[str, ...] = ()


def row(
    system: str, quantity: str, tool: str, median_us: float, trials: int | None, compile_s: float | None = None
) -> dict[str, Any]:
    """One measured time; `trials` is None for a time that was published rather than measured."""
    return {
        "system": system,
        "quantity": quantity,
        "tool": tool,
        "median_us": median_us,
        "trials": trials,
        "compile_s": compile_s,
    }


def at_most(name: str, value: float, target: float) -> dict[str, Any]:
    """A ratio that must not exceed its target."""
    return {"name": name, "value": value, "target": f"<= {target:g}", "ok": value <= target}


def at_least(name: str, value: float, target: float) -> dict[str, Any]:
    """A ratio that must reach its target."""
    return {"name": name, "value": value, "target": f">= {target:g}", "ok": value >= target}


def not_measured(name: str, target: str, reason: str) -> dict[str, Any]:
    """A ratio that was asked for and could not be had: no value, and not ok."""
    return {"name": name, "value": None, "target": target, "ok": False, "reason": reason}
