"""Real robots, from the wheels that ship them: physics as MuJoCo's, derivatives as central differences say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lxml import etree

import tangens as tg
from tangens import robots
from tangens.cli.check import DERIVATIVES, PHYSICS, check_scene


@pytest.mark.parametrize("name", robots.names())
def test_agrees_with_mujoco_and_with_differences(name: str) -> None:
    errors = check_scene(robots.get(name), samples=1, seed=0)
    assert errors["physics"] <= PHYSICS, errors["errors"]
    assert errors["state"] <= DERIVATIVES, errors["errors"]
    assert errors["parameters"] <= DERIVATIVES, errors["errors"]


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
