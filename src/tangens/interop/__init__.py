"""Doors to other libraries, each imported when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tangens.interop import jax

__all__ = ["jax"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"tangens.interop.{name}")
    raise AttributeError(f"module 'tangens.interop' has no attribute {name!r}")
