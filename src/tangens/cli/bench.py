"""Measure speed as ratios against other tools, in one run."""

from __future__ import annotations

import argparse
from typing import Any

from tangens.bench import BENCHES
from tangens.bench.timing import one_core
from tangens.cli.common import EXIT_MISSED, EXIT_OK, console, progress, table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tangens bench`."""
    parser.add_argument("name", choices=sorted(BENCHES), metavar="NAME", help=f"one of: {', '.join(sorted(BENCHES))}")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="fewer trials (seconds)")
    size.add_argument("--full", action="store_true", help="more trials (minutes)")
    parser.add_argument("--out", default="out/bench", metavar="DIR", help="where the figures go")


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Run a bench and print its rows and ratios."""
    effort = "quick" if args.quick else "full" if args.full else "normal"
    with progress() as bar:
        task = bar.add_task(args.name, total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, refresh=True)

        with one_core():
            result = BENCHES[args.name](effort, args.out, advance)
    rows = [[r["system"], r["quantity"], r["tool"], f"{r['median_us']:,.1f}", r["trials"]] for r in result["rows"]]
    table("Medians", ("system", "quantity", "tool", "µs", "trials"), rows)
    ratios = [
        [r["name"], f"{r['value']:.2f}", r["target"], "[green]ok[/]" if r["ok"] else "[red]missed[/]"]
        for r in result["ratios"]
    ]
    table("Ratios", ("ratio", "value", "target", ""), ratios)
    for figure in result["figures"]:
        console.print(f"wrote {figure}")
    missed = [r for r in result["ratios"] if not r["ok"]]
    return EXIT_MISSED if missed else EXIT_OK, result
