"""Robots that other packages ship inside their wheels, by name: what checks and benches load.

They need the `robots` extra (`pip install tangens[robots]`): example-robot-data, gymnasium and dm_control.
"""

from __future__ import annotations

import difflib
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from lxml import etree

from tangens.errors import OptionError, SceneError
from tangens.scene import Scene, load


class Robot(NamedTuple):
    """Where a robot's description lies, and how it is meant to be loaded."""

    package: str
    file: str
    options: dict[str, Any]


_LEGGED: dict[str, Any] = {"floating_base": True}


def _example(file: str, **options: Any) -> Robot:
    return Robot("example-robot-data", file, options)


def _gym(file: str, **options: Any) -> Robot:
    return Robot("gymnasium", file, options)


def _suite(file: str, **options: Any) -> Robot:
    return Robot("dm_control", file, options)


ROBOTS: dict[str, Robot] = {
    # example-robot-data: quadrupeds and bipeds
    "a1": _example("a1_description/urdf/a1.urdf", **_LEGGED),
    "anymal_b": _example("anymal_b_simple_description/robots/anymal.urdf", **_LEGGED),
    "anymal_c": _example("anymal_c_simple_description/urdf/anymal.urdf", **_LEGGED),
    "anymal_kinova": _example("anymal_b_simple_description/robots/anymal-kinova.urdf", **_LEGGED),
    "b1": _example("b1_description/urdf/b1.urdf", **_LEGGED),
    "bolt": _example("bolt_description/robots/bolt.urdf", **_LEGGED),
    "go1": _example("go1_description/urdf/go1.urdf", **_LEGGED),
    "go2": _example("go2_description/urdf/go2.urdf", **_LEGGED),
    "hyq": _example("hyq_description/robots/hyq_no_sensors.urdf", **_LEGGED),
    "laikago": _example("laikago_description/urdf/laikago.urdf", **_LEGGED),
    "solo": _example("solo_description/robots/solo.urdf", **_LEGGED),
    "solo12": _example("solo_description/robots/solo12.urdf", **_LEGGED),
    # example-robot-data: humanoids
    "alex": _example("alex_description/urdf/alex_nub_hands.urdf", **_LEGGED),
    "g1": _example("g1_description/urdf/g1_29dof_rev_1_0.urdf", **_LEGGED),
    "human": _example("human_description/robots/human.urdf", **_LEGGED),
    "icub": _example("icub_description/robots/icub.urdf", **_LEGGED),
    "romeo": _example("romeo_description/urdf/romeo.urdf", **_LEGGED),
    "simple_humanoid": _example("simple_humanoid_description/urdf/simple_humanoid.urdf", **_LEGGED),
    "talos": _example("talos_data/robots/talos_reduced.urdf", **_LEGGED),
    "talos_full": _example("talos_data/robots/talos_full_v2.urdf", **_LEGGED),
    # example-robot-data: arms, hands, mobile bases, drones
    "allegro": _example("allegro_hand_description/urdf/allegro_right_hand.urdf"),
    "baxter": _example("baxter_description/urdf/baxter.urdf"),
    "borinot": _example("borinot_description/urdf/borinot_flying_arm_2.urdf", **_LEGGED),
    "centauro": _example("centauro_description/urdf/centauro.urdf", **_LEGGED),
    "double_pendulum": _example("double_pendulum_description/urdf/double_pendulum.urdf"),
    "finger_edu": _example("finger_edu_description/robots/finger_edu.urdf"),
    "hextilt": _example("hextilt_description/urdf/hextilt_flying_arm_5.urdf", **_LEGGED),
    "iris": _example("iris_description/robots/iris.urdf", **_LEGGED),
    "kinova": _example("kinova_description/robots/kinova.urdf"),
    "panda": _example("panda_description/urdf/panda.urdf"),
    "pr2": _example("pr2_description/urdf/pr2.urdf"),
    "so101": _example("so_arm_description/urdf/so101.urdf"),
    "tiago": _example("tiago_description/robots/tiago.urdf"),
    "ur5": _example("ur_description/urdf/ur5_robot.urdf"),
    "ur10": _example("ur_description/urdf/ur10_robot.urdf"),
    "xarm7": _example("xarm_description/urdf/xarm7.urdf"),
    "z1": _example("z1_description/urdf/z1.urdf"),
    # gymnasium
    "ant": _gym("ant.xml"),
    "half_cheetah": _gym("half_cheetah.xml"),
    "hopper": _gym("hopper.xml"),
    "humanoid": _gym("humanoid.xml"),
    "inverted_double_pendulum": _gym("inverted_double_pendulum.xml"),
    "pusher": _gym("pusher_v5.xml"),
    "reacher": _gym("reacher.xml"),
    "swimmer": _gym("swimmer.xml", ignore=("fluid",)),
    "walker2d": _gym("walker2d_v5.xml"),
    # dm_control
    "acrobot": _suite("acrobot.xml"),
    "dm_cheetah": _suite("cheetah.xml"),
    "dm_finger": _suite("finger.xml"),
    "dm_humanoid": _suite("humanoid.xml"),
    "dm_quadruped": _suite("quadruped.xml", ignore=("activation",)),
    "dm_stacker": _suite("stacker.xml"),
    "dm_walker": _suite("walker.xml"),
    "humanoid_cmu": _suite("humanoid_CMU.xml"),
    "manipulator": _suite("manipulator.xml"),
}


