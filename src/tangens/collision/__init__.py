"""Collision detection: of MuJoCo's shapes in compiled code, and of convex shapes by how far they have to grow, in JAX.

>>> import tangens as tg
>>> ball, floor = tg.geometry.sphere(0.1), tg.geometry.HalfSpace([0.0, 0.0, 1.0])
>>> still = [1.0, 0.0, 0.0, 0.0]
>>> found = tg.collision.growth_distance(floor, ([0.0, 0.0, 0.0], still), ball, ([0.0, 0.0, 0.2], still))
>>> round(float(found.scale), 3), round(float(found.distance), 3)
(2.0, 0.1)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_WHERE = {
    "Detection": "detection",
    "Manifold": "pair_manifold",
    "Smoothing": "pair_manifold",
    "growth_distance": "detection",
    "manifold": "manifolds",
    "selection_sizes": "kept_counts",
}

if TYPE_CHECKING:
    from tangens.collision.detection import Detection, growth_distance
    from tangens.collision.kept_counts import selection_sizes
    from tangens.collision.manifolds import manifold
    from tangens.collision.pair_manifold import Manifold, Smoothing
else:

    def __getattr__(name: str) -> Any:
        """What is in JAX, on its first use: the compiled code does without it."""
        if name in _WHERE:
            return getattr(import_module(f"tangens.collision.{_WHERE[name]}"), name)
        raise AttributeError(f"module 'tangens.collision' has no attribute {name!r}")


__all__ = ["Detection", "Manifold", "Smoothing", "growth_distance", "manifold", "selection_sizes"]
