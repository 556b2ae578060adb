"""What a bench is asked for, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tangens.errors import OptionError
from tangens.lab.report import environment

OURS = "tangens"


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
    only: tuple[str, ...] = ()
    """Systems to measure, of those that the bench has; all, if none is named."""
    advance: Callable[[int, int], None] = _silent
    """Called with the work done and the work there is."""


class Table(NamedTuple):
    """Rows to be read by people."""

    title: str
    columns: tuple[str, ...]
    cells: list[list[str]]


def medians(rows: Sequence[dict[str, Any]]) -> Table:
    """All rows, one below the other."""
    cells = []
    for r in rows:
        trials = "-" if r["trials"] is None else str(r["trials"])
        cells.append([r["system"], r["quantity"], r["tool"], f"{r['median_us']:,.1f}", trials])
    return Table("Medians", ("system", "quantity", "tool", "µs", "trials"), cells)


@dataclass(frozen=True)
class Bench:
    """A bench by name: what runs it, the peers it lets one choose from, and how its rows are shown."""

    run: Callable[[BenchRequest], dict[str, Any]]
    peers: tuple[str, ...] = ()
    default_peers: tuple[str, ...] = ()
    table: Callable[[Sequence[dict[str, Any]]], Table] = medians
    in_parts: bool = True
    """Whether some of its systems can be measured without the others."""
    on_one_core: bool = True
    """Whether the process is kept on a single core, as is fair where one thread works."""


@dataclass
class Report:
    """What has been measured of one system."""

    system: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    ratios: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    def add(self, quantity: str, tool: str, median_us: float, trials: int, compile_s: float | None = None) -> None:
        """Add a row."""
        self.rows.append(row(self.system, quantity, tool, median_us, trials, compile_s))

    def time(self, quantity: str, tool: str = OURS) -> float:
        """A measured median [µs]."""
        return next(r["median_us"] for r in self.rows if r["quantity"] == quantity and r["tool"] == tool)


def measure_all(
    request: BenchRequest,
    systems: Sequence[str],
    measure: Callable[[str, BenchRequest], Report],
    plot: Callable[[list[dict[str, Any]]], Path],
    facts: dict[str, Any],
) -> dict[str, Any]:
    """Measure one system after the other and put together what the bench answers; `facts` join its environment."""
    unknown = [name for name in request.only if name not in systems]
    if unknown:
        raise OptionError(f"the bench has no system {unknown[0]!r}; it has {', '.join(map(repr, systems))}")
    systems = [name for name in systems if name in request.only or not request.only]
    reports = []
    for index, name in enumerate(systems):
        request.advance(index, len(systems))
        reports.append(measure(name, request))
    request.advance(len(systems), len(systems))
    rows = [r for report in reports for r in report.rows]
    return {
        "rows": rows,
        "ratios": [r for report in reports for r in report.ratios],
        "figures": [str(plot(rows))],
        "environment": environment() | facts | {"systems": {report.system: report.notes for report in reports}},
    }


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