def names() -> tuple[str, ...]:
    """Robots that `get` knows."""
    return tuple(ROBOTS)


def path(name: str) -> Path:
    """The description file of a robot."""
    if name not in ROBOTS:
        close = difflib.get_close_matches(name, ROBOTS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(ROBOTS)}"
        raise OptionError(f"there is no robot {name!r}.{hint}")
    robot = ROBOTS[name]
    return _folder(robot.package) / robot.file


def get(name: str, **options: Any) -> Scene:
    """Load a robot as it is meant to be, with `tangens.load` options on top.

    Poses that come with a robot, such as "standing" or "half_sitting", are keyframes of the scene. With `ground=True`
    they stand on the floor; `motors=True` adds motors.
    """
    file = path(name)
    known = {"poses": poses(name)} if file.suffix == ".urdf" else {}
    return load(file, **{**known, **ROBOTS[name].options, **options})


def poses(name: str) -> dict[str, dict[str, float]]:
    """Joint positions of the poses that a robot's semantic description (SRDF) names."""
    file = path(name)
    for candidate in sorted((file.parents[1] / "srdf").glob("*.srdf"), key=lambda srdf: srdf.stem != file.stem):
        tree = etree.parse(candidate, etree.XMLParser(resolve_entities=False, no_network=True))
        wanted = _movable_joints(file)
        found = {
            state.get("name"): {
                joint.get("name"): float(joint.get("value"))
                for joint in state.findall("joint")
                if joint.get("name") in wanted and len(joint.get("value").split()) == 1  # the others place the root
            }
            for state in tree.getroot().iter("group_state")
        }
        if any(found.values()):
            return {pose: joints for pose, joints in found.items() if joints}
    return {}


def _movable_joints(file: Path) -> set[str]:
    """Names of the joints of a URDF that are not fixed."""
    tags = [dict(re.findall(r'(\w+)="([^"]*)"', tag)) for tag in re.findall(r"<joint\s[^>]*>", file.read_text("utf-8"))]
    return {tag["name"] for tag in tags if tag.get("type", "fixed") != "fixed"}


def _folder(package: str) -> Path:
    if package == "example-robot-data":
        spec, inside = find_spec("pinocchio"), "../../../../share/example-robot-data/robots"
        site = [parent for parent in Path(spec.origin or "").parents if parent.name == "cmeel.prefix"] if spec else []
        folder = site[0] / "share" / "example-robot-data" / "robots" if site else Path(inside)
    else:
        spec = find_spec(package)
        inside = "envs/mujoco/assets" if package == "gymnasium" else "suite"
        folder = Path(spec.origin).parent / inside if spec and spec.origin else Path(inside)
    if not folder.is_dir():
        raise SceneError(f"{package} is not installed", remedy="pip install tangens[robots]")
    return folder
