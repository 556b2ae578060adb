"""A key changes with all that a compiled function depends on, and with nothing else."""

from __future__ import annotations

import textwrap
from types import FunctionType
from typing import Any

import pytest

from tangens.kernels.content import content_key

SOURCE = '''
from tangens.kernels import inline, subroutine

FACTOR = 2.0

@inline
def helper(x):
    return x + 1.0

@subroutine
def stage(x):
    return x * 3.0

def function(x):
    """Words."""
    return FACTOR * helper(x) + stage(x)
'''


def key(source: str) -> str:
    module: dict[str, Any] = {"__name__": "tangens.fictitious"}
    exec(textwrap.dedent(source), module)
    function = module["function"]
    assert isinstance(function, FunctionType)
    return content_key(function)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("FACTOR * helper", "FACTOR - helper"),
        ("FACTOR = 2.0", "FACTOR = 3.0"),
        ("x + 1.0", "x + 2.0"),
        ("return x + 1.0", "return -x"),
        ("stage", "phase"),
    ],
)
def test_a_change_of_what_is_compiled_changes_the_key(before: str, after: str) -> None:
    assert key(SOURCE) != key(SOURCE.replace(before, after))


@pytest.mark.parametrize(
    ("before", "after"),
    [("Words.", "Other words."), ("return x + 1.0", "# why\n    return x + 1.0"), ("x * 3.0", "x - x")],
)
def test_words_and_the_inside_of_subroutines_do_not(before: str, after: str) -> None:
    assert key(SOURCE) == key(SOURCE.replace(before, after))


def test_what_has_no_stable_form_is_refused() -> None:
    with pytest.raises(TypeError, match="refers to FACTOR"):
        key(SOURCE.replace("FACTOR = 2.0", "FACTOR = object()"))
