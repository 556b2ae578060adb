"""What the commands share: naming a scene, exit codes."""

from __future__ import annotations

import argparse
from pathlib import Path

from tangens import robots, scenes
from tangens.contact import CONTACT_MODELS
from tangens.errors import OptionError
from tangens.scene import Scene, load

EXIT_OK, EXIT_ERROR, EXIT_USAGE, EXIT_MISSED, EXIT_INTERRUPTED = 0, 1, 2, 3, 130


def add_scene_arguments(parser: argparse.ArgumentParser) -> None:
    """SCENE and the options of `tangens.load`."""
    parser.add_argument("scene", metavar="SCENE", help="a bundled scene, a robot's name, or a path to MJCF or URDF")
    group = parser.add_argument_group("loading")
    group.add_argument("--floating-base", action="store_true", help="let the robot's root move freely")
    group.add_argument("--ground", action="store_true", help="add a floor at height 0")
    group.add_argument("--motors", action="store_true", help="add a motor to every joint without an actuator")
    group.add_argument("--repair-inertia", action="store_true", help="replace impossible inertias of a URDF")
    group.add_argument("--ignore", action="append", default=[], metavar="FEATURE", help="switch off, e.g. fluid")
    group.add_argument("--package-dir", action="append", default=[], metavar="DIR", help="where package:// looks")
    group.add_argument("--timestep", type=float, metavar="S", help="duration of a step")


def add_contact_argument(parser: argparse.ArgumentParser) -> None:
    """--contact, with the models there are."""
    parser.add_argument(
        "--contact", default="none", metavar="MODEL", help=f"contact model: {', '.join(('none', *CONTACT_MODELS))}"
    )


def contact_choice(args: argparse.Namespace) -> str | None:
    """What `Simulator(contact=...)` takes for the argument."""
    return None if args.contact == "none" else args.contact


def chosen_scene(args: argparse.Namespace) -> Scene:
    """The scene that the arguments name."""
    options = {
        "floating_base": args.floating_base,
        "ground": args.ground,
        "motors": args.motors,
        "repair_inertia": args.repair_inertia,
        "ignore": tuple(args.ignore),
        "package_dirs": tuple(args.package_dir),
    }
    given = {name: value for name, value in options.items() if value}
    if args.scene in scenes.names():
        scene = load(scenes.path(args.scene), **given)
    elif args.scene in robots.ROBOTS:
        scene = robots.get(args.scene, **given)
    elif Path(args.scene).suffix or "/" in args.scene:
        scene = load(args.scene, **given)
    else:
        raise OptionError(
            f"{args.scene!r} is no bundled scene ({', '.join(scenes.names())}), no robot "
            f"({', '.join(robots.names())}) and no path to a file"
        )
    return scene if args.timestep is None else scene.replace(timestep=args.timestep)
