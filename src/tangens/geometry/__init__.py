"""Convex shapes as sets that scale, their sums and unions; and solids by their signed distances.

>>> import tangens as tg
>>> rounded = tg.geometry.MinkowskiSum(tg.geometry.box([0.2, 0.1, 0.1]), tg.geometry.sphere(0.02))
>>> rounded.n_rows, rounded.n_inner
(7, 3)
"""

from tangens.geometry.cloud_fields import CloudField, cloud_field
from tangens.geometry.composites import Bundle, MinkowskiSum, Placed, centred, parts
from tangens.geometry.decomposition import Decomposition, decompose
from tangens.geometry.field_unions import ConvexPolyhedra, Difference, Moved, Union
from tangens.geometry.geoms import from_geom, shapes_of
from tangens.geometry.hulls import convex_hull
from tangens.geometry.mesh_clouds import CloudFit, mesh_cloud
from tangens.geometry.oriented_points import OrientedPoints, quad_cloud
from tangens.geometry.polytopes import PaddedPolytope, Polytope, box, corners
from tangens.geometry.primitive_clouds import primitive_cloud
from tangens.geometry.primitive_fits import PrimitiveFit
from tangens.geometry.primitives import Capsule, Cone, Cylinder, Ellipsoid, HalfSpace, ellipsoid, sphere
from tangens.geometry.shape import Shape, kind
from tangens.geometry.signed_distances import BoxField, CylinderField, PlaneField, SegmentField
from tangens.geometry.soft_distance import flat_kernels, kernel_distance, soft_distance
from tangens.geometry.solids import Solid, hull_solid, mesh_edges, solid_of_geom
from tangens.geometry.superquadrics import Superquadrics, superquadric

__all__ = [
    "BoxField",
    "Bundle",
    "Capsule",
    "CloudField",
    "CloudFit",
    "Cone",
    "ConvexPolyhedra",
    "Cylinder",
    "CylinderField",
    "Decomposition",
    "Difference",
    "Ellipsoid",
    "HalfSpace",
    "MinkowskiSum",
    "Moved",
    "OrientedPoints",
    "PaddedPolytope",
    "Placed",
    "PlaneField",
    "Polytope",
    "PrimitiveFit",
    "SegmentField",
    "Shape",
    "Solid",
    "Superquadrics",
    "Union",
    "box",
    "centred",
    "cloud_field",
    "convex_hull",
    "corners",
    "decompose",
    "ellipsoid",
    "flat_kernels",
    "from_geom",
    "hull_solid",
    "kernel_distance",
    "kind",
    "mesh_cloud",
    "mesh_edges",
    "parts",
    "primitive_cloud",
    "quad_cloud",
    "shapes_of",
    "soft_distance",
    "solid_of_geom",
    "sphere",
    "superquadric",
]
