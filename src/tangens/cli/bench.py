"""Measure speed as ratios against other tools, in one run."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tangens.cli.common import EXIT_MISSED, EXIT_OK
from tangens.cli.terminal import coloured, progress, say, table
from tangens.errors import OptionError
from tangens.lab.report import require_figures

# Known without importing the benches, which would make every command wait for JAX.
NAMES = ("dynamics", "gradients", "jacobians", "manifold", "single-level", "soft", "start")
PEERS = {"gradients": ("mujoco", "mjx", "nimble"), "jacobians": ("nimble",)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tangens bench`."""
    parser.add_argument("name", choices=NAMES, metavar="NAME", help=f"one of: {', '.join(NAMES)}")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="fewer trials (seconds)")
    size.add_argument("--full", action="store_true", help="more trials (minutes)")
    choices = "; ".join(f"{name}: {', '.join(peers)}" for name, peers in PEERS.items())
    parser.add_argument("--peers", metavar="A,B", help=f"tools to measure against, where one can choose ({choices})")
    parser.add_argument("--only", metavar="A,B", help="systems to measure: a long bench in parts, or a part alone")
    parser.add_argument("--out", default="out/bench", metavar="DIR", help="where the figures go")


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Run a bench and print its rows and ratios."""
    require_figures("tangens bench")
    from tangens.lab.bench import BENCHES, BenchRequest
    from tangens.lab.bench.timing import one_core

    effort = "quick" if args.quick else "full" if args.full else "normal"
    peers, only = chosen_peers(args.name, args.peers), _names(args.only or "")
    if only and not BENCHES[args.name].in_parts:
        raise OptionError(f"bench {args.name} measures everything together: leave out --only")
    with progress() as bar:
        task = bar.add_task(args.name, total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, refresh=True)

        bench = BENCHES[args.name]
        with one_core() if bench.on_one_core else nullcontext():
            result = bench.run(BenchRequest(effort, Path(args.out), peers, only, advance))
    table(*bench.table(result["rows"]))
    table("Ratios", ("ratio", "value", "target", ""), [_cells(r) for r in result["ratios"]])
    for ratio in result["ratios"]:
        if ratio["value"] is None:
            say(f"not measured: {ratio['name']}: {ratio['reason']}")
    for peer, settings in result["environment"]["peers"].items():
        say(f"{peer}: {settings}")
    for figure in result["figures"]:
        say(f"wrote {figure}")
    missed = [r for r in result["ratios"] if not r["ok"]]
    return EXIT_MISSED if missed else EXIT_OK, result


def chosen_peers(name: str, given: str | None) -> tuple[str, ...]:
    """The peers that `--peers` names, or the bench's own choice."""
    from tangens.lab.bench import BENCHES

    bench = BENCHES[name]
    if given is None:
        return bench.default_peers
    if not bench.peers:
        raise OptionError(f"bench {name} always measures against the same peers: leave out --peers")
    peers = _names(given)
    unknown = [peer for peer in peers if peer not in bench.peers]
    if unknown or not peers:
        what = f"no peer {', '.join(map(repr, unknown))}" if unknown else "no peers in an empty list"
        raise OptionError(f"bench {name} knows {what}; it knows {', '.join(bench.peers)}")
    return peers


def _names(given: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in given.split(",") if part.strip()))


def _cells(ratio: dict[str, Any]) -> list[object]:
    if ratio["value"] is None:
        return [ratio["name"], "-", ratio["target"], coloured("not measured", "yellow")]
    verdict = coloured("ok", "green") if ratio["ok"] else coloured("missed", "red")
    return [ratio["name"], f"{ratio['value']:.2f}", ratio["target"], verdict]
