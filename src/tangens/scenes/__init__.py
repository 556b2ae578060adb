"""Scenes that come with tangens: small MJCF files of our own, ready to load by name.

`names()` lists them, `get("cube")` or `cube()` loads one, `path("cube")` is the file itself, to read or to copy
from. Each file says at its top what the scene is for and what its coordinates and keyframes mean.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from tangens.errors import OptionError
from tangens.scene import Scene, load

_FOLDER = Path(__file__).parent


def names() -> tuple[str, ...]:
    """Return the names of the bundled scenes, sorted."""
    return tuple(sorted(file.stem for file in _FOLDER.glob("*.xml")))


def path(name: str) -> Path:
    """Return the MJCF file of the bundled scene `name`."""
    known = names()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise OptionError(f"There is no bundled scene {name!r}.{hint} Known: {', '.join(known)}.")
    return _FOLDER / f"{name}.xml"


def get(name: str) -> Scene:
    """Load the bundled scene `name`."""
    return load(path(name))


def arm() -> Scene:
    """Load a serial arm of six hinges with position servos: smooth dynamics, no contact."""
    return get("arm")


def ball() -> Scene:
    """Load a bouncing ball of restitution 0.8 above a floor."""
    return get("ball")


def cartpole() -> Scene:
    """Load a cart with a pole on a free hinge; a motor pushes the cart."""
    return get("cartpole")


def catapult() -> Scene:
    """Load a planar arm of three motorised joints with a ball in its cup (paper 5)."""
    return get("catapult")


def cheetah() -> Scene:
    """Load a planar runner with two legs, six motors and springs in its joints."""
    return get("cheetah")


def cube() -> Scene:
    """Load a 10 cm cube on a floor, at rest or thrown."""
    return get("cube")


def double_cartpole() -> Scene:
    """Load a cart with two poles in a row on free hinges; a motor pushes the cart."""
    return get("double_cartpole")


def drone() -> Scene:
    """Load a drone that stands on the ground, with a vertical thrust as its input (paper 5, Fig. 8)."""
    return get("drone")


def fingertips() -> Scene:
    """Load a box in a plane and two spherical fingertips that move it (paper 1, Fig. 1)."""
    return get("fingertips")


def four_bar() -> Scene:
    """Load a four-bar linkage, a closed chain held together by a connect equality."""
    return get("four_bar")


def gripper() -> Scene:
    """Load a gripper whose fingers are driven and coupled by fixed tendons, and a box to grasp."""
    return get("gripper")


def gyro() -> Scene:
    """Load a gyroscope on a ball joint with a spring, without ground."""
    return get("gyro")


def peg_in_hole() -> Scene:
    """Load a planar peg above a slot with 2 mm to spare on each side (paper 1, Fig. 7)."""
    return get("peg_in_hole")


def polytope() -> Scene:
    """Load an irregular convex polytope, at rest on a floor or dropped on it."""
    return get("polytope")


def polytope_planar() -> Scene:
    """Load the planar polytope drop of paper 1, Fig. 9."""
    return get("polytope_planar")


def push_t() -> Scene:
    """Load a T-shaped block on a table and a spherical finger that pushes it (paper 3)."""
    return get("push_t")


def quadruped() -> Scene:
    """Load a quadruped with a free base, twelve position servos and spherical feet, standing."""
    return get("quadruped")


def slope() -> Scene:
    """Load a cube that slides on a slope of 20 degrees."""
    return get("slope")


def stack() -> Scene:
    """Load four boxes stacked on a floor."""
    return get("stack")


def worm() -> Scene:
    """Load a planar worm of three segments on a floor that jumps by bending (paper 5)."""
    return get("worm")
