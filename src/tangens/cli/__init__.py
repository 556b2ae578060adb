"""The `tangens` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tangens.cli import bench, check, decompose, demo, gradient, reproduce, simulate
from tangens.cli.common import EXIT_ERROR, EXIT_INTERRUPTED
from tangens.cli.terminal import coloured, complain, say
from tangens.errors import Error
from tangens.lab.report import write_json

_COMMANDS = {
    "demo": demo,
    "simulate": simulate,
    "gradient": gradient,
    "check": check,
    "decompose": decompose,
    "bench": bench,
    "reproduce": reproduce,
}

_EPILOG = """\
first steps:
  tangens demo                          simulate and differentiate bundled scenes, write out/demo/
  tangens simulate arm --duration 2     step a bundled scene; a path to MJCF or URDF works as well
  tangens gradient quadruped --check    derivatives of one step, judged by central differences
  tangens check go1                     compare a robot with MuJoCo and with central differences
  tangens decompose drill.obj           a mesh as few superquadrics, with a report, a picture and an MJCF
  tangens reproduce ncp --quick         a paper's experiments, our numbers beside its own

exit codes: 0 done; 1 tangens could not do it (the message says why); 2 wrong usage; 3 done, but a check or
target was missed; 130 interrupted
"""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="tangens",
        description="Simulate robots and objects that touch, and differentiate what happens.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tangens {_tangens_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in _COMMANDS.items():
        summary = (module.__doc__ or "").strip().splitlines()[0]
        sub = commands.add_parser(
            name,
            help=summary,
            description=module.__doc__,
            epilog=getattr(module, "EPILOG", None),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(sub)
        sub.add_argument("--json", metavar="FILE", help="also write the results as JSON")
        sub.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    args = build_parser().parse_args(argv)
    try:
        code, payload = _COMMANDS[args.command].run(args)
        if args.json:
            say(f"wrote {write_json(payload, args.json)}")
        return code
    except Error as error:
        if args.debug:
            raise
        complain(coloured("error:", "bold red"), error)
        return EXIT_ERROR
    except KeyboardInterrupt:
        if args.debug:
            raise
        complain("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader, head say, has seen enough
        sys.stderr.close()
        return 0


def _tangens_version() -> str:
    from tangens import __version__

    return __version__
