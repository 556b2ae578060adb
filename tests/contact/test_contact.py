"""Contact models are found by name; a new one plugs in without touching the simulator."""

from __future__ import annotations

import pytest

import tangens as tg
from tangens.contact import contact_model
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
