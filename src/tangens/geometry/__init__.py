"""Convex shapes as sets that scale, their sums and unions.

>>> import tangens as tg
>>> rounded = tg.geometry.MinkowskiSum(tg.geometry.box([0.2, 0.1, 0.1]), tg.geometry.sphere(0.02))
>>> rounded.n_rows, rounded.n_inner
(7, 3)
"""

from tangens.geometry.composites import Bundle, MinkowskiSum, Placed, centred, parts
from tangens.geometry.geoms import from_geom, shapes_of
from tangens.geometry.hulls import convex_hull
from tangens.geometry.polytopes import PaddedPolytope, Polytope, box, corners
from tangens.geometry.primitives import Capsule, Cone, Cylinder, Ellipsoid, HalfSpace, ellipsoid, sphere
from tangens.geometry.shape import Shape, kind

__all__ = [
    "Bundle",
    "Capsule",
    "Cone",
    "Cylinder",
    "Ellipsoid",
    "HalfSpace",
    "MinkowskiSum",
    "PaddedPolytope",
    "Placed",
    "Polytope",
    "Shape",
    "box",
    "centred",
    "convex_hull",
    "corners",
    "ellipsoid",
    "from_geom",
    "kind",
    "parts",
    "shapes_of",
    "sphere",
]
