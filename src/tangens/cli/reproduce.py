"""Run a paper's experiments again and put our numbers beside its own."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tangens.cli.common import EXIT_MISSED, EXIT_OK
from tangens.cli.terminal import coloured, progress, say, table
from tangens.errors import OptionError
from tangens.lab.report import require_figures

NAMES = ("ncp", "lcp", "single-level", "soft", "convex")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tangens reproduce`."""
    parser.add_argument("name", choices=NAMES, metavar="NAME", help=f"whose paper; one of: {', '.join(NAMES)}")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small sizes (a few minutes)")
    size.add_argument("--full", action="store_true", help="the papers' sizes (long)")
    parser.add_argument("--out", default="out/reproduce", metavar="DIR", help="where the figures go")


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Run the experiments and print their rows."""
    require_figures("tangens reproduce")
    from tangens.lab.papers import PAPERS

    effort = "quick" if args.quick else "full" if args.full else "normal"
    out = Path(args.out) / args.name
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"cannot make the folder {out}: {error.strerror}") from None
    with progress() as bar:
        task = bar.add_task(args.name, total=None)

        def advance(part: str, done: int, total: int) -> None:
            bar.update(task, description=part, completed=done, total=total, refresh=True)

        result = PAPERS[args.name](effort, out, advance)
    rows = [[r["name"], _number(r["paper"]), _number(r["ours"]), r["unit"], r["target"] or "", _verdict(r["ok"])]
            for r in result["results"]]  # fmt: skip
    table(f"Reproduction of the paper behind {args.name} ({effort})", ("", "paper", "ours", "", "target", ""), rows)
    for figure in result["figures"]:
        say(f"wrote {figure}")
    judged = [r for r in result["results"] if r["ok"] is not None]
    missed = [r for r in judged if not r["ok"]]
    say(f"{len(judged) - len(missed)} of {len(judged)} targets met")
    for row in missed:
        why = row.get("why") or "no reason is known"
        say(f"missed: {row['name']}, {_number(row['ours'])} {row['unit']}".rstrip() + f", {row['target']}: {why}")
    return EXIT_MISSED if missed else EXIT_OK, result


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}"


def _verdict(ok: bool | None) -> object:
    return "" if ok is None else coloured("ok", "green") if ok else coloured("missed", "red")
