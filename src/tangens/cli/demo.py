"""Simulate and differentiate bundled scenes; write figures and a report."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tangens.cli.common import EXIT_OK
from tangens.cli.terminal import progress, say, table
from tangens.errors import OptionError
from tangens.lab.report import require_figures


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tangens demo`."""
    parser.add_argument(
        "--out", default="out/demo", metavar="DIR", help="where figures and report go (default out/demo)"
    )


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Run the demonstration."""
    require_figures("tangens demo")
    from tangens.lab import demo

    out = Path(args.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"cannot make the folder {out}: {error.strerror}") from None
    with progress() as bar:
        task = bar.add_task("demo", total=6)

        def advance(part: str) -> None:
            bar.update(task, advance=1, description=part, refresh=True)

        result = demo.run(out, advance)
    rows = [
        [r["scene"], r["nv"], f"{r['mujoco_error']:.1e}", f"{r['gradient_error']:.1e}", f"{r['step_us']:.1f}",
         f"{r['jacobian_us']:.1f}", f"{r['speedup']:.0f}x"]
        for r in result["scenes"]
    ]  # fmt: skip
    columns = ("scene", "nv", "vs MuJoCo", "vs differences", "step [µs]", "Jacobian [µs]", "speed-up")
    table("Relative errors and speed, without contact", columns, rows)
    swing, weights, contact = result["swing_up"], result["weighing"], result["contact"]
    push = result["push"]
    say(
        f"push from a distance: {100 * push['error'][0]:.2f} cm from its goal; replayed in ncp, "
        f"{100 * push['ncp_error'][0]:.2f} cm\n"
        f"swing-up: loss {swing['losses'][0]:.3g} -> {swing['losses'][-1]:.3g} in {swing['iterations']} iterations\n"
        f"weighing: {weights['history'][0]['mass']:g} kg assumed, {weights['true']:g} kg true, "
        f"{weights['found']:.6f} kg found\n"
        f"contact: a cube slides to its mark and stops {contact['history'][-1]['miss']:.1e} m from it\n"
        f"wrote {out / 'report.html'} (opens in a browser), {out / 'report.md'} and their pictures"
    )
    return EXIT_OK, result
