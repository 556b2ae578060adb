"""Real robots, from the wheels that ship them: physics as MuJoCo's, derivatives as central differences say."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import mujoco
import pytest
from lxml import etree

import tangens as tg
from tangens import robots
from tangens.cli.check import DERIVATIVES, PHYSICS, check_in_contact, check_scene


@pytest.mark.parametrize("name", robots.names())
def test_agrees_with_mujoco_and_with_differences(name: str) -> None:
    errors = check_scene(robots.get(name), samples=1, seed=0)
    assert errors["physics"] <= PHYSICS, errors["errors"]
    assert errors["state"] <= DERIVATIVES, errors["errors"]
    assert errors["parameters"] <= DERIVATIVES, errors["errors"]


def _agreement_in_contact(names: Iterable[str], samples: int, seed: int) -> tuple[int, int]:
    """Directions compared, and those that agree with differences to one side."""
    compared = agree = 0
    for name in names:
        floor = not (robots.get(name).model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE).any()
        found = check_in_contact(robots.get(name, **({"ground": True} if floor else {})), samples, seed)
        compared, agree = compared + found["compared"], agree + found["agree"]
    return compared, agree


def test_in_contact_derivatives_agree_where_no_switch_is_near() -> None:
    # of the first four, each was once wrong without a word
    some = ("double_pendulum", "dm_walker", "simple_humanoid", "walker2d", "go1", "hyq", "panda", "humanoid")
    compared, agree = _agreement_in_contact(some, 4, 0)
    assert compared >= 60
    assert agree == compared


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 12, 22, 24])  # the last three were below 99 % once
def test_in_contact_derivatives_of_all_robots_agree(seed: int) -> None:
    compared, agree = _agreement_in_contact(robots.names(), 4, seed)
    assert compared >= 400
    assert agree >= 0.99 * compared


# Romeo's fingers move but have no mass in the file: they weigh what their shapes would in water.
FLOATING = [n for n, robot in robots.ROBOTS.items() if robot.options.get("floating_base") and n != "romeo"]


@pytest.mark.parametrize("name", FLOATING)
def test_a_floating_robot_weighs_what_its_file_says(name: str) -> None:
    masses = [float(mass.get("value")) for mass in etree.parse(robots.path(name)).iter("mass")]
    assert robots.get(name).parameters["mass"].sum() == pytest.approx(sum(masses), rel=1e-6)


def test_there_are_at_least_twenty_five() -> None:
    assert len(robots.names()) >= 25


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(tg.OptionError, match="'go1'"):
        robots.get("goo1")


@pytest.mark.parametrize("file", ["atlas_v3_no_head.urdf", "atlas_v3_box_colliders.urdf"])
def test_atlas_where_it_is_at_hand(file: str) -> None:
    folder = Path(os.environ.get("TANGENS_ROBOTS", Path(__file__).parents[2] / "shared" / "robots")) / "atlas"
    if not (folder / file).exists():
        pytest.skip("Atlas is not part of the project")
    scene = tg.load(folder / file, floating_base=True)
    assert scene.nv == 33
    assert check_scene(scene, samples=1, seed=0)["ok"]
