"""One description of what is simulated: loading, checking, varying it."""

from tangens.scene.loading import load
from tangens.scene.scene import Scene

__all__ = ["Scene", "load"]
