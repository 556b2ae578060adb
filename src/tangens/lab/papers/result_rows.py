"""Rows of a reproduction: what the paper has, what we have, and whether that is good enough."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]


def info(name: str, ours: float | None, *, paper: float | None = None, unit: str = "") -> Row:
    """A number beside the paper's, without a target."""
    return {"name": name, "paper": paper, "ours": ours, "unit": unit, "target": None, "ok": None, "why": ""}


def at_most(name: str, ours: float, limit: float, *, paper: float | None = None, unit: str = "", why: str = "") -> Row:
    """A number that must not be larger; NaN is. `why` is what a reader has to know where it is."""
    return {
        "name": name,
        "paper": paper,
        "ours": float(ours),
        "unit": unit,
        "target": f"<= {limit:g}",
        "ok": bool(ours <= limit),
        "why": why,
    }


def at_least(name: str, ours: float, limit: float, *, paper: float | None = None, unit: str = "", why: str = "") -> Row:
    """A number that must not be smaller; NaN is."""
    row = at_most(name, ours, limit, paper=paper, unit=unit, why=why)
    return row | {"target": f">= {limit:g}", "ok": bool(ours >= limit)}
