"""Turn a mesh into few primitives, with a report, a picture and an MJCF that other tools can load."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tangens.cli.common import EXIT_MISSED, EXIT_OK
from tangens.cli.terminal import progress, say, table
from tangens.errors import OptionError
from tangens.lab.report import environment, require_figures

EPILOG = """\
examples:
  tangens decompose drill.obj                          as many primitives as 0.5 % of the diagonal needs, 20 at most
  tangens decompose drill.obj --accuracy 0.002 --kind superquadrics
"""
KINDS = ("auto", "superquadrics", "polyhedra", "cloud")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `tangens decompose`."""
    parser.add_argument("mesh", metavar="MESH", help="a file that trimesh reads: obj, stl, ply, dae, glb, ...")
    parser.add_argument("--accuracy", type=float, default=0.005, metavar="A",
                        help="mean distance between the surfaces, over the diagonal (default 0.005)")  # fmt: skip
    parser.add_argument("--most", type=int, default=20, metavar="N", help="primitives at most (default 20)")
    parser.add_argument("--kind", choices=KINDS, default="auto", help="which primitives (default auto, a mixture)")
    parser.add_argument("--density", type=float, default=1000.0, metavar="RHO", help="kg/m^3 (default 1000)")
    parser.add_argument("--out", default="out/decompose", metavar="DIR", help="where MJCF and picture go")


def run(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Decompose a mesh, write MJCF and picture, print the report."""
    require_figures("tangens decompose")
    if not args.density > 0:
        raise OptionError(f"--density must be positive; got {args.density:g}")
    from tangens.geometry.decomposition import decompose
    from tangens.geometry.decomposition_files import mjcf
    from tangens.geometry.mesh_files import read_mesh
    from tangens.lab.decomposition_picture import draw

    file, out = Path(args.mesh), Path(args.out)
    vertices, faces = read_mesh(file)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"cannot make the folder {out}: {error.strerror}") from None
    with progress() as bar:
        task = bar.add_task(file.stem, total=None)

        def advance(part: str, done: int, total: int) -> None:
            bar.update(task, description=part, completed=done, total=total, refresh=True)

        found = decompose(vertices, faces, accuracy=args.accuracy, most=args.most, kind=args.kind, advance=advance)
        advance("picture", 0, 1)
        picture = draw(found, vertices, faces, out / f"{file.stem}.png")
    model = out / f"{file.stem}.xml"
    if len(found):
        model.write_text(mjcf(found, file.stem, args.density), encoding="utf-8")
    fit, shapes = found.fit, found.superquadrics
    rows: list[list[object]] = [
        ["superquadrics", 0 if shapes is None else len(shapes.axes)], ["convex polyhedra", len(found.polyhedra)],
        ["points of a cloud", 0 if found.cloud is None else len(found.cloud)],
        ["mean distance of the surfaces [% of the diagonal]", f"{100 * fit.error:.2f}"],
        ["largest distance [%]", f"{100 * fit.largest:.2f}"], ["volume over that of the mesh", f"{fit.volume:.3f}"],
        ["time of the search [s]", f"{fit.seconds:.1f}"],
    ]  # fmt: skip
    table(file.name, ("", ""), rows)
    for note in fit.notes:
        say(f"note: {note}")
    if not len(found):
        say("no MJCF was written: it has no point clouds; ask for another --kind")
    reached = fit.error <= args.accuracy
    if not reached:
        say(f"the accuracy of {args.accuracy:g} was not reached; allow more primitives with --most")
    written = [str(picture), *([str(model)] if len(found) else [])]
    for name in written:
        say(f"wrote {name}")
    return EXIT_OK if reached else EXIT_MISSED, {
        "fit": {"error": fit.error, "largest": fit.largest, "volume": fit.volume, "seconds": fit.seconds},
        "notes": list(fit.notes), "reached": reached, "figures": written,
        "superquadrics": None if shapes is None else shapes._asdict(),
        "polyhedra": list(found.polyhedra), "points": 0 if found.cloud is None else len(found.cloud),
        "environment": environment(),
    }  # fmt: skip
