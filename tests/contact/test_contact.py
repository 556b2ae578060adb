"""Contact models are found by name; a new one plugs in without touching the simulator."""

from __future__ import annotations

from pathlib import Path

import pytest

import tangens as tg
from tangens.contact import contact_model
from tangens.contact.capabilities import DRY_FRICTION, RESTITUTION, table
from tangens.contact.free import ContactFree


def test_no_contact_is_a_model_too() -> None:
    assert isinstance(contact_model(None), ContactFree)
    model = ContactFree()
    assert contact_model(model) is model


def test_every_registered_name_makes_a_model_of_that_name() -> None:
    for name in tg.CONTACT_MODELS:
        assert contact_model(name).name == name


@pytest.mark.parametrize("choice", ["nope", 3, object()])
def test_anything_else_is_refused(choice: object) -> None:
    with pytest.raises(tg.OptionError, match="unknown contact model"):
        contact_model(choice)  # type: ignore[arg-type]


def test_the_docs_show_the_table_that_the_code_goes_by() -> None:
    page = (Path(__file__).parents[2] / "docs" / "contact-models.md").read_text(encoding="utf-8")
    shown = page.split("<!-- capabilities -->\n")[1].split("\n<!-- end of capabilities -->")[0]
    assert shown == table(type(contact_model(name)) for name in tg.CONTACT_MODELS)


@pytest.mark.parametrize("name", tg.CONTACT_MODELS)
def test_what_a_model_does_not_take_is_refused_with_element_and_remedy(name: str) -> None:
    scenes = {
        RESTITUTION: tg.scenes.cube().replace(restitution=0.5),
        DRY_FRICTION: tg.scenes.arm().replace(frictionloss=0.1),
    }
    for feature, scene in scenes.items():
        if feature in contact_model(name).takes:
            tg.Simulator(scene, name)
            continue
        with pytest.raises(tg.SceneError, match=feature) as caught:
            tg.Simulator(scene, name)
        assert caught.value.element
        assert caught.value.remedy
