"""Collision detection: of MuJoCo's shapes in compiled code, and of convex shapes by how far they have to grow, in JAX.

>>> import tangens as tg
>>> ball, floor = tg.geometry.sphere(0.1), tg.geometry.HalfSpace([0.0, 0.0, 1.0])
>>> still = [1.0, 0.0, 0.0, 0.0]
>>> found = tg.collision.growth_distance(floor, ([0.0, 0.0, 0.0], still), ball, ([0.0, 0.0, 0.2], still))
>>> round(float(found.scale), 3), round(float(found.distance), 3)
(2.0, 0.1)
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tangens.collision.detection import Detection, growth_distance
else:

    def __getattr__(name: str) -> Any:
        """The growth distance, on its first use: it imports JAX, which the compiled code does without."""
        if name in __all__:
            from tangens.collision import detection

            return getattr(detection, name)
        raise AttributeError(f"module 'tangens.collision' has no attribute {name!r}")


__all__ = ["Detection", "growth_distance"]
